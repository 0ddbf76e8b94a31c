from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surface import PublishedTool, Tool, call
from mcpvectordb_server.surfaces.context_server import SURFACE
from mcpvectordb_server.surfaces.context_server.filters import OPERATORS
from tests.server.clients import Wire, ask, service, valid
from tests.server.surfaces.context_server.client import Failing, Tools, opened

PIXEL = base64.b64encode(b"\x89PNG one pixel").decode()


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with opened(path) as database:
        yield database


@pytest.fixture
def tools(db: Database) -> Tools:
    return Tools(db)


def whole(tools: Tools, id: int) -> dict[str, Any]:
    (entry,) = tools.get_context_by_ids(context_ids=[id])
    assert isinstance(entry, dict)
    return entry


# The server as a whole


FILTERS = {
    "thread_id": None,
    "source": None,
    "tags": None,
    "content_type": None,
    "start_date": None,
    "end_date": None,
    "metadata": None,
    "metadata_filters": None,
}
SHOWN = {"include_images": False, "explain_query": False}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search_context", {"limit": 0}, "limit must be at least 1"),
        ("search_context", {"limit": 101}, "limit must be at most 100"),
        ("search_context", {"offset": -1}, "offset must be at least 0"),
        ("search_context", {"limit": 2.5}, "a whole number"),
        ("search_context", {"limit": True}, "a whole number"),
        ("search_context", {"source": "me"}, "'user' or 'agent'"),
        ("search_context", {"content_type": "video"}, "'text' or 'multimodal'"),
        ("search_context", {"thread_id": ""}, "at least 1"),
        ("search_context", {"tags": "x"}, "tags must be an array"),
        ("search_context", {"metadata": [1]}, "metadata must be an object"),
        ("store_context", {}, "thread_id is required"),
        ("store_context", {"thread_id": "t", "source": "User", "text": "x"}, "source"),
        ("store_context", {"thread_id": "t", "source": "user", "text": 5}, "text must be text"),
        ("get_context_by_ids", {"context_ids": []}, "at least 1 item"),
        ("get_context_by_ids", {"context_ids": ["x"]}, "context_ids[0]"),
        ("update_context", {"context_id": 0, "text": "x"}, "context_id must be more than 0"),
        ("semantic_search_context", {"query": ""}, "query must have at least 1"),
        ("fts_search_context", {}, "query is required"),
        ("fts_search_context", {"query": "x", "mode": "regex"}, "mode must be"),
        ("hybrid_search_context", {"query": "x", "rrf_k": 1001}, "rrf_k must be at most 1000"),
        (
            "hybrid_search_context",
            {"query": "x", "search_modes": ["grep"]},
            "search_modes[0] must be 'fts' or 'semantic'",
        ),
        (
            "hybrid_search_context",
            {"query": "x", "fusion_method": "sum"},
            "fusion_method must be 'rrf'",
        ),
        ("store_context_batch", {"entries": []}, "at least 1 item"),
        ("store_context_batch", {"entries": [{}] * 101}, "at most 100"),
        ("update_context_batch", {"updates": [{}] * 101}, "at most 100"),
        ("delete_context_batch", {"older_than_days": 0}, "older_than_days must be more than 0"),
    ],
)
def test_a_value_out_of_bounds_is_a_tool_error_with_a_message(
    name: str, arguments: dict[str, Any], message: str, tools: Tools
) -> None:
    assert message in tools.refused(name, **arguments)


def test_arrays_and_objects_may_come_as_json_strings(tools: Tools) -> None:
    id = tools.store(
        "tea", tags='["Green"]', metadata='"{\\"a\\": 1}"', images=json.dumps([{"data": PIXEL}])
    )
    assert (whole(tools, id)["tags"], whole(tools, id)["metadata"]) == (["green"], {"a": 1})
    assert tools.found(
        metadata='{"a": 1}',
        metadata_filters='[{"key": "a", "operator": "gte", "value": 1}]',
        tags='["green"]',
        limit=5.0,
        unknown="x",
    ) == [id]
    reply = tools.store_context_batch(
        entries=json.dumps(
            [
                json.dumps(
                    {
                        "thread_id": "b",
                        "source": "user",
                        "text": "x",
                        "tags": '["c"]',
                        "metadata": '{"d": 2}',
                    }
                )
            ]
        )
    )
    assert whole(tools, reply["results"][0]["context_id"])["metadata"] == {"d": 2}
    assert tools.get_context_by_ids(context_ids=f"[{id}]")[0]["id"] == id


