"""Empty results say which name does not exist, and what compares exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mcpvectordb import Database, InvalidFilter
from mcpvectordb.ranking import why_empty
from tests.support import Letters


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database(":memory:", embedder=Letters()) as db:
        for name in ("tea", "coffee"):
            db.documents.ingest_text(
                f"# All about {name}\n\nWater for {name}.",
                source=f"notes/{name}.md",
                library="work",
                metadata={"year": 2024, "author": {"name": "Ann"}},
            )
        db.documents.ingest_text("Something else", source="else.md", library="home")
        db.vectors.add("a", [1.0, 2.0], store="images", namespace="pets", metadata={"kind": "cat"})
        db.memories.add("planning", "user", "buy tea", tags=["shopping"], metadata={"status": 1})
        yield db


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
@pytest.mark.parametrize("unit", ["passage", "document"])
def test_a_search_in_an_unknown_library_names_the_nearest_one(
    db: Database, mode: str, unit: Any
) -> None:
    found = db.documents.search("tea", library="wrk", mode=mode, unit=unit)
    assert not found.hits
    assert found.note == "there is no library 'wrk'; did you mean 'work'?"


@pytest.mark.parametrize(
    ("where", "note"),
    [
        ({"library": "hom"}, "there is no library 'hom'; did you mean 'home'?"),
        ({"library": "zzzzzz"}, "there is no library 'zzzzzz'; known: 'home', 'work'"),
        ({"metadata.yaer": 2024}, "there is no metadata key 'yaer'; did you mean 'year'?"),
        ({"metadata.author.nam": 1}, "there is no metadata key 'nam'; did you mean 'name'?"),
        ({"metadata.autor.name": 1}, "there is no metadata key 'autor'; did you mean 'author'?"),
        ({"metadata.year.x": 1}, "there is no metadata key 'x'; there is none yet"),
        (
            {"source": "tea.md"},
            "no document has the source 'tea.md', which is compared exactly: `contains` (in the "
            "shell source*=TEXT) finds a part of it",
        ),
        (
            {"title": "tea", "metadata.yeer": 1},
            "no document has the title 'tea', which is compared exactly: `contains` (in the shell "
            "title*=TEXT) finds a part of it; there is no metadata key 'yeer'; did you mean "
            "'year'?",
        ),
    ],
)
def test_the_reasons_of_empty_results(db: Database, where: dict[str, Any], note: str) -> None:
    assert db.documents.search("water", where=where).note == note
    assert db.documents.why_empty(where=where) == note


@pytest.mark.parametrize(
    "where",
    [
        {"metadata.year": 1999},
        {"metadata.nothing": {"not_exists": True}, "metadata.year": 1999},
        {"title": "All about tea", "metadata.year": 1999},
        {"page": 7},
        {"title": {"contains": "cocoa"}},
    ],
)
def test_whatever_else_leaves_nothing_is_no_mistake_in_a_name(
    db: Database, where: dict[str, Any]
) -> None:
    assert db.documents.search("water", where=where).note == why_empty.NO_MATCH
    assert db.documents.why_empty(where=where) == ""


def test_results_that_are_not_empty_have_no_note(db: Database) -> None:
    assert db.documents.search("water", library="work").note == ""
    assert db.documents.search("water", library="work", where={"metadata.year": 2024}).hits


def test_no_library_is_known_in_an_empty_file() -> None:
    with Database(":memory:", embedder=Letters()) as db:
        assert db.documents.why_empty(library="x") == "there is no library 'x'; there is none yet"


def test_a_listing_is_explained_as_a_search_is(db: Database) -> None:
    assert not db.documents.browse(library="wrk")
    assert "did you mean 'work'?" in db.documents.why_empty(library="wrk")
    with pytest.raises(InvalidFilter):
        db.documents.why_empty(where={"siez": 1})


def test_many_names_are_shortened() -> None:
    names = [f"{number}{'x' * 9}" for number in range(8)]
    assert why_empty.unknown_name("tag", "quite-another", names) == (
        "there is no tag 'quite-another'; known: '0xxxxxxxxx', '1xxxxxxxxx', '2xxxxxxxxx', "
        "'3xxxxxxxxx', '4xxxxxxxxx' and 3 more"
    )
    assert len(why_empty.unknown_name("tag", "x" * 10_000, ["y"])) < 300


def test_vectors_say_which_store_namespace_or_key_does_not_exist(db: Database) -> None:
    search = db.vectors.search
    assert search([1.0, 2.0], store="imges").note == (
        "there is no store 'imges'; did you mean 'images'?"
    )
    assert search([1.0, 2.0], store="images", namespace="pet").note == (
        "there is no namespace 'pet'; did you mean 'pets'?"
    )
    assert search([1.0, 2.0], store="images", where={"metadata.knid": "cat"}).note == (
        "there is no metadata key 'knid'; did you mean 'kind'?"
    )
    assert search([1.0, 2.0], store="images", where={"metadata.kind": "dog"}).note == ""
    assert search([1.0, 2.0], store="images").note == ""
    assert db.vectors.why_empty(store=None, namespace="pets") == ""


def test_memories_say_which_thread_tag_or_key_does_not_exist(db: Database) -> None:
    search = db.memories.search
    assert search("tea", thread="planing").note == (
        "there is no thread 'planing'; did you mean 'planning'?"
    )
    assert search("tea", tags=["Shoping"]).note == (
        "there is no tag 'shoping'; did you mean 'shopping'?"
    )
    assert search("tea", tags=["x", "shopping"]).note == ""
    assert search("tea", where={"metadata.stauts": 1}).note == (
        "there is no metadata key 'stauts'; did you mean 'status'?"
    )
    assert db.memories.why_empty(thread="planning", where={"metadata.status": 5}) == ""
