from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Database, Document, InvalidInput, Memory, NotFound, ReadTimeout
from mcpvectordb.search import texts
from mcpvectordb.search.texts import (
    BASE,
    MAX_PROGRAM,
    WORK,
    LinePattern,
    QuotationPlace,
    compiled,
    find,
    fold,
    line_offsets,
)
from tests.support import Letters
from tests.support_deadline import counted_checks


def found(pattern: str, text: str, **options: Any) -> list[tuple[int, str]]:
    how = {"literal": False, "case_sensitive": True, **options}
    return list(compiled(pattern, **how).lines(text))


@given(
    st.text("ab\nä€ ", max_size=60), st.sampled_from(["a", "^a", "b$", "^$", "a.b", "ä+", "a|b"])
)
@example("", "^$")
@example("a\n\n", "^$")
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
@example("\nabab\nä", "ä+", 4)
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


# Quotations.

TEXT = (
    "# Tea\n\nGreen tea is brewed at 80 de-\ngrees. It is good.\n\n## Black\n\nBlack tea is hot.\n"
)
MEMORY = "We decided to drink green tea,\nand never coffee."


@pytest.fixture(scope="module")
def quoted() -> Iterator[Database]:
    with Database(":memory:", embedder=Letters()) as db:
        db.documents.ingest_text(TEXT, source="tea.md")
        db.documents.ingest_text("Coffee is brown. It is good.", source="coffee.md")
        db.memories.add("kitchen", "user", MEMORY)
        yield db


@st.composite
def parts(draw: st.DrawFn) -> tuple[str, str]:
    whole = draw(st.sampled_from([TEXT, MEMORY]))
    start = draw(st.integers(0, len(whole) - 1))
    part = whole[start : draw(st.integers(start + 1, len(whole)))]
    assume(any(map(str.isalnum, part)))
    return whole, part


@given(parts())
def test_any_part_of_a_stored_text_is_found_exactly_with_its_offsets(
    quoted: Database, given_: tuple[str, str]
) -> None:
    whole, part = given_
    name = {"document": "tea.md"} if whole == TEXT else {"memory": 1}
    found = quoted.verify(part, **name)  # type: ignore[arg-type]
    assert (found.status, found.exact, found.text) == ("exact", True, part)
    assert (found.start, found.end) == (whole.index(part), whole.index(part) + len(part))
    assert found.first_line == whole[: found.start].count("\n") + 1
    assert found.last_line == whole[: found.end].count("\n") + 1
    assert found.text_sha256 == hashlib.sha256(whole.encode()).hexdigest()
    assert quoted.verify(part).status == "exact"


@given(parts(), st.sampled_from(["\n", "  ", "\t", " \n\n "]))
def test_a_part_with_other_spacing_is_found_as_such(
    quoted: Database, given_: tuple[str, str], space: str
) -> None:
    part = given_[1].strip()
    assume(" " in part and not part.endswith("-"))  # half of a divided word is none
    changed = part.replace(" ", space)
    assume(changed not in TEXT and changed not in MEMORY)
    found = quoted.verify(changed)
    assert (found.status, found.exact) == ("spacing", False)
    assert found.text == part


@given(parts(), st.integers(0, 10**6))
def test_a_part_with_another_word_is_never_found(
    quoted: Database, given_: tuple[str, str], which: int
) -> None:
    words = given_[1].split()
    words[which % len(words)] = "xyzzy"
    found = quoted.verify(" ".join(words))
    assert (found.status, found.item, found.searched) == ("absent", None, 3)


def test_a_hyphen_at_the_end_of_a_line_may_be_gone(quoted: Database) -> None:
    found = quoted.verify("brewed at 80 degrees", document="tea.md")
    assert (found.status, found.first_line, found.last_line) == ("spacing", 3, 4)


def test_a_quotation_of_another_text_is_elsewhere(quoted: Database) -> None:
    found = quoted.verify("Coffee is brown", document="tea.md")
    assert found.status == "elsewhere" and found.exact
    assert isinstance(found.item, Document) and found.item.source == "coffee.md"
    memory = quoted.verify("never coffee", document="tea.md")
    assert memory.status == "elsewhere" and isinstance(memory.item, Memory)


def test_a_quotation_at_another_line_is_elsewhere_in_the_same_text(quoted: Database) -> None:
    assert quoted.verify("Black tea is hot", document="tea.md:8").status == "exact"
    assert quoted.verify("Black tea is hot", document="tea.md", line=8).status == "exact"
    found = quoted.verify("Black tea is hot", document="tea.md", line=3)
    assert (found.status, found.first_line) == ("elsewhere", 8)
    assert quoted.verify("Black tea is hot", document="tea.md", line=99).status == "elsewhere"


