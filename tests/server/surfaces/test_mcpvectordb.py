from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surfaces.mcpvectordb import SURFACE
from tests.server.clients import caller, service

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def tool(db: Database) -> Ask:
    """Calls a tool through a client in memory; returns its structured content, validated."""
    return caller(service(db, SURFACE))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a file beside the test's database; its path."""

    def make(name: str, text: str | bytes = "# Tea\n\nWater at 80 degrees.\n") -> str:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return make


# ingest_file


def test_the_same_bytes_are_skipped_and_new_metadata_alone_changes_nothing(
    tool: Ask, write: Callable[..., str]
) -> None:
    path = write("tea.md")
    first = tool("ingest_file", path=path, metadata={"a": 1})
    again = tool("ingest_file", path=path, metadata={"a": 2})
    note = again.pop("note")
    assert again == {**first, "status": "skipped", "chunk_count": 0}
    assert note.startswith("the content is unchanged, so the metadata was left as it is")
    assert "note" not in tool("ingest_file", path=path, metadata={"a": 1})
    assert "note" not in tool("ingest_file", path=path)
    assert tool("list_documents")["documents"][0]["metadata"] == {"a": 1}


# ingest_url


# search


@pytest.fixture
def shelf(tool: Ask, write: Callable[..., str]) -> dict[str, Any]:
    """Two files; the record of the first one's only chunk, under the specification's names."""
    done = tool(
        "ingest_file", path=write("o'hara.md", "# Tea 100%\n\nleaves\n"), metadata={"year": 2026}
    )
    tool("ingest_file", path=write("other.txt", "leaves too\n"))
    listed, found = (
        next(each for each in some if each["doc_id"] == done["doc_id"])
        for some in (
            tool("list_documents")["documents"],
            tool("search", query="leaves")["results"],
        )
    )
    return {**listed, **found, "id": f"{done['doc_id']}:0"}


FIELDS = """
    id doc_id library source content_hash title content chunk_index created_at metadata file_type
    last_modified page
""".split()


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_a_chunk_can_be_filtered_by(
    field: str, shelf: dict[str, Any], tool: Ask
) -> None:
    reply = tool("search", query="leaves", filter={field: shelf[field], "file_type": "md"})
    assert [each["doc_id"] for each in reply["results"]] == [shelf["doc_id"]]
    if field != "metadata":
        wrong = 7 if isinstance(shelf[field], int) else f"{shelf[field]}'; DROP TABLE--"
        assert tool("search", query="leaves", filter={field: wrong})["results"] == []


def test_keys_of_metadata_are_filtered_by_an_object(tool: Ask, write: Callable[..., str]) -> None:
    for name, metadata in (("a", {"year": 2024, "by": ["ann"]}), ("b", {"year": 2025}), ("c", {})):
        tool("ingest_file", path=write(f"{name}.md", f"{name} leaves\n"), metadata=metadata)

    def found(metadata: Any) -> set[str]:
        reply = tool("search", query="leaves", filter={"metadata": metadata})
        return {Path(each["source"]).stem for each in reply["results"]}

    assert found({"year": 2024}) == found({"year": 2024.0, "by": ["ann"]}) == {"a"}
    assert found({"year": "2024"}) == found({"year": 2024, "by": "ann"}) == set()
    assert found({}) == {"c"}
    assert found('{"year":2025}') == {"b"}
    assert found('{"year":2024}') == set()  # the text of all metadata


# list_documents, list_libraries, delete_document, get_document


# Failures and bounds


def test_a_long_document_comes_in_parts(tool: Ask, db: Database) -> None:
    text = "".join(f'Line {number}: "tea" and\tä.\n' for number in range(20_000))
    id = db.documents.ingest_text(text, source="long.md", embed=False).document.id
    parts, next_id = [], id
    while True:
        reply = tool("get_document", doc_id=next_id)
        assert len(json.dumps(reply, ensure_ascii=False)) <= MAX_REPLY
        assert reply["doc_id"] == id
        parts.append(reply["content"])
        if "truncated" not in reply:
            break
        next_id = reply["truncated"].split('"')[1]
    assert len(parts) > 2
    assert "".join(parts) == text


def test_truncated_listings_report_what_is_missing_and_how_to_get_it(
    tool: Ask, db: Database
) -> None:
    for number in range(60):
        db.documents.ingest_text(
            "tea", source=f"{number}.md", metadata={"long": "x" * 5000}, embed=False
        )
    listed = tool("list_documents", limit=60)
    assert listed["count"] == len(listed["documents"]) < 60
    assert listed["truncated"].endswith("ask again with a higher offset")
    found = tool("search", query="tea", top_k=60)
    assert 20 < len(found["results"]) < 60
    assert "lower top_k" in found["truncated"]
