from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.surface import ExposedTool, call
from mcpvectordb_server.surfaces.vector_store import MOST_RESULTS, SURFACE
from tests.server.clients import caller, service

BAD_EMBEDDING = {"error": "Embedding must be a non-empty array of numbers"}
BAD_QUERY = {"error": "Query embedding must be a non-empty array"}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def tool(db: Database) -> Ask:
    return caller(service(db, SURFACE))


def ids(reply: dict[str, Any]) -> list[str]:
    return [each["id"] for each in reply["results"]]


# vector_add


@pytest.mark.parametrize(
    "embedding",
    [
        *([], {}, None, 5, 0.5, "text", "[]", "[1, NaN]", "", {"0": 1}),
        *([[1, 2]], [1, None], [1, "2"], ["a"], [True], [1, {}], [10**400]),
    ],
)
def test_a_bad_embedding_is_answered_in_the_specified_words(embedding: Any, tool: Ask) -> None:
    assert tool("vector_add", id="a", embedding=embedding) == BAD_EMBEDDING
    assert tool("vector_search", query=embedding) == BAD_QUERY
    assert tool("vector_count") == {"count": 0, "store_name": "default"}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(number: float, db: Database) -> None:
    add, search, *_ = (
        ExposedTool(name=each.name, surface=SURFACE, tool=each) for each in SURFACE.tools
    )
    assert call(add, db, {"id": "a", "embedding": [1.0, number]}).structured == BAD_EMBEDDING
    assert call(search, db, {"query": [1.0, number]}).structured == BAD_QUERY


# vector_search


def test_k_limits_the_results(tool: Ask) -> None:
    for number in range(12):
        tool("vector_add", id=str(number), embedding=[1, number])
    counts = {1: 1, 3.0: 3, "4": 4, 12: 12, 2**62: 12, 0: 0, -1: 0, -(2**62): 0, None: 10}
    for k, count in counts.items():
        reply = tool("vector_search", query=[1, 0], k=k)
        assert (len(reply["results"]), reply["total_searched"]) == (count, 12), k


def test_filter_keys_are_literal(tool: Ask) -> None:
    tool("vector_add", id="dotted", embedding=[1], metadata={"a.b": 1})
    tool("vector_add", id="nested", embedding=[1], metadata={"a": {"b": 1}})
    odd = {
        key: value for value, key in enumerate(["", "$", "a[0]", '"', "\\", "a b", "id", "é", "\n"])
    }
    tool("vector_add", id="odd", embedding=[1], metadata=odd)
    assert ids(tool("vector_search", query=[1], metadata_filter={"a.b": 1})) == ["dotted"]
    for key, value in odd.items():
        assert ids(tool("vector_search", query=[1], metadata_filter={key: value})) == ["odd"], key
        assert ids(tool("vector_search", query=[1], metadata_filter={key: value + 1})) == [], key


# vector_delete, vector_count and namespaces


def test_without_a_namespace_the_whole_store_is_meant(tool: Ask) -> None:
    for number, namespace in enumerate([None, "n", "m"]):
        told = {"namespace": namespace, "metadata": {"in": namespace}}
        tool("vector_add", id="a", embedding=[1, number], **told)
    counts = {None: 3, "": 1, "m": 1, "other": 0}
    for namespace, count in counts.items():
        assert tool("vector_count", namespace=namespace)["count"] == count
        reply = tool("vector_search", query=[1, 0], namespace=namespace)
        assert (len(reply["results"]), reply["total_searched"]) == (count, count)
    tool("vector_delete", id="a")
    left = tool("vector_search", query=[1, 0])["results"]
    assert [each["metadata"]["in"] for each in left] == ["n", "m"]


# Failures and bounds


def test_no_more_results_are_ranked_than_fit_into_a_reply(tool: Ask, db: Database) -> None:
    db.vectors.add_many(map(str, range(6_000)), [[1.0]] * 6_000)
    reply = tool("vector_search", query=[1], k=10**9)
    assert len(reply["results"]) > 3_000 and reply["total_searched"] == 6_000
    assert f"of {MOST_RESULTS} results" in reply["truncated"]