def test_an_unexpected_exception_is_reported_without_details(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("SELECT * FROM /home/user/secret.db")

    monkeypatch.setattr(db.memories, "threads", broken)
    result = ask(service(db, SURFACE), "list_threads")
    assert (result.is_error, result.content[0].text) == (
        True,
        "something went wrong inside the server; its log has the details",
    )


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
text = st.text(max_size=4) | st.sampled_from(
    ["t", " t ", "", "tea AND (leaves", '"tea', "NOT tea", "2025-11-29", "9999-12-31", "user"]
)
ids = st.lists(st.integers(-1, 3), max_size=3)
condition = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["a", "a.b", "", "x y"]) | odd,
        "operator": st.sampled_from(OPERATORS) | odd,
        "value": st.integers(0, 3) | text | odd,
        "case_sensitive": st.booleans() | odd,
    },
)
image = st.fixed_dictionaries(
    {}, optional={"data": st.just(PIXEL) | odd, "mime_type": odd, "metadata": odd}
)
common = {
    "thread_id": text,
    "thread_ids": st.lists(text, max_size=2),
    "text": text,
    "query": text,
    "start_date": text,
    "end_date": text,
    "source": st.sampled_from(["user", "agent"]),
    "content_type": st.sampled_from(["text", "multimodal"]),
    "tags": st.lists(text, max_size=2),
    "metadata": st.dictionaries(st.sampled_from(["a", "b", "a.b", "x y"]), odd, max_size=2),
    "metadata_patch": st.dictionaries(st.sampled_from(["a", "b"]), odd, max_size=2),
    "metadata_filters": st.lists(condition, max_size=2),
    "images": st.lists(image, max_size=2),
    "context_ids": ids,
    "context_id": st.integers(0, 3),
    "limit": st.integers(0, 101),
    "offset": st.integers(-1, 2),
    "rrf_k": st.integers(0, 1001),
    "mode": st.sampled_from(["match", "prefix", "phrase", "boolean"]),
    "older_than_days": st.integers(0, 10**9),
    "search_modes": st.lists(st.sampled_from(["fts", "semantic", "x"]), max_size=2),
    "fusion_method": st.just("rrf"),
    **dict.fromkeys(["atomic", "highlight", "include_images", "explain_query"], st.booleans()),
}
item = st.fixed_dictionaries(
    {},
    optional={
        name: common[name] | odd
        for name in (
            "thread_id",
            "source",
            "text",
            "images",
            "metadata",
            "metadata_patch",
            "tags",
            "context_id",
        )
    },
)
common |= {"entries": st.lists(item, max_size=3), "updates": st.lists(item, max_size=3)}


def arguments(tool: Tool) -> st.SearchStrategy[tuple[Tool, dict[str, Any]]]:
    names = tool.arguments.schema["properties"]
    needed = set(tool.arguments.schema.get("required", []))
    likely = st.fixed_dictionaries(
        {name: common[name] for name in needed},
        optional={name: common[name] for name in names if name not in needed},
    )
    return st.tuples(
        st.just(tool), likely | st.dictionaries(st.sampled_from([*names, "other"]), odd, max_size=4)
    )


