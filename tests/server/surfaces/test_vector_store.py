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


def scores(reply: dict[str, Any]) -> list[float]:
    return [each["score"] for each in reply["results"]]


# vector_add


@pytest.mark.parametrize(
    "embedding",
    [
        [],
        {},
        None,
        5,
        0.5,
        "text",
        "[]",
        "[1, NaN]",
        "",
        [[1, 2]],
        [1, None],
        [1, "2"],
        ["a"],
        [True],
        [1, {}],
        {"0": 1},
        [10**400],
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


def test_an_absent_embedding_is_a_bad_one(tool: Ask) -> None:
    assert tool("vector_add", id="a") == BAD_EMBEDDING
    assert tool("vector_search") == BAD_QUERY


def test_an_embedding_that_is_too_long_is_refused_with_the_limit(tool: Ask) -> None:
    assert tool("vector_add", id="a", embedding=[0.5] * 16_385) == {
        "error": "embedding has 16,385 numbers; an embedding has 1 to 16,384"
    }


# vector_search


def test_k_limits_the_results(tool: Ask) -> None:
    for number in range(12):
        tool("vector_add", id=str(number), embedding=[1, number])
    found = {
        k: tool("vector_search", query=[1, 0], k=k)
        for k in (1, 3.0, "4", 12, 1000, 2**62, 0, -1, -(2**62), None)
    }
    assert {k: len(reply["results"]) for k, reply in found.items()} == {
        1: 1,
        3.0: 3,
        "4": 4,
        12: 12,
        1000: 12,
        2**62: 12,
        0: 0,
        -1: 0,
        -(2**62): 0,
        None: 10,
    }
    assert {reply["total_searched"] for reply in found.values()} == {12}


def test_filter_keys_are_literal(tool: Ask) -> None:
    tool("vector_add", id="dotted", embedding=[1], metadata={"a.b": 1})
    tool("vector_add", id="nested", embedding=[1], metadata={"a": {"b": 1}})
    odd = {
        "": 0,
        "$": 1,
        "a[0]": 2,
        '"': 3,
        "\\": 4,
        "a b": 5,
        "metadata": 6,
        "id": 7,
        "é": 8,
        "\n": 9,
        "0": 10,
    }
    tool("vector_add", id="odd", embedding=[1], metadata=odd)
    assert ids(tool("vector_search", query=[1], metadata_filter={"a.b": 1})) == ["dotted"]
    for key, value in odd.items():
        assert ids(tool("vector_search", query=[1], metadata_filter={key: value})) == ["odd"], key
        assert ids(tool("vector_search", query=[1], metadata_filter={key: value + 1})) == [], key


def test_scores_are_numbers_that_json_has(tool: Ask, db: Database) -> None:
    for store in ("cosine", "dot", "euclidean"):
        db.vectors.add("tiny", [5e-324, 0], store=store, metric=store)
        for id, embedding in (
            ("huge", [1.7e308, 1.7e308]),
            ("hole", [-1.7e308, -1.7e308]),
            ("same", [1, 1]),
        ):
            tool("vector_add", id=id, embedding=embedding, store_name=store)
        for query in ([1.7e308, 1.7e308], [5e-324, 5e-324], [0, 0]):
            assert all(
                map(math.isfinite, scores(tool("vector_search", query=query, store_name=store)))
            )
    assert scores(tool("vector_search", query=[1e308, 1e308], store_name="cosine"))[
        :2
    ] == pytest.approx([1, 1])


# vector_delete, vector_count and namespaces


def test_without_a_namespace_the_whole_store_is_meant(tool: Ask) -> None:
    for number, namespace in enumerate([None, "n", "m"]):
        tool(
            "vector_add",
            id="a",
            embedding=[1, number],
            namespace=namespace,
            metadata={"in": namespace},
        )
    assert tool("vector_count") == {"count": 3, "store_name": "default"}
    whole, one = (
        tool("vector_search", query=[1, 0]),
        tool("vector_search", query=[1, 0], namespace="m"),
    )
    assert [each["metadata"]["in"] for each in whole["results"]] == [None, "n", "m"]
    assert ([each["metadata"]["in"] for each in one["results"]], one["total_searched"]) == (
        ["m"],
        1,
    )
    assert tool("vector_count", namespace="")["count"] == 1
    assert tool("vector_count", namespace="other") == {"count": 0, "store_name": "default"}


# Failures and bounds


def test_no_more_results_are_ranked_than_fit_into_a_reply(tool: Ask, db: Database) -> None:
    db.vectors.add_many(map(str, range(6_000)), [[1.0]] * 6_000)
    reply = tool("vector_search", query=[1], k=10**9)
    assert len(reply["results"]) > 3_000 and reply["total_searched"] == 6_000
    assert f"of {MOST_RESULTS} results" in reply["truncated"]
