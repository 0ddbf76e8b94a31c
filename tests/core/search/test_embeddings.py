from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Chunk, Database, InvalidInput, Memory, NotFound
from mcpvectordb.search import plane
from mcpvectordb.search.embeddings import components, numbers_in, same_numbers, similar_pairs


@pytest.fixture
def filled(db: Database) -> Database:
    db.documents.ingest_text("aaa aaa aab", source="a.md", title="a")
    db.documents.ingest_text("aaa aaa abb", source="b.md", title="a")
    db.documents.ingest_text("zzz zzz zzy", source="z.md", title="z")
    db.memories.add("t", "user", "aaa aaa aab")
    return db


def test_the_nearest_come_first_and_the_text_itself_is_left_out(filled: Database) -> None:
    found = filled.similar(document="a.md", limit=10)
    assert [
        hit.item.document.source if isinstance(hit.item, Chunk) else "context" for hit in found
    ] == ["context", "b.md", "z.md"]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_a_memory_has_similar_ones(filled: Database) -> None:
    found = filled.similar(memory=1, limit=1)
    assert isinstance(found[0].item, Chunk) and found[0].item.document.source == "a.md"


def test_one_kind_can_be_asked_for(filled: Database) -> None:
    assert all(isinstance(h.item, Memory) for h in filled.similar(document="a.md", kind="memories"))
    assert len(filled.similar(document="a.md", kind="documents", limit=9)) == 2


def test_without_an_embedding_there_is_a_reason(db: Database) -> None:
    db.documents.ingest_text("aaa", source="a.md", embed=False)
    found = db.similar(document="a.md")
    assert not found.hits and "vector" in found.reasons


def test_one_text_must_be_named(filled: Database) -> None:
    with pytest.raises(InvalidInput):
        filled.similar()
    with pytest.raises(InvalidInput):
        filled.similar(document="a.md", memory=1)
    with pytest.raises(NotFound):
        filled.similar(document="nowhere.md")
    with pytest.raises(NotFound):
        filled.similar(memory=7)


def test_a_passage_has_similar_ones_also_of_its_own_document(db: Database) -> None:
    parts = ["aaa aaa " * 60, "zzz zzz " * 60, "aaa aab " * 60]
    id = db.documents.ingest_text(
        "\n\n".join(f"# {p[0]}\n\n{p}" for p in parts), source="a.md"
    ).document.id
    db.memories.add("t", "user", "aaa aaa aab")
    chunks = db.documents.chunks(id)
    found = db.similar(chunk=chunks[0].id, limit=10)
    assert chunks[0].id not in [hit.item.id for hit in found if isinstance(hit.item, Chunk)]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert {type(hit.item) for hit in found} == {Chunk, Memory} and len(found) == len(chunks)
    assert len(db.similar(chunk=chunks[0].id, kind="memories")) == 1


def test_an_unknown_passage_is_not_found_and_one_item_must_be_named(filled: Database) -> None:
    with pytest.raises(NotFound, match="no passage has the id 999"):
        filled.similar(chunk=999)
    with pytest.raises(InvalidInput, match="either a document or a context"):
        filled.similar()


def test_equal_passages_make_a_group_with_memories(db: Database) -> None:
    for number, text in enumerate(["tea is green", "tea is green", "zzz zzz", "coffee"]):
        db.documents.ingest_text(text, source=f"{number}.md", title="t")
    db.memories.add("a", "user", "t\ntea is green")
    [group] = db.duplicates(min_cosine=0.999)
    assert [c.document.source for c in db.documents.chunks_by_ids(group.chunks)] == ["0.md", "1.md"]
    assert group.memories == (1,) and group.cosine > 0.999 and len(group) == 3


def test_the_largest_group_comes_first(db: Database) -> None:
    for number in range(5):
        db.documents.ingest_text("aaa" if number < 3 else "zzz", source=f"{number}.md", title="t")
    assert [len(group) for group in db.duplicates()] == [3, 2]


def test_without_embeddings_there_are_none_and_a_wrong_bound_is_refused(db: Database) -> None:
    assert db.duplicates() == []
    db.documents.ingest_text("a", source="a.md", embed=False)
    assert db.duplicates() == []
    db.embed_pending()
    assert db.duplicates() == []
    with pytest.raises(InvalidInput, match=r"min_cosine must be 0.5 to 1, not 0.1"):
        db.duplicates(min_cosine=0.1)


def test_two_equal_rows_are_a_pair() -> None:
    first, second, cosines = similar_pairs(np.full((2, 4), 0.5, np.float32), 0.99)
    assert set(first + second) == {1} and cosines.min() == 1


