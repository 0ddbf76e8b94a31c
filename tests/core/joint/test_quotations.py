from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcpvectordb import Database, Document, InvalidInput, Memory, NotFound, ReadTimeout
from mcpvectordb.joint.quotations import QuotationSearch, line_offsets
from mcpvectordb.joint.texts import StoredText, StoredTexts
from tests.support import Letters

TEXT = (
    "# Tea\n\nGreen tea is brewed at 80 de-\ngrees. It is good.\n\n## Black\n\nBlack tea is hot.\n"
)
MEMORY = "We decided to drink green tea,\nand never coffee."


@pytest.fixture(scope="module")
def filled() -> Iterator[Database]:
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
    filled: Database, given_: tuple[str, str]
) -> None:
    whole, part = given_
    name = {"document": "tea.md"} if whole == TEXT else {"memory": 1}
    found = filled.verify(part, **name)  # type: ignore[arg-type]
    assert (found.status, found.exact, found.text) == ("exact", True, part)
    assert (found.start, found.end) == (whole.index(part), whole.index(part) + len(part))
    assert found.first_line == whole[: found.start].count("\n") + 1
    assert found.last_line == whole[: found.end].count("\n") + 1
    assert found.text_sha256 == hashlib.sha256(whole.encode()).hexdigest()
    assert filled.verify(part).status == "exact"


@given(parts(), st.sampled_from(["\n", "  ", "\t", " \n\n "]))
def test_a_part_with_other_spacing_is_found_as_such(
    filled: Database, given_: tuple[str, str], space: str
) -> None:
    part = given_[1].strip()
    assume(" " in part)
    changed = part.replace(" ", space)
    assume(changed not in TEXT and changed not in MEMORY)
    found = filled.verify(changed)
    assert (found.status, found.exact) == ("spacing", False)
    assert found.text == part


@given(parts(), st.integers(0, 10**6))
def test_a_part_with_another_word_is_never_found(
    filled: Database, given_: tuple[str, str], which: int
) -> None:
    words = given_[1].split()
    words[which % len(words)] = "xyzzy"
    found = filled.verify(" ".join(words))
    assert (found.status, found.item, found.searched) == ("absent", None, 3)


def test_a_hyphen_at_the_end_of_a_line_may_be_gone(filled: Database) -> None:
    found = filled.verify("brewed at 80 degrees", document="tea.md")
    assert (found.status, found.first_line, found.last_line) == ("spacing", 3, 4)


def test_a_quotation_of_another_text_is_elsewhere(filled: Database) -> None:
    found = filled.verify("Coffee is brown", document="tea.md")
    assert found.status == "elsewhere" and found.exact
    assert isinstance(found.item, Document) and found.item.source == "coffee.md"
    memory = filled.verify("never coffee", document="tea.md")
    assert memory.status == "elsewhere" and isinstance(memory.item, Memory)


def test_a_quotation_at_another_line_is_elsewhere_in_the_same_text(filled: Database) -> None:
    assert filled.verify("Black tea is hot", document="tea.md:8").status == "exact"
    assert filled.verify("Black tea is hot", document="tea.md", line=8).status == "exact"
    found = filled.verify("Black tea is hot", document="tea.md", line=3)
    assert (found.status, found.first_line) == ("elsewhere", 8)
    assert filled.verify("Black tea is hot", document="tea.md", line=99).status == "elsewhere"


def test_of_several_places_the_stated_one_counts(db: Database) -> None:
    db.documents.ingest_text("tea\nmilk\ntea\n", source="list.md")
    assert db.verify("tea", document="list.md", line=3).first_line == 3
    assert db.verify("tea", document="list.md").first_line == 1


def test_an_absent_quotation_names_the_text_that_was_read(filled: Database) -> None:
    found = filled.verify("Green tea was brewed", document="tea.md")
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
def test_what_is_no_quotation_is_refused(filled: Database, quotation: str) -> None:
    with pytest.raises(InvalidInput, match="quotation"):
        filled.verify(quotation)


def test_an_unknown_place_is_an_error(filled: Database) -> None:
    with pytest.raises(NotFound):
        filled.verify("tea", document="nowhere.md")
    with pytest.raises(NotFound):
        filled.verify("tea", memory=99)
    with pytest.raises(InvalidInput):
        filled.verify("tea", line=3)


class Late(StoredTexts):
    """StoredTexts that cannot be read in time."""

    def all(self, *_: object) -> Iterator[StoredText]:
        raise ReadTimeout("stopped")
        yield


def test_a_deadline_is_noted(filled: Database) -> None:
    with filled._file.reading() as sql:
        found = QuotationSearch(sql, Late(*filled._indexes), "coffee").verify(None)
    assert (found.status, found.note) == ("absent", "not all texts were read: stopped")


@given(st.text("a\n", max_size=20), st.integers(-1, 9), st.integers(0, 5))
def test_lines_have_the_offsets_of_their_text(text: str, first: int, count: int) -> None:
    start, end = line_offsets(text, first, count)
    wanted = text.splitlines(keepends=True)[max(1, first) - 1 :][: max(1, count)]
    assert text[start:end] == "".join(wanted)
