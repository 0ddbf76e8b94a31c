from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Context, Database, Document, InvalidInput
from mcpvectordb.joint.grep import compiled, lines
from tests.support import Letters


def found(pattern: str, text: str, **options: Any) -> list[tuple[int, str]]:
    how = {"literal": False, "case_sensitive": True, **options}
    return list(lines(compiled(pattern, **how), text))


@given(
    st.text("ab\nä€ ", max_size=60), st.sampled_from(["a", "^a", "b$", "^$", "a.b", "ä+", "a|b"])
)
def test_lines_are_those_of_python(text: str, pattern: str) -> None:
    expected = [
        (number, line)
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
        if re.search(pattern, line)
    ]
    assert found(pattern, text) == (expected if text else [])


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_a_literal_is_found_as_it_is(part: str) -> None:
    if part.strip():
        assert found(part, f"x\ny{part}z", literal=True) == [(2, f"y{part}z")]


def test_a_match_never_crosses_a_line() -> None:
    assert found(r"a\sb", "a\nb") == []
    assert found("[^x]*z", "a\nbz") == [(2, "bz")]


def test_case_can_be_ignored() -> None:
    assert found("TEA", "green tea", case_sensitive=False) == [(1, "green tea")]


@pytest.mark.parametrize(
    "pattern", ["", " ", "(", "(?=a)", r"(a)\1", "a{1001}", "a\nb", "a" * 1001]
)
def test_what_re2_cannot_run_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="pattern"):
        compiled(pattern, literal=False, case_sensitive=True)


def test_a_pattern_that_explodes_elsewhere_is_harmless() -> None:
    assert found("(a+)+$", "a" * 50_000 + "b") == []


@pytest.fixture
def filled(db: Database) -> Database:
    db.documents.ingest_text("# Tea\n\nGreen tea\nBlack tea\n", source="tea.md")
    db.documents.ingest_text("tea in a library", source="other.md", library="work")
    db.contexts.add("kitchen", "user", "first\nI like tea")
    return db


def test_documents_and_contexts_are_searched_in_their_order(filled: Database) -> None:
    matches = filled.grep("tea")
    assert [(type(each.item), each.line, each.text) for each in matches] == [
        (Document, 3, "Green tea"),
        (Document, 4, "Black tea"),
        (Document, 1, "tea in a library"),
        (Context, 2, "I like tea"),
    ]
    assert (matches.total, matches.searched, matches.note) == (4, 3, "")


def test_the_limit_leaves_the_total(filled: Database) -> None:
    matches = filled.grep("tea", limit=1)
    assert (len(matches), matches.total) == (1, 4)


def test_filters_narrow_the_texts(filled: Database) -> None:
    assert filled.grep("tea", library="work").searched == 1
    assert filled.grep("tea", thread="kitchen").searched == 1
    assert filled.grep("tea", kind="contexts").total == 1


def test_a_deadline_leaves_a_note_and_what_was_found(path: Any) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("tea\n" * 5000, source="tea.txt")
    with Database(path, embedder=Letters(), config=Config(read_timeout=1e-9)) as late:
        matches = late.grep("tea")
        assert matches.total < 5000
        assert "not all texts were read" in matches.note
