from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database
from mcpvectordb_server.surface import PublishedTool, Tool, call
from mcpvectordb_server.surfaces.vector_store import MOST_RESULTS, SURFACE
from tests.server.clients import ask, caller, service, valid
from tests.support import Letters

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


# The server as a whole


def test_the_examples_of_the_specification_run_as_written(tool: Ask) -> None:
    assert tool(
        "vector_add",
        id="doc-abc-123",
        embedding=[0.1, 0.2, 0.3, 0.4],
        metadata={"source": "arxiv", "title": "Attention Is All You Need"},
    ) == {"status": "added", "id": "doc-abc-123", "dimension": 4}
    assert tool(
        "vector_search", query=[0.1, 0.2, 0.3, 0.4], k=3, metadata_filter={"source": "arxiv"}
    ) == {
        "results": [
            {
                "id": "doc-abc-123",
                "score": 1.0,
                "metadata": {"source": "arxiv", "title": "Attention Is All You Need"},
            }
        ],
        "total_searched": 1,
    }
    assert tool("vector_delete", id="doc-abc-123") == {"deleted": True, "id": "doc-abc-123"}
    assert tool("vector_count", store_name="project_embeddings", namespace="chapter-1") == {
        "count": 0,
        "store_name": "project_embeddings",
    }


# vector_add


def test_an_existing_id_is_overwritten_wholly(tool: Ask) -> None:
    assert tool("vector_add", id="a", embedding=[1, 2], metadata={"x": 1, "y": 2}) == {
        "status": "added",
        "id": "a",
        "dimension": 2,
    }
    for _ in range(2):
        assert tool("vector_add", id="a", embedding=[3.5, 4, 5], metadata={"x": 3}) == {
            "status": "updated",
            "id": "a",
            "dimension": 3,
        }
        assert tool("vector_search", query=[3.5, 4, 5]) == {
            "results": [{"id": "a", "score": 1.0, "metadata": {"x": 3}}],
            "total_searched": 1,
        }
    tool("vector_add", id="a", embedding=[3.5, 4, 5])
    assert tool("vector_search", query=[3.5, 4, 5])["results"][0]["metadata"] == {}


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
        PublishedTool(name=each.name, surface=SURFACE, tool=each) for each in SURFACE.tools
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "id is required"),
        ({"id": ""}, "id must not be blank"),
        ({"id": " \n"}, "id must not be blank"),
        ({"id": 5}, "id must be text, not 5"),
        ({"id": None}, "id must be text, not null"),
        ({"id": "a", "metadata": [1]}, "metadata must be an object, not an array"),
        ({"id": "a", "store_name": " "}, "store_name must not be blank"),
        ({"id": "a", "namespace": 5}, "namespace must be text, not 5"),
    ],
)
def test_other_bad_arguments_of_an_add_are_reported(
    arguments: dict[str, Any], message: str, tool: Ask
) -> None:
    assert tool("vector_add", embedding=[1], **arguments) == {"error": message}


def test_ids_are_kept_as_given(tool: Ask) -> None:
    for number, id in enumerate(
        [" a", "a", "a ", "A", "ä", "a\u0308", "a\x00b", "🫖", "a/b?c=d#e"]
    ):
        assert tool("vector_add", id=id, embedding=[1, number]) == {
            "status": "added",
            "id": id,
            "dimension": 2,
        }
    assert tool("vector_delete", id=" a") == {"deleted": True, "id": " a"}
    assert " a" not in ids(tool("vector_search", query=[1, 0])) and "a" in ids(
        tool("vector_search", query=[1, 0])
    )


def test_metadata_is_kept_as_it_is(tool: Ask) -> None:
    metadata = {"": 1, "a.b": [None, True, 1.5, {"c": "d"}], "ü": "x" * 1000, "n": -(2**63)}
    tool("vector_add", id="a", embedding=[1], metadata=metadata)
    tool("vector_add", id="b", embedding=[1], metadata=None)
    assert [each["metadata"] for each in tool("vector_search", query=[1])["results"]] == [
        metadata,
        {},
    ]


