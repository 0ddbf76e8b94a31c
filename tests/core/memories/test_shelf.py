from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import (
    Change,
    Condition,
    Config,
    Database,
    EmbeddingFailed,
    Entry,
    Image,
    InvalidFilter,
    InvalidInput,
    Memory,
    NotFound,
    dates,
)
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.storage import vec0
from tests.support import Letters

LONG = "\n\n".join(
    f"# Part {number}\n\n" + f"Word{number} stands here with many others. " * 20
    for number in range(12)
)


@dataclass
class Clock:
    """A clock that stands still until a test changes `now`."""

    now: datetime = datetime(2025, 11, 29, 10, tzinfo=UTC)


@pytest.fixture
def clock(db: Database) -> Clock:
    clock = Clock()
    db.memories._clock = lambda: clock.now
    return clock


def ids(found: Any) -> list[int]:
    return [each.item.id if hasattr(each, "item") else each.id for each in found]


def texts(found: Any) -> list[str]:
    return [each.item.text if hasattr(each, "item") else each.text for each in found]


# Adding.


def test_an_added_memory_is_returned_with_all_its_fields(db: Database) -> None:
    picture = Image(data=b"\x89PNG", metadata={"alt": "a cat"})
    stored = db.memories.add(
        " thread ",
        "agent",
        "  Use WAL\nwhile it runs \n",
        metadata={"status": "done", "n": [1, None]},
        tags=["SQLite", " db ", "", "db"],
        images=[picture, Image(data=b"x", mime_type="image/gif")],
    )
    (memory,) = db.memories.get([stored.id])
    assert memory == Memory(
        id=stored.id,
        thread="thread",
        source="agent",
        text="Use WAL\nwhile it runs",
        content_type="multimodal",
        metadata={"status": "done", "n": [1, None]},
        tags=("db", "sqlite"),
        images=(picture, Image(data=b"x", mime_type="image/gif")),
        created_at=memory.created_at,
        updated_at=memory.created_at,
        provenance="agent",
    )
    assert stored.status == "added"
    assert stored.note == ""
    assert stored.memory == replace(memory, images=())
    assert db.check() == []


