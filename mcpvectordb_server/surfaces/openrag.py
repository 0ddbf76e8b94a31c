"""The surface openrag: five tools over the documents shelf, for plain text searched by meaning."""

from __future__ import annotations

import os.path
import re
import uuid
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import TypedDict

from mcpvectordb import (
    Chunk,
    Database,
    Document,
    Hit,
    IngestError,
    InvalidInput,
    MCPVectorDBError,
    Refused,
    Source,
    TooLarge,
    Unreadable,
)
from mcpvectordb_server.arguments import not_blank, within
from mcpvectordb_server.grant import Grant, is_url
from mcpvectordb_server.replies import MAX_ECHO, cut, noted
from mcpvectordb_server.shown import JsonReply, shows
from mcpvectordb_server.surface import OVERWRITES, READS, STORES, Surface, Tool
from mcpvectordb_server.surfaces import prose

VERSION = "2025-11-09"

CHUNK_SIZE, CHUNK_OVERLAP = 400, 60
MAX_QUERY = 1_000
# Documents in one listing: more of them hardly fit into a reply.
MOST_LISTED = 1_000
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class OpenragResult(TypedDict):
    """One chunk that a query found."""

    chunk_id: str
    document_id: str
    document_name: str
    content: str
    similarity_score: float
    chunk_index: int


class OpenragListedDocument(TypedDict):
    """One document in a listing."""

    document_id: str
    filename: str
    file_size: int
    chunk_count: int
    created_at: str
    status: str


class OpenragStatistics(TypedDict):
    """What there is, and how it was made."""

    total_documents: int
    total_chunks: int
    storage_path: str
    embedding_model: str
    embedding_dimension: int
    chunk_size: int
    chunk_overlap: int


