from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surfaces.mcpvectordb import SURFACE
from tests.server.clients import ask, caller, service
from tests.support import Letters

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


def error(reply: dict[str, Any]) -> str:
    assert set(reply) == {"status", "error"}
    assert reply["status"] == "error"
    return str(reply["error"])


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


@pytest.mark.parametrize("name", ["missing.md", "folder", "nul\0byte.md", "x" * 5000])
def test_an_unreadable_path_is_reported_with_the_working_folder(
    name: str, tool: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    message = error(tool("ingest_file", path=name))
    assert name[:20].split("\0")[0] in message
    assert str(tmp_path) in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.xyz", "text"),
        ("tune.mp3", b"ID3\x03\x00"),
        ("program.dat", b"\x7fELF\2\0"),
        ("program.txt", b"\x7fELF\2\0"),
        ("program.py", "print(1)"),
        ("PROGRAM.RS", "fn main() {}"),
    ],
)
def test_an_unsupported_format_is_reported_as_such(
    name: str, content: str | bytes, tool: Ask, write: Callable[..., str]
) -> None:
    assert error(tool("ingest_file", path=write(name, content))).startswith("Unsupported format")


@pytest.mark.parametrize(
    ("name", "content"), [("blank.md", " \n"), ("broken.docx", b"PK\x03\x04 no archive")]
)
def test_other_failures_begin_with_ingestion_failed(
    name: str, content: str | bytes, tool: Ask, write: Callable[..., str]
) -> None:
    assert error(tool("ingest_file", path=write(name, content))).startswith("Ingestion failed: ")


def test_a_result_has_type_time_title_and_metadata(tool: Ask, write: Callable[..., str]) -> None:
    tool("ingest_file", path=write("notes.TXT", "leaves\n"), metadata={"by": ["ann"], "n": None})
    (found,) = tool("search", query="leaves")["results"]
    assert (found["file_type"], found["title"]) == ("txt", "notes.TXT")
    assert found["metadata"] == {"by": ["ann"], "n": None}
    assert datetime.fromisoformat(found["last_modified"]).utcoffset() == timedelta(0)
    tool("ingest_file", path=write("plain", "# Kettles\n\nsteam\n"))
    types = {each["file_type"] for each in tool("search", query="steam")["results"]}
    assert types == {"txt", "unknown"}


def test_a_url_given_as_a_path_is_refused(tool: Ask) -> None:
    assert "use ingest_url" in error(tool("ingest_file", path="http://127.0.0.1/x"))
    assert "blank" in error(tool("ingest_file", path="  "))


# ingest_url


@pytest.mark.parametrize(
    "url", ["ftp://example.org/a", "file:///etc/passwd", "notes.md", "", "javascript:alert(1)"]
)
def test_only_http_and_https_are_fetched(url: str, tool: Ask) -> None:
    assert error(tool("ingest_url", url=url)).startswith("url must begin with http:// or https://")


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


@pytest.mark.parametrize(
    ("filter", "count"),
    [
        ({}, 2),
        ({"chunk_index": False}, 2),
        ({"chunk_index": 0.0}, 2),
        ({"title": "tea 100%"}, 0),
        ({"title": "Tea %"}, 0),
        ({"title": 1.5}, 0),
        ({"file_type": "md", "chunk_index": 1}, 0),
    ],
)
def test_filters_are_exact_and_joined_by_and(
    shelf: dict[str, Any], tool: Ask, filter: dict[str, Any], count: int
) -> None:
    assert len(tool("search", query="leaves", filter=filter)["results"]) == count


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


def test_an_unknown_time_is_filtered_by_the_empty_text(tool: Ask, db: Database) -> None:
    db.documents.ingest_text("tea leaves", source="tea.md")
    assert len(tool("search", query="tea", filter={"last_modified": ""})["results"]) == 1


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ({"library": "defualt"}, "there is no library 'defualt'; did you mean 'default'?"),
        ({"filter": {"library": "x"}}, "there is no library 'x'; known: 'default'"),
        ({"filter": {"metadata": {"yaer": 1}}}, "there is no metadata key 'yaer'"),
        ({"filter": {"title": "tea"}}, "no document has the title 'tea', which is compared exact"),
        ({"filter": {"last_modified": "May"}}, "nothing can match: 'modified' must be a date or"),
        ({"filter": {"page": "three"}}, "nothing can match: 'page': eq takes a number, not 'thr"),
    ],
)
def test_empty_results_say_what_does_not_exist(
    shelf: dict[str, Any], tool: Ask, arguments: dict[str, Any], note: str
) -> None:
    reply = tool("search", query="leaves", **arguments)
    assert reply["results"] == [] and reply["note"].startswith(note)
    assert "note" not in tool("list_documents", library="default")


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ({"a b": 1}, "Invalid filter key 'a b'"),
        ({"1st": 1}, "Invalid filter key"),
        ({"x; DROP": 1}, "Invalid filter key"),
        ({"": 1}, "Invalid filter key"),
        ({"colour": "red"}, "there is no field 'colour' to filter by; there are chunk_index"),
        ({"title": None}, "the filter value of title must be text or an integer"),
        ({"title": ["a"]}, "the filter value of title must be text or an integer"),
        ({"metadata": "not json"}, "the filter value of metadata must be an object"),
        ({"metadata": "[" * 50_000}, "the filter value of metadata must be an object"),
        (["file_type"], "filter must be an object, not an array"),
    ],
)
def test_a_bad_filter_is_an_error(filter: Any, message: str, tool: Ask) -> None:
    assert error(tool("search", query="tea", filter=filter)).startswith(message)


def test_a_search_by_words_only_has_a_note(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("tea leaves", source="tea.md")
    with Database(path) as other:  # whose model is not this file's
        reply = ask(service(other, SURFACE), "search", {"query": "leaves"}).structured_content
    assert reply["results"][0]["content"] == "tea leaves"
    assert reply["note"].startswith("not searched by meaning: ")


# list_documents, list_libraries, delete_document, get_document


@pytest.mark.parametrize("part", ["x", "-1", "9" * 30, "9" * 5_000])
def test_an_invalid_part_of_a_document_is_no_error(part: str, tool: Ask, db: Database) -> None:
    id = db.documents.ingest_text("tea leaves", source="tea.md").document.id
    assert tool("get_document", doc_id=f"{id}#{part}")["doc_id"] == id


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
