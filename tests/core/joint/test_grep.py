from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Database, Document, InvalidInput, Memory
from mcpvectordb.joint.grep import BASE, MAX_PROGRAM, WORK, LinePattern, compiled
from tests.support import Letters
from tests.support_deadline import counted_checks


def found(pattern: str, text: str, **options: Any) -> list[tuple[int, str]]:
    how = {"literal": False, "case_sensitive": True, **options}
    return list(compiled(pattern, **how).lines(text))


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


@pytest.mark.parametrize("pattern", [r"\pL{30}", "|".join(["a.{0,90}z"] * 60), r"\pL" * 300])
def test_a_pattern_whose_program_is_too_long_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match=r"pattern .* (too costly|too large)"):
        compiled(pattern, literal=False, case_sensitive=False)


class Searched:
    """A compiled expression that counts the work of each search; `parts` are what was searched."""

    def __init__(self, expression: Any) -> None:
        self.expression, self.parts = expression, list[tuple[int, int]]()

    def search(self, data: bytes, start: int, end: int) -> Any:
        self.parts.append((start, end))
        return self.expression.search(data, start, end)


def searched(pattern: LinePattern) -> Searched:
    pattern._expression = seen = Searched(pattern._expression)
    return seen


ATOMS = st.sampled_from(["a", "b", ".", "[^a]", r"\w", r"\pL", "(?:a|b)", "^", "$", r"\b", "ä"])
COUNTS = st.sampled_from(["", "*", "+", "?", "{0,9}", "{12}", "{0,200}", "{500}"])
PATTERNS = st.recursive(
    st.lists(st.tuples(ATOMS, COUNTS).map("".join), min_size=1, max_size=4).map("".join),
    lambda inner: st.tuples(inner, COUNTS).map(lambda each: f"(?:{each[0]}){each[1]}"),
    max_leaves=3,
)


@given(PATTERNS, st.lists(st.text("ab ä", max_size=30), max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_work_between_two_looks_at_the_deadline_is_bounded(
    pattern: str, ends: list[str], case_sensitive: bool
) -> None:
    try:
        made = compiled(pattern, literal=False, case_sensitive=case_sensitive)
    except InvalidInput:
        return
    size = max(made._expression.programsize, made._expression.reverseprogramsize)
    assert size <= MAX_PROGRAM
    assert made.piece >= WORK // (MAX_PROGRAM + BASE)
    made.piece = min(made.piece, 64)  # so that the texts need not be long
    seen = searched(made)
    with counted_checks() as counted:
        list(made.lines("\n".join("ab" * 5 * len(end) + end for end in ends)))
    assert counted.seen.total() == len(seen.parts)
    assert all(end - start <= made.piece for start, end in seen.parts)


@given(
    st.lists(st.text("abä€", max_size=12), max_size=8).map("\n".join),
    st.sampled_from(["a", "^a", "b$", "^$", "a.b", "ä+", r"\bb", "a|b", r"€\z", "(?:ä|€)b?"]),
    st.integers(4, 40),
)
def test_pieces_of_lines_change_nothing(text: str, pattern: str, piece: int) -> None:
    made = compiled(pattern, literal=False, case_sensitive=True)
    whole = list(made.lines(text))
    made.piece = piece
    longest = max((len(line.encode()) for line in text.split("\n")), default=0)
    if longest <= piece:
        assert list(made.lines(text)) == whole
        assert made.unsure == 0
    else:  # all that is found is there, and what is not is told of
        some = list(made.lines(text))
        assert set(some) <= set(whole)
        assert made.unsure or some == whole


def test_a_match_in_a_long_line_is_found_wherever_it_stands_unless_it_is_longer_than_half_a_piece(
    db: Database,
) -> None:
    made = compiled("x.{48}y", literal=False, case_sensitive=True)
    made.piece = 100
    for before in range(0, 300, 7):
        line = "-" * before + "x" + "-" * 48 + "y" + "-" * (300 - before)
        assert list(made.lines(f"first\n{line}\nlast")) == [(2, line)]
    assert made.unsure == 0
    longer = compiled("x.{148}y", literal=False, case_sensitive=True)
    longer.piece = 100
    line = "-" * 60 + "x" + "-" * 148 + "y" + "-" * 99
    assert list(longer.lines(line)) == []
    assert longer.unsure == 1


def test_a_line_that_was_searched_in_pieces_is_noted(db: Database) -> None:
    db.documents.ingest_text("tea " * 30_000, source="long.txt", embed=False)
    matches = db.grep(r"x\pL{0,20}y")
    assert matches.total == 0
    assert "1 lines of more than" in matches.note
    assert db.grep("y" * 400, literal=True).note == ""  # half a piece is longer than a match
    assert db.grep(r"tea x?\pL{0,20}").note == ""  # it was found


@pytest.fixture
def filled(db: Database) -> Database:
    db.documents.ingest_text("# Tea\n\nGreen tea\nBlack tea\n", source="tea.md")
    db.documents.ingest_text("tea in a library", source="other.md", library="work")
    db.memories.add("kitchen", "user", "first\nI like tea")
    return db


def test_documents_and_memories_are_searched_in_their_order(filled: Database) -> None:
    matches = filled.grep("tea")
    assert [(type(each.item), each.line, each.text) for each in matches] == [
        (Document, 3, "Green tea"),
        (Document, 4, "Black tea"),
        (Document, 1, "tea in a library"),
        (Memory, 2, "I like tea"),
    ]
    assert (matches.total, matches.searched, matches.note) == (4, 3, "")


def test_the_limit_leaves_the_total(filled: Database) -> None:
    matches = filled.grep("tea", limit=1)
    assert (len(matches), matches.total) == (1, 4)


def test_filters_narrow_the_texts(filled: Database) -> None:
    assert filled.grep("tea", library="work").searched == 1
    assert filled.grep("tea", thread="kitchen").searched == 1
    assert filled.grep("tea", kind="memories").total == 1


def test_a_deadline_leaves_a_note_and_what_was_found(path: Any) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("tea\n" * 5000, source="tea.txt")
    with Database(path, embedder=Letters(), config=Config(read_timeout=1e-9)) as late:
        matches = late.grep("tea")
        assert matches.total < 5000
        assert "not all texts were read" in matches.note
