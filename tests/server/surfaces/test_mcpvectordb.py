from __future__ import annotations

import hashlib
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surface import PublishedTool, Tool, call
from mcpvectordb_server.surfaces.mcpvectordb import SURFACE
from tests.server.clients import Wire, ask, caller, service, talk, valid
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


# The server as a whole


def test_stdio_is_the_default_and_sse_is_accepted() -> None:
    from mcpvectordb_server.options import parse

    assert parse([], {}).transport == "stdio"
    assert parse(["--transport", "sse"], {}).transport == "sse"


# ingest_file


def test_a_file_is_indexed(tool: Ask, write: Callable[..., str]) -> None:
    path = write("tea.md", "# Tea\n")
    reply = tool("ingest_file", path=path)
    UUID(reply.pop("doc_id"))
    assert reply == {"status": "indexed", "source": path, "library": "default", "chunk_count": 1}


def test_paths_are_resolved(
    tool: Ask, write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("tea.md")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tool("ingest_file", path="files/../files/tea.md")["source"] == path
    assert tool("ingest_file", path="~/files/tea.md")["status"] == "skipped"


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


def test_changed_bytes_replace_the_document_under_a_new_id(
    tool: Ask, write: Callable[..., str]
) -> None:
    first = tool("ingest_file", path=write("tea.md", "# Tea\n\nold leaves\n"))
    second = tool("ingest_file", path=write("tea.md", "# Tea\n\nnew leaves\n"))
    assert second["status"] == "replaced"
    assert second["doc_id"] != first["doc_id"]
    assert [each["doc_id"] for each in tool("list_documents")["documents"]] == [second["doc_id"]]
    assert "not found" in error(tool("get_document", doc_id=first["doc_id"]))


def test_a_failed_ingest_leaves_the_old_document(tool: Ask, write: Callable[..., str]) -> None:
    first = tool("ingest_file", path=write("tea.md"))
    assert "supply the text directly" in error(tool("ingest_file", path=write("tea.md", "  \n")))
    assert (
        tool("get_document", doc_id=first["doc_id"])["content"] == "# Tea\n\nWater at 80 degrees.\n"
    )


def test_one_file_in_two_libraries_is_two_documents(tool: Ask, write: Callable[..., str]) -> None:
    path = write("tea.md")
    first, second = (
        tool("ingest_file", path=path, library="a"),
        tool("ingest_file", path=path, library="b"),
    )
    assert (first["status"], second["status"]) == ("indexed", "indexed")
    tool("delete_document", doc_id=first["doc_id"])
    assert tool("get_document", doc_id=second["doc_id"])["library"] == "b"


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
    assert (found["file_type"], found["title"], found["metadata"]) == (
        "txt",
        "notes.TXT",
        {"by": ["ann"], "n": None},
    )
    assert (
        datetime.fromisoformat(found["last_modified"]).utcoffset() == datetime.now(UTC).utcoffset()
    )
    tool("ingest_file", path=write("plain", "# Kettles\n\nsteam\n"))
    assert {each["file_type"] for each in tool("search", query="steam")["results"]} == {
        "txt",
        "unknown",
    }


def test_secrets_and_the_database_itself_are_refused(
    tool: Ask, write: Callable[..., str], path: Path
) -> None:
    tool("ingest_file", path=write("tea.md"))
    assert "secrets" in error(tool("ingest_file", path=write(".ssh/notes.txt")))
    assert "is the database itself" in error(tool("ingest_file", path=str(path)))
    assert "private key" in error(
        tool("ingest_file", path=write("k.txt", "-----BEGIN RSA PRIVATE KEY-----\nabc"))
    )


def test_only_files_inside_of_the_roots_are_read(
    db: Database, write: Callable[..., str], tmp_path: Path
) -> None:
    inside, outside = write("in/tea.md"), write("out/tea.md")
    made = service(db, SURFACE, roots=(Path(inside).parent,))
    assert ask(made, "ingest_file", {"path": inside}).structured_content["status"] == "indexed"
    (Path(inside).parent / "link.md").symlink_to(outside)
    for path in (outside, str(Path(inside).parent / "link.md")):
        assert "outside of the folders" in error(
            ask(made, "ingest_file", {"path": path}).structured_content
        )
    nowhere = service(db, SURFACE, roots=())
    assert "--root DIR" in error(ask(nowhere, "ingest_file", {"path": inside}).structured_content)


def test_a_url_given_as_a_path_is_refused(tool: Ask) -> None:
    assert "use ingest_url" in error(tool("ingest_file", path="http://127.0.0.1/x"))
    assert "blank" in error(tool("ingest_file", path="  "))


def test_docx_and_xml_are_among_the_formats(
    tool: Ask, write: Callable[..., str], tmp_path: Path
) -> None:
    path = Path(write("tea.docx", b""))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            (
                '<?xml version="1.0"?><Types '
                'xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
                '<Default Extension="rels" '
                'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
                '<Override PartName="/word/document.xml" '
                'ContentType="application/vnd.openxmlformats-officedocument.'
                'wordprocessingml.document.main+xml"/></Types>'
            ),
        )
        archive.writestr(
            "_rels/.rels",
            (
                '<?xml version="1.0"?><Relationships '
                'xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
                '<Relationship Id="r1" '
                'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
                'officeDocument" Target="word/document.xml"/></Relationships>'
            ),
        )
        archive.writestr(
            "word/document.xml",
            (
                '<?xml version="1.0"?><w:document '
                'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
                "<w:body><w:p><w:r><w:t>oolong in a "
                "document</w:t></w:r></w:p></w:body></w:document>"
            ),
        )
    assert tool("ingest_file", path=str(path))["status"] == "indexed"
    assert (
        tool("ingest_file", path=write("tea.xml", "<tea><kind>sencha in markup</kind></tea>"))[
            "status"
        ]
        == "indexed"
    )
    assert "oolong" in tool("search", query="oolong", top_k=1)["results"][0]["content"]
    assert "sencha" in tool("search", query="sencha", top_k=1)["results"][0]["content"]


