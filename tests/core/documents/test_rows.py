from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Database, DocumentHeading, InvalidFilter, InvalidInput, NotFound
from mcpvectordb.documents import rows
from mcpvectordb.documents.rows import MOST_ALTERNATIVES
from mcpvectordb.documents.rows import path as shown
from mcpvectordb.index.tuning import Tuning
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


UNKNOWN = ["", "..", "\x00", "/", "#", "#123", "#zzzzzz", "%", "_", "a%b.md", "ea.md", "notes"]


@pytest.mark.parametrize("name", [*UNKNOWN, "notes/", "NOTES/tea.md", "other/tea.md"])
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


def test_coverage_puts_each_document_into_one_group_and_counts_identical_ones(
    db: Database, path: Path
) -> None:
    def covered() -> tuple[int, ...]:
        found = db.documents.coverage()
        groups = (found.embedded, found.partly_embedded, found.waiting, found.empty)
        assert sum(groups) == db.documents.count()
        return *groups, found.identical, found.distinct_waiting

    assert covered() == (0, 0, 0, 0, 0, 0)
    db.documents.ingest_text("one", source="one")
    db.documents.ingest_text("two", source="two", embed=False)
    db.documents.ingest_text("two", source="copy of two", embed=False)
    assert covered() == (1, 0, 2, 0, 1, 1)
    db.documents.ingest_text("one", source="copy of one", embed=False)
    assert covered() == (1, 0, 3, 0, 2, 1)
    db.embed_pending()
    assert covered() == (4, 0, 0, 0, 2, 0)
    db.documents.ingest_text("one two three four.\n\n" * 200, source="both", embed=False)
    with apsw.Connection(str(path)) as other:
        other.execute("DELETE FROM document_pending WHERE chunk = 5")
        other.execute("DELETE FROM document_chunks WHERE owner = 1")
    assert covered() == (3, 1, 0, 1, 2, 1)


def test_many_names_are_found_like_one_by_one(db: Database, notes: Path) -> None:
    known = ["tea.md", "/tea.md", "2025/tea.md", "notes/tea.md:2:1", "'plain.md'", "odd:12", "b"]
    names = [*known, *UNKNOWN, "a/b", str(notes / "axb.md"), "missing.md:3", "tea.md"]

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

    listed = rows._paths
    monkeypatch.setattr(rows, "_paths", counted)
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


def test_the_outline_has_headings_with_their_lines(db: Database) -> None:
    text = "---\nkey: value\n---\n# Tea\n\ntext\n\n```\n# no heading\n```\n\n## Green *tea*\n\nBlack\n-----\n"
    id = db.documents.ingest_text(text, source="tea.md").document.id
    assert db.documents.outline(id) == [
        DocumentHeading(line=4, level=1, title="Tea"),
        DocumentHeading(line=12, level=2, title="Green tea"),
        DocumentHeading(line=14, level=2, title="Black"),
    ]


def test_a_document_without_pages_says_so(db: Database) -> None:
    id = db.documents.ingest_text("tea", source="tea.md").document.id
    with pytest.raises(NotFound, match="no pages"):
        db.documents.page_lines(id, 1)
    with pytest.raises(NotFound):
        db.documents.outline("nothing")


def test_the_id_of_an_earlier_version_finds_the_present_one(db: Database) -> None:
    ids = [
        db.documents.ingest_text(f"tea {number}", source="tea.md").document.id
        for number in range(25)
    ]
    assert not db.documents.lookup(ids[-1]).former
    for old in ids[5:-1]:
        place = db.documents.lookup(f"{old}:1")
        assert (place.document.id, place.line, place.former) == (ids[-1], 1, True)
    with pytest.raises(NotFound):  # only the newest are kept
        db.documents.lookup(ids[0])
    assert db.documents.candidates([ids[-2]]) == [[]]
    with pytest.raises(NotFound):
        db.documents.get(ids[-2])


