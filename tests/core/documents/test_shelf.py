from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import (
    Backlog,
    Chunk,
    Condition,
    Config,
    Damaged,
    Database,
    Hit,
    InvalidFilter,
    InvalidInput,
    NoText,
    NotFound,
    Progress,
    Results,
    TooLarge,
    Unreadable,
    UnsupportedFormat,
)
from tests.support import Letters

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400).filter(
    lambda text: bool(text.strip())
)
ARTICLE = """# Boats

Intro about boats.

## Sails

Sails catch the wind. They are made of cloth.

## Hulls

The hull keeps water out.
"""


def texts(results: Any) -> list[str]:
    return [hit.item.text for hit in results]


def test_a_new_text_is_indexed_and_the_same_again_is_skipped(db: Database) -> None:
    first = db.documents.ingest_text(ARTICLE, source="boats.md", metadata={"n": 1})
    again = db.documents.ingest_text(ARTICLE, source="boats.md", metadata={"n": 1})
    assert (first.status, again.status) == ("indexed", "skipped")
    assert again.document == first.document


def test_a_changed_text_replaces_the_old_one_under_a_new_id(db: Database) -> None:
    old = db.documents.ingest_text("the old words", source="a").document
    new = db.documents.ingest_text("the new words", source="a")
    assert new.status == "replaced" and new.document.id != old.id
    with pytest.raises(NotFound):
        db.documents.get(old.id)
    assert texts(db.documents.search("old", mode="text")) == []
    assert db.check() == []


def test_the_same_source_in_two_libraries_is_two_documents(db: Database) -> None:
    one = db.documents.ingest_text("words", source="a", library="one").document
    two = db.documents.ingest_text("words", source="a", library="two").document
    assert one.id != two.id
    db.documents.delete(one.id)
    assert db.documents.get(two.id) == two