# ingest_url


class Page(BaseHTTPRequestHandler):
    body = b"# Page\n\nfirst words\n"
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/markdown")
        self.send_header("Content-Length", str(len(self.body)))
        if self.path == "/dated":
            self.send_header(
                "Last-Modified", format_datetime(datetime(2025, 6, 1, 9, tzinfo=UTC), usegmt=True)
            )
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Page.body, Page.status = b"# Page\n\nfirst words\n", 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def web(path: Path) -> Iterator[Ask]:
    """As `tool`, over a database that may fetch from this machine."""
    with Database(
        path, embedder=Letters(), config=Config(allow_private_urls=True, host_interval=0)
    ) as db:
        made = service(db, SURFACE)
        yield lambda name, **arguments: ask(made, name, arguments).structured_content


@pytest.mark.parametrize(
    "url", ["ftp://example.org/a", "file:///etc/passwd", "notes.md", "", "javascript:alert(1)"]
)
def test_only_http_and_https_are_fetched(url: str, tool: Ask) -> None:
    assert error(tool("ingest_url", url=url)).startswith("url must begin with http:// or https://")


def test_a_page_is_indexed_skipped_and_replaced(web: Ask, site: str) -> None:
    first = web("ingest_url", url=f"{site}/dated")
    assert (first["status"], first["source"], first["chunk_count"]) == (
        "indexed",
        f"{site}/dated",
        1,
    )
    assert web("ingest_url", url=f"{site}/dated") == {
        **first,
        "status": "skipped",
        "chunk_count": 0,
    }
    (found,) = web("search", query="words")["results"]
    assert (found["file_type"], found["last_modified"], found["title"]) == (
        "url",
        "2025-06-01T09:00:00+00:00",
        "Page",
    )
    Page.body = b"# Page\n\nother words\n"
    assert web("ingest_url", url=f"{site}/dated")["status"] == "replaced"
    assert web("ingest_url", url=f"{site}/undated", library="b")["status"] == "indexed"
    (undated,) = web("search", query="words", library="b")["results"]
    assert undated["last_modified"] == ""