@given(calls=st.lists(st.sampled_from(SURFACE.tools).flatmap(arguments), max_size=8))
def test_any_arguments_get_a_result_or_an_error_message(
    calls: list[tuple[Tool, dict[str, Any]]],
) -> None:
    with opened(":memory:") as db:
        db.memories.add("t", "user", "tea leaves", metadata={"a": {"b": "x"}}, tags=["t"])
        for tool, raw in calls:
            reply = call(PublishedTool(name=tool.name, surface=SURFACE, tool=tool), db, raw)
            shown = reply.content[0].text
            if reply.failed:
                assert reply.structured is None and shown and "something went wrong" not in shown, (
                    tool.name,
                    raw,
                    shown,
                )
            elif tool.arguments.output is None:
                assert {"result": json.loads(shown)} == reply.structured
            else:
                assert json.loads(shown) == reply.structured
                valid(reply.structured, tool.arguments.output)
        assert db.check() == []


# store_context


def test_an_entry_is_stored(tools: Tools) -> None:
    assert tools.store_context(
        thread_id=" t ", source="user", text="tea", images=[{"data": PIXEL}] * 2
    ) == {
        "success": True,
        "context_id": 1,
        "thread_id": "t",
        "message": "Context stored with 2 images (embedding generated)",
    }
    tools.delete_context(context_ids=[1])
    assert tools.store("tea") == 2


def test_threads_and_texts_are_stripped_at_both_ends_only(tools: Tools) -> None:
    id = tools.store("\n first \n\n second \n", thread_id=" t ")
    assert (whole(tools, id)["thread_id"], whole(tools, id)["text_content"]) == (
        "t",
        "first \n\n second",
    )
    assert (
        tools.refused("store_context", thread_id=" ", source="user", text="x")
        == "thread_id must not be blank"
    )
    assert (
        tools.refused("store_context", thread_id="t", source="user", text=" \n ")
        == "text must not be blank"
    )


def test_tags_are_normalised_and_metadata_is_kept(tools: Tools) -> None:
    metadata = {
        "status": "Aktiv",
        "n": [1, 2.5, None, {"deep": True}],
        "": "empty key",
        "ü.x": "dotted",
    }
    entry = whole(
        tools, tools.store("tea", tags=[" Zeta", "ALPHA", "alpha ", "  "], metadata=metadata)
    )
    assert (entry["tags"], entry["metadata"]) == (["alpha", "zeta"], metadata)
    assert whole(tools, tools.store("other", metadata={}))["metadata"] is None


def test_images_come_back_as_they_went_in(tools: Tools) -> None:
    second = {
        "data": base64.b64encode(b"jpg").decode(),
        "mime_type": "image/jpeg",
        "metadata": {"w": 5},
    }
    id = tools.store("tea", images=[{"data": f" {PIXEL}\n"}, second])
    expected = [{"data": PIXEL, "mime_type": "image/png"}, second]
    assert (whole(tools, id)["content_type"], whole(tools, id)["images"]) == (
        "multimodal",
        expected,
    )
    assert "images" not in tools.get_context_by_ids(context_ids=[id], include_images=False)[0]
    for name in (
        "search_context",
        "semantic_search_context",
        "fts_search_context",
        "hybrid_search_context",
    ):
        query = {} if name == "search_context" else {"query": "tea"}
        assert (
            getattr(tools, name)(**query, include_images=True)["results"][0]["images"] == expected
        )
        assert "images" not in getattr(tools, name)(**query)["results"][0]
    plain = tools.store("no picture")
    assert "images" not in whole(tools, plain) and whole(tools, plain)["content_type"] == "text"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({}, "images[1] has no data"),
        ({"data": " "}, "images[1] has no data"),
        ({"data": 5}, "images[1] has no data"),
        ({"data": "not base64!"}, "images[1].data is not base64"),
        ({"data": "YQ"}, "images[1].data is not base64"),
        ({"data": PIXEL, "mime_type": 5}, "images[1].mime_type"),
        ({"data": PIXEL, "metadata": 5}, "image 1's metadata"),
        ("picture", "images[1] must be an object"),
        ({"data": base64.b64encode(b"x" * 101).decode()}, "image 1 is 101 bytes"),
    ],
)
def test_a_bad_image_is_named_by_its_index_and_nothing_is_stored(
    image: Any, message: str, path: Path
) -> None:
    with opened(path, max_image_bytes=100, max_image_bytes_total=150) as db:
        tools = Tools(db)
        images = [{"data": PIXEL}, image]
        assert message in tools.refused(
            "store_context", thread_id="t", source="user", text="x", images=images
        )
        hundred = {"data": base64.b64encode(b"x" * 100).decode()}
        assert "150" in tools.refused(
            "store_context", thread_id="t", source="user", text="x", images=[hundred, hundred]
        )
        assert tools.found() == []


