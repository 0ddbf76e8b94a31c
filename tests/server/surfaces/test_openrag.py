from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from mcpvectordb.embedding.tokenizer import TokenPipeline
from mcpvectordb_server.surfaces.openrag import SURFACE
from tests.server.clients import caller, service
from tests.support import Letters

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


# ingest_document


def test_the_size_is_checked_after_the_suffix_and_before_the_encoding(
    path: Path, write: Write
) -> None:
    with Database(path, embedder=Letters(), config=Config(max_source_bytes=10)) as db:
        tool = caller(service(db, SURFACE))
        assert error(tool("ingest_document", file_path=write("a.txt", b"\xff" * 11))) == (
            "file_too_large",
            "File size exceeds maximum allowed size",
        )
        code, _ = error(tool("ingest_document", file_path=write("a.md", b"\xff" * 11)))
        assert code == "invalid_file_type"
        assert tool("ingest_document", file_path=write("b.txt", b"x" * 10))["status"] == "success"


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
    assert reply["message"] == "Document ingested successfully"
    assert reply["note"].startswith("stored and found by words, but not yet by meaning: ")
    assert [(each["filename"], each["status"]) for each in tool("list_documents")["documents"]] == [
        ("first.txt", "completed"),
        ("second.txt", "pending"),
    ]


# query_documents


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

        every = [("up", 1.0), ("aside", 0.6), ("nearly", 0.5), ("down", 0.0)]
        assert found(min_similarity=0) == every
        assert found() == found(min_similarity=0.5) == every[:3]
        assert found(min_similarity=0.6) == found(min_similarity=0, max_results=2) == every[:2]
        assert found(min_similarity=1) == found(min_similarity=0.7, max_results=2) == every[:1]


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


@pytest.mark.parametrize(
    "query", ['"boiling hot" tea', "-tea", 'tea -water -"leaves"', '"', "--verbose -v", '"-tea"']
)
def test_quotes_and_hyphens_have_no_meaning_in_a_query(query: str, tool: Ask, db: Database) -> None:
    db.documents.ingest_text("tea and water", source="a.txt")
    assert tool("query_documents", query=query, min_similarity=0)["total_results"] == 1


# list_documents, delete_document, get_stats


def test_an_id_in_capitals_is_the_same_id(tool: Ask, write: Write) -> None:
    id = tool("ingest_document", file_path=write())["document_id"]
    assert tool("delete_document", document_id=id.upper())["chunks_deleted"] == 1


# Failures and bounds


def test_truncated_replies_report_what_is_missing(tool: Ask, db: Database) -> None:
    for number in range(60):
        db.documents.ingest_text(f"tea {number} {'x' * 5000}", source=f"{number}{'y' * 4000}.txt")
    found, listed = (
        tool("query_documents", query="tea", max_results=100, min_similarity=0),
        tool("list_documents"),
    )
    assert 5 < len(found["results"]) == found["total_results"] < 60
    assert "lower max_results" in found["truncated"]
    assert 20 < len(listed["documents"]) < listed["total_documents"] == 60
    assert "only the first" in listed["truncated"]