def test_the_status_of_a_web_server_is_reported(web: Ask, site: str) -> None:
    Page.status = 404
    assert "404" in error(web("ingest_url", url=site))
    assert error(web("ingest_url", url="http://127.0.0.1:1/")).startswith("Ingestion failed: ")


def test_urls_of_this_machine_and_private_networks_are_refused(tool: Ask, site: str) -> None:
    for url in (
        site,
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
    ):
        assert error(tool("ingest_url", url=url)).startswith("Ingestion failed: ")


# search


def test_results_have_the_specified_keys_and_their_relevance(
    tool: Ask, write: Callable[..., str]
) -> None:
    assert tool("search", query="tea") == {"results": []}
    done = tool("ingest_file", path=write("tea.md"))
    (found,) = tool("search", query="tea")["results"]
    assert set(found) == {
        "doc_id",
        "source",
        "title",
        "library",
        "file_type",
        "last_modified",
        "page",
        "content",
        "chunk_index",
        "metadata",
        "relevance",
    }
    assert (found["doc_id"], found["page"], found["chunk_index"]) == (done["doc_id"], 0, 0)
    assert found["content"] == "# Tea\n\nWater at 80 degrees."


@pytest.mark.parametrize(
    ("top_k", "message"),
    [
        (0, "top_k must be 1 to 100, not 0"),
        (101, "top_k must be 1 to 100, not 101"),
        (-1, "top_k must be 1 to 100, not -1"),
        (True, "top_k must be a whole number, not true"),
        (2.5, "top_k must be a whole number, not 2.5"),
        ("many", 'top_k must be a whole number, not "many"'),
    ],
)
def test_top_k_has_bounds(top_k: Any, message: str, tool: Ask) -> None:
    assert error(tool("search", query="tea", top_k=top_k)) == message


def test_only_top_k_limits_the_results(tool: Ask, db: Database) -> None:
    for number in range(10):
        db.documents.ingest_text(
            f"note {number} about {'tea' if number else 'zzz'}", source=f"{number}.md"
        )
    assert len(tool("search", query="tea")["results"]) == 5
    assert len(tool("search", query="tea", top_k=3.0)["results"]) == 3
    assert len(tool("search", query="tea", top_k=100)["results"]) == 10


@pytest.mark.parametrize("query", ["", "  ", "\n\t"])
def test_a_blank_query_is_an_error(query: str, tool: Ask) -> None:
    assert error(tool("search", query=query)) == "query must not be blank"


def test_libraries_narrow_a_search(tool: Ask, db: Database) -> None:
    for library in ("a", "b"):
        db.documents.ingest_text("tea leaves", source="tea.md", library=library)
    assert len(tool("search", query="tea")["results"]) == 2
    assert [each["library"] for each in tool("search", query="tea", library="a")["results"]] == [
        "a"
    ]
    assert tool("search", query="tea", library="unknown")["results"] == []
    assert tool("search", query="tea", library="a", filter={"library": "b"})["results"] == []
    assert len(tool("search", query="tea", filter={"library": "b"})["results"]) == 1


@pytest.fixture
def shelf(tool: Ask, write: Callable[..., str]) -> dict[str, Any]:
    """Two files; the record of the first one's only chunk, under the specification's names."""
    done = tool(
        "ingest_file", path=write("o'hara.md", "# Tea 100%\n\nleaves\n"), metadata={"year": 2026}
    )
    tool("ingest_file", path=write("other.txt", "leaves too\n"))
    (listed,) = [
        each for each in tool("list_documents")["documents"] if each["doc_id"] == done["doc_id"]
    ]
    (found,) = [
        each
        for each in tool("search", query="leaves")["results"]
        if each["doc_id"] == done["doc_id"]
    ]
    return {**listed, **found, "id": f"{done['doc_id']}:0"}


