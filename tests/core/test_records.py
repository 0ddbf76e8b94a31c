from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from mcpvectordb import Database, Embedded, Image, Ingested, InvalidInput, Progress
from mcpvectordb.records import Record, Status


class Point(Record):
    """A point."""

    x: int
    y: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    weight: float = field(default=0.0, compare=False)


class Other(Record):
    x: int
    y: int = 0


def test_fields_have_their_values_or_their_defaults() -> None:
    point = Point(x=1)
    assert (point.x, point.y, point.tags, point.weight) == (1, 0, {}, 0.0)
    assert Point(x=1).tags is not point.tags


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "Point needs x"),
        ({"y": 1}, "Point needs x"),
        ({"x": 1, "z": 2, "a": 3}, "Point has no field a, z; there are x, y, tags, weight"),
    ],
)
def test_fields_that_are_missing_or_unknown_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Point(**values)


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]


def test_a_record_does_not_change() -> None:
    point = Point(x=1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'new'"):
        point.new = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del point.x
    assert point.x == 1


def test_records_are_equal_when_their_kind_and_compared_fields_are() -> None:
    assert Point(x=1, y=2) == Point(y=2, x=1) != Point(x=1)
    assert Point(x=1, weight=1.0) == Point(x=1, weight=2.0)
    assert Point(x=1) != Other(x=1) and Point(x=1) != (1, 0)
    assert hash(Other(x=1)) == hash(Other(x=1, y=0))
    assert len({Other(x=1), Other(x=1), Other(x=2)}) == 2


def test_a_record_shows_its_fields_in_their_order() -> None:
    assert repr(Point(tags={"a": "b"}, x=1)) == "Point(x=1, y=0, tags={'a': 'b'}, weight=0.0)"
    assert repr(Point(weight=1.0, tags={}, y=2, x=1)) == "Point(x=1, y=2, tags={}, weight=1.0)"


def test_a_record_is_a_dataclass_to_the_standard_library() -> None:
    assert is_dataclass(Progress)
    assert [each.name for each in fields(Progress)][:3] == [
        "step",
        "done",
        "total",
    ]
    assert replace(Point(x=1, y=2), x=3) == Point(x=3, y=2)


def test_a_record_is_copied_and_pickled() -> None:
    record = Progress(step="embed", done=1, total=None)
    for again in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert again == record


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"step": "fetch", "total": None}, ""),
        (
            {"step": "sync", "tokens_per_second": 7110.4, "seconds_left": 3725.6},
            "32/70 chunks, 7,110 tokens/s, 1:02:06 left",
        ),
        (
            {"step": "embed", "tokens_per_second": 12.0, "seconds_left": 0.0},
            "12 tokens/s, 0:00:00 left",
        ),
        ({"step": "ingest", "chunks_known": 0, "seconds_left": 61}, "0:01:01 left"),
    ],
)
def test_the_pace_has_the_known_figures(figures: dict[str, Any], words: str) -> None:
    chunks = {"chunks": 32, "chunks_known": 0 if figures["step"] == "fetch" else 70}
    assert Progress(**{"done": 1, "total": 9, **chunks, **figures}).pace == words


def test_figures_of_embedding_are_added() -> None:
    both = Embedded(chunks=1, tokens=10, seconds=0.5) + Embedded(chunks=2, tokens=20, seconds=1.0)
    assert (both.chunks, both.tokens, both.seconds, both.tokens_per_second) == (3, 30, 1.5, 20.0)
    assert Embedded().tokens_per_second == 0 and both == Embedded(chunks=3, tokens=30)


def test_a_record_becomes_a_dict_of_json_types() -> None:
    made = Point(x=1, tags={"a": "b"})
    assert made.to_dict() == {"x": 1, "y": 0, "tags": {"a": "b"}, "weight": 0.0}


def test_a_passage_carries_its_citation_and_a_vector_its_numbers(db: Database) -> None:
    db.documents.ingest_text("# Tea\n\nPour it.", source="tea.md")
    results = db.documents.search("tea", mode="text")
    (hit,) = json.loads(json.dumps(results.to_dict()))["hits"]
    assert hit["item"]["citation"] == results[0].item.citation == "Tea, lines 1–3 (tea.md)"
    assert hit["item"]["document"]["source"] == "tea.md"
    db.vectors.add("v", [0.5, 1.0])
    assert db.vectors.get("v").to_dict()["embedding"] == [0.5, 1.0]
    memory = db.memories.add(
        "t", "agent", "note", images=[Image(data=b"\x89PNG", mime_type="image/png")]
    )
    assert json.dumps(memory.to_dict())


def test_a_time_is_also_a_datetime(db: Database) -> None:
    document = db.documents.ingest_text("tea", source="x", metadata={"date": "2019-05-06"}).document
    assert document.moment("date") == datetime(2019, 5, 6, tzinfo=UTC)
    assert document.moment("modified") is None
    moment = db.memories.add("t", "user", "tea").memory.moment("created_at")
    assert moment is not None and moment.tzinfo is UTC
    assert db.history()[0].moment("time") is not None
    with pytest.raises(InvalidInput, match="title must be a date"):
        document.moment("title")


def test_every_status_of_an_ingest_is_documented() -> None:
    assert [each for each in get_args(Status) if f'"{each}"' not in (Ingested.__doc__ or "")] == []
