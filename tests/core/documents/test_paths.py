from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Database, InvalidInput, NotFound
from mcpvectordb.documents import paths
from mcpvectordb.documents.paths import MOST_ALTERNATIVES
from mcpvectordb.documents.rows import path as shown
from tests.support import Letters, scaled


@pytest.fixture
def notes(db: Database, tmp_path: Path) -> Path:
    """A library `notes` that follows a folder, and some texts beside it."""
    root = tmp_path / "Notes"
    for name, text in (
        ("tea.md", "# Tea\n\nwater\n"),
        ("2025/meeting one.md", "# Meeting\n"),
        ("2025/tea.md", "# Other tea\n"),
        ("a_b.md", "under\n"),
        ("axb.md", "score\n"),
        ("100%.md", "percent\n"),
        ("odd:12", "odd name\n"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    db.documents.add_library("notes", root)
    db.documents.sync(embed=False)
    db.documents.ingest_text("kettle", source="plain.md", embed=False)
    db.documents.ingest_text("page", source="https://example.org/a/b", library="web", embed=False)
    return root


def path(db: Database, name: str) -> str:
    return db.documents.lookup(name).document.path


def test_a_path_is_the_library_and_the_place_in_its_folder(db: Database, notes: Path) -> None:
    assert {each.path for each in db.documents.browse(limit=100)} == {
        "notes/tea.md",
        "notes/2025/meeting one.md",
        "notes/2025/tea.md",
        "notes/a_b.md",
        "notes/axb.md",
        "notes/100%.md",
        "notes/odd:12",
        "default/plain.md",
        "web/https://example.org/a/b",
    }


def test_a_file_outside_of_the_folder_is_shown_with_its_whole_path(
    db: Database, notes: Path, tmp_path: Path
) -> None:
    file = tmp_path / "elsewhere.md"
    file.write_text("else\n")
    done = db.documents.ingest(file, library="notes", embed=False)
    assert done.document.path == f"notes{file}"
    assert path(db, done.document.path) == done.document.path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("notes/tea.md", "notes/tea.md"),
        ("tea.md", "notes/tea.md"),
        ("2025/tea.md", "notes/2025/tea.md"),
        ("meeting one.md", "notes/2025/meeting one.md"),
        (" 'notes/tea.md' ", "notes/tea.md"),
        ("plain.md", "default/plain.md"),
        ("default/plain.md", "default/plain.md"),
        ("https://example.org/a/b", "web/https://example.org/a/b"),
        ("example.org/a/b", "web/https://example.org/a/b"),
        ("a_b.md", "notes/a_b.md"),
        ("notes/odd:12", "notes/odd:12"),
        ("./tea.md", "notes/tea.md"),
    ],
)
def test_a_document_is_found_by_its_path_or_the_end_of_it(
    db: Database, notes: Path, name: str, expected: str
) -> None:
    assert path(db, name) == expected