@pytest.mark.parametrize(
    "field",
    [
        "id",
        "doc_id",
        "library",
        "source",
        "content_hash",
        "title",
        "content",
        "chunk_index",
        "created_at",
        "metadata",
        "file_type",
        "last_modified",
        "page",
    ],
)
def test_every_field_of_a_chunk_can_be_filtered_by(
    field: str, shelf: dict[str, Any], tool: Ask
) -> None:
    results = tool("search", query="leaves", filter={field: shelf[field], "file_type": "md"})[
        "results"
    ]
    assert [each["doc_id"] for each in results] == [shelf["doc_id"]]
    wrong = (
        7
        if isinstance(shelf[field], int)
        else {}
        if field == "metadata"
        else f"{shelf[field]}'; DROP TABLE--"
    )
    assert (
        tool("search", query="leaves", filter={field: wrong})["results"] == []
        or field == "metadata"
    )


def test_filters_are_exact_and_joined_by_and(shelf: dict[str, Any], tool: Ask) -> None:
    assert len(tool("search", query="leaves", filter={})["results"]) == 2
    assert tool("search", query="leaves", filter={"title": "tea 100%"})["results"] == []
    assert tool("search", query="leaves", filter={"title": "Tea %"})["results"] == []
    assert (
        tool("search", query="leaves", filter={"file_type": "md", "chunk_index": 1})["results"]
        == []
    )
    assert len(tool("search", query="leaves", filter={"chunk_index": False})["results"]) == 2
    assert len(tool("search", query="leaves", filter={"chunk_index": 0.0})["results"]) == 2
    assert tool("search", query="leaves", filter={"title": 1.5})["results"] == []


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


@pytest.mark.parametrize(
    "query",
    [
        "the of and",
        "?!",
        "AND OR NOT",
        '"',
        '"unterminated',
        "c++",
        "what's up?",
        "(((",
        "*",
        "-",
        "a NEAR b",
        "title:x",
        "\x00",
        "日本語",
        "🫖",
    ],
)
def test_a_query_of_any_characters_is_accepted(query: str, tool: Ask, db: Database) -> None:
    db.documents.ingest_text("tea leaves", source="tea.md")
    assert "results" in tool("search", query=query)


@pytest.mark.parametrize("code", ["E-4021", "1.0.21"])
def test_an_exact_code_comes_before_near_identical_siblings(
    code: str, tool: Ask, db: Database
) -> None:
    for number in range(12):
        sibling = f"E-40{number:02}" if code.startswith("E") else f"1.0.{number}"
        db.documents.ingest_text(
            f"The kettle reports {sibling} when the water is cold.", source=f"{number}.md"
        )
    wanted = db.documents.ingest_text(
        f"The kettle reports {code} when the water is cold.", source="wanted.md"
    )
    assert tool("search", query=code)["results"][0]["doc_id"] == wanted.document.id


def test_a_search_by_words_only_has_a_note(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("tea leaves", source="tea.md")
    with Database(path) as other:  # whose model is not this file's
        reply = ask(service(other, SURFACE), "search", {"query": "leaves"}).structured_content
    assert reply["results"][0]["content"] == "tea leaves"
    assert reply["note"].startswith("not searched by meaning: ")


# list_documents, list_libraries, delete_document, get_document


def test_documents_are_listed_newest_first(tool: Ask, write: Callable[..., str]) -> None:
    paths = [write(f"{name}.md", f"# {name}\n") for name in ("first", "second", "third")]
    for path in paths:
        tool("ingest_file", path=path)
    listed = tool("list_documents", limit=2)
    assert [each["title"] for each in listed["documents"]] == ["third", "second"]
    assert listed["count"] == 2
    assert set(listed["documents"][0]) == {
        "doc_id",
        "source",
        "title",
        "library",
        "content_hash",
        "created_at",
        "metadata",
        "chunk_count",
    }
    assert (
        listed["documents"][0]["content_hash"]
        == hashlib.sha256(Path(paths[2]).read_bytes()).hexdigest()
    )
    assert datetime.fromisoformat(listed["documents"][0]["created_at"]).utcoffset() is not None
    assert [each["title"] for each in tool("list_documents", limit=2, offset=2)["documents"]] == [
        "first"
    ]
    assert tool("list_documents", library="other") == {
        "documents": [],
        "count": 0,
        "note": "there is no library 'other'; known: 'default'",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0}, "limit must be 1 to 1000, not 0"),
        ({"limit": 1001}, "limit must be 1 to 1000, not 1001"),
        ({"offset": -1}, "offset must be at least 0, not -1"),
        ({"limit": "all"}, 'limit must be a whole number, not "all"'),
    ],
)
def test_a_page_has_bounds(arguments: dict[str, Any], message: str, tool: Ask) -> None:
    assert error(tool("list_documents", **arguments)) == message