def test_stores_are_persistent(path: Path) -> None:
    for count in (1, 2):
        with Database(path, embedder=Letters()) as db:
            tool = caller(service(db, SURFACE))
            tool("vector_add", id=str(count), embedding=[1])
            assert tool("vector_count")["count"] == count


# vector_search


def test_the_nearest_come_first_by_their_cosine(tool: Ask) -> None:
    for id, embedding in (
        ("opposite", [-1, -1]),
        ("near", [1, 0.9]),
        ("same", [20, 20]),
        ("square", [1, -1]),
    ):
        tool("vector_add", id=id, embedding=embedding, metadata={"name": id})
    reply = tool("vector_search", query=[1, 1])
    assert set(reply) == {"results", "total_searched"}
    assert all(set(each) == {"id", "score", "metadata"} for each in reply["results"])
    assert ids(reply) == ["same", "near", "square", "opposite"]
    assert scores(reply) == pytest.approx([1, 1.9 / math.sqrt(2 * 1.81), 0, -1], abs=1e-6)
    assert scores(reply)[0] == 1.0


def test_stores_of_another_metric_rank_by_it(tool: Ask, db: Database) -> None:
    for store in ("dot", "euclidean"):
        db.vectors.add("far", [9, 9], store=store, metric=store)
        for id, embedding in (("other", [1.0]), ("near", [1, 2]), ("same", [1, 1])):
            tool("vector_add", id=id, embedding=embedding, store_name=store)
    dot, euclidean = (
        tool("vector_search", query=[1, 1], store_name=store) for store in ("dot", "euclidean")
    )
    assert list(zip(ids(dot), scores(dot), strict=True)) == [
        ("far", 18),
        ("near", 3),
        ("same", 2),
        ("other", 0),
    ]
    assert list(zip(ids(euclidean), scores(euclidean), strict=True)) == [
        ("same", 0),
        ("near", 1),
        ("far", pytest.approx(math.sqrt(128))),
    ]


def test_vectors_of_another_dimension_come_last_with_score_0(tool: Ask) -> None:
    for id, embedding in (
        ("three", [1, 1, 1]),
        ("opposite", [-1, 0]),
        ("one", [1]),
        ("zero", [0, 0]),
        ("same", [2, 0]),
    ):
        assert tool("vector_add", id=id, embedding=embedding)["dimension"] == len(embedding)
    reply = tool("vector_search", query=[1, 0])
    assert ids(reply) == ["same", "zero", "opposite", "three", "one"]
    assert scores(reply) == [1, 0, -1, 0, 0]
    assert reply["total_searched"] == 5
    assert set(scores(tool("vector_search", query=[0, 0]))) == {0}
    assert ids(tool("vector_search", query=[1] * 7)) == ["three", "opposite", "one", "zero", "same"]


def test_equal_scores_keep_the_order_of_adding(tool: Ask) -> None:
    names = ["d", "b", "a", "c", "e"]
    for name in names:
        tool("vector_add", id=name, embedding=[1, 2])
    tool("vector_add", id="b", embedding=[2, 4])
    assert ids(tool("vector_search", query=[1, 2])) == names


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


@pytest.mark.parametrize("k", [True, 2.5, "many", [], 2**64])
def test_k_is_a_whole_number(k: Any, tool: Ask) -> None:
    (message,) = tool("vector_search", query=[1], k=k).values()
    assert message.startswith(
        ("k must be a whole number, not ", "k contains an integer beyond 64 bits")
    )