def test_former_ids_go_with_their_document_and_with_a_moved_one(
    db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "notes" / "tea.md"
    file.parent.mkdir()
    file.write_text("first version of some text")
    db.documents.add_library("notes", file.parent)
    db.documents.sync()
    old = db.documents.lookup("tea.md").document.id
    file.write_text("second version of some text")
    db.documents.sync()
    file.rename(file.with_name("renamed.md"))
    [done] = db.documents.sync()
    assert done.moved == 1
    assert db.documents.lookup(old).document.path == "notes/renamed.md"
    db.documents.delete(db.documents.lookup("renamed.md").document.id)
    with pytest.raises(NotFound):
        db.documents.lookup(old)
    assert db.check() == []


def test_a_long_document_that_was_replaced_is_found_by_its_former_id(path: Path) -> None:
    with Database(path, embedder=Letters(), tuning=Tuning(slice_chunks=2)) as db:
        old = db.documents.ingest_text("word " * 3000, source="long.md").document.id
        new = db.documents.ingest_text("other " * 3000, source="long.md").document.id
        assert db.documents.lookup(old).document.id == new
        assert db.check() == []


def filled(path: Path, count: int = 130) -> Database:
    db = Database(path, embedder=Letters())
    db.documents.ingest_many(
        [f"note {number} on {'tea' if number % 2 else 'pie'}" for number in range(count)],
        sources=[f"{number}.md" for number in range(count)],
        metadata=[{"number": number} for number in range(count)],
        library="notes",
    )
    db.documents.ingest_text("the other one on tea", source="other.md", library="other")
    return db


def test_documents_are_deleted_by_conditions(path: Path) -> None:
    with filled(path) as db:
        assert db.documents.delete(where={"metadata.number": {"gte": 10}}) == 120
        assert db.documents.delete(where={"metadata.number": {"gte": 10}}) == 0
        assert db.documents.delete(where={"source": "other.md"}, library="notes") == 0
        assert db.documents.count(library="notes") == 10 and db.documents.count() == 11
        found = db.documents.search("note tea", mode="text", limit=100)
        assert {hit.item.document.source for hit in found} == {
            *(f"{number}.md" for number in range(10)),
            "other.md",
        }
        assert db.documents.delete(library="notes") == 10
        assert [each.source for each in db.documents.browse()] == ["other.md"]
        assert db.check() == []


def test_a_condition_that_is_empty_or_wrong_deletes_nothing(path: Path) -> None:
    nothing: list[dict[str, Any]] = [{}, {"where": {}}, {"where": {}, "library": "notes"}]
    with filled(path, 3) as db:
        for given in (*nothing, {"where": []}):
            with pytest.raises(InvalidInput, match="delete needs ids, a condition"):
                db.documents.delete(**given)
        for where in ({"color": "red"}, {"size": {"gt": "abc"}}, {"page": 1}):
            with pytest.raises(InvalidFilter):
                db.documents.delete(where=where)
        with pytest.raises(InvalidInput):
            db.documents.delete(library="")
        assert db.documents.count() == 4


def test_a_document_that_stops_matching_meanwhile_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(path, 60) as db, Database(path, embedder=Letters()) as other:
        [last] = db.documents.browse(where={"source": "59.md"})
        pack = db.documents.unpublished.pack_long

        def between_transactions(keys: Sequence[int]) -> dict[int, bytes]:
            other.documents.update(last.id, metadata={"number": -1})
            return pack(keys)

        monkeypatch.setattr(db.documents.unpublished, "pack_long", between_transactions)
        assert db.documents.delete(where={"metadata.number": {"gte": 0}}) == 59
        assert db.documents.get(last.id).metadata == {"number": -1}


def test_the_passages_of_a_document_are_read_in_their_order_and_by_pages(db: Database) -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + f"word{n} " * 150 for n in range(5))
    id = db.documents.ingest_text(text, source="long.md").document.id
    chunks = db.documents.chunks(id)
    assert len(chunks) == db.documents.get(id).chunks > 4
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert db.documents.chunks(id, limit=2, offset=1) == chunks[1:3]
    ids = [chunks[2].id, 10**9, chunks[0].id]
    assert db.documents.chunks_by_ids(ids) == [chunks[2], chunks[0]]
    with pytest.raises(NotFound):
        db.documents.chunks("no id")