def test_the_same_text_again_keeps_its_id_and_takes_what_is_given(tools: Tools) -> None:
    first = tools.store("tea", tags=["a"], metadata={"n": 1})
    again = tools.store_context(thread_id="t", source="user", text=" tea ", metadata={"n": 2})
    assert (again["context_id"], again["message"]) == (
        first,
        "Context updated with 0 images (embedding generated)",
    )
    entry = whole(tools, first)
    assert (entry["tags"], entry["metadata"]) == (["a"], {"n": 2})
    assert entry["updated_at"] > entry["created_at"]


def test_only_the_latest_text_of_a_thread_is_merged(tools: Tools) -> None:
    assert [tools.store(text) for text in ("A", "B", "A")] == [1, 2, 3]
    assert tools.store("A", source="agent") == 4
    assert tools.store("A") == 5
    assert tools.store("A", thread_id="other") == 6


def test_when_embedding_fails_nothing_is_stored_or_changed(path: Path) -> None:
    with opened(path, embedder=Failing()) as db:
        tools = Tools(db)
        id = tools.store("tea")
        assert "the model failed" in tools.refused(
            "store_context", thread_id="t", source="user", text="poison"
        )
        assert "the model failed" in tools.refused(
            "update_context", context_id=id, text="poison", tags=["a"]
        )
        assert "the model failed" in tools.refused(
            "store_context_batch",
            entries=[
                {"thread_id": "t", "source": "user", "text": text} for text in ("water", "poison")
            ],
        )
        assert tools.found() == [id] and whole(tools, id)["tags"] == []


def test_without_a_model_the_message_says_that_the_embedding_is_pending(path: Path) -> None:
    with opened(path) as db:
        Tools(db).store("tea")
    with Database(path, config=Config(rerank_memories=False)) as db:
        tools = Tools(db)
        message = tools.store_context(thread_id="t", source="user", text="water")["message"]
        assert message.startswith(
            "Context stored with 0 images; stored and found by words, but not yet by meaning: "
        )
        assert "embedding" not in tools.update_context(context_id=1, text="milk")["updated_fields"]
        assert tools.found("fts_search_context", query="milk") == [1]


# update_context


def test_only_what_is_given_changes(tools: Tools) -> None:
    id = tools.store("tea", tags=["a"], metadata={"n": 1}, source="agent")
    before = whole(tools, id)
    assert tools.update_context(
        context_id=id, text=" water ", tags=["B"], images=[{"data": PIXEL}]
    ) == {
        "success": True,
        "context_id": id,
        "updated_fields": ["text_content", "tags", "images", "content_type", "embedding"],
        "message": "Updated text_content, tags, images, content_type, embedding",
    }
    after = whole(tools, id)
    assert after.pop("updated_at") > before.pop("updated_at")
    assert after == {
        **before,
        "text_content": "water",
        "tags": ["b"],
        "content_type": "multimodal",
        "images": [{"data": PIXEL, "mime_type": "image/png"}],
    }
    assert tools.found("fts_search_context", query="tea") == [] and tools.found(
        "fts_search_context", query="water"
    ) == [id]
    assert tools.update_context(context_id=id, images=[], tags=[])["updated_fields"] == [
        "tags",
        "images",
        "content_type",
    ]
    assert tools.update_context(context_id=id, metadata={})["updated_fields"] == ["metadata"]
    after = whole(tools, id)
    assert (after["content_type"], after["tags"], after["metadata"]) == ("text", [], {})