def test_a_document_is_found_by_file_id_and_hash(
    db: Database, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = db.documents.lookup("notes/tea.md").document
    digest = hashlib.sha256((notes / "tea.md").read_bytes()).hexdigest()
    monkeypatch.setenv("HOME", str(notes))
    by_hash = (f"#{digest[:6]}", digest[:6].upper(), f'"#{digest[:9]}"', digest)
    for name in (str(notes / "tea.md"), "~/tea.md", document.id, *by_hash):
        assert db.documents.lookup(name).document == document


@pytest.mark.parametrize(
    "name",
    [
        "ea.md",
        "a%b.md",
        "%",
        "_",
        "",
        "/",
        "#",
        "#123",
        "#zzzzzz",
        "other/tea.md",
        "notes",
        "notes/",
        "NOTES/tea.md",
        "..",
        "\x00",
    ],
)
def test_an_unknown_name_is_not_found(db: Database, notes: Path, name: str) -> None:
    with pytest.raises(NotFound):
        db.documents.lookup(name)


def test_an_error_repeats_only_the_beginning_of_a_long_name(db: Database) -> None:
    long = "é" * 1_000_000
    for lookup in (
        db.documents.lookup,
        db.documents.get,
        db.documents.sync,
        lambda name: db.documents.describe(name, "", "x"),
        lambda name: db.vectors.get(name),
        lambda name: db.documents.search("x", unit=name),
    ):
        with pytest.raises((NotFound, InvalidInput), match="ééé") as error:
            lookup(long)
        assert len(str(error.value)) < 1000


def test_a_name_may_end_with_a_line_and_a_number_of_lines(db: Database, notes: Path) -> None:
    place = db.documents.lookup("tea.md:120")
    assert (place.document.path, place.line, place.lines) == ("notes/tea.md", 120, None)
    place = db.documents.lookup("notes/tea.md:120:20")
    assert (place.line, place.lines) == (120, 20)
    digest = place.document.hash[:6]
    assert db.documents.lookup(f"#{digest}:7").line == 7
    assert db.documents.lookup("notes/odd:12").line is None
    assert db.documents.lookup("notes/odd:12:3").line == 3


def test_a_hash_of_two_equal_files_finds_the_first(db: Database, notes: Path) -> None:
    first = db.documents.ingest_text("same", source="one.md", embed=False).document
    db.documents.ingest_text("same", source="two.md", embed=False)
    assert db.documents.lookup(f"#{first.hash[:6]}").document == first


def test_a_path_of_two_documents_finds_the_newest(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("text\n")
    db.documents.ingest(file, embed=False)
    newest = db.documents.ingest(file, embed=False, duplicate=True).document
    assert db.documents.lookup(newest.path).document == newest


def test_similar_names_are_suggested_and_all_of_them_can_be_found(
    db: Database, notes: Path
) -> None:
    assert db.documents.suggest("meetng one.md") == ["notes/2025/meeting one.md"]
    assert db.documents.suggest("nots/tea.md:12")[0] == "notes/tea.md"
    assert db.documents.suggest("#abcdef") == []
    for name in ("te.md", "notes/axc.md", "100.md", "plane.md"):
        suggested = db.documents.suggest(name)
        assert suggested and all(path(db, each) == each for each in suggested)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("notes/*.md", ["100%.md", "a_b.md", "axb.md", "tea.md"]),
        ("2025/*.md", ["2025/meeting one.md", "2025/tea.md"]),
        ("**/tea.md", ["2025/tea.md", "tea.md"]),
        ("notes/{tea,axb}.md", ["axb.md", "tea.md"]),
        ("notes/a?b.md", ["a_b.md", "axb.md"]),
        ("*.txt", []),
        ("notes/2025/**", ["2025/meeting one.md", "2025/tea.md"]),
    ],
)
def test_a_pattern_matches_paths_with_and_without_the_library(
    db: Database, notes: Path, pattern: str, expected: list[str]
) -> None:
    assert [each.path for each in db.documents.matching(pattern) if each.library == "notes"] == [
        f"notes/{each}" for each in expected
    ]


def test_of_many_documents_that_match_the_first_ones_by_path_are_returned(
    db: Database, notes: Path
) -> None:
    everything = db.documents.matching("**")
    assert len(everything) > 3
    assert db.documents.matching("**", limit=3) == everything[:3]
    assert db.documents.matching("**", limit=0) == []


def test_an_invalid_pattern_is_refused(db: Database) -> None:
    alternatives = ",".join(map(str, range(MOST_ALTERNATIVES)))
    assert db.documents.matching(f"{{{alternatives}}}") == []
    for pattern in ("a[", "{a", "", " ", f"{{{alternatives},x}}"):
        with pytest.raises(InvalidInput):
            db.documents.matching(pattern)


@settings(max_examples=scaled(40))
@given(
    library=st.text("ab/ :#\"'", min_size=1, max_size=6).filter(str.strip),
    source=st.text("ab/ :1#%\"'~\\", min_size=1, max_size=8).filter(str.strip),
)
def test_every_document_is_found_by_its_path(library: str, source: str) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        document = db.documents.ingest_text(
            "x", source=source, library=library, embed=False
        ).document
        assert db.documents.lookup(document.path).document == document