def test_what_waits_for_its_embedding_is_named(db: Database) -> None:
    id = db.documents.ingest_text("tea", source="a.md", embed=False).document.id
    assert db.documents.waiting(id) == {chunk.id for chunk in db.documents.chunks(id)}
    db.embed_pending()
    assert db.documents.waiting(id) == frozenset()


def test_documents_are_listed_in_the_order_that_is_asked_for(db: Database) -> None:
    for title, source, text in (("b", "x/2.md", "a"), ("a", "x/1.md", "bbb"), ("c", "y.md", "cc")):
        db.documents.ingest_text(text, source=source, title=title)

    def titles(**order: Any) -> str:
        return "".join(each.title for each in db.documents.browse(**order))

    assert titles() == titles(sort="newest") == "cab"
    assert titles(sort="oldest") == "bac"
    assert titles(sort="title") == titles(sort="title", limit=2) + titles(sort="title", offset=2)
    assert titles(sort="title") == titles(sort="path") == "abc" and titles(sort="size") == "acb"
    with pytest.raises(InvalidInput, match="sort must be newest, oldest, title"):
        db.documents.browse(sort="random")  # type: ignore[arg-type]


def test_the_values_of_a_field_are_counted(db: Database) -> None:
    for source, library in (("a.md", "x"), ("tea/b.md", "x"), ("tea/c.txt", "x"), ("d.md", "y")):
        db.documents.ingest_text(source, source=source, library=library)
    assert list(db.documents.values("file_type").items()) == [("md", 3), ("txt", 1)]
    assert db.documents.values("folder", library="x") == {"x/tea": 2, "x": 1}
    assert db.documents.values("library", where={"file_type": "txt"}) == {"x": 1}
    with pytest.raises(InvalidInput, match="field must be one of id, library"):
        db.documents.values("color")


def test_all_documents_are_iterated_over_in_pages(db: Database) -> None:
    sources = [f"{number}.md" for number in range(5)]
    db.documents.ingest_many(sources, sources=sources)
    db._store.tuning = Tuning(rows_per_page=2)
    assert [each.source for each in db.documents] == sources


def test_one_document_is_got_or_those_that_there_are(db: Database) -> None:
    one, other = (db.documents.ingest_text(each, source=each).document for each in "ab")
    assert db.documents.get(one.id) == one
    assert db.documents.get([other.id, "no such", one.id, other.id]) == [other, one]
    with pytest.raises(NotFound):
        db.documents.get("no such")


