from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb.embedding.tokenizer import TokenPipeline
from mcpvectordb_server.surface import PublishedTool, Tool, call
from mcpvectordb_server.surfaces import mcpvectordb
from mcpvectordb_server.surfaces.openrag import SURFACE
from tests.server.clients import Wire, ask, caller, service, talk, valid
from tests.support import Letters

NOBODY = "00000000-0000-4000-8000-000000000000"
Ask = Callable[..., dict[str, Any]]
Write = Callable[..., str]


@pytest.fixture
def tool(db: Database) -> Ask:
    return caller(service(db, SURFACE))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file beside the test's database; its path."""

    def make(name: str = "tea.txt", text: str | bytes = "Water at 80 degrees.\n") -> str:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return make


def error(reply: dict[str, Any]) -> tuple[str, str]:
    assert set(reply) == {"status", "error", "message"}
    assert reply["status"] == "error"
    return reply["error"], reply["message"]


# The server as a whole


def test_served_with_mcpvectordb_two_tools_get_the_surface_as_prefix(db: Database) -> None:
    made = service(db, mcpvectordb.SURFACE, SURFACE)
    descriptions = {
        tool.name: tool.description for tool in talk(made, lambda client: client.list_tools()).tools
    }
    assert list(descriptions)[7:] == [
        "ingest_document",
        "query_documents",
        "openrag_list_documents",
        "openrag_delete_document",
        "get_stats",
    ]
    assert "`openrag_delete_document`" in descriptions["ingest_document"]
    assert ask(made, "openrag_list_documents").structured_content["total_documents"] == 0
    assert ask(made, "list_documents").structured_content == {"documents": [], "count": 0}


# ingest_document


def test_a_file_is_ingested(tool: Ask, write: Write) -> None:
    reply = tool("ingest_document", file_path=write("tea.txt", "Wärme\n"))
    assert UUID(reply.pop("document_id")).version == 4
    assert reply == {
        "status": "success",
        "filename": "tea.txt",
        "file_size": 7,
        "chunk_count": 1,
        "message": "Document ingested successfully",
    }


@pytest.mark.parametrize(
    "name",
    [
        "/path/to/file.txt",
        "missing.txt",
        "missing.pdf",
        "nul\0byte.txt",
        "x" * 300,
        "~nobody/a.txt",
    ],
)
def test_a_missing_file_is_not_found(name: str, tool: Ask) -> None:
    assert error(tool("ingest_document", file_path=name)) == (
        "file_not_found",
        f"File does not exist: {name}",
    )


