from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surfaces.context_server import SURFACE
from tests.server.clients import ask, service
from tests.server.surfaces.context_server.client import Tools, opened

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


# store_context


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


# delete_context and delete_context_batch


# Batches


def entries(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"thread_id": "t", "source": "user", "text": text, **more} for text in texts]


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