def test_a_patch_merges_as_the_rfc_says(tools: Tools) -> None:
    id = tools.store(
        "tea", metadata={"status": "open", "draft": True, "deep": {"a": 1, "b": [1, 2]}}
    )
    tools.update_context(
        context_id=id,
        metadata_patch={"status": "done", "draft": None, "deep": {"b": [3], "c": {"d": None}}},
    )
    assert whole(tools, id)["metadata"] == {"status": "done", "deep": {"a": 1, "b": [3], "c": {}}}
    before = whole(tools, id)
    assert tools.update_context(context_id=id, metadata_patch={})["updated_fields"] == ["metadata"]
    after = whole(tools, id)
    assert after["updated_at"] > before["updated_at"] and after["metadata"] == before["metadata"]
    other = tools.store("without")
    tools.update_context(context_id=other, metadata_patch={"x": {"y": 1}})
    assert whole(tools, other)["metadata"] == {"x": {"y": 1}}


def test_contradictory_or_empty_updates_are_errors(tools: Tools) -> None:
    id = tools.store("tea")
    assert "nothing to change" in tools.refused("update_context", context_id=id)
    assert "either metadata" in tools.refused(
        "update_context", context_id=id, metadata={"a": 1}, metadata_patch={}
    )
    assert tools.refused("update_context", context_id=id, text="  ") == "text must not be blank"
    assert (
        tools.refused("update_context", context_id=99, text="x")
        == "Context not found: no context has the id 99"
    )
    assert whole(tools, id)["text_content"] == "tea"


# delete_context and delete_context_batch


def test_entries_are_deleted_by_id_or_thread_with_all_they_have(
    tools: Tools, db: Database, path: Path
) -> None:
    first, second = tools.store("tea", tags=["a"], images=[{"data": PIXEL}]), tools.store("water")
    other = tools.store("milk", thread_id="other")
    assert tools.delete_context(context_ids=[first, first, 99, -1]) == {
        "success": True,
        "deleted_count": 1,
        "message": "Deleted 1 context entries",
    }
    assert tools.delete_context(context_ids=[second], thread_id="other")["deleted_count"] == 1
    assert tools.found() == [other]
    assert tools.delete_context(thread_id=" other ")["deleted_count"] == 1
    assert tools.delete_context(thread_id="other")["deleted_count"] == 0
    assert "context_ids or thread_id" in tools.refused("delete_context")
    sql = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    for table in ("context_tags", "context_images", "context_chunks", "context_embeddings"):
        assert sql.execute(f"SELECT count(*) FROM {table}").get == 0
    sql.close()
    assert db.check() == []


def test_criteria_of_a_batch_delete_apply_together(tools: Tools) -> None:
    ids = [
        tools.store(f"tea {number}", thread_id=thread, source=source)
        for number, (thread, source) in enumerate(
            [("a", "user"), ("a", "agent"), ("b", "user"), ("c", "user")]
        )
    ]
    assert tools.delete_context_batch(
        thread_ids=["a", "b"], source="user", context_ids=[ids[0], ids[1], ids[3]]
    ) == {
        "success": True,
        "deleted_count": 1,
        "message": "Deleted 1 context entries",
        "criteria_used": ["context_ids: 3 given", "thread_ids: a, b", "source: user"],
    }
    assert tools.found() == ids[:0:-1]


def test_a_batch_delete_needs_a_criterion_besides_the_source(tools: Tools, path: Path) -> None:
    old, new = tools.store("old"), tools.store("new")
    assert "context_ids, thread_ids or older_than_days" in tools.refused("delete_context_batch")
    assert "source alone" in tools.refused("delete_context_batch", source="user")
    sql = apsw.Connection(str(path))
    sql.execute(
        "UPDATE contexts SET created_at = '2020-01-01T00:00:00.000000+00:00' WHERE id = ?", (old,)
    )
    sql.close()
    reply = tools.delete_context_batch(older_than_days=30)
    assert (reply["deleted_count"], reply["criteria_used"]) == (1, ["older_than_days: 30"])
    assert tools.found() == [new]


# Batches


def entries(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"thread_id": "t", "source": "user", "text": text, **more} for text in texts]