@pytest.mark.parametrize("name", ["folder", "folder.txt"])
def test_a_folder_is_reported_as_not_found(name: str, tool: Ask, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert error(tool("ingest_document", file_path=str(tmp_path / name))) == (
        "file_not_found",
        f"Not a file but a folder: {tmp_path / name}",
    )


def test_only_txt_files_are_read(tool: Ask, write: Write) -> None:
    for name in ("tea.md", "tea.pdf", "tea", "tea.txt.gz", ".txt"):
        assert error(tool("ingest_document", file_path=write(name, b"\xff\xfe\x00"))) == (
            "invalid_file_type",
            "Only .txt files are supported",
        )
    assert tool("ingest_document", file_path=write("TEA.TXT"))["filename"] == "TEA.TXT"


def test_the_size_is_checked_after_the_suffix_and_before_the_encoding(
    path: Path, write: Write
) -> None:
    with Database(path, embedder=Letters(), config=Config(max_source_bytes=10)) as db:
        tool = caller(service(db, SURFACE))
        assert error(tool("ingest_document", file_path=write("a.txt", b"\xff" * 11))) == (
            "file_too_large",
            "File size exceeds maximum allowed size",
        )
        assert (
            error(tool("ingest_document", file_path=write("a.md", b"\xff" * 11)))[0]
            == "invalid_file_type"
        )
        assert tool("ingest_document", file_path=write("b.txt", b"x" * 10))["status"] == "success"


@pytest.mark.parametrize(
    "content", ["Wärme".encode("latin-1"), "Wärme".encode("utf-16"), b"tea \xc3", b"\xed\xa0\x80"]
)
def test_a_file_that_is_not_utf_8_is_an_encoding_error(
    content: bytes, tool: Ask, write: Write
) -> None:
    assert error(tool("ingest_document", file_path=write("tea.txt", content))) == (
        "encoding_error",
        "Failed to read file: invalid encoding",
    )


@pytest.mark.parametrize("content", ["", " \n\t\n", "\ufeff \n"])
def test_a_blank_file_is_an_error(content: str, tool: Ask, write: Write) -> None:
    assert (
        error(tool("ingest_document", file_path=write("tea.txt", content)))[0] == "ingestion_failed"
    )
    assert tool("list_documents")["total_documents"] == 0


def test_the_same_file_twice_is_two_documents(tool: Ask, write: Write, db: Database) -> None:
    path = write()
    first, second = (tool("ingest_document", file_path=path)["document_id"] for _ in range(2))
    assert first != second
    assert [each["document_id"] for each in tool("list_documents")["documents"]] == [first, second]
    found = tool("query_documents", query="water")["results"]
    assert {each["document_id"] for each in found} == {first, second}
    assert len({each["chunk_id"] for each in found}) == 2
    tool("delete_document", document_id=first)
    assert [each["document_id"] for each in tool("query_documents", query="water")["results"]] == [
        second
    ]
    assert db.check() == []


def test_chunks_have_400_tokens_at_most_and_repeat_up_to_60(
    tool: Ask, write: Write, db: Database
) -> None:
    text = " ".join(
        f"Sentence {number} tells what number {number * 7} did." for number in range(400)
    )
    count = tool("ingest_document", file_path=write("long.txt", text))["chunk_count"]
    (document,) = db.documents.browse()
    chunks = sorted(
        (hit.item for hit in db.documents.search("number", limit=count)),
        key=lambda chunk: chunk.position,
    )
    tokens = [len(TokenPipeline().token_starts(chunk.text)) for chunk in chunks]
    assert count == len(chunks) > 5
    assert all(300 < number <= 400 for number in tokens[:-1])
    overlaps = [
        len(TokenPipeline().token_starts(text[after.start : before.end]))
        for before, after in pairwise(chunks)
    ]
    assert all(0 < number <= 60 for number in overlaps)
    db.documents.ingest_text(text, source="other.txt")
    assert db.documents.browse()[0].chunks > document.chunks


@pytest.mark.parametrize(
    "text",
    [
        "<!doctype html><p>tea &amp; water</p>",
        "<?xml version='1.0'?><tea/>",
        "---\ntitle: Tea\n---\ntea",
        "%PDF-1.4 tea",
        "From: a\nReceived: b\n",
        "\\documentclass{article} tea",
        "tea \0 water",
    ],
)
def test_a_txt_file_that_looks_like_another_format_is_read_as_text(
    text: str, tool: Ask, write: Write, db: Database
) -> None:
    done = tool("ingest_document", file_path=write("tea.txt", text))
    assert db.documents.text(done["document_id"]) == text
    (found,) = tool("query_documents", query="tea", min_similarity=0)["results"]
    assert found["content"] == text.strip()


def test_secrets_and_the_database_itself_are_refused(tool: Ask, write: Write, path: Path) -> None:
    tool("ingest_document", file_path=write())
    code, message = error(tool("ingest_document", file_path=write(".ssh/notes.txt")))
    assert (code, "secrets" in message) == ("validation_error", True)
    code, message = error(tool("ingest_document", file_path=str(path)))
    assert (code, "is the database itself" in message) == ("validation_error", True)


def test_nothing_is_revealed_about_files_outside_of_the_roots(
    db: Database, write: Write, tmp_path: Path
) -> None:
    inside, outside = write("in/tea.txt"), write("out/tea.txt")
    made = service(db, SURFACE, roots=(Path(inside).parent,))
    assert (
        ask(made, "ingest_document", {"file_path": inside}).structured_content["status"]
        == "success"
    )
    (Path(inside).parent / "link.txt").symlink_to(outside)
    for path in (
        outside,
        write("out/tea.md"),
        str(tmp_path / "missing.txt"),
        f"{tmp_path}/files/in/link.txt",
    ):
        code, message = error(ask(made, "ingest_document", {"file_path": path}).structured_content)
        assert (code, "outside of the folders" in message) == ("validation_error", True)
    nowhere = service(db, SURFACE, roots=())
    assert (
        "--root DIR"
        in error(ask(nowhere, "ingest_document", {"file_path": inside}).structured_content)[1]
    )


def test_a_url_is_reported_as_not_found(path: Path) -> None:
    with Database(path, embedder=Letters(), config=Config(allow_private_urls=True)) as db:
        reply = ask(
            service(db, SURFACE), "ingest_document", {"file_path": "http://127.0.0.1:1/a.txt"}
        ).structured_content
    assert error(reply) == ("file_not_found", "File does not exist: http://127.0.0.1:1/a.txt")


def test_paths_are_resolved(
    tool: Ask, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("files/../files/tea.txt", "~/files/tea.txt", f"{tmp_path}/files/./tea.txt"):
        assert tool("ingest_document", file_path=path)["filename"] == "tea.txt"


def test_a_file_in_another_language_is_told_of_the_multilingual_model_once(
    path: Path, write: Write
) -> None:
    german = "Die Feuerwehr löschte den Brand in der Altstadt noch vor Mitternacht."
    with Database(path, config=Config(model="all-MiniLM-L6-v2")) as db:
        tool, other = caller(service(db, SURFACE)), caller(service(db, mcpvectordb.SURFACE))
        reply = tool("ingest_document", file_path=write("a.txt", german))
        assert reply["message"].startswith("Document ingested successfully; most of it is not in ")
        reply = tool("ingest_document", file_path=write("b.txt", german + " Ende."))
        assert reply["message"] == "Document ingested successfully"
        assert "note" not in other("ingest_file", path=write("c.txt", german + " Schluss."))


@pytest.fixture
def modelless(path: Path) -> Iterator[Database]:
    """A file with one document whose model is not to be had any more."""
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("tea leaves", source="first.txt")
    with Database(path) as db:
        yield db


def test_without_its_model_a_text_is_stored_and_its_embedding_is_pending(
    modelless: Database, write: Write
) -> None:
    tool = caller(service(modelless, SURFACE))
    reply = tool("ingest_document", file_path=write("second.txt"))
    assert reply["status"] == "success"
    assert reply["message"].startswith(
        "Document stored and found by words, but not yet by meaning: "
    )
    assert [(each["filename"], each["status"]) for each in tool("list_documents")["documents"]] == [
        ("first.txt", "completed"),
        ("second.txt", "pending"),
    ]


def test_a_query_that_cannot_be_embedded_reports_the_reason(modelless: Database) -> None:
    code, message = error(caller(service(modelless, SURFACE))("query_documents", query="tea"))
    assert code == "tool_execution_failed"
    assert message.startswith(
        "Documents cannot be searched by meaning: there is no model 'letters'"
    )


# query_documents


def test_results_have_exactly_the_specified_keys(tool: Ask, write: Write) -> None:
    done = {
        name: tool("ingest_document", file_path=write(f"{name}.txt", text))["document_id"]
        for name, text in (("near", "tea and water"), ("far", "zzz xyz qqq"))
    }
    reply = tool("query_documents", query="  water and tea\n")
    assert set(reply) == {"status", "query", "total_results", "results"}
    assert (reply["status"], reply["query"], reply["total_results"]) == (
        "success",
        "water and tea",
        2,
    )
    near, far = reply["results"]
    assert set(near) == {
        "chunk_id",
        "document_id",
        "document_name",
        "content",
        "similarity_score",
        "chunk_index",
    }
    assert (near["document_id"], near["document_name"], near["content"], near["chunk_index"]) == (
        done["near"],
        "near.txt",
        "tea and water",
        0,
    )
    assert far["document_id"] == done["far"]
    assert UUID(near["chunk_id"]) != UUID(far["chunk_id"])
    assert tool("query_documents", query="water and tea")["results"] == [near, far]
    first, second = Letters().embed(["near.txt\ntea and water", "water and tea"]).astype(np.float64)
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert near["similarity_score"] == round(cosine, 4) > far["similarity_score"]


class Signs:
    """Up and down: an embedder whose vectors can point away from each other."""

    name, dimension = "signs", 2
    where = {  # noqa: RUF012
        "up": (1.0, 0.0),
        "down": (-1.0, 0.0),
        "aside": (0.6, 0.8),
        "nearly": (0.50004, 0.86600),
    }

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        return np.array([self.where[text.split()[-1]] for text in texts], np.float32)


def test_similarity_is_the_cosine_clamped_to_0_and_1(path: Path, write: Write) -> None:
    with Database(path, embedder=Signs()) as db:
        tool = caller(service(db, SURFACE))
        for name in ("down", "nearly", "up", "aside"):
            tool("ingest_document", file_path=write(f"{name}.txt", name))

        def found(**arguments: Any) -> list[tuple[str, float]]:
            return [
                (each["content"], each["similarity_score"])
                for each in tool("query_documents", query="up", **arguments)["results"]
            ]

        assert found(min_similarity=0) == [
            ("up", 1.0),
            ("aside", 0.6),
            ("nearly", 0.5),
            ("down", 0.0),
        ]
        assert found() == [("up", 1.0), ("aside", 0.6), ("nearly", 0.5)]
        assert found(min_similarity=0.6) == [("up", 1.0), ("aside", 0.6)]
        assert found(min_similarity=0.5) == [("up", 1.0), ("aside", 0.6), ("nearly", 0.5)]
        assert found(min_similarity=1) == [("up", 1.0)]
        assert found(min_similarity=0, max_results=2) == [("up", 1.0), ("aside", 0.6)]
        assert found(min_similarity=0.7, max_results=2) == [("up", 1.0)]


def test_an_empty_query_is_reported_before_an_empty_collection(tool: Ask) -> None:
    for query in ("", " \n\t"):
        assert error(tool("query_documents", query=query, max_results=0)) == (
            "empty_query",
            "Query cannot be empty",
        )
    assert error(tool("query_documents", query="tea")) == (
        "empty_collection",
        "No documents have been ingested yet",
    )


def test_no_results_are_a_success_with_a_message(tool: Ask, db: Database) -> None:
    db.documents.ingest_text("tea", source="a.txt")
    reply = {
        "status": "success",
        "query": "zzz",
        "total_results": 0,
        "results": [],
        "message": "No results found matching the query",
    }
    assert tool("query_documents", query="zzz", min_similarity=1) == reply
    db.documents.ingest_text("water", source="b.txt", embed=False)
    assert tool("query_documents", query="zzz", min_similarity=1) == {
        **reply,
        "message": f"{reply['message']}; 1 of all 2 passages are searched by meaning so far; run "
        "`mcpvectordb embed`",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_results": 0}, "max_results must be 1 to 100, not 0"),
        ({"max_results": 101}, "max_results must be 1 to 100, not 101"),
        ({"max_results": True}, "max_results must be a whole number, not true"),
        ({"max_results": 2.5}, "max_results must be a whole number, not 2.5"),
        ({"max_results": "many"}, 'max_results must be a whole number, not "many"'),
        ({"min_similarity": -0.1}, "min_similarity must be 0 to 1, not -0.1"),
        ({"min_similarity": 1.01}, "min_similarity must be 0 to 1, not 1.01"),
        ({"min_similarity": "high"}, 'min_similarity must be a number, not "high"'),
        ({"min_similarity": True}, "min_similarity must be a number, not true"),
        ({"query": "x" * 1001}, "query has 1,001 characters; at most 1,000 are allowed"),
    ],
)
def test_arguments_have_bounds(arguments: dict[str, Any], message: str, tool: Ask) -> None:
    assert error(tool("query_documents", **{"query": "tea", **arguments})) == (
        "validation_error",
        message,
    )


def test_the_bounds_themselves_are_allowed(tool: Ask, db: Database) -> None:
    for number in range(7):
        db.documents.ingest_text(f"tea {number}", source=f"{number}.txt")
    assert tool("query_documents", query="tea")["total_results"] == 5
    for max_results, found in ((1, 1), (3.0, 3), (100, 7)):
        assert (
            tool("query_documents", query="tea", max_results=max_results)["total_results"] == found
        )
    assert tool("query_documents", query=" " + "tea " * 250)["query"] == ("tea " * 250).strip()


def test_documents_ingested_by_other_surfaces_are_found(db: Database, write: Write) -> None:
    other, tool = caller(service(db, mcpvectordb.SURFACE)), caller(service(db, SURFACE))
    done = other(
        "ingest_file", path=write("tea.md", "# Tea\n\nWater at 80 degrees.\n"), library="kitchen"
    )
    (listed,) = tool("list_documents")["documents"]
    assert (listed["document_id"], listed["filename"], listed["file_size"]) == (
        done["doc_id"],
        "tea.md",
        28,
    )
    assert tool("query_documents", query="water")["results"][0]["document_name"] == "tea.md"
    mine = tool("ingest_document", file_path=write("own.txt"))
    assert other("get_document", doc_id=mine["document_id"])["content"] == "Water at 80 degrees.\n"
    assert (
        tool("delete_document", document_id=done["doc_id"])["chunks_deleted"] == done["chunk_count"]
    )
    assert [each["doc_id"] for each in other("list_documents")["documents"]] == [
        mine["document_id"]
    ]


@pytest.mark.parametrize(
    "query", ['"boiling hot" tea', "-tea", 'tea -water -"leaves"', '"', "--verbose -v", '"-tea"']
)
def test_quotes_and_hyphens_have_no_meaning_in_a_query(query: str, tool: Ask, db: Database) -> None:
    db.documents.ingest_text("tea and water", source="a.txt")
    assert tool("query_documents", query=query, min_similarity=0)["total_results"] == 1


# list_documents, delete_document, get_stats


def test_documents_are_listed_in_the_order_of_their_ingest(tool: Ask, write: Write) -> None:
    assert tool("list_documents") == {
        "status": "success",
        "total_documents": 0,
        "documents": [],
        "message": "No documents have been ingested yet",
    }
    before = datetime.now(UTC)
    done = [
        tool("ingest_document", file_path=write(f"{name}.txt", name * 9))
        for name in ("b", "a", "c")
    ]
    reply = tool("list_documents")
    assert set(reply) == {"status", "total_documents", "documents"}
    assert (reply["status"], reply["total_documents"]) == ("success", 3)
    for listed, ingested in zip(reply["documents"], done, strict=True):
        created = listed.pop("created_at")
        assert created.endswith("Z")
        assert before <= datetime.fromisoformat(created) <= datetime.now(UTC)
        assert listed == {
            "document_id": ingested["document_id"],
            "filename": ingested["filename"],
            "file_size": 9,
            "chunk_count": 1,
            "status": "completed",
        }


def test_a_document_is_deleted_with_its_chunks(tool: Ask, write: Write) -> None:
    text = "\n\n".join(f"Paragraph {number} about leaves. " * 30 for number in range(10))
    done = tool("ingest_document", file_path=write("long.txt", text))
    id, chunks = done["document_id"], done["chunk_count"]
    assert chunks > 2
    assert tool("delete_document", document_id=f" {id}\n") == {
        "status": "success",
        "document_id": id,
        "chunks_deleted": chunks,
        "message": f"Document and {chunks} chunks deleted successfully",
    }
    assert error(tool("delete_document", document_id=id)) == (
        "document_not_found",
        f"Document not found: {id}",
    )
    assert error(tool("query_documents", query="leaves"))[0] == "empty_collection"


def test_an_id_in_capitals_is_the_same_id(tool: Ask, write: Write) -> None:
    id = tool("ingest_document", file_path=write())["document_id"]
    assert tool("delete_document", document_id=id.upper())["chunks_deleted"] == 1
    assert error(tool("delete_document", document_id=NOBODY)) == (
        "document_not_found",
        f"Document not found: {NOBODY}",
    )


@pytest.mark.parametrize(
    "id",
    [
        "",
        " ",
        "doc-1",
        "5",
        NOBODY[:-1],
        NOBODY + "0",
        f"{{{NOBODY}}}",
        NOBODY.replace("-", ""),
        f"urn:uuid:{NOBODY}",
        NOBODY.replace("8", "g"),
        "٠" + NOBODY[1:],
    ],
)
def test_an_id_that_is_not_a_uuid_is_invalid(id: str, tool: Ask) -> None:
    assert error(tool("delete_document", document_id=id)) == (
        "invalid_document_id",
        "Invalid document ID format",
    )


def test_statistics_match_the_file(
    path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with Database(path.name, embedder=Letters()) as db:
        tool = caller(service(db, SURFACE))
        statistics = {
            "total_documents": 0,
            "total_chunks": 0,
            "storage_path": str(path),
            "embedding_model": "letters",
            "embedding_dimension": 32,
            "chunk_size": 400,
            "chunk_overlap": 60,
        }
        assert tool("get_stats") == {"status": "success", "statistics": statistics}
        for _ in range(2):
            tool("ingest_document", file_path=write())
        assert tool("get_stats")["statistics"] == {
            **statistics,
            "total_documents": 2,
            "total_chunks": 2,
        }


def test_the_model_of_a_new_file_is_known_before_the_first_ingest() -> None:
    with Database(":memory:", config=Config(model="all-MiniLM-L6-v2")) as db:
        statistics = caller(service(db, SURFACE))("get_stats")["statistics"]
    assert (statistics["embedding_model"], statistics["embedding_dimension"]) == (
        "all-MiniLM-L6-v2",
        384,
    )
    assert statistics["storage_path"] == ":memory:"


# Failures and bounds


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("ingest_document", {}, "file_path is required"),
        ("ingest_document", {"file_path": 5}, "file_path must be text, not 5"),
        ("ingest_document", {"file_path": " "}, "file_path must not be blank"),
        ("query_documents", {}, "query is required"),
        ("query_documents", {"query": None}, "query must be text, not null"),
        ("query_documents", {"query": ["a"]}, "query must be text, not an array"),
        ("delete_document", {}, "document_id is required"),
        ("delete_document", {"document_id": 5}, "document_id must be text, not 5"),
    ],
)
def test_wrong_arguments_are_validation_errors(
    name: str, arguments: dict[str, Any], message: str, tool: Ask
) -> None:
    assert error(tool(name, **arguments)) == ("validation_error", message)


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
usual = st.fixed_dictionaries(
    {},
    optional={
        "query": st.text(max_size=20),
        "max_results": st.integers(-1, 102),
        "min_similarity": st.floats(-0.1, 1.1),
        "document_id": st.sampled_from([NOBODY, "x"]),
        "file_path": st.text(max_size=12).map(lambda name: f"/nowhere/{name}.txt"),
    },
)
raw = st.builds(
    dict.__or__,
    usual,
    st.dictionaries(
        st.sampled_from(
            ["query", "max_results", "min_similarity", "document_id", "file_path", "other"]
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
        db.documents.ingest_text("tea leaves", source="tea.txt")
        for tool, arguments in calls:
            reply = call(PublishedTool(name=tool.name, surface=SURFACE, tool=tool), db, arguments)
            assert not reply.failed
            assert reply.structured is not None
            valid(reply.structured, tool.arguments.output)
            assert reply.structured["status"] == "success" or set(reply.structured) == {
                "status",
                "error",
                "message",
            }
            assert reply.structured.get("error") != "tool_execution_failed", (tool.name, arguments)


def test_an_unexpected_exception_is_a_failed_execution_without_details(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("SELECT * FROM /home/user/secret.db")

    monkeypatch.setattr(db, "stats", broken)
    assert error(ask(service(db, SURFACE), "get_stats").structured_content) == (
        "tool_execution_failed",
        "something went wrong inside the server; its log has the details",
    )


def test_unknown_arguments_are_ignored(tool: Ask) -> None:
    assert tool("get_stats", random_string="x")["status"] == "success"


def test_truncated_replies_report_what_is_missing(tool: Ask, db: Database) -> None:
    for number in range(60):
        db.documents.ingest_text(f"tea {number} {'x' * 5000}", source=f"{number}{'y' * 4000}.txt")
    found, listed = (
        tool("query_documents", query="tea", max_results=100, min_similarity=0),
        tool("list_documents"),
    )
    assert 5 < len(found["results"]) < found["total_results"]
    assert "lower max_results" in found["truncated"]
    assert 20 < len(listed["documents"]) < listed["total_documents"] == 60
    assert "only the first" in listed["truncated"]


def test_the_examples_of_the_specification_run_as_written_on_a_real_server(
    path: Path, write: Write
) -> None:
    with Wire("--db", str(path), "--surface", "openrag") as wire:
        wire.handshake()

        def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            result = wire.call(name, arguments)
            assert result.get("isError", False) is False
            assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
            content: dict[str, Any] = result["structuredContent"]
            return content

        result = call_tool(
            "ingest_document", {"file_path": "/Users/name/documents/research_paper.txt"}
        )
        assert error(result) == (
            "file_not_found",
            "File does not exist: /Users/name/documents/research_paper.txt",
        )
        result = call_tool("query_documents", {"query": "What is deep learning?"})
        assert result["error"] == "empty_collection"

        result = call_tool(
            "ingest_document",
            {
                "file_path": write(
                    "research_paper.txt",
                    (
                        "Deep learning is machine learning with neural networks of many layers.\n\n"
                        "Convolutional and recurrent architectures are two kinds of neural "
                        "networks."
                    ),
                )
            },
        )
        assert (result["filename"], result["chunk_count"]) == ("research_paper.txt", 1)
        id = result["document_id"]
        call_tool(
            "ingest_document",
            {"file_path": write("cake.txt", "Beat the eggs with sugar, then fold in the flour.")},
        )

        result = call_tool("query_documents", {"query": "What is deep learning?"})
        assert result["results"][0]["document_name"] == "research_paper.txt"
        result = call_tool(
            "query_documents",
            {"query": "neural network architectures", "max_results": 10, "min_similarity": 0.5},
        )
        assert [
            (item["document_id"], item["similarity_score"] > 0.5) for item in result["results"]
        ] == [(id, True)]

        result = call_tool("list_documents", {})
        assert [doc["filename"] for doc in result["documents"]] == [
            "research_paper.txt",
            "cake.txt",
        ]
        result = call_tool("get_stats", {})
        stats = result["statistics"]
        assert (stats["total_documents"], stats["total_chunks"], stats["storage_path"]) == (
            2,
            2,
            str(path),
        )
        assert (stats["embedding_dimension"], stats["chunk_size"], stats["chunk_overlap"]) == (
            384,
            400,
            60,
        )

        unknown = "550e8400-e29b-41d4-a716-446655440000"
        result = call_tool("delete_document", {"document_id": unknown})
        assert error(result) == ("document_not_found", f"Document not found: {unknown}")
        assert call_tool("delete_document", {"document_id": id})["chunks_deleted"] == 1
        assert wire.finish() == 0