@pytest.mark.parametrize(
    ("metadata_filter", "found"),
    [
        ({}, "abc"),
        (None, "abc"),
        ({"year": 2026}, "a"),
        ({"year": 2026.0}, "a"),
        ({"year": "2026"}, "b"),
        ({"year": 2026, "source": "arxiv"}, "a"),
        ({"year": 2026, "source": "paper"}, ""),
        ({"source": "arxiv"}, "ab"),
        ({"source": "Arxiv"}, ""),
        ({"source": "arx%"}, ""),
        ({"flag": True}, "a"),
        ({"flag": 1}, ""),
        ({"none": None}, "b"),
        ({"missing": None}, ""),
        ({"tags": ["x", "y"]}, "a"),
        ({"tags": ["y", "x"]}, ""),
        ({"tags": "x"}, ""),
        ({"deep": {"b": 1, "a": [2]}}, "c"),
        ({"deep": {"a": [2]}}, ""),
        ({"source'; DROP TABLE vectors; --": 1}, ""),
    ],
)
def test_every_pair_of_a_filter_must_be_equal(metadata_filter: Any, found: str, tool: Ask) -> None:
    tool(
        "vector_add",
        id="a",
        embedding=[1],
        metadata={"source": "arxiv", "year": 2026, "flag": True, "tags": ["x", "y"]},
    )
    tool(
        "vector_add",
        id="b",
        embedding=[1],
        metadata={"source": "arxiv", "year": "2026", "none": None},
    )
    tool("vector_add", id="c", embedding=[1], metadata={"deep": {"a": [2], "b": 1}})
    reply = tool("vector_search", query=[1], metadata_filter=metadata_filter)
    assert "".join(ids(reply)) == found
    assert reply["total_searched"] == len(found)


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


def test_searching_and_counting_make_no_store(tool: Ask, db: Database) -> None:
    assert tool("vector_search", query=[1]) == {"results": [], "total_searched": 0}
    assert tool("vector_search", query=[1], store_name="new", namespace="n") == {
        "results": [],
        "total_searched": 0,
    }
    assert tool("vector_count", store_name="new") == {"count": 0, "store_name": "new"}
    assert tool("vector_delete", id="a", store_name="new") == {"deleted": False, "id": "a"}
    assert db.vectors.stores() == []


def test_an_empty_search_says_which_name_or_key_does_not_exist(tool: Ask) -> None:
    tool("vector_add", id="a", embedding=[1, 2], store_name="images", metadata={"kind": "cat"})

    def note(**arguments: Any) -> str:
        reply = tool("vector_search", query=[1, 2], **arguments)
        assert (reply["results"], reply["total_searched"]) == ([], 0)
        return str(reply.get("note", ""))

    assert note(store_name="image") == "there is no store 'image'; did you mean 'images'?"
    assert note(store_name="images", namespace="n") == "there is no namespace 'n'; known: ''"
    assert "'knid'; did you mean 'kind'" in note(
        store_name="images", metadata_filter={"knid": "cat"}
    )
    assert note(store_name="images", metadata_filter={"kind": "dog"}) == ""


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