def test_a_path_is_relative_only_inside_of_the_folder() -> None:
    assert shown("n", "/a/b/c.md", "/a/b") == "n/c.md"
    assert shown("n", "/a/bc.md", "/a/b") == "n/a/bc.md"
    assert shown("n", "/a/b/c.md", "") == "n/a/b/c.md"


def test_text_bytes_is_the_size_of_the_text_in_utf_8(db: Database) -> None:
    id = db.documents.ingest_text("naïve 数据库\n" * 300, source="a", embed=False).document.id
    assert db.documents.text_bytes(id) == len(db.documents.text(id).encode())


def test_coverage_puts_each_document_into_one_group(db: Database, path: Path) -> None:
    def groups() -> tuple[int, int, int, int]:
        found = db.documents.coverage()
        counts = (found.embedded, found.partly, found.waiting, found.empty)
        assert sum(counts) == db.documents.count()
        return counts

    assert groups() == (0, 0, 0, 0)
    db.documents.ingest_text("one", source="one")
    db.documents.ingest_text("two", source="two", embed=False)
    assert groups() == (1, 0, 1, 0)
    db.documents.ingest_text("one two three four.\n\n" * 200, source="both", embed=False)
    with apsw.Connection(str(path)) as other:
        other.execute("DELETE FROM document_pending WHERE chunk = 3")
        other.execute("DELETE FROM document_chunks WHERE owner = 1")
    assert groups() == (0, 1, 1, 1)


def test_coverage_counts_copies_and_the_contents_that_wait(db: Database) -> None:
    def contents() -> tuple[int, int, int]:
        found = db.documents.coverage()
        return found.embedded, found.copies, found.contents_waiting

    db.documents.ingest_text("one", source="one")
    db.documents.ingest_text("two", source="two", embed=False)
    db.documents.ingest_text("two", source="copy of two", embed=False)
    assert contents() == (1, 1, 1)
    db.documents.ingest_text("one", source="copy of one", embed=False)
    assert contents() == (1, 2, 1)
    db.embed_pending()
    assert contents() == (4, 2, 0)


def test_many_names_are_found_like_one_by_one(db: Database, notes: Path) -> None:
    names = [
        "tea.md",
        "/tea.md",
        "2025/tea.md",
        "notes/tea.md:2:1",
        "'plain.md'",
        "odd:12",
        "b",
        "a/b",
        str(notes / "axb.md"),
        "missing.md",
        "missing.md:3",
        "/",
        "",
        "tea.md",
    ]

    def alone(name: str) -> object:
        try:
            return db.documents.lookup(name)
        except NotFound:
            return None

    assert db.documents.lookup(names) == [alone(name) for name in names]
    assert db.documents.lookup([]) == []


def test_many_names_read_all_paths_once(
    db: Database, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = []

    def counted(*arguments: Any) -> Any:
        scans.append(arguments)
        return listed(*arguments)

    listed = paths._paths
    monkeypatch.setattr(paths, "_paths", counted)
    missing = [f"missing-{number}.md:{number}" for number in range(200)]
    assert db.documents.lookup([*missing, "b", "tea.md"])[:200] == [None] * 200
    assert len(scans) == 1


def test_the_candidates_of_a_name_are_all_documents_that_it_may_mean(
    db: Database, notes: Path
) -> None:
    db.documents.ingest(notes / "tea.md", library="copy", embed=False)
    tea = db.documents.lookup("notes/tea.md").document

    def paths(name: str) -> list[str]:
        [places] = db.documents.candidates([name])
        assert [each.document for each in places][:1] == [
            each.document for each in db.documents.lookup([name]) if each
        ]
        return [each.document.path for each in places]

    copied = f"copy{notes / 'tea.md'}"
    assert paths("notes/tea.md") == paths(tea.id) == ["notes/tea.md"]
    assert sorted(paths("tea.md")) == sorted(["notes/tea.md", copied, "notes/2025/tea.md"])
    assert sorted(paths(str(notes / "tea.md"))) == sorted(["notes/tea.md", copied])
    assert sorted(paths(f"#{tea.hash[:8]}")) == sorted(["notes/tea.md", copied])
    assert paths("2025/tea.md") == ["notes/2025/tea.md"]
    assert paths("nothing.md") == []