def test_a_batch_is_stored_in_its_order(tools: Tools) -> None:
    assert tools.store_context_batch(entries=entries("A", "A", "B", tags=["x"])) == {
        "success": True,
        "total": 3,
        "succeeded": 3,
        "failed": 0,
        "message": "3 of 3 entries stored",
        "results": [
            {"index": index, "success": True, "context_id": id, "error": None}
            for index, id in enumerate([1, 1, 2])
        ],
    }
    assert tools.found(tags=["X"]) == [2, 1]


def test_an_atomic_batch_with_one_bad_item_stores_nothing(tools: Tools) -> None:
    bad = [{"thread_id": " ", "source": "user", "text": "x"}, {"thread_id": "t", "source": "user"}]
    message = tools.refused("store_context_batch", entries=[*entries("A"), *bad])
    assert message == (
        "2 of 3 items cannot be stored, so none was; the first is at index 1: thread_id must not "
        "be blank"
    )
    assert tools.found() == []
    id = tools.store("tea")
    message = tools.refused(
        "update_context_batch",
        updates=[{"context_id": id, "text": "x"}, {"context_id": 99, "text": "y"}],
    )
    assert message.endswith("the first is at index 1: Context not found: no context has the id 99")
    assert whole(tools, id)["text_content"] == "tea"


def test_a_batch_that_is_not_atomic_stores_good_items_and_reports_bad_ones(tools: Tools) -> None:
    bad = [
        {"thread_id": "t", "source": "robot", "text": "x"},
        *entries("C", images=[{"data": "?"}]),
        *entries("D", tags="x"),
    ]
    reply = tools.store_context_batch(entries=[*entries("A"), *bad, *entries("B")], atomic=False)
    assert (reply["success"], reply["total"], reply["succeeded"], reply["failed"]) == (
        False,
        5,
        2,
        3,
    )
    assert reply["message"] == "2 of 5 entries stored"
    assert [(each["index"], each["success"], each["context_id"]) for each in reply["results"]] == [
        (0, True, 1),
        (1, False, None),
        (2, False, None),
        (3, False, None),
        (4, True, 2),
    ]
    assert [each["error"] for each in reply["results"]][1:4] == [
        "source must be 'user' or 'agent', not \"robot\"",
        "images[0].data is not base64",
        'tags must be an array, not "x"',
    ]
    nothing = tools.store_context_batch(entries=bad, atomic=False)
    assert (nothing["success"], nothing["succeeded"]) == (False, 0)
    assert tools.found() == [2, 1]


def test_an_item_that_cannot_be_embedded_fails_alone(path: Path) -> None:
    with opened(path, embedder=Failing()) as db:
        reply = Tools(db).store_context_batch(
            entries=entries("tea", "poison", "water"), atomic=False
        )
        assert [each["success"] for each in reply["results"]] == [True, False, True]
        assert "the model failed" in reply["results"][1]["error"]


def test_a_batch_of_updates_changes_each_entry(tools: Tools) -> None:
    first, second = tools.store("tea", metadata={"n": 1}), tools.store("water")
    reply = tools.update_context_batch(
        updates=[
            {"context_id": first, "text": "milk", "metadata_patch": {"m": 2}},
            {"context_id": 99, "text": "x"},
            {"context_id": second},
            {"context_id": "many", "text": "x"},
            {"context_id": second, "tags": ["a"]},
        ],
        atomic=False,
    )
    assert (reply["success"], reply["succeeded"], reply["failed"], reply["message"]) == (
        False,
        2,
        3,
        "2 of 5 entries updated",
    )
    assert [(each["context_id"], each["updated_fields"]) for each in reply["results"]] == [
        (first, ["text_content", "metadata", "embedding"]),
        (99, None),
        (second, None),
        (None, None),
        (second, ["tags"]),
    ]
    assert whole(tools, first)["metadata"] == {"n": 1, "m": 2}
    whole_batch = tools.update_context_batch(
        updates=[{"context_id": first, "tags": ["x"]}, {"context_id": first, "text": "y"}]
    )
    assert (
        whole_batch["success"]
        and whole(tools, first)["text_content"] == "y"
        and whole(tools, first)["tags"] == ["x"]
    )