def test_nearly_equal_rows_are_found_among_many() -> None:
    random = np.random.default_rng(7)
    rows = random.standard_normal((3_000, 64)).astype(np.float32)
    noise = random.standard_normal((300, 64)).astype(np.float32)
    rows = np.concatenate([rows, rows[:300] + 0.12 * noise])  # cosine about .99
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    first, second, cosines = similar_pairs(rows, 0.95)
    found = {frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)}
    wanted = {frozenset((number, 3_000 + number)) for number in range(300)}
    assert len(wanted & found) >= 297 and cosines.min() >= 0.949


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40))
def test_rows_are_in_one_group_if_pairs_connect_them(
    count: int, pairs: list[tuple[int, int]]
) -> None:
    pairs = [(a % count, b % count) for a, b in pairs]
    labels = components(
        count, np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)
    )
    groups = [{number} for number in range(count)]
    for a, b in pairs:
        joined = next(g for g in groups if a in g) | next(g for g in groups if b in g)
        groups = [g for g in groups if not g & joined] + [joined]
    assert labels.tolist() == [min(next(g for g in groups if n in g)) for n in range(count)]


@pytest.fixture
def placed(db: Database) -> Database:
    for number in range(6):
        db.documents.ingest_text("aaa " * (number + 1), source=f"{number}.md", library="low")
        db.documents.ingest_text("zzz " * (number + 1), source=f"{number}.md", library="high")
    db.memories.add("t", "user", "mmm")
    return db


def test_every_passage_has_a_place_and_a_group(placed: Database) -> None:
    found = placed.projection()
    assert found.names["library"] == ("high", "low", "memories") and found.memories == 1
    assert {by: len(numbers) for by, numbers in found.groups.items()} == dict.fromkeys(
        ("library", "folder", "type", "time"), 13
    )
    libraries = found.groups["library"]
    assert np.bincount(libraries).tolist() == [6, 6, 1] and len(found) == 13
    chunks = placed.documents.chunks_by_ids(found.ids[:12].tolist())
    assert [chunk.document.library for chunk in chunks] == [
        found.names["library"][number] for number in libraries[:12]
    ]
    assert found.ids[12] == 1 and libraries[12] == 2


def test_what_is_alike_is_near(placed: Database) -> None:
    found = placed.projection()
    places = np.stack([found.x, found.y], axis=1)
    high, low = (places[found.groups["library"] == number] for number in (0, 1))
    between = np.linalg.norm(high.mean(axis=0) - low.mean(axis=0))
    assert between > 3 * max(np.ptp(high, axis=0).max(), np.ptp(low, axis=0).max())


def test_it_is_the_same_each_time_and_in_json(placed: Database) -> None:
    first, second = placed.projection(), placed.projection()
    assert first.to_dict() == second.to_dict()
    assert len(json.loads(json.dumps(first.to_dict()))["x"]) == 13


def test_a_sample_places_all(placed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "SAMPLE", 4)
    assert len(placed.projection()) == 13


def test_what_has_no_embedding_is_counted_and_has_no_place(db: Database) -> None:
    assert len(db.projection()) == 0
    db.documents.ingest_text("aaa", source="a.md", embed=False)
    assert (len(db.projection()), db.projection().pending) == (0, 1)
    db.embed_pending()
    assert (len(db.projection()), db.projection().pending) == (1, 0)


def test_rows_of_numbers_are_duplicates_only_if_their_numbers_are_the_same(db: Database) -> None:
    rows = ["kelvin 14.23 9.81 77.5 3.25", "kelvin 88.16 2.05 41.9 6.70"]
    for number, text in enumerate([*rows, rows[0], "tea at eighty", "tea at eighty"]):
        db.documents.ingest_text(text, source=f"{number}.csv", title="t")
    found = [db.documents.chunks_by_ids(each.chunks) for each in db.duplicates(min_cosine=0.5)]
    sources = sorted([chunk.document.source for chunk in group] for group in found)
    assert sources == [["0.csv", "2.csv"], ["3.csv", "4.csv"]]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_a_text_of_numbers_says_them_and_prose_says_none(numbers: list[int]) -> None:
    said = numbers_in(" ".join(map(str, numbers)))
    assert said == {str(each) for each in numbers} and same_numbers(said, said)
    assert not numbers_in("in the year " + " and then so ".join(map(str, numbers)) + " at last")
    assert not same_numbers(said, frozenset({"x1"}))


def test_lines_of_a_document_are_compared_alone(db: Database) -> None:
    parts = [f"# {each}\n\n" + f"{each * 5} " * 300 + "\n" for each in "ab"]
    db.documents.ingest_text("\n".join(parts), source="ab.md")
    for source, text in zip(("a.md", "b.md"), ("aaaaa", "bbbbb"), strict=True):
        db.documents.ingest_text(text, source=source, library="other")
    for lines, nearest in (("3", "a.md"), ("7:1", "b.md")):
        found = db.similar(document=f"ab.md:{lines}", limit=9)
        others = [hit.item.document.source for hit in found if isinstance(hit.item, Chunk)]
        assert next(each for each in others if each != "ab.md") == nearest
    with pytest.raises(NotFound, match="line 99"):
        db.similar(document="ab.md:99")