def test_of_several_places_the_stated_one_counts(db: Database) -> None:
    db.documents.ingest_text("tea\nmilk\ntea\n", source="list.md")
    assert db.verify("tea", document="list.md", line=3).first_line == 3
    assert db.verify("tea", document="list.md").first_line == 1


def test_an_absent_quotation_names_the_text_that_was_read(quoted: Database) -> None:
    found = quoted.verify("Green tea was brewed", document="tea.md")
    assert found.status == "absent"
    assert isinstance(found.item, Document)
    assert found.text_sha256 == hashlib.sha256(TEXT.encode()).hexdigest()


def test_pages_are_told_and_checked(db: Database, tmp_path: Path) -> None:
    import pymupdf

    with pymupdf.open() as document:
        for text in ("The first page is about tea.", "The second page is about milk."):
            document.new_page().insert_text((72, 72), text)
        document.save(tmp_path / "two.pdf")
    id = db.documents.ingest(tmp_path / "two.pdf").document.id
    found = db.verify("second page is about milk", document=id)
    assert (found.status, found.page) == ("exact", 2)
    assert db.verify("second page", document=id, page=2).status == "exact"
    assert db.verify("second page", document=id, page=1).status == "elsewhere"
    assert db.documents.page_lines(id, 2)[0] == found.first_line
    with pytest.raises(NotFound, match="last page with text is 2"):
        db.verify("second page", document=id, page=3)


@pytest.mark.parametrize("quotation", ["", "  \n", "- \u2013 -", "x" * 20_001])
def test_what_is_no_quotation_is_refused(quoted: Database, quotation: str) -> None:
    with pytest.raises(InvalidInput, match="quotation"):
        quoted.verify(quotation)


def test_an_unknown_place_is_an_error(quoted: Database) -> None:
    with pytest.raises(NotFound):
        quoted.verify("tea", document="nowhere.md")
    with pytest.raises(NotFound):
        quoted.verify("tea", memory=99)
    with pytest.raises(InvalidInput):
        quoted.verify("tea", line=3)


def test_a_deadline_is_noted(quoted: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> Iterator[texts.StoredText]:
        raise ReadTimeout("stopped")
        yield

    monkeypatch.setattr(texts, "stored_texts", late)
    found = quoted.verify("coffee")
    assert (found.status, found.note) == ("absent", "not all texts were read: stopped")


@given(st.text("a\n", max_size=20), st.integers(-1, 9), st.integers(0, 5))
def test_lines_have_the_offsets_of_their_text(text: str, first: int, count: int) -> None:
    start, end = line_offsets(text, first, count)
    wanted = text.splitlines(keepends=True)[max(1, first) - 1 :][: max(1, count)]
    assert text[start:end] == "".join(wanted)


@pytest.mark.parametrize(
    ("text", "quotation"),
    [
        ("an exam-\n  ple of it", "an example of it"),
        ("an example of it", "an exam-\nple of it"),
        ("a long-term plan", "a longterm plan"),
        ("it\u00ad is soft\u00adly", "softly"),
        ("she said \u201cno\u201d", 'said "no"'),
        ("it\u2019s", "it's"),
        ("the \ufb01rst", "the first"),
        ("1990\u20131995", "1990-1995"),
        ("and so on\u2026", "so on..."),
        ("one\n\ntwo", "one two"),
    ],
)
def test_hyphens_marks_and_ligatures_may_differ(text: str, quotation: str) -> None:
    found = find(text, quotation)
    assert found is not None and not found.exact
    assert fold(text[found.start : found.end])[0].strip() == fold(quotation)[0].strip()


@pytest.mark.parametrize("quotation", ["the End", "theend", "the  ends", "no", " \n "])
def test_other_words_cases_and_blanks_are_not_found(quotation: str) -> None:
    assert find("this is the end", quotation) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_every_character_of_the_folded_text_has_its_offset(text: str) -> None:
    folded, offsets = fold(text)
    assert len(folded) == len(offsets)
    assert offsets == sorted(offsets)
    assert all(0 <= each < len(text) for each in offsets)


def test_the_first_place_is_found() -> None:
    assert find("a b a b", "a b") == QuotationPlace(0, 3, True)


def test_a_quotation_in_other_case_is_found_as_such(db: Database) -> None:
    db.documents.ingest_text("# Tea\n\nGreen Tea is\ngood. İt is.", source="tea.md")
    found = db.verify("green tea is good")
    assert (found.status, found.case, found.text) == ("case", False, "Green Tea is\ngood")
    assert db.verify("green tea", document="tea.md:3").status == "case"
    away = db.verify("green tea", document="tea.md:1")
    assert (away.status, away.case, away.first_line) == ("elsewhere", False, 3)
    assert db.verify("GOOD. İT IS").text == "good. İt is"
    db.documents.ingest_text("green tea", source="exact.md")
    assert (db.verify("green tea").status, db.verify("green tea").case) == ("exact", True)
    assert db.verify("green tee").status == "absent"