def test_a_file_is_stored_with_title_type_size_and_time(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "boats.md"
    file.write_text("---\nauthor: Ann\n---\n" + ARTICLE)
    document = db.documents.ingest(file, metadata={"year": 2026}).document
    raw = file.read_bytes()
    assert document.title == "Boats"
    assert (document.source, document.file_type, document.size) == (str(file), "md", len(raw))
    assert document.hash == hashlib.sha256(raw).hexdigest()
    assert document.metadata == {"author": "Ann", "year": 2026}
    assert document.modified.endswith("+00:00") and document.created_at.endswith("+00:00")
    assert db.documents.text(document.id).encode() == raw


def test_a_failed_second_ingest_leaves_the_first_document(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("precious")
    kept = db.documents.ingest(file).document
    file.write_bytes(b"\x00\x01\x02 binary")
    with pytest.raises(UnsupportedFormat):
        db.documents.ingest(file)
    assert db.documents.get(kept.id) == kept
    assert texts(db.documents.search("precious", mode="text")) == ["precious"]


@given(text=TEXTS)
def test_any_text_comes_back_byte_for_byte(text: str) -> None:
    with Database(
        ":memory:", embedder=Letters(), config=Config(chunk_size=16, chunk_overlap=4)
    ) as db:
        document = db.documents.ingest_text(text, source="x").document
        assert db.documents.text(document.id) == text
        for hit in db.documents.search(text, mode="vector", limit=100):
            assert text[hit.item.start : hit.item.end] == hit.item.text
        assert db.check() == []


def test_every_hit_can_be_cited(db: Database) -> None:
    document = db.documents.ingest_text(ARTICLE, source="boats.md").document
    hit = db.documents.search("sails wind", mode="text")[0]
    chunk = hit.item
    assert isinstance(hit, Hit) and isinstance(chunk, Chunk) and chunk.document == document
    lines = ARTICLE.splitlines()[chunk.first_line - 1 : chunk.last_line]
    assert chunk.text == "\n".join(lines)
    assert ARTICLE[chunk.start : chunk.end] == chunk.text
    assert "Boats" in chunk.citation
    assert "boats.md" in chunk.citation
    assert f"{chunk.first_line}" in chunk.citation
    assert chunk.headings[0] == "Boats" and chunk.page is None


def test_the_words_of_title_and_headings_find_the_passage(db: Database) -> None:
    db.documents.ingest_text(
        "# Zebra crossing\n\n## Stripes\n\n" + "plain words " * 300, source="a.md"
    )
    assert len(db.documents.search("stripes", mode="text", limit=100)) > 1


def test_browse_lists_newest_first_and_pages(db: Database) -> None:
    ids = [
        db.documents.ingest_text(f"text {number}", source=str(number)).document.id
        for number in range(5)
    ]
    assert [each.id for each in db.documents.browse()] == ids[::-1]
    assert [each.id for each in db.documents.browse(limit=2, offset=1)] == [ids[3], ids[2]]
    assert not db.documents.browse(limit=0)
    assert db.documents.count() == 5


def test_browse_and_count_take_conditions(db: Database) -> None:
    for year in (2023, 2024, 2025):
        db.documents.ingest_text(
            f"report of {year}", source=f"{year}.md", library="work", metadata={"year": year}
        )
    db.documents.ingest_text("a letter", source="letter", library="home")
    assert {
        each.source for each in db.documents.browse(where={"metadata.year": {"gte": 2024}})
    } == {"2024.md", "2025.md"}
    assert (
        db.documents.count(library="work", where=[Condition("source", "starts_with", "2023")]) == 1
    )
    assert db.documents.count(where={"file_type": "unknown"}) == 1
    with pytest.raises(InvalidFilter, match=r"metadata\.year"):
        db.documents.browse(where={"year": 2024})


def test_libraries_are_counted_and_vanish_with_their_last_document(db: Database) -> None:
    only = db.documents.ingest_text("x", source="x", library="b").document
    db.documents.ingest_text("y", source="y", library="a")
    assert [(each.name, each.documents, each.chunks) for each in db.documents.libraries()] == [
        ("a", 1, 1),
        ("b", 1, 1),
    ]
    assert db.documents.delete(only.id) == 1
    assert [each.name for each in db.documents.libraries()] == ["a"]


def test_an_unknown_id_deletes_nothing_and_is_not_found(db: Database) -> None:
    assert db.documents.delete("nothing") == 0
    for call in (db.documents.get, db.documents.text):
        with pytest.raises(NotFound, match="'nothing'"):
            call("nothing")


def test_conditions_apply_before_the_cut_to_limit(db: Database) -> None:
    for number in range(150):
        db.documents.ingest_text(
            f"apple number {number}", source=str(number), metadata={"n": number}
        )
    for mode in ("text", "vector", "hybrid"):
        results = db.documents.search("apple", mode=mode, where={"metadata.n": 149}, limit=5)
        assert [hit.item.document.metadata["n"] for hit in results] == [149], mode


def test_results_name_the_legs_that_ran_in_each_mode(db: Database) -> None:
    db.documents.ingest_text("apple", source="a")
    assert {
        mode: db.documents.search("apple", mode=mode).legs for mode in ("hybrid", "text", "vector")
    } == {"hybrid": ("text", "vector"), "text": ("text",), "vector": ("vector",)}


def test_a_query_without_words_is_answered_by_meaning_and_says_so(db: Database) -> None:
    db.documents.ingest_text("apple", source="a")
    results = db.documents.search("???")
    assert results.legs == ("vector",) and "no words" in results.reasons["text"]


def test_an_empty_file_is_searched_without_error(db: Database) -> None:
    results = db.documents.search("anything")
    assert len(results) == 0
    assert results.legs == ("text",)
    assert "nothing has been ingested" in results.reasons["vector"]


def test_quoted_phrases_and_exclusions_apply_to_results_by_meaning_too(db: Database) -> None:
    db.documents.ingest_text("red apple pie", source="a")
    db.documents.ingest_text("pie of apple, red", source="b")
    for mode in ("hybrid", "text", "vector"):
        assert texts(db.documents.search('"red apple"', mode=mode)) == ["red apple pie"], mode
        assert texts(db.documents.search("apple -of", mode=mode)) == ["red apple pie"], mode


def test_hits_are_sorted_by_score_and_have_the_scores_of_each_leg(db: Database) -> None:
    for number in range(20):
        db.documents.ingest_text(f"apple {'pie ' * number}", source=str(number))
    for mode in ("hybrid", "text", "vector"):
        hits = db.documents.search("apple pie", mode=mode, limit=50)
        scores = [hit.score for hit in hits]
        assert len(hits) == 20
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        by_words = [hit.scores.text_rank for hit in hits if hit.scores.text_rank]
        assert sorted(by_words) == list(range(1, len(by_words) + 1))
        assert (mode == "vector") == all(hit.scores.text is None for hit in hits)
        assert (mode == "text") == all(hit.scores.vector is None for hit in hits)


def test_pages_of_results_together_are_the_whole_list(db: Database) -> None:
    for number in range(130):
        db.documents.ingest_text(
            f"apple {chr(97 + number % 26) * (number % 7)} {number}", source=str(number)
        )
    for mode in ("hybrid", "text", "vector"):
        whole = [hit.item.id for hit in db.documents.search("apple", mode=mode, limit=130)]
        parts = [
            hit.item.id
            for offset in range(0, 130, 13)
            for hit in db.documents.search("apple", mode=mode, limit=13, offset=offset)
        ]
        assert len(set(whole)) == 130 and parts == whole, mode


def test_hits_below_min_score_are_left_out(db: Database) -> None:
    for number in range(10):
        db.documents.ingest_text("apple " + "x" * number, source=str(number))
    hits = db.documents.search("apple", mode="vector", limit=10)
    threshold = hits[4].score
    assert all(
        hit.score >= threshold
        for hit in db.documents.search("apple", mode="vector", limit=10, min_score=threshold)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "fuzzy"}, "hybrid, text or vector"),
        ({"limit": -1}, "limit must be"),
        ({"limit": True}, "limit must be"),
        ({"limit": 2.5}, "limit must be"),
        ({"offset": -1}, "offset must be"),
        ({"limit": 5_001}, "at most 5,000"),
        ({"library": " "}, "library must not be blank"),
        ({"where": {"nonsense": 1}}, "nonsense"),
        ({"query": 5}, "query must be text"),
        ({"expand": True}, "expand applies to reciprocal ranks"),
        ({"unit": "page"}, "unit must be passage or document, not 'page'"),
        ({"query": "\ud800"}, "surrogate"),
    ],
)
def test_bad_arguments_are_refused_by_name(
    db: Database, arguments: dict[str, Any], message: str
) -> None:
    db.documents.ingest_text("x", source="x")
    with pytest.raises(InvalidInput, match=message):
        db.documents.search(**{"query": "x", **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"text": ""}, NoText, "blank"),
        ({"text": " \n\t"}, NoText, "blank"),
        ({"text": "\ud800"}, InvalidInput, "surrogate"),
        ({"text": None}, InvalidInput, "text must be text"),
        ({"source": ""}, InvalidInput, "source must not be blank"),
        ({"library": ""}, InvalidInput, "library must not be blank"),
        ({"library": "x" * 201}, InvalidInput, "at most 200"),
        ({"metadata": {"a": float("nan")}}, InvalidInput, r"metadata\.a is nan"),
        ({"metadata": [1]}, InvalidInput, "metadata must be an object"),
        ({"title": " "}, InvalidInput, "title must not be blank"),
        ({"text": "x" * 101}, TooLarge, "at most 100"),
    ],
)
def test_bad_texts_are_refused_and_nothing_is_stored(
    path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with Database(path, embedder=Letters(), config=Config(max_source_bytes=100)) as db:
        with pytest.raises(error, match=message):
            db.documents.ingest_text(**{"text": "x", "source": "x", **arguments})
        assert db.documents.count() == 0


def test_a_missing_file_is_named_with_the_working_folder(db: Database, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"nowhere\.txt.*") as raised:
        db.documents.ingest(tmp_path / "nowhere.txt")
    assert str(Path.cwd()) in str(raised.value)


def test_the_database_does_not_ingest_itself(db: Database, path: Path) -> None:
    with pytest.raises(PermissionError):
        db.documents.ingest(path)


def test_a_text_is_found_by_words_at_once_and_by_meaning_after_embedding(db: Database) -> None:
    done = db.documents.ingest_text("apple", source="a", embed=False)
    assert done.pending == 1 and done.note == ""
    assert db.documents.search("apple").legs == ("text",)
    assert texts(db.documents.search("apple")) == ["apple"]
    assert texts(db.documents.search("apple", mode="vector")) == []
    assert db.embed_pending() == 1
    assert texts(db.documents.search("apple", mode="vector")) == ["apple"]


@pytest.mark.parametrize("unit", ["passage", "document"])
@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_a_search_says_how_many_passages_it_could_not_compare_by_meaning(
    db: Database, unit: Any, mode: str
) -> None:
    def search(**options: Any) -> Results[Chunk]:
        return db.documents.search("apple", unit=unit, mode=mode, **options)

    for number in range(4):
        db.documents.ingest_text(f"apple {number}", source=str(number), embed=False)
    nothing = search()
    assert "vector" not in nothing.legs
    assert nothing.reasons["vector"] == (
        "no passage is embedded yet (waiting: 4); run `mcpvectordb embed`"
    )
    db.documents.ingest_text("apple 4", source="4", library="other")
    partly = search(library="other")
    assert "vector" in partly.legs and partly.reasons == {}
    assert (partly.backlog.pending, partly.backlog.passages, partly.backlog.embedded) == (4, 5, 1)
    assert partly.backlog.note == (
        "1 of all 5 passages are searched by meaning so far; run `mcpvectordb embed`"
    )
    db.embed_pending()
    assert search().backlog == Backlog() and search().backlog.note == ""
    assert db.documents.search("apple", mode="text").backlog == Backlog()


def test_a_file_whose_documents_were_all_deleted_has_nothing_that_waits(db: Database) -> None:
    db.documents.delete(db.documents.ingest_text("apple", source="a").document.id)
    found = db.documents.search("apple")
    assert (len(found), found.reasons, found.backlog) == (0, {}, Backlog())


def test_a_missing_model_is_the_outlook_of_what_waits(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
    with Database(path) as db:
        assert "letters" in db.documents.backlog().outlook
        assert "letters" in db.documents.search("apple", mode="vector").reasons["vector"]


def test_an_ingest_reports_that_it_parses_and_how_many_chunks_there_are(
    db: Database, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("apple")
    seen: list[Progress] = []
    db.documents.ingest(tmp_path / "a.txt", progress=seen.append)
    steps = [(each.step, each.done, each.total, each.chunks_known) for each in seen]
    assert steps[:2] == [("parse", 0, 1, 0), ("parse", 1, 1, 1)]
    assert steps[-1] == ("embed", 1, 1, 1)


def test_threads_ingest_and_search_at_once(db: Database) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(8):
                db.documents.ingest_text(f"apple {number} {step}", source=f"{number}-{step}")
                db.documents.search("apple")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert db.documents.count() == 32 and db.check() == []


def test_a_skipped_text_is_embedded_if_it_was_not_before(db: Database) -> None:
    db.documents.ingest_text("apple", source="a", embed=False)
    again = db.documents.ingest_text("apple", source="a")
    assert (again.status, again.pending) == ("skipped", 0) and db.stats().pending == 0


def test_a_condition_can_compare_the_text_of_a_chunk(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(chunk_size=16, chunk_overlap=6)) as db:
        db.documents.ingest_text(" ".join(f"word{number}" for number in range(60)), source="a")
        for hit in db.documents.search("word", mode="vector", limit=50):
            found = db.documents.search("word", mode="vector", where={"text": hit.item.text})
            assert [each.item.id for each in found] == [hit.item.id]


def test_a_document_may_have_chunk_sizes_of_its_own(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text(" ".join(f"word{number}" for number in range(300)))
    small, large = (
        db.documents.ingest(file, chunk_size=size, chunk_overlap=8, duplicate=True)
        for size in (50, 400)
    )
    usual = db.documents.ingest(file, duplicate=True)
    assert small.document.chunks > usual.document.chunks > large.document.chunks
    hits = db.documents.search("word1", where={"id": small.document.id}, limit=100)
    first, second = sorted((hit.item for hit in hits), key=lambda chunk: chunk.position)[:2]
    assert second.start < first.end
    assert (db.stats().chunk_size, db.stats().chunk_overlap) == (200, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metadata": {"a": float("inf")}}, "metadata"),
        ({"chunk_size": 5}, "chunk_size must be"),
        ({"chunk_size": 100, "chunk_overlap": 51}, "chunk_overlap must be"),
        ({"chunk_overlap": -1}, "chunk_overlap must be"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_read(
    db: Database, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.documents.ingest("/nowhere/at/all", **arguments)


def test_a_duplicate_is_stored_beside_what_is_there(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("apple")
    first, second = db.documents.ingest(file), db.documents.ingest(file, duplicate=True)
    assert (first.status, second.status) == ("indexed", "indexed")
    file.write_text("apple pie")
    third = db.documents.ingest(file, duplicate=True)
    assert [each.id for each in db.documents.browse()] == [
        each.document.id for each in (third, second, first)
    ]
    assert db.documents.ingest(file).document == third.document
    file.write_text("apple cake")
    assert db.documents.ingest(file).status == "replaced"  # all that were there
    assert db.documents.count() == 1 and db.check() == []


def test_a_reader_replaces_the_parser(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(b"<html>apple</html>")
    done = db.documents.ingest(file, reader=lambda source: source.raw.decode().upper())
    assert db.documents.text(done.document.id) == "<HTML>APPLE</HTML>"
    assert (done.document.title, done.document.file_type) == ("page.html", "html")
    with pytest.raises(NoText, match=r"page\.html"):
        db.documents.ingest(file, duplicate=True, reader=lambda _: "\ufeff \n")
    with pytest.raises(InvalidInput, match="surrogate"):
        db.documents.ingest(file, duplicate=True, reader=lambda _: "\ud800")
    with pytest.raises(ZeroDivisionError):
        db.documents.ingest(file, duplicate=True, reader=lambda _: str(1 / 0))
    assert db.documents.count() == 1


@pytest.mark.parametrize("unit", ["passage", "document"])
def test_a_plain_query_has_no_operators(db: Database, unit: Any) -> None:
    db.documents.ingest_text("red apples", source="a")
    for mode in ("text", "vector", "hybrid"):
        found, plain = (
            texts(db.documents.search('"green tea" -red apples', mode=mode, unit=unit, plain=each))
            for each in (False, True)
        )
        assert (found, plain) == ([], ["red apples"]), mode


def test_documents_can_be_filtered_by_pending_chunks(db: Database) -> None:
    waiting = db.documents.ingest_text("apple", source="a", embed=False)
    db.documents.ingest_text("pear", source="b")
    assert [each.id for each in db.documents.browse(where={"pending": {"gt": 0}})] == [
        waiting.document.id
    ]
    assert db.documents.count(where={"pending": 0}) == 1
    db.embed_pending()
    assert db.documents.count(where={"pending": 0}) == 2


def test_an_index_with_entries_of_missing_passages_is_reported(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(3):
            db.documents.ingest_text(f"apple {number}", source=str(number))
    other = apsw.Connection(str(path))
    other.execute("DELETE FROM document_chunks WHERE id = 2")
    other.close()
    with Database(path, embedder=Letters()) as db:
        with pytest.raises(Damaged, match="passage 2, which is not there"):
            db.documents.search("apple")
        assert db.check()