@pytest.mark.parametrize(
    ("thread", "source", "text", "message"),
    [
        (" \n", "user", "x", "thread must not be blank"),
        ("t", "robot", "x", "source must be user or agent, not 'robot'"),
        ("t", "user", " \t", "text must not be blank"),
        ("t", "user", "\ud800", "half of a surrogate pair"),
        (5, "user", "x", "thread must be text, not int"),
        ("t" * 1001, "user", "x", "at most 1,000"),
    ],
)
def test_invalid_threads_sources_and_texts_are_refused(
    db: Database, thread: Any, source: Any, text: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.memories.add(thread, source, text)
    assert db.memories.count() == 0


# Repetitions.


def test_repeating_the_last_text_of_a_thread_only_renews_its_time(
    db: Database, clock: Clock
) -> None:
    first = db.memories.add("t", "user", "hello", tags=["a"], metadata={"n": 1})
    clock.now += timedelta(seconds=1)
    again = db.memories.add("t", "user", " hello ")
    assert (again.status, again.id) == ("repeated", first.id)
    assert again.memory == replace(first.memory, updated_at=dates.stored(clock.now))
    assert db.memories.count() == 1 and db.check() == []


def test_an_entry_from_elsewhere_has_times_of_its_own_and_is_no_repetition(
    db: Database, clock: Clock
) -> None:
    entry = Entry(thread="t", source="user", text="Tea", created_at="2020-01-02 03:04:05")
    later = replace(entry, updated_at="2021-01-01T00:00:00+01:00")
    done = db.memories.add_many([entry, later, replace(entry, created_at=None)])
    assert [each.result.status for each in done if each.result] == ["added", "added", "repeated"]
    first, second = sorted(db.memories.browse(), key=lambda each: each.id)
    assert first.created_at == first.updated_at == "2020-01-02T03:04:05.000000+00:00"
    assert second.created_at == first.created_at
    assert second.updated_at == dates.stored(clock.now)  # of the repetition
    with pytest.raises(InvalidInput, match="created_at must be a date"):
        db.memories.add_many([replace(entry, created_at="long ago")])


def test_the_last_memory_of_a_thread_is_decided_by_id_and_not_by_the_clock(
    db: Database, clock: Clock
) -> None:
    db.memories.add("t", "user", "a")
    clock.now -= timedelta(hours=1)
    db.memories.add("t", "user", "b")
    assert db.memories.add("t", "user", "a").status == "added"


def test_a_text_added_by_several_python_threads_at_once_is_stored_once(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        threads = [
            threading.Thread(target=db.memories.add, args=("t", "user", "hello")) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts(db.memories.browse()) == ["hello"] and db.check() == []


# Embedding.


class Broken(Letters):
    """An embedder that fails on some texts."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if any("poison" in text for text in texts):
            if self.error:
                raise self.error
            return np.zeros((len(texts), self.dimension), np.float32)
        return super().embed(texts)


@pytest.mark.parametrize("error", [None, RuntimeError("out of memory"), EmbeddingFailed("no")])
def test_a_text_that_cannot_be_embedded_changes_nothing(
    path: Path, error: Exception | None
) -> None:
    with Database(path, embedder=Broken(error)) as db:
        good = db.memories.add("t", "user", "fine words", metadata={"n": 1})
        for attempt in (
            lambda: db.memories.add("t", "user", "poison"),
            lambda: db.memories.add_many(
                [Entry(thread="t", source="user", text=text) for text in ("b", "poison")]
            ),
            lambda: db.memories.update(good.id, text="poison", metadata={"n": 2}),
            lambda: db.memories.update_many(
                [Change(id=good.id, tags=["x"]), Change(id=good.id, text="poison")]
            ),
        ):
            with pytest.raises(EmbeddingFailed):
                attempt()
        assert db.memories.get([1, 2, 3]) == [good.memory]
        assert texts(db.memories.search("fine", mode="vector")) == ["fine words"]
        assert db.check() == []


def test_without_a_model_memories_are_stored_and_embedded_later(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.memories.add("t", "user", "with a model")
    other = Letters()
    other.name = "others"
    with Database(path, embedder=other) as db:
        stored = db.memories.add("t", "user", "without a model")
        updated = db.memories.update(1, text="changed without a model")
        assert "found by words, but not yet by meaning" in stored.note
        assert stored.note == updated.note
        assert updated.fields == ("text",) and db.stats().pending == 2
        results = db.memories.search("model")
        assert (texts(results), results.legs) == (
            ["without a model", "changed without a model"],
            ("text",),
        )
        assert "not with the given embedder" in results.reasons["vector"]
        assert db.memories.search("model", mode="vector").hits == ()
        assert db.check() == []
    with Database(path, embedder=Letters()) as db:
        assert texts(db.memories.search("model", mode="vector")) == []
        assert db.embed_pending() == 2
        assert sorted(texts(db.memories.search("model", mode="vector"))) == [
            "changed without a model",
            "without a model",
        ]


def test_a_repetition_embeds_a_memory_that_had_no_embedding(path: Path) -> None:
    other = Letters()
    other.name = "others"
    with Database(path, embedder=Letters()) as db:
        db.memories.add("t", "user", "first")
    with Database(path, embedder=other) as db:
        db.memories.add("t", "user", "second")
        assert db.stats().pending == 1
    with Database(path, embedder=Letters()) as db:
        assert db.memories.add("t", "user", "second").note == ""
        assert db.stats().pending == 0


def test_a_long_text_is_embedded_in_chunks_and_a_change_embeds_only_changed_chunks(
    path: Path,
) -> None:
    class Counting(Letters):
        count = 0

        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            self.count += len(texts)
            return super().embed(texts)

    counting = Counting()
    with Database(path, embedder=counting) as db:
        stored = db.memories.add("t", "agent", LONG)
        chunks = counting.count
        assert stored.memory.text == LONG.strip() and chunks >= 12
        db.memories.update(stored.id, text=LONG.replace("Word5 ", "Changed "))
        assert counting.count < chunks + 4
        assert db.check() == []


def test_a_large_shelf_that_lost_its_vector_table_gets_it_again(path: Path) -> None:
    coded = Tuning(uncoded_chunks=0)
    with Database(path, embedder=Letters(), tuning=coded) as db:
        db.memories.add("t", "user", "first")
    other = apsw.Connection(str(path))
    vec0.load(other)
    other.execute("DROP TABLE context_meaning_1")
    other.close()
    with Database(path, embedder=Letters(), tuning=coded) as db:
        assert db.check() == []
        assert texts(db.memories.search("first", mode="vector")) == ["first"]
        db.memories.add("t", "user", "hello")
        assert texts(db.memories.search("hello", mode="vector", limit=1)) == ["hello"]
        assert db.check() == [] and db._indexes[1].vector.coded(db._file._connection()) == [1]


# Changing.


def test_an_update_changes_only_the_given_fields(db: Database, clock: Clock) -> None:
    stored = db.memories.add(
        "t", "user", "old words", metadata={"a": 1}, tags=["x"], images=[Image(data=b"1")]
    )
    clock.now += timedelta(seconds=5)
    updated = db.memories.update(stored.id, text=" new words ")
    assert updated.fields == ("text", "embedding")
    assert updated.memory == replace(
        stored.memory, text="new words", updated_at=dates.stored(clock.now)
    )
    assert ids(db.memories.search("new", mode="text")) == [1]
    assert ids(db.memories.search("old", mode="text")) == []
    assert db.memories.update(stored.id, metadata={}).memory.metadata == {}
    assert db.memories.update(stored.id, tags=[" B", "b", "A"]).memory.tags == ("a", "b")
    assert db.memories.update(stored.id, tags=[]).memory.tags == ()
    gone = db.memories.update(stored.id, images=[])
    assert (gone.fields, gone.memory.content_type) == (("images", "content_type"), "text")
    back = db.memories.update(
        stored.id, images=[Image(data=b"2")], text="all", metadata={"z": 1}, tags=["t"]
    )
    assert back.fields == ("text", "metadata", "tags", "images", "content_type", "embedding")
    assert back.memory.content_type == "multimodal"
    assert db.check() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "nothing to change was given"),
        ({"metadata": {}, "metadata_patch": {}}, "either metadata"),
        ({"text": " "}, "text must not be blank"),
        ({"metadata_patch": {"a": float("nan")}}, "metadata_patch.a is nan"),
        ({"metadata": [1]}, "metadata must be an object"),
        ({"tags": "abc"}, "tags must be a list"),
    ],
)
def test_an_invalid_change_is_refused_and_changes_nothing(
    db: Database, change: dict[str, Any], message: str
) -> None:
    stored = db.memories.add("t", "user", "x", metadata={"a": 1})
    with pytest.raises(InvalidInput, match=message):
        db.memories.update(stored.id, **change)
    assert db.memories.get([stored.id]) == [stored.memory]


@pytest.mark.parametrize("id", [0, True, 1.0, "1", 2**63])
def test_an_invalid_id_is_refused(db: Database, id: Any) -> None:
    for attempt in (
        lambda: db.memories.update(id, text="x"),
        lambda: db.memories.get([id]),
        lambda: db.memories.delete([id]),
    ):
        with pytest.raises(
            InvalidInput, match="the id of a context must be a whole number of 1 or more"
        ):
            attempt()


# Batches.


def entries(*texts: str, source: str = "user") -> list[Entry]:
    return [Entry(thread="t", source=source, text=text) for text in texts]


def test_a_batch_that_is_atomic_stores_all_or_nothing(db: Database) -> None:
    bad = [*entries("a", " "), *entries("c", source="robot")]
    with pytest.raises(
        InvalidInput,
        match=r"^2 of 3 items cannot be stored, so none was; the first is at index 1: text must",
    ):
        db.memories.add_many(bad)
    assert db.memories.count() == 0


def test_a_batch_that_is_not_atomic_stores_what_can_be_stored(db: Database) -> None:
    outcomes = db.memories.add_many([*entries("a", " ", "b"), "junk"], atomic=False)  # type: ignore[list-item]
    assert [each.result and each.result.memory.text for each in outcomes] == ["a", None, "b", None]
    refused = [isinstance(each.error, InvalidInput) for each in outcomes]
    assert refused == [False, True, False, True] and db.memories.count() == 2
    assert [each.index for each in outcomes] == [0, 1, 2, 3] and db.memories.add_many([]) == []


def test_a_batch_of_changes_is_atomic_or_reports_each_item(db: Database) -> None:
    one, two = (outcome.result for outcome in db.memories.add_many(entries("a", "b")))
    assert one and two
    changes = [Change(id=one.id, text="A"), Change(id=99, text="x"), Change(id=two.id)]
    with pytest.raises(NotFound, match=r"2 of 3 items .* at index 1: no memory has the id 99"):
        db.memories.update_many(changes)
    assert texts(db.memories.get([one.id])) == ["a"]
    outcomes = db.memories.update_many(changes, atomic=False)
    assert [(each.result and each.result.fields, type(each.error)) for each in outcomes] == [
        (("text", "embedding"), type(None)),
        (None, NotFound),
        (None, InvalidInput),
    ]
    assert texts(db.memories.get([one.id])) == ["A"]


def test_a_model_failure_in_a_batch_is_reported_for_its_item_alone(path: Path) -> None:
    with Database(path, embedder=Broken(RuntimeError("boom"))) as db:
        outcomes = db.memories.add_many(entries("a", "poison", "b"), atomic=False)
        assert [type(each.error) for each in outcomes] == [type(None), EmbeddingFailed, type(None)]
        assert "letters failed: boom" in str(outcomes[1].error)


# Deleting.


@pytest.fixture
def four(db: Database, clock: Clock) -> Database:
    clock.now = datetime.now(UTC) - timedelta(days=10)
    db.memories.add("one", "user", "apple", tags=["x"], images=[Image(data=b"1")])
    db.memories.add("one", "agent", "pear")
    clock.now += timedelta(days=9, hours=12)
    db.memories.add("two", "user", "plum")
    db.memories.add("three", "agent", "kiwi")
    return db


@pytest.mark.parametrize(
    ("criteria", "left"),
    [
        ({"ids": [1, 4, 99]}, [3, 2]),
        ({"threads": ["one", "nowhere"]}, [4, 3]),
        ({"threads": [" one "], "source": "user"}, [4, 3, 2]),
        ({"threads": "one"}, [4, 3]),
        ({"older_than_days": 5}, [4, 3]),
        ({"older_than_days": 5, "source": "agent"}, [4, 3, 1]),
        ({"older_than_days": 11}, [4, 3, 2, 1]),
        ({"older_than_days": 10**12}, [4, 3, 2, 1]),
        ({"ids": [1, 2, 3], "threads": ["one"], "source": "agent"}, [4, 3, 1]),
        ({"ids": []}, [4, 3, 2, 1]),
        ({"threads": []}, [4, 3, 2, 1]),
    ],
)
def test_memories_that_match_all_criteria_are_deleted(
    four: Database, criteria: dict[str, Any], left: list[int]
) -> None:
    assert four.memories.delete(**criteria) == 4 - len(left)
    assert ids(four.memories.browse()) == left
    assert four.check() == []


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ({}, "say which memories to delete"),
        ({"source": "user"}, "a source alone would delete too much"),
        ({"ids": "12"}, "ids must be a list"),
        ({"ids": [1], "source": "robot"}, "source must be"),
        ({"older_than_days": 0}, "older_than_days must be"),
        ({"threads": [""]}, "thread must not be blank"),
        ({"threads": ["x"] * 10_001}, "10,001 threads were given"),
    ],
)
def test_missing_or_invalid_criteria_delete_nothing(
    four: Database, criteria: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        four.memories.delete(**criteria)
    assert four.memories.count() == 4


def test_deleting_a_memory_deletes_its_images_and_tags(four: Database) -> None:
    four.memories.delete([1])
    statistics = four.memories.statistics()
    assert (statistics.images, statistics.tags) == (0, 0)


def test_items_can_be_checked_before_they_are_stored(db: Database) -> None:
    assert db.memories.checked(
        Entry(thread=" t ", source="user", text=" x ", tags=["B", "a"])
    ) == Entry(thread="t", source="user", text="x", tags=("a", "b"))
    with pytest.raises(InvalidInput, match="source"):
        db.memories.checked(Entry(thread="t", source="robot", text="x"))
    with pytest.raises(NotFound):
        db.memories.checked(Change(id=1, text="x"))
    assert db.memories.count() == 0


# Browsing.


def test_get_returns_one_or_those_that_there_are(four: Database) -> None:
    assert ids(four.memories.get([3, 99, 1, 3])) == [3, 1]
    assert four.memories.get([]) == [] and four.memories.get(3).id == 3
    with pytest.raises(NotFound, match="no memory has the id 99"):
        four.memories.get(99)
    assert ids(four.memories.get(id for id in (2, 4))) == [2, 4]
    assert [len(memory.images) for memory in four.memories.get([1])] == [1]
    assert [len(memory.images) for memory in four.memories.get([1], images=False)] == [0]


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({}, [4, 3, 2, 1]),
        ({"thread": "one"}, [2, 1]),
        ({"thread": " two "}, [3]),
        ({"source": "agent"}, [4, 2]),
        ({"source": "agent", "thread": "one"}, [2]),
        ({"content_type": "multimodal"}, [1]),
        ({"content_type": "text"}, [4, 3, 2]),
        ({"tags": [" X "]}, [1]),
        ({"tags": ["y", "x"]}, [1]),
        ({"tags": ["", " "]}, [4, 3, 2, 1]),
        ({"where": {"thread": "one", "source": "user"}}, [1]),
        ({"where": {"content_type": "multimodal"}}, [1]),
        ({"where": {"id": {"gte": 3}}}, [4, 3]),
        ({"limit": 2}, [4, 3]),
        ({"limit": 2, "offset": 3}, [1]),
        ({"limit": 0}, []),
    ],
)
def test_browse_returns_the_matching_memories_newest_first(
    four: Database, which: dict[str, Any], expected: list[int]
) -> None:
    assert ids(four.memories.browse(**which)) == expected
    if not {"limit", "offset"} & set(which):
        assert four.memories.count(**which) == len(expected)


def test_start_and_end_include_both_ends_of_a_period(db: Database, clock: Clock) -> None:
    times = [
        datetime(2025, 11, 29, 22, 59, 59, 999999, tzinfo=UTC) + timedelta(hours=n)
        for n in range(3)
    ]
    for number, clock.now in enumerate(times):
        db.memories.add("t", "user", f"{number}")
    last_of_the_day = dates.stored(times[1])
    for start, end, expected in (
        ("2025-11-29", "2025-11-29", ["1", "0"]),
        ("2025-11-30", None, ["2"]),
        (None, "2025-11-29T22:59:59", []),
        (last_of_the_day, last_of_the_day, ["1"]),
        ("2025-11-30T02:00:00+02:00", "2025-11-30T03:00:00+02:00", ["2"]),
    ):
        assert texts(db.memories.browse(start=start, end=end)) == expected
    with pytest.raises(InvalidInput, match="lies after"):
        db.memories.browse(start="2025-11-30", end="2025-11-29")
    with pytest.raises(InvalidInput, match=r"^end must be a date"):
        db.memories.browse(end="tomorrow")


def test_problems_lists_every_invalid_condition(db: Database) -> None:
    bad = [("metadata.a", "like", "x"), ("metadata.b", "eq", 1), ("color", "eq", 1)]
    problems = db.memories.problems(bad)
    assert len(problems) == 2 and "like" in problems[0] and "color" in problems[1]
    assert db.memories.problems(None) == []
    with pytest.raises(InvalidFilter):
        db.memories.search("x", where=bad)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ({"source": "robot"}, "source must be user or agent"),
        ({"content_type": "image"}, "content_type must be text or multimodal"),
        ({"thread": " "}, "thread must not be blank"),
        ({"limit": -1}, "limit must be"),
        ({"offset": 1.5}, "offset must be"),
        ({"tags": "x"}, "tags must be a list"),
    ],
)
def test_invalid_filter_arguments_are_refused(
    db: Database, which: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.memories.browse(**which)


def test_browse_explains_itself_on_request(four: Database) -> None:
    page = four.memories.browse(thread="one", explain=True)
    assert page.explained and page.explained.rows == len(page) == 2
    assert page.explained.milliseconds > 0 and page.explained.plan.count("contexts_by") == 1
    assert four.memories.browse(thread="one").explained is None


@pytest.mark.parametrize(
    ("which", "index"),
    [
        ({}, "contexts_by_time"),
        ({"thread": "one"}, "contexts_by_thread_and_time (thread=?)"),
        ({"source": "user"}, "contexts_by_source (source=?)"),
        ({"thread": "one", "source": "user"}, "contexts_by_thread_and_time (thread=?)"),
        ({"tags": ["x"], "source": "user"}, "context_tags_by_tag"),
        ({"start": "2025-01-01"}, "contexts_by_time (created_at>?)"),
        ({"where": {"metadata.status": "done"}}, "context_key_status (<expr>=?)"),
        ({"where": {"metadata.project": 5}}, "context_key_project (<expr>=?)"),
        (
            {"where": [Condition("metadata.status", "eq", "DONE", False)]},
            "context_key_status (<expr>=?)",
        ),
    ],
)
def test_browse_uses_the_index_that_narrows_most_and_is_in_order(
    four: Database, which: dict[str, Any], index: str
) -> None:
    page = four.memories.browse(explain=True, **which)
    assert page.explained
    assert index in page.explained.plan
    assert "FOR ORDER BY" not in page.explained.plan or "tags" in which
    assert "by_source" in index or "contexts_by_source" not in page.explained.plan


# Overviews.


def test_threads_are_listed_newest_first(four: Database) -> None:
    four.memories.add("one", "agent", "later")
    threads = four.memories.threads()
    assert [
        (each.name, each.memories, each.sources, each.multimodal, each.last_id) for each in threads
    ] == [("one", 3, 2, 1, 5), ("three", 1, 1, 0, 4), ("two", 1, 1, 0, 3)]
    assert threads[0].first_at < threads[0].last_at


def test_statistics_count_everything(four: Database) -> None:
    four.memories.add(
        "one", "user", "more", tags=["x", "y"], images=[Image(data=b"1"), Image(data=b"2")]
    )
    found = four.memories.statistics()
    assert found.memories == 5 and found.by_source == {"agent": 2, "user": 3}
    assert found.by_content_type == {"text": 3, "multimodal": 2}
    assert (found.images, found.tags, found.threads) == (3, 2, 3)
    assert found.most_active_threads == (("one", 3), ("three", 1), ("two", 1))
    assert found.top_tags == (("x", 2), ("y", 1))
    assert four.stats().memories == 5


def test_statistics_count_missing_embeddings_and_name_unavailable_features(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        assert db.model == "letters"
        db.memories.add("t", "user", "tea")
        stats = db.memories.statistics()
        assert (stats.chunks, stats.embedded, "vector" in stats.unavailable) == (1, 1, False)
    with Database(path) as db:
        db.memories.add("t", "user", "water")
        stats = db.memories.statistics()
        assert (stats.memories, stats.chunks, stats.embedded) == (2, 2, 1)
        assert "letters" in stats.unavailable["vector"] and db.model == "letters"


def test_reading_works_before_any_memory_is_stored(db: Database) -> None:
    assert (list(db.memories.browse()), db.memories.threads(), db.memories.count()) == ([], [], 0)
    assert db.memories.statistics().by_source == {}
    results = db.memories.search("anything")
    assert results.hits == () and results.reasons["vector"] == "nothing has been ingested yet"


# Keeping.


def test_memories_survive_compact_rebuild_and_copy(four: Database, path: Path) -> None:
    before = four.memories.browse(images=True)
    four.compact()
    four.rebuild()
    four.copy_to(path.with_name("copy.db"))
    with Database(
        path.with_name("copy.db"), embedder=Letters(), config=Config(read_only=True)
    ) as copy:
        assert copy.memories.browse(images=True) == before
        assert ids(copy.memories.search("apple")) == ids(four.memories.search("apple"))
        assert copy.check() == []


def test_damage_to_indexes_is_reported_and_repaired_by_rebuild(four: Database, path: Path) -> None:
    with four._file.writing() as sql:
        sql.execute("DELETE FROM context_words WHERE rowid = 1")
        sql.execute("INSERT INTO context_spellings (rowid, text) VALUES (99, 'ghost')")
        sql.execute('UPDATE contexts SET folded = \'{"status": "x"}\' WHERE id = 2')
    problems = "\n".join(four.check())
    assert "context_words" in problems
    assert "context_spellings" in problems
    assert "indexed values of 2" in problems
    four.rebuild()
    assert four.check() == []
    assert ids(four.memories.search("apple", mode="text")) == [1]


def test_the_values_of_a_field_are_counted(db: Database) -> None:
    assert db.memories.values("tag") == {} == db.memories.values("day")
    for day, tags in ((1, ["a"]), (1, ["b", "a"]), (2, ["b", "a"])):
        db.memories._clock = lambda day=day: datetime(2025, 11, day, 12, tzinfo=UTC)
        db.memories.add(f"t{day}{len(tags)}", "user", f"text {day}", tags=tags)
    assert list(db.memories.values("tag").items()) == [("a", 3), ("b", 2)]
    assert list(db.memories.values("day").items()) == [("2025-11-01", 2), ("2025-11-02", 1)]
    assert db.memories.values("thread", tags=["b"]) == {"t12": 1, "t22": 1}
    with pytest.raises(InvalidInput, match="field must be one of id, thread"):
        db.memories.values("color")
    assert [each.id for each in db.memories] == [1, 2, 3]


# When they hold.


def test_what_is_replaced_holds_up_to_the_start_of_the_other(db: Database, clock: Clock) -> None:
    old = db.memories.add("t", "agent", "the port is 5432")
    clock.now += timedelta(days=10)
    new = db.memories.add("t", "agent", "the port is 5433", replaces=old.id)
    first = db.memories.get(old.id)
    assert (first.valid_from, first.replaced_by) == (None, new.id)
    assert first.valid_to == dates.before(new.memory.created_at)
    assert first.validity == f"valid to 2025-12-09T09:59:59Z, replaced by memory:{new.id}"
    search = db.memories.search
    assert ids(search("port")) == [new.id]
    assert ids(search("port", as_of="2025-12-01")) == [old.id]
    assert ids(search("port", as_of="2025-12-09T10:00:00Z")) == [new.id]
    assert ids(search("port", as_of="2025-11-01")) == []  # nothing was known then
    assert sorted(ids(search("port", as_of="any"))) == [old.id, new.id]
    assert db.check() == []


def test_a_memory_is_found_from_its_start_to_its_end(db: Database, clock: Clock) -> None:
    stored = db.memories.add("t", "user", "tea week", valid_from="2026-01", valid_to="2026-01-07")
    assert stored.memory.validity == "valid from 2026-01-01 to 2026-01-07"
    search = db.memories.search
    assert ids(search("tea")) == []
    assert ids(search("tea", as_of="2026-01-01")) == [stored.id]
    clock.now = datetime(2026, 1, 7, 23, 59, tzinfo=UTC)
    assert ids(search("tea")) == [stored.id]
    clock.now += timedelta(minutes=1)
    assert ids(search("tea")) == []
    assert ids(search("tea", as_of="1h")) == [stored.id]
    assert ids(db.memories.browse()) == [stored.id]  # which lists what is stored


def test_a_period_is_changed_and_its_ends_removed(db: Database, clock: Clock) -> None:
    id = db.memories.add("t", "user", "tea").id
    done = db.memories.update(id, valid_to="2024")
    assert done.fields == ("valid_to",)
    assert done.memory.valid_to == "2024-12-31T23:59:59.999999+00:00"
    assert ids(db.memories.search("tea")) == []
    with pytest.raises(InvalidInput, match=r"valid_from \(2025-01-01\) lies after valid_to \(2024"):
        db.memories.update(id, valid_from="2025")
    assert db.memories.update(id, valid_to="").memory.valid_to is None
    assert ids(db.memories.search("tea")) == [id]


def test_one_without_an_end_was_not_replaced(db: Database) -> None:
    old = db.memories.add("t", "user", "tea at four")
    new = db.memories.add("t", "user", "tea at five", replaces=old.id)
    with pytest.raises(InvalidInput, match=f"replaced by memory:{new.id}, so it cannot hold"):
        db.memories.update(old.id, valid_to="2999")
    assert db.memories.update(old.id, valid_to="2020").memory.replaced_by == new.id
    again = db.memories.update(old.id, valid_to="").memory
    assert (again.valid_to, again.replaced_by) == (None, None)
    assert sorted(ids(db.memories.search("tea"))) == [old.id, new.id]


def test_a_memory_is_replaced_once(db: Database) -> None:
    old = db.memories.add("t", "user", "one")
    new = db.memories.add("t", "user", "two", replaces=old.id)
    with pytest.raises(InvalidInput, match=rf"replaced by memory:{new.id} already"):
        db.memories.add("t", "user", "three", replaces=old.id)
    with pytest.raises(NotFound):
        db.memories.add("t", "user", "three", replaces=99)
    assert db.memories.count() == 2
    db.memories.delete(new.id)
    assert db.memories.get(old.id).replaced_by is None
    third = db.memories.add("t", "user", "three", replaces=old.id)
    assert db.memories.get(old.id).replaced_by == third.id


def test_what_held_once_can_be_said_again(db: Database, clock: Clock) -> None:
    first = db.memories.add("t", "user", "the shop is open", valid_to="2025-11-29T11:00:00Z")
    assert db.memories.add("t", "user", "the shop is open").status == "repeated"
    clock.now += timedelta(days=1)
    again = db.memories.add("t", "user", "the shop is open")
    assert again.status == "added" and ids(db.memories.search("shop")) == [again.id]
    assert first.id != again.id


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valid_from": "soon"}, "valid_from must be a date"),
        ({"valid_to": ""}, "valid_to must be a date"),
        ({"valid_from": "2025", "valid_to": "2024"}, "lies after"),
        ({"replaces": 0}, "whole number"),
        ({"provenance": "hearsay"}, "provenance must be person or agent"),
    ],
)
def test_a_period_or_provenance_that_cannot_be_is_refused(
    db: Database, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.memories.add("t", "user", "tea", **given)
    with pytest.raises(InvalidInput, match="as_of must be a date"):
        db.memories.search("tea", as_of="once")


def test_provenance_is_that_of_the_source_unless_it_is_said(db: Database) -> None:
    add = db.memories.add
    assert add("t", "user", "a").memory.provenance == "person"
    assert add("t", "agent", "b").memory.provenance == "agent"
    assert add("t", "agent", "c", provenance="web").memory.provenance == "web"


@pytest.mark.parametrize("provenance", ["person", "agent", "document", None])
def test_no_rewriting_raises_a_provenance(db: Database, provenance: Any) -> None:
    web = db.memories.add("t", "agent", "a", provenance="web")
    assert db.memories.update(web.id, text="b", provenance=provenance).memory.provenance == "web"
    said = db.memories.add("t", "agent", "b", provenance=provenance)
    assert (said.status, said.memory.provenance) == ("repeated", "web")
    new = db.memories.add("t", "user", "c", replaces=web.id, provenance=provenance)
    assert new.memory.provenance == "web"


def test_an_agent_that_rewrites_a_persons_words_lowers_their_provenance(db: Database) -> None:
    id = db.memories.add("t", "user", "a").id
    assert db.memories.update(id, tags=["x"], provenance="agent").memory.provenance == "person"
    assert db.memories.add("t", "user", "a", provenance="agent").memory.provenance == "person"
    assert db.memories.update(id, text="b", provenance="agent").memory.provenance == "agent"


def test_undo_and_history_know_when_a_memory_held(db: Database) -> None:
    old = db.memories.add("t", "user", "tea at four")
    before = db.history()[0].number
    new = db.memories.add("t", "user", "tea at five", replaces=old.id, provenance="web")
    assert db.memories.get(old.id, as_of=before).valid_to is None
    replaced = db.history()[0].number
    db.memories.update(old.id, tags=["x"])
    assert db.memories.get(old.id, as_of=replaced).replaced_by == new.id
    db.memories.update(new.id, text="tea at six")
    db.undo()
    assert db.memories.get(new.id).provenance == "web"
    db.undo()
    db.undo()
    assert [each.replaced_by for each in db.memories.browse()] == [None]
    assert ids(db.memories.search("tea")) == [old.id]


def test_an_export_and_a_merge_carry_it(db: Database, tmp_path: Path) -> None:
    db.memories.add("t", "user", "other")
    old = db.memories.add("t", "user", "tea at four", valid_from="2024")
    db.memories.add("t", "agent", "tea at five", replaces=old.id, provenance="document")
    db.export_to(tmp_path / "out.jsonl")
    shown = [(each.text, each.validity, each.provenance) for each in db.memories]
    with Database(tmp_path / "new.db", embedder=Letters()) as other:
        other.import_from(tmp_path / "out.jsonl")
        assert [(each.text, each.validity, each.provenance) for each in other.memories] == shown
    with Database(tmp_path / "merged.db", embedder=Letters()) as other:
        other.memories.add("t", "user", "here first")  # so others get other ids
        db.copy_to(tmp_path / "copy.db")
        other.merge(tmp_path / "copy.db")
        found = {each.text: each for each in other.memories}
        assert found["tea at four"].replaced_by == found["tea at five"].id
        assert found["tea at five"].provenance == "document"


def test_grep_and_similar_find_what_holds(db: Database) -> None:
    old = db.memories.add("t", "user", "green tea at four")
    new = db.memories.add("t", "user", "green tea at five", replaces=old.id)
    given = db.memories.add("t", "user", "green tea")
    assert ids(db.grep("green")) == [new.id, given.id]
    assert ids(db.grep("green", as_of="any")) == [old.id, new.id, given.id]
    assert ids(db.similar(memory=given.id)) == [new.id]
    assert ids(db.search("green tea at four", as_of="any", kind="memories"))[0] == old.id
    assert old.id not in ids(db.search("green tea at four", kind="memories"))
    assert db.verify("tea at four").status == "exact"  # it stands there, whenever it held


def test_near_tells_the_same_and_the_contrary(db: Database) -> None:
    known = db.memories.add("t", "user", "The port is 5432.")
    [same] = db.memories.near("the port is 5432")
    assert (same.memory.id, same.same, same.contradiction) == (known.id, True, None)
    [other] = db.memories.near("The port is 5433.")
    assert (other.same, other.contradiction) == (False, ("5433", "5432"))
    db.memories.update(known.id, valid_to="2020-01-01")
    assert db.memories.near("The port is 5433.") == []


TOKEN = "ghp_" + "a1B2" * 9  # made up


def test_secrets_never_reach_the_file_and_the_result_says_so(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with Database(path, embedder=Letters()) as db:
        stored = db.memories.add("t", "user", f"use {TOKEN}", metadata={"password": "hunter2"})
        assert stored.memory.text == "use [redacted: GitHub token]"
        assert stored.memory.metadata == {"password": "[redacted: password]"}
        assert stored.redacted == "2 secrets were left out (GitHub token, password)"
        changed = db.memories.update(stored.id, text=f"not {TOKEN}")
        assert changed.redacted == "one secret was left out (GitHub token)"
        batch = [Entry(thread="t", source="agent", text=f"{each} {TOKEN}") for each in "ab"]
        assert all(each.result and each.result.redacted for each in db.memories.add_many(batch))
        assert db.memories.add("t", "user", "nothing to hide").redacted == ""
        db.memories.near(f"use {TOKEN}")
        db.undo()
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert files and not any(TOKEN.encode() in each.read_bytes() for each in files)


def test_what_is_stored_already_stays_as_it_is(db: Database, tmp_path: Path) -> None:
    db.memories.add("t", "user", "one")
    writer = db.memories.versioned  # what `add` and `update` call after they redacted
    prepared = writer.prepare([f"use {TOKEN}"], None)
    with db._store.file.writing() as sql:
        writer.change(sql, Change(id=1, text=f"use {TOKEN}"), prepared, dates.now())
    db.memories.update(1, tags=["x"])
    db.undo()
    db.export_to(tmp_path / "all.jsonl")
    with Database(tmp_path / "b.db", embedder=Letters()) as other:
        other.import_from(tmp_path / "all.jsonl")
        assert other.memories.get(1).text == f"use {TOKEN}"
        other.export_to(tmp_path / "again.jsonl")
    first, again = (
        [line for line in path.read_text().splitlines() if TOKEN in line]
        for path in (tmp_path / "all.jsonl", tmp_path / "again.jsonl")
    )
    assert first == again != []