def test_files_of_which_nothing_came_are_named_with_the_reason(
    db: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea")
    (folder / "empty.md").write_text(" ")
    db.documents.add_library("notes", folder)
    [done] = db.documents.sync("notes")
    found = db.documents.passed_over()
    assert [Path(each.path).name for each in found] == ["empty.md"] and found[0].reason
    assert db.documents.passed_over("other") == [] == db.documents.passed_over(offset=1)
    assert {reason for _, reason in done.skipped_paths} == {found[0].reason}


@pytest.mark.parametrize(
    ("source", "syntax"),
    [("a.md", "markdown"), ("a.py", "code"), ("a.txt", "text"), ("a", "markdown")],
)
def test_the_syntax_is_that_of_the_source(source: str, syntax: str, db: Database) -> None:
    id = db.documents.ingest_text("# x = 1", source=source).document.id
    assert db.documents.syntax(id) == syntax
    assert bool(db.documents.outline(id)) == (syntax == "markdown")


def test_what_waits_of_a_document_is_counted_without_reading_all_that_waits(db: Database) -> None:
    with db._file.reading() as sql:
        plan = [
            step
            for *_, step in sql.execute(
                f"EXPLAIN QUERY PLAN SELECT {rows.PENDING} FROM published_documents d"
            )
        ]
    [waiting] = [step for step in plan if step.startswith("SEARCH p ")]
    assert "chunk=?" in waiting


@pytest.mark.parametrize("followed", [True, False])
def test_documents_are_filtered_by_their_path_and_folder(
    followed: bool, db: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "n%o'tes"
    (folder / "tea").mkdir(parents=True)
    for name in ("top.md", "tea/a.md"):
        (folder / name).write_text(f"# {name}")
    if followed:
        db.documents.add_library("notes", folder)
        db.documents.sync("notes")
    else:
        db.documents.ingest_folder(folder, library="notes")
    for each in db.documents.browse():
        assert [*db.documents.browse(where={"path": each.path})] == [each]
        folder_of = each.path.rpartition("/")[0]
        assert [*db.documents.browse(where={"folder": folder_of})] == [each]
    assert db.documents.count(where={"path": {"starts_with": "notes/"}}) == 2
    found = db.documents.search("md", where={"path": {"ends_with": "tea/a.md"}})
    assert [hit.item.document.title for hit in found] == ["tea/a.md"]


def _folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"This is {root.name}/{name}.\n")
    return root


def test_paths_after_an_ingest_are_those_of_a_library_that_follows_the_folder(
    db: Database, tmp_path: Path
) -> None:
    docs = _folder(tmp_path / "docs", "tea.md", "2025/tea.md")
    db.documents.ingest_folder(docs, library="x", embed=False)
    db.documents.add_library("y", docs)
    db.documents.sync(embed=False)
    for library in ("x", "y"):
        paths = {each.path for each in db.documents.browse(library=library)}
        assert paths == {f"{library}/tea.md", f"{library}/2025/tea.md"}
        where = {"folder": f"{library}/2025"}
        assert [each.path for each in db.documents.browse(where=where)] == [
            f"{library}/2025/tea.md"
        ]
    db.documents.remove_library("y", keep_documents=True)
    assert path(db, "y/2025/tea.md") == "y/2025/tea.md"


def test_a_path_that_was_shown_before_still_finds_its_document(
    db: Database, tmp_path: Path
) -> None:
    docs, plans = _folder(tmp_path / "docs", "tea.md"), _folder(tmp_path / "work/plans", "q4.md")
    tea = db.documents.ingest(docs / "tea.md", library="x", embed=False).document
    before = tea.path
    assert before == f"x{docs}/tea.md"
    shown_before = [before]
    for folder in (docs, plans):
        db.documents.ingest_folder(folder, library="x", embed=False)
        shown_before.append(db.documents.get(tea.id).path)
    assert shown_before[1:] == ["x/tea.md", "x/docs/tea.md"]
    for name in (*shown_before, "docs/tea.md", str(docs / "tea.md")):
        assert db.documents.lookup(name).document.id == tea.id, name
    assert path(db, "q4.md") == "x/work/plans/q4.md"


def test_the_path_of_a_deleted_document_means_no_other(path: Path, tmp_path: Path) -> None:
    docs = _folder(tmp_path / "docs", "tea.md", "notes/tea.md")
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_folder(docs, library="x", embed=False)
        db.documents.delete(db.documents.lookup("x/tea.md").document.id)
        assert db.documents.candidates(["x/tea.md"]) == [[]]
        assert db.documents.lookup("x/tea.md", as_of=1).document.source == str(docs / "tea.md")
        assert [entry.items[0].name for entry in db.history("x/tea.md")] == ["x/tea.md"] * 2
        assert db.forget("x/tea.md").versions == 2
        [left] = db.documents.browse()
        assert left.path == "x/notes/tea.md"


def test_an_ingest_into_a_library_that_was_removed_begins_anew(
    db: Database, tmp_path: Path
) -> None:
    docs, plans = _folder(tmp_path / "docs", "tea.md"), _folder(tmp_path / "plans", "q4.md")
    db.documents.ingest_folder(docs, library="x", embed=False)
    db.documents.remove_library("x")
    db.documents.ingest_folder(plans, library="x", embed=False)
    assert path(db, "q4.md") == "x/q4.md"


def test_a_source_that_names_its_library_is_not_shown_twice(db: Database) -> None:
    db.documents.ingest_text("Q4", source="plans/q4.md", library="plans", embed=False)
    assert path(db, "plans/q4.md") == path(db, "plans/plans/q4.md") == "plans/q4.md"
    assert [each.path for each in db.documents.browse(where={"path": "plans/q4.md"})]
    db.documents.ingest_text("another", source="q4.md", library="plans", embed=False)
    [both] = db.documents.candidates(["plans/q4.md"])
    assert {each.document.source for each in both} == {"q4.md", "plans/q4.md"}