def test_a_delete_takes_one_vector_of_one_namespace(tool: Ask) -> None:
    places = [{}, {"namespace": "n"}, {"namespace": "m"}, {"store_name": "s"}]
    for place in places:
        tool("vector_add", id="a", embedding=[1], **place)
    assert tool("vector_delete", id="a", namespace="n") == {"deleted": True, "id": "a"}
    assert tool("vector_delete", id="a", namespace="n") == {"deleted": False, "id": "a"}
    assert tool("vector_delete", id="A") == {"deleted": False, "id": "A"}
    assert tool("vector_delete", id="") == {"deleted": False, "id": ""}
    assert [tool("vector_count", **place)["count"] for place in places] == [2, 0, 1, 1]
    assert tool("vector_delete", id="a") == {"deleted": True, "id": "a"}
    assert [tool("vector_count", **place)["count"] for place in places] == [1, 0, 1, 1]


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


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "vector_search",
            {"query": [1], "metadata_filter": [1]},
            "metadata_filter must be an object, not an array",
        ),
        ("vector_search", {"query": [1], "store_name": ""}, "store_name must not be blank"),
        ("vector_delete", {}, "id is required"),
        ("vector_delete", {"id": 5}, "id must be text, not 5"),
        ("vector_count", {"store_name": 5}, "store_name must be text, not 5"),
        (
            "vector_count",
            {"store_name": "x" * 201},
            "store is 201 characters long; it has at most 200",
        ),
    ],
)
def test_every_error_is_a_normal_result_with_only_an_error_in_it(
    name: str, arguments: dict[str, Any], message: str, tool: Ask
) -> None:
    assert tool(name, **arguments) == {"error": message}


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
numbers = st.lists(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 3), min_size=1, max_size=3
)
usual = st.fixed_dictionaries(
    {"id": st.sampled_from("ab"), "embedding": numbers, "query": numbers},
    optional={
        "k": st.integers(-2, 12),
        "store_name": st.sampled_from("st"),
        "namespace": st.sampled_from("nm") | st.none(),
        "metadata": odd,
        "metadata_filter": odd,
    },
)
raw = st.builds(
    dict.__or__,
    usual,
    st.dictionaries(
        st.sampled_from(
            ["id", "embedding", "query", "k", "store_name", "namespace", "metadata", "other"]
        ),
        odd,
        max_size=2,
    ),
)


@given(calls=st.lists(st.tuples(st.sampled_from(SURFACE.tools), raw), max_size=8))
def test_any_arguments_get_a_result_or_an_error_message(
    calls: list[tuple[Tool, dict[str, Any]]],
) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        for tool, arguments in calls:
            reply = call(PublishedTool(name=tool.name, surface=SURFACE, tool=tool), db, arguments)
            assert not reply.failed
            assert reply.structured is not None
            valid(reply.structured, tool.arguments.output)
            assert set(reply.structured) == {"error"} or "error" not in reply.structured
            assert "inside the server" not in str(reply.structured.get("error")), (
                tool.name,
                arguments,
            )


def test_an_unexpected_exception_is_reported_without_details(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("SELECT * FROM /home/user/secret.db")

    monkeypatch.setattr(db.vectors, "count", broken)
    reply = ask(service(db, SURFACE), "vector_count").structured_content
    assert reply == {"error": "something went wrong inside the server; its log has the details"}


def test_arrays_and_objects_may_come_as_json_strings(tool: Ask) -> None:
    tool("vector_add", id="a", embedding="[1, 2.5]", metadata='{"x": [1]}')
    reply = tool("vector_search", query='"[1, 2.5]"', metadata_filter='"{\\"x\\": [1]}"')
    assert reply == {
        "results": [{"id": "a", "score": 1.0, "metadata": {"x": [1]}}],
        "total_searched": 1,
    }


def test_unknown_arguments_are_ignored(tool: Ask) -> None:
    assert tool("vector_count", metric="dot", random_string="x") == {
        "count": 0,
        "store_name": "default",
        "note": '"metric" is an unknown argument and was ignored; there are store_name, namespace.',
    }


def test_no_more_results_are_ranked_than_fit_into_a_reply(tool: Ask, db: Database) -> None:
    db.vectors.add_many(map(str, range(6_000)), [[1.0]] * 6_000)
    reply = tool("vector_search", query=[1], k=10**9)
    assert len(reply["results"]) > 3_000 and reply["total_searched"] == 6_000
    assert f"of {MOST_RESULTS} results" in reply["truncated"]


def test_truncated_results_report_what_is_missing_and_how_to_get_it(
    tool: Ask, db: Database
) -> None:
    db.vectors.add_many(map(str, range(60)), [[1.0]] * 60, metadata=[{"long": "x" * 5000}] * 60)
    reply = tool("vector_search", query=[1], k=60)
    assert 20 < len(reply["results"]) < 60
    assert reply["total_searched"] == 60
    assert "lower k" in reply["truncated"]