def test_libraries_are_counted_and_empty_ones_do_not_exist(tool: Ask, db: Database) -> None:
    assert tool("list_libraries") == {"libraries": []}
    for library, number in (("a", 1), ("b", 1), ("b", 2)):
        done = db.documents.ingest_text("tea", source=f"{number}.md", library=library)
    assert tool("list_libraries") == {
        "libraries": [
            {"library": "a", "document_count": 1, "chunk_count": 1},
            {"library": "b", "document_count": 2, "chunk_count": 2},
        ]
    }
    tool("delete_document", doc_id=done.document.id)
    assert tool("list_libraries")["libraries"][1]["document_count"] == 1


def test_deleting_a_document_twice_reports_0_chunks_the_second_time(
    tool: Ask, db: Database
) -> None:
    id = db.documents.ingest_text("tea leaves", source="tea.md").document.id
    assert tool("delete_document", doc_id=id) == {
        "status": "deleted",
        "doc_id": id,
        "deleted_chunks": 1,
    }
    assert tool("delete_document", doc_id=id) == {
        "status": "deleted",
        "doc_id": id,
        "deleted_chunks": 0,
        "note": "no document has this id: nothing was deleted",
    }
    assert tool("search", query="leaves") == {"results": []}


@pytest.mark.parametrize("name", ["delete_document", "get_document"])
def test_a_blank_id_is_an_error(name: str, tool: Ask) -> None:
    assert error(tool(name, doc_id=" ")) == "doc_id must not be blank"


def test_a_document_comes_back_exactly(tool: Ask, write: Callable[..., str]) -> None:
    text = (
        "# Tea\r\n\r\n"
        + "\n\n".join(f"Paragraph {number} about leaves. " * 20 for number in range(30))
        + "\n \n"
    )
    done = tool("ingest_file", path=write("long.md", text), metadata={"a": 1})
    assert tool("get_document", doc_id=f" {done['doc_id']} ") == {
        "doc_id": done["doc_id"],
        "source": done["source"],
        "title": "Tea",
        "library": "default",
        "content": text,
        "chunk_count": done["chunk_count"],
        "metadata": {"a": 1},
    }
    assert done["chunk_count"] > 5


@pytest.mark.parametrize("part", ["x", "-1", "9" * 30, "9" * 5_000])
def test_an_invalid_part_of_a_document_is_no_error(part: str, tool: Ask, db: Database) -> None:
    id = db.documents.ingest_text("tea leaves", source="tea.md").document.id
    assert tool("get_document", doc_id=f"{id}#{part}")["doc_id"] == id


def test_an_unknown_document_is_not_found(tool: Ask) -> None:
    assert "not found" in error(tool("get_document", doc_id="00000000-0000-4000-8000-000000000000"))


# Failures and bounds


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search", {}, "query is required"),
        ("search", {"query": 5}, "query must be text, not 5"),
        ("search", {"query": ["a"]}, "query must be text, not an array"),
        ("search", {"query": "a", "library": 5}, "library must be text, not 5"),
        ("ingest_file", {}, "path is required"),
        ("ingest_file", {"path": "a", "metadata": [1]}, "metadata must be an object"),
        ("ingest_url", {"url": None}, "url must be text, not null"),
        ("get_document", {"doc_id": 5}, "doc_id must be text"),
        ("delete_document", {}, "doc_id is required"),
        ("list_documents", {"offset": {}}, "offset must be a whole number"),
        ("search", {"query": "a", "library": " "}, "library must not be blank"),
    ],
)
def test_every_error_is_a_normal_result_with_status_error(
    name: str, arguments: dict[str, Any], message: str, tool: Ask
) -> None:
    assert message in error(tool(name, **arguments))


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["page", "title", "metadata", "id", "a.b"]) | st.text(max_size=3),
            inner,
            max_size=2,
        )
    ),
    max_leaves=5,
)
NAMES = (
    "path",
    "url",
    "library",
    "metadata",
    "query",
    "top_k",
    "filter",
    "limit",
    "offset",
    "doc_id",
    "other",
)