class OpenragError(MCPVectorDBError):
    """An error that the specification has a code for."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@shows(
    status=str,
    document_id=str,
    filename=str,
    file_size=int,
    chunk_count=int,
    message=str,
    note=str,
    error=str,
)
def ingest_document(
    db: Database,
    *,
    file_path: Annotated[str, "Absolute path of the .txt file"],
    grant: Grant = Grant(),  # noqa: B008 - immutable
) -> JsonReply:
    """Read one plain text file (.txt, UTF-8), cut it into chunks and index them, so that
    `query_documents` finds them.

    The file must be on the machine the server runs on. Each call stores a new document: to replace
    one, delete the old one with `delete_document`. `note` says what of a long document cannot be
    queried yet. A file that takes more than ten seconds to read goes on in the background: the same
    call again then returns its result.
    """
    not_blank("file_path", file_path)
    grant.check_files()
    if is_url(file_path):  # which the library would fetch
        raise OpenragError("file_not_found", f"File does not exist: {file_path}")
    try:
        done = db.documents.ingest(
            file_path,
            reader=_plain_text,
            chunk_size=CHUNK_SIZE,
            chunk_overlap=CHUNK_OVERLAP,
            duplicate=True,
            **grant.reading(),
        )
    except IngestError as error:
        raise _specified(file_path, error) from None
    document = done.document
    reply = {
        "status": "success",
        "document_id": document.id,
        "filename": _name(document),
        "file_size": document.size,
        "chunk_count": document.chunks,
        "message": "Document ingested successfully",
    }
    return noted(reply, done.note)


@shows(
    status=str,
    query=str,
    total_results=int,
    results=list[OpenragResult],
    message=str,
    note=str,
    truncated=str,
    error=str,
)
def query_documents(
    db: Database,
    *,
    query: Annotated[str, "Question or topic in natural language"],
    max_results: Annotated[int, "Most results to return (1-100)"] = 5,
    min_similarity: Annotated[float, "Least similarity of a result, 0 to 1"] = 0.1,
) -> JsonReply:
    """Find the passages of all ingested documents that are nearest in meaning to a question.

    Use this first whenever the answer may be in the user's documents. Similarity is the cosine of
    the embeddings: above 0.5 is close, below 0.2 hardly related; lower min_similarity to see more.
    The most similar comes first, and several may come from one document.
    """
    query = query.strip()
    if not query:
        raise OpenragError("empty_query", "Query cannot be empty")
    if len(query) > MAX_QUERY:
        raise InvalidInput(
            f"query has {len(query):,} characters; at most {MAX_QUERY:,} are allowed"
        )
    within("max_results", max_results, 1, 100)
    within("min_similarity", min_similarity, 0, 1)
    if not db.documents.count():
        raise OpenragError("empty_collection", "No documents have been ingested yet")
    found = db.documents.search(query, mode="vector", limit=max_results, plain=True)
    if "vector" in found.reasons:
        raise OpenragError(
            "tool_execution_failed",
            f"Documents cannot be searched by meaning: {found.reasons['vector']}",
        )
    results = [each for each in map(_result, found) if each["similarity_score"] >= min_similarity]
    reply = {"status": "success", "query": query, "total_results": len(results), "results": results}
    if not results:
        reply["message"] = "No results found matching the query"
    return noted(reply, found.verdict if results else "", found.backlog.note)


@shows(
    status=str,
    total_documents=int,
    documents=list[OpenragListedDocument],
    message=str,
    note=str,
    truncated=str,
    error=str,
)
def list_documents(db: Database) -> JsonReply:
    """List all ingested documents with their ids, names, sizes and times, oldest first.

    Use this to see what there is, or to find the document_id for `delete_document`; to find content
    use `query_documents`. A document whose status is "pending" is stored, but not all of it can be
    queried yet.
    """
    total = db.documents.count()
    oldest = db.documents.browse(limit=MOST_LISTED, offset=max(0, total - MOST_LISTED))[::-1]
    waiting = {"id": {"in": [each.id for each in oldest]}, "pending": {"gt": 0}}
    pending = (
        {each.id for each in db.documents.browse(where=waiting, limit=MOST_LISTED)}
        if oldest
        else set()
    )
    listed = [
        OpenragListedDocument(
            document_id=each.id,
            filename=_name(each),
            file_size=each.size,
            chunk_count=each.chunks,
            created_at=each.created_at.replace("+00:00", "Z"),
            status="pending" if each.id in pending else "completed",
        )
        for each in oldest
    ]
    reply = {"status": "success", "total_documents": total, "documents": listed}
    if not listed:
        reply["message"] = "No documents have been ingested yet"
    more = (
        f"only the first {len(listed):,} of {total:,} documents are listed; find others by querying"
        if total > len(listed)
        else ""
    )
    return noted(reply, db.documents.backlog().note, more)


@shows(status=str, document_id=str, chunks_deleted=int, message=str, error=str)
def delete_document(
    db: Database,
    *,
    document_id: Annotated[str, "UUID of the document, as an ingest or a listing gave it"],
) -> JsonReply:
    """Remove one document and all its chunks from the index, for good. The file it came from is not
    touched.

    Ask the user first; `list_documents` shows the ids.
    """
    document_id = document_id.strip()
    if not _UUID.fullmatch(document_id.lower()):
        raise OpenragError("invalid_document_id", "Invalid document ID format")
    found = db.documents.get([document_id.lower()])
    if not db.documents.delete(document_id.lower()):
        raise OpenragError(
            "document_not_found", f"Document not found: {cut(document_id, MAX_ECHO)}"
        )
    removed = found[0].chunks if found else 0
    return {
        "status": "success",
        "document_id": document_id,
        "chunks_deleted": removed,
        "message": f"Document and {removed} chunks deleted successfully",
    }


@shows(status=str, statistics=OpenragStatistics, note=str, error=str)
def get_stats(db: Database) -> JsonReply:
    """Tell how many documents and chunks there are, where they are kept, and with which model and
    chunk size.
    """
    stats = db.stats()
    is_file = stats.path != ":memory:" and not stats.origins
    path = str(Path(stats.path).absolute()) if is_file else stats.path
    reply = {
        "status": "success",
        "statistics": OpenragStatistics(
            total_documents=stats.documents,
            total_chunks=stats.chunks,
            storage_path=path,
            embedding_model=stats.model,
            embedding_dimension=stats.dimension,
            chunk_size=CHUNK_SIZE,
            chunk_overlap=CHUNK_OVERLAP,
        ),
    }
    return noted(reply, db.documents.backlog().note)


def failure(tool: str, error: MCPVectorDBError) -> dict[str, Any]:
    """An error as this surface reports it: a normal result with a code and a message."""
    if isinstance(error, OpenragError):
        code = error.code
    elif isinstance(error, InvalidInput | Refused):
        code = "validation_error"
    else:
        code = "ingestion_failed" if isinstance(error, IngestError) else "tool_execution_failed"
    return {"status": "error", "error": code, "message": str(error)}


def _plain_text(source: Source) -> str:
    if not _is_txt(source.name):
        raise OpenragError("invalid_file_type", "Only .txt files are supported")
    try:
        return source.raw.decode("utf-8")
    except UnicodeDecodeError:
        raise OpenragError("encoding_error", "Failed to read file: invalid encoding") from None


def _is_txt(name: str) -> bool:
    return Path(name).suffix.lower() == ".txt"


def _specified(path: str, error: IngestError) -> MCPVectorDBError:
    """The error by the specification's order of checks: existence, then type, then size."""
    if isinstance(error, Unreadable):
        there = os.path.expanduser(path)  # noqa: PTH111 - unlike Path's methods these never raise
        if os.path.isdir(there):  # noqa: PTH112
            return OpenragError("file_not_found", f"Not a file but a folder: {path}")
        if not os.path.isfile(there):  # noqa: PTH113
            return OpenragError("file_not_found", f"File does not exist: {path}")
    if isinstance(error, Unreadable | TooLarge) and not _is_txt(path):
        return OpenragError("invalid_file_type", "Only .txt files are supported")
    if isinstance(error, TooLarge):
        return OpenragError("file_too_large", "File size exceeds maximum allowed size")
    return error


def _name(document: Document) -> str:
    return Path(document.source).name or document.source


def _result(hit: Hit[Chunk]) -> OpenragResult:
    chunk = hit.item
    return OpenragResult(
        chunk_id=str(uuid.uuid5(uuid.UUID(chunk.document.id), str(chunk.position))),
        document_id=chunk.document.id,
        document_name=_name(chunk.document),
        content=chunk.passage,
        similarity_score=round(hit.score, 4),
        chunk_index=chunk.position,
    )


SURFACE = Surface(
    name="openrag",
    version=VERSION,
    instructions=prose("openrag"),
    tools=(
        Tool(ingest_document, "Ingest a text file", STORES),
        Tool(query_documents, "Query documents", READS, more="lower max_results"),
        Tool(list_documents, "List documents", READS, more="find others by querying"),
        Tool(delete_document, "Delete a document", OVERWRITES),
        Tool(get_stats, "Statistics", READS),
    ),
    failure=failure,
)
