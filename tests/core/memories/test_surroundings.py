"""Turns of a conversation are found by the words around them, by who said them, and when."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Database, Entry
from mcpvectordb.index.keyword import MEMORIES, Occurrences
from mcpvectordb.memories.memory import MemorySource
from mcpvectordb.memories.surroundings import (
    NEAR,
    SHORT,
    TURNS,
    context_weight,
    speaker,
    turn_taking,
    window_scores,
)
from mcpvectordb.memories.surroundings import day as said_on
from tests.support import Letters, kept_keys, scaled

NOBODY = np.full((2 * len(NEAR), 1), -1)
CHAT = [
    "Ann: Where did you go on holiday this summer?",
    "Ben: To a small island, by boat!",
    "Ann: I stayed at home and painted the kitchen.",
    "Ben: Which colour?",
    "Ann: Blue, like the sea.",
]


def remember(db: Database, texts: Sequence[str], thread: str = "chat") -> None:
    db.memories.add_many([Entry(thread=thread, source="user", text=each) for each in texts])


def found(db: Database, query: str, limit: int = 10) -> list[str]:
    return [hit.item.text for hit in db.memories.search(query, limit=limit, thread="chat")]


def occurrences(counts: Sequence[Sequence[float]], lengths: Sequence[float]) -> Occurrences:
    terms = len(counts)
    return Occurrences(
        np.array(counts, np.float64),
        np.array(lengths, np.float64),
        10.0,
        np.ones(terms),
        len(lengths),
    )


def test_a_turn_is_found_by_the_words_of_the_question_before_it(db: Database) -> None:
    remember(db, CHAT)
    assert set(found(db, "holiday summer", 2)) == set(CHAT[:2])


def test_notes_of_one_speaker_are_ranked_as_if_each_stood_alone(db: Database) -> None:
    notes = ["holiday plans for the summer", "the kitchen is blue", "boats are slow"]
    for number, text in enumerate(notes):
        db.memories.add("chat", "agent", text)
        db.memories.add(f"apart {number}", "agent", text)
    together = db.memories.search("slow boats", thread="chat")
    alone = [
        hit.item.text
        for hit in db.memories.search("slow boats", where={"thread": {"starts_with": "apart"}})
    ]
    assert [hit.item.text for hit in together] == alone


def test_labels_of_notes_take_no_turns(db: Database) -> None:
    notes = ["holiday plans for the summer", "the kitchen is blue", "boats are slow"]
    for number, text in enumerate([*notes, *reversed(notes)]):
        db.memories.add("chat", "agent", f"{('TODO', 'Decision')[number % 2]}: {text}")
    hits = db.memories.search("summer holiday", thread="chat")
    assert [bool(hit.scores.text) for hit in hits] == [True, True, False, False, False, False]


@pytest.mark.parametrize("told", ["text", "metadata", "source"])
def test_who_speaks_is_known_from_text_metadata_or_source(db: Database, told: str) -> None:
    sources: Sequence[MemorySource] = ("user", "agent")
    for name, text in (line.split(": ", 1) for line in CHAT):
        db.memories.add(
            "chat",
            sources[name == "Ben"] if told == "source" else "user",
            f"{name}: {text}" if told == "text" else text,
            metadata={"speaker": name} if told == "metadata" else None,
        )
    assert "To a small island, by boat!" in found(db, "holiday summer", 2)[-1]


def test_a_speaker_that_the_question_names_is_preferred(db: Database) -> None:
    for name in ("Ann", "Ben"):
        db.memories.add("chat", "user", "I like green tea.", metadata={"speaker": f"{name} Moor"})
        db.memories.add("chat", "user", "Filler.", metadata={"speaker": "Cy"})
    for name in ("Ann", "Ben"):
        [first, *_] = db.memories.search(f"Does {name} like green tea?", thread="chat")
        assert first.item.metadata == {"speaker": f"{name} Moor"}


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("the party in May", 0),
        ("the party of 9 June 2023", 1),
        ("the party two weeks ago", 2),
        ("the party last year", 3),
    ],
)
def test_the_time_that_a_question_names_is_preferred(
    db: Database, question: str, first: int
) -> None:
    now = datetime(2026, 11, 18, tzinfo=UTC)
    db.memories._clock = lambda: now
    days = ["2022-05-03", "2023-06-09", (now - timedelta(days=14)).isoformat(), "2025-08-01"]
    db.memories.add_many(
        [
            Entry(thread="chat", source="user", text=f"It was a party. {letter}", created_at=day)
            for letter, day in zip("abcd", days, strict=True)
        ]
    )
    assert found(db, question)[0].endswith("abcd"[first])


def test_a_later_turn_changes_what_its_neighbour_is_found_by(db: Database) -> None:
    remember(db, [*CHAT[2:], "Ben: And what of the volcano?"])
    assert "volcano" not in found(db, "volcano rock", 2)[1]
    db.memories.add("chat", "user", "Ann: It slept.")
    assert set(found(db, "volcano rock", 3)) >= {"Ann: It slept.", "Ben: And what of the volcano?"}


def test_words_of_another_thread_do_not_count(db: Database) -> None:
    remember(db, CHAT[1:2])
    remember(db, [*CHAT[:1], "Ben: no idea"], "other")
    remember(db, CHAT[2:])
    alone = db.memories.search("holiday summer", thread="chat")
    assert all(not hit.scores.text for hit in alone)


def test_filters_hold_for_neighbours_too(db: Database) -> None:
    for number, text in enumerate(CHAT):
        db.memories.add("chat", ("user", "agent")[number % 2], text)  # type: ignore[arg-type]
    hits = db.memories.search("holiday summer", source="agent")
    assert {hit.item.source for hit in hits} == {"agent"}


@settings(max_examples=scaled(25), deadline=None)
@given(
    turns=st.lists(st.sampled_from("tea pot cup sun may 2023 boat sea".split()), min_size=2),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    many=st.booleans(),
)
def test_the_order_never_depends_on_limit_and_offset(
    turns: list[str], limits: list[int], many: bool
) -> None:
    words = turns * 60 if many else turns  # more than the candidates of one tier
    with Database(":memory:", embedder=Letters()) as db:
        names = itertools.cycle(("Ann", "Ben", "Ann", "Cy"))
        texts = [
            f"{name}: {word} {words[place // 2]} {place}"
            for place, (word, name) in enumerate(zip(words, names, strict=False))
        ]
        remember(db, texts)
        question = "did Ann take the tea boat in May 2023"
        whole = found(db, question, len(texts))
        for limit in limits:
            pages = [
                hit.item.text
                for offset in range(0, len(texts), limit)
                for hit in db.memories.search(question, limit=limit, offset=offset, thread="chat")
            ][: len(whole)]
            assert pages == whole


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("Ann: hello", "Ann"),
        ("**Ann Moor**: hello", "Ann Moor"),
        ("1:56 pm on 8 May, 2023, Ann: hello", "Ann"),
        ("[2023-05-08 13:56] Ann: hello", "Ann"),
        ("8 May 2023 Ann: hello", "Ann"),
        ("Ann (8 May 2023): hello", "Ann"),
        ("2023-05-08\nAnn: hello", "Ann"),
        ("Speaker 1: hello", "Speaker 1"),
        ("at 7:30 tomorrow", ""),
        ("TODO: call Ann", ""),
        ("2026-01-02, Open question: who pays?", ""),
        ("a sentence that is too long to be a name: hello", ""),
        ("", ""),
    ],
)
def test_a_speaker_stands_before_the_first_colon(head: str, name: str) -> None:
    assert speaker(None, head) == name.casefold()


@given(head=st.text(max_size=100))
def test_any_text_may_have_a_speaker(head: str) -> None:
    assert speaker(None, head) in head.casefold()


@pytest.mark.parametrize(
    ("metadata", "head", "day"),
    [
        ('{"date": "8 May 2023"}', "9 June 2024, Ann: hi", "2023-05-08"),
        (None, "1:56 pm on 9 June, 2024, Ann: hi", "2024-06-09"),
        (None, "Ann: hi", "2026-01-02"),
        ('{"n": 1}', None, "2026-01-02"),
    ],
)
def test_a_day_is_that_of_metadata_or_text_or_of_storing(
    metadata: str | None, head: str | None, day: str
) -> None:
    assert str(said_on("2026-01-02T00:00:00.000000+00:00", metadata, head)) == day


def share(by: Sequence[int]) -> float:
    """Of memories in one thread, in their order."""
    ids = np.arange(1, len(by) + 1)
    beside = np.stack([ids - 1, np.where(ids < len(by), ids + 1, 0)])
    return turn_taking(ids, np.array(by, np.int64), ids, beside)


def test_turns_are_taken_where_another_speaks_before_or_after() -> None:
    ann, ben = 2, 4
    assert share([ann, ben, ben, ben, ben, ann]) == 4 / 6
    assert share([]) == 0.0


def test_what_stands_before_a_colon_once_is_nobody() -> None:
    assert share([2, 4, 6]) == 0.0


def test_long_turns_need_their_neighbours_less() -> None:
    assert context_weight(np.array([5.0, 20.0])) == 1.0
    assert context_weight(np.array([4.0 * SHORT])) == 0.5


@given(
    counts=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    distance=st.integers(0, len(NEAR) - 1),
    weight=st.just(0.0) | st.floats(0.001, 1),
)
def test_an_occurrence_beside_a_turn_adds_to_its_score_and_less_than_its_own(
    counts: list[int], distance: int, weight: float
) -> None:
    rows = occurrences([[0, 1, *counts]], [10] * 6)

    def score(own: int, near: int | None) -> float:
        places = NOBODY.copy()
        places[2 * distance] = -1 if near is None else near
        return float(window_scores(rows, np.array([own]), places, weight)[0])

    assert score(0, None) == 0.0 <= score(0, 1) <= score(1, None)
    assert (score(0, 1) > 0) == (weight > 0)


def test_the_nearer_of_two_neighbours_counts_more() -> None:
    rows = occurrences([[0, 1]], [10, 10])
    near = [NOBODY.copy() for _ in NEAR]
    for distance, places in enumerate(near):
        places[2 * distance] = 1
    scores = [float(window_scores(rows, np.array([0]), each, 1.0)[0]) for each in near]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0


# What a process keeps in memory.

said = st.lists(st.sampled_from("tea boat holiday blue Ann: Ben:".split()), min_size=1, max_size=5)
writes = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 30), said.map(" ".join)),
    st.tuples(st.just("change"), st.integers(0, 30), said.map(" ".join)),
    st.tuples(st.just("speaker"), st.integers(0, 30), st.sampled_from(["Ann", "Cy"])),
    st.tuples(st.just("end"), st.integers(0, 30), st.just("")),
    st.tuples(st.just("delete"), st.integers(0, 30), st.just("")),
    st.tuples(st.just("undo"), st.just(0), st.just("")),
)


def written(db: Database, kind: str, number: int, text: str) -> None:
    """One write by another connection; a number stands for a thread and day, or a memory."""
    ids = [memory.id for memory in db.memories]
    id = ids[number % len(ids)] if ids else 0
    if kind == "add":
        at = f"2026-01-{1 + number:02}T00:00:00Z"
        db.memories.add_many(
            [
                Entry(
                    thread=f"t{number % 2}",
                    source=("user", "agent")[number % 3 == 0],
                    text=f"{text} {len(ids)}",
                    created_at=at,
                )
            ]
        )
    elif kind == "undo":
        if db.history(limit=1):
            db.undo(db.history(limit=1)[0].number)
    elif id and kind == "change":
        db.memories.update(id, text=text)
    elif id and kind == "speaker":
        db.memories.update(id, metadata={"speaker": text})
    elif id and kind == "end":
        db.memories.update(id, valid_to="2020-01-01")
    elif id:
        db.memories.delete(id)


def answers(db: Database) -> list[list[tuple[int, float, float | None]]]:
    found = (
        db.memories.search(query, **which)
        for query in ("tea holiday", "blue Ann", "boats -blue", '"tea boat" Ben')
        for which in (
            {},
            {"thread": "t0"},
            {"mode": "text", "source": "user"},
            {"words": "prefix", "as_of": "any"},
            {"mode": "vector", "thread": "t1", "as_of": "2026-01-10"},
        )
    )
    return [[(hit.item.id, hit.score, hit.scores.text) for hit in each] for each in found]


@settings(max_examples=scaled(25), deadline=None)
@given(st.lists(st.lists(writes, min_size=1, max_size=4), min_size=1, max_size=6))
def test_memories_get_the_same_answers_from_memory_and_from_the_file(
    steps: list[list[tuple[str, int, str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memories.db"
        with (
            Database(path, embedder=Letters()) as writer,
            Database(path, embedder=Letters()) as keeper,
        ):
            remember(writer, [f"{text} tea" for text in CHAT], "t0")
            answers(keeper)
            for step in steps:
                for write in step:
                    written(writer, *write)
                kept = answers(keeper)
                # A process that may keep nothing asks the file.
                with Database(path, embedder=Letters(), config=Config(resident_bytes=0)) as fresh:
                    assert kept == answers(fresh)


def test_a_transaction_that_began_earlier_sees_the_turns_of_then(path: Path) -> None:
    with (
        Database(path, embedder=Letters()) as early,
        Database(path, embedder=Letters()) as late,
    ):
        remember(early, CHAT)
        expected = [found(early, "holiday summer"), found(early, "holiday summer")]
        with early._file.reading():
            before = found(early, "holiday summer")
            remember(late, ["Ben: holiday again, this summer?"])
            found(late, "holiday summer"), found(late, "holiday summer")
            assert found(early, "holiday summer") == before == expected[0] == expected[1]
        assert len(found(early, "holiday summer")) == len(CHAT) + 1


def test_turns_are_kept_from_the_second_question_on(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        remember(db, CHAT)
        for keys in ([], [TURNS], [TURNS]):
            found(db, "holiday summer")
            assert kept_keys(db._store.fulltext.memory, MEMORIES) == keys