# Bounds


def test_truncated_replies_report_what_is_missing_and_how_to_get_it(
    tools: Tools, db: Database
) -> None:
    ids = [db.memories.add("t", "user", f"tea {number} " + "x" * 20_000).id for number in range(15)]
    reply = tools.fts_search_context(query="tea", limit=15)
    assert (
        reply["count"] == len(reply["results"]) < 15 and "get_context_by_ids" in reply["truncated"]
    )
    result = ask(service(db, SURFACE), "get_context_by_ids", {"context_ids": ids})
    assert (
        len(result.structured_content["result"]) < 15
        and "ask for the other ids" in result.content[1].text
    )
    images = [{"data": PIXEL}, {"data": base64.b64encode(b"x" * MAX_REPLY).decode()}]
    large = tools.store("large", thread_id="large", images=images)
    (entry,) = tools.search_context(thread_id="large", include_images=True)["results"]
    assert entry["images"] == [
        {"data": PIXEL, "mime_type": "image/png"},
        {
            "mime_type": "image/png",
            "omitted": f"200,000 bytes; call get_context_by_ids with {large} to get them",
        },
    ]
    assert len(base64.b64decode(whole(tools, large)["images"][1]["data"])) == MAX_REPLY


def test_the_examples_of_the_specification_run_as_written_on_a_real_server(path: Path) -> None:
    with Wire("--db", str(path), "--surface", "context_server") as wire:
        wire.handshake()

        def tool(name: str, **arguments: Any) -> Any:
            result = wire.call(name, arguments)
            assert result.get("isError", False) is False, result
            return result["structuredContent"]

        for text, more in (
            (
                "The login uses OAuth tokens for authentication AND security.",
                {"status": "active", "priority": 8},
            ),
            ("Indexes made the slow query fast.", {"status": "completed", "priority": 7}),
            (
                "An exact phrase about bread.",
                {"completed": False, "agent_name": "GPT-5", "priority": 4, "status": "active"},
            ),
        ):
            tool("store_context", thread_id="project-123", source="agent", text=text, metadata=more)

        def texts(name: str, **arguments: Any) -> list[str]:
            return [each["text_content"].split()[0] for each in tool(name, **arguments)["results"]]

        assert tool(
            "update_context", context_id=1, metadata_patch={"reviewer": "alice", "draft": None}
        )["success"]
        assert texts("semantic_search_context", query="authentication implementation", limit=1) == [
            "The"
        ]
        assert texts(
            "fts_search_context", query="auth", mode="prefix", thread_id="project-123"
        ) == ["The"]
        assert texts(
            "fts_search_context",
            query="authentication AND security",
            mode="boolean",
            metadata_filters=[{"key": "status", "operator": "eq", "value": "active"}],
        ) == ["The"]
        assert (
            texts(
                "hybrid_search_context",
                query="authentication implementation",
                thread_id="project-123",
            )[0]
            == "The"
        )
        assert texts(
            "hybrid_search_context",
            query="performance optimization",
            metadata={"status": "completed"},
            metadata_filters=[{"key": "priority", "operator": "gte", "value": 7}],
        ) == ["Indexes"]
        assert texts("hybrid_search_context", query="exact phrase", search_modes=["fts"]) == ["An"]
        assert texts(
            "search_context",
            metadata_filters=[
                {"key": "priority", "operator": "gt", "value": 3},
                {"key": "status", "operator": "in", "value": ["active", "pending"]},
                {"key": "agent_name", "operator": "starts_with", "value": "gpt"},
                {"key": "completed", "operator": "eq", "value": False},
            ],
        ) == ["An"]
        assert (
            texts(
                "search_context",
                thread_id="project-123",
                start_date="2025-11-29",
                end_date="2025-11-29",
            )
            == []
        )
        assert (
            len(texts("search_context", thread_id="project-123", start_date="2025-11-29T10:00:00"))
            == 3
        )
        assert wire.finish() == 0