@given(
    calls=st.lists(
        st.tuples(st.sampled_from(SURFACE.tools), st.dictionaries(st.sampled_from(NAMES), odd)),
        max_size=8,
    )
)
def test_any_arguments_get_a_result_or_an_error_message(
    calls: list[tuple[Tool, dict[str, Any]]],
) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        db.documents.ingest_text("tea leaves", source="tea.md")
        for tool, raw in calls:
            reply = call(PublishedTool(name=tool.name, surface=SURFACE, tool=tool), db, raw)
            assert not reply.failed
            valid(reply.structured, tool.arguments.output)
            assert not str((reply.structured or {}).get("error")).startswith("Internal error"), (
                tool.name,
                raw,
            )


def test_an_unexpected_exception_is_an_internal_error_without_details(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("SELECT * FROM /home/user/secret.db")

    monkeypatch.setattr(db.documents, "libraries", broken)
    reply = ask(service(db, SURFACE), "list_libraries").structured_content
    assert (
        error(reply)
        == "Internal error: something went wrong inside the server; its log has the details"
    )


def test_objects_may_come_as_json_strings(tool: Ask, write: Callable[..., str]) -> None:
    tool("ingest_file", path=write("tea.md"), metadata='{"a": [1]}')
    assert tool("search", query="tea", filter='"{\\"file_type\\": \\"md\\"}"')["results"][0][
        "metadata"
    ] == {"a": [1]}


def test_unknown_arguments_are_ignored(tool: Ask) -> None:
    assert tool("search", query="tea", explain=True, random_string="x") == {
        "results": [],
        "note": '"explain" is an unknown argument and was ignored; there are query, top_k, '
        "library, filter, min_relevance.",
    }


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


class Halting(Letters):
    """An embedder that counts its batches and halts in the third until it may go on."""

    def __init__(self) -> None:
        self.batches = 0
        self.halted, self.go_on = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.batches += 1
        if self.batches == 3:
            self.halted.set()
            assert self.go_on.wait(60)
        elif self.batches > 3:
            time.sleep(0.1)  # what is heard of a batch may end the next but one
        return super().embed(texts, query=query)


def test_a_long_ingest_reports_progress_and_stops_when_cancelled(
    path: Path, write: Callable[..., str]
) -> None:
    slow, seen = Halting(), []
    file = write(
        "long.md",
        "\n\n".join(f"# Part {number}\n\n" + "leaves and water " * 60 for number in range(800)),
    )
    with Database(path, embedder=slow) as db:

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total))

        async def conversation(client: Client) -> None:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def ingest() -> None:
                        await client.call_tool(
                            "ingest_file", {"path": file}, progress_callback=listen
                        )

                    group.start_soon(ingest)
                    await anyio.to_thread.run_sync(slow.halted.wait, 60)
                    scope.cancel()
            slow.go_on.set()

        talk(service(db, SURFACE), conversation)
        for thread in threading.enumerate():
            if thread.name == "mcpvectordb-ingest":
                thread.join(60)
        assert db.stats().pending > 0
        assert seen == sorted(set(seen))
        assert all(done <= total for done, total in seen)
        assert db.check() == []


def test_tools_work_over_stdio_with_the_real_model(path: Path, write: Callable[..., str]) -> None:
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        for name, text in (
            ("tea.md", "# Brewing\n\nPour hot water over the leaves and wait."),
            ("car.md", "# Engines\n\nChange the motor oil every year."),
        ):
            wire.call("ingest_file", {"path": write(name, text)})
        results = wire.call("search", {"query": "how do I prepare a cup of tea?"})[
            "structuredContent"
        ]["results"]
        assert [each["title"] for each in results] == ["Brewing", "Engines"]
        assert wire.finish() == 0
