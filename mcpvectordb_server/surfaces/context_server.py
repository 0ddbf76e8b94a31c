"""The surface context_server: thirteen tools over memories, for agents that keep entries."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict, Unpack

from mcpvectordb import (
    Change,
    Condition,
    Database,
    Entry,
    Explained,
    Image,
    InvalidInput,
    MCPVectorDBError,
    Memory,
    MemoryStats,
    ModelMissing,
    NotFound,
    Outcome,
    Results,
    Scores,
    Stored,
    Updated,
)
from mcpvectordb_server.arguments import arguments_of, coerce, listed_last, not_blank
from mcpvectordb_server.replies import MAX_REPLY, Reply, failed, noted
from mcpvectordb_server.shown import JsonReply, shows
from mcpvectordb_server.surface import OVERWRITES, READS, STORES, Surface, Tool
from mcpvectordb_server.surfaces import prose

VERSION = "1.3"

# What is stored here is an agent's word, also where it says that a user said it.
WRITER: Literal["agent"] = "agent"
# Operators without a value; one that a client sends is ignored.
VALUELESS = ("exists", "not_exists", "is_null", "is_not_null")
_KEY = re.compile(r"[A-Za-z0-9_.-]+")

Name = Annotated[str, Field(min_length=1)]
Source = Literal["user", "agent"]
Ids = Annotated[list[int], Field(min_length=1)]

# What clients are told of objects whose members are checked here.
_OBJECTS = json.loads(Path(__file__).with_suffix(".json").read_bytes())
Filter = Annotated[dict[str, Any], WithJsonSchema(_OBJECTS["filter"])]
GivenImage = Annotated[dict[str, Any], WithJsonSchema(_OBJECTS["image"])]
PageSize = Annotated[int, Field(ge=1, le=100), "Most entries to return"]
Offset = Annotated[int, Field(ge=0), "How many entries to skip, for the next page"]


IncludeImages = Annotated[bool, "Return images too, in base64"]


class ContextFilters(TypedDict):
    """What all four search tools can be asked for."""

    thread_id: Annotated[Name | None, "Only entries of this thread"]
    source: Annotated[Source | None, "Only entries by 'user' or by 'agent'"]
    tags: Annotated[list[str] | None, "Only entries that have at least one of these tags"]
    content_type: Annotated[
        Literal["text", "multimodal"] | None,
        "'multimodal' entries have images, 'text' entries have none",
    ]
    start_date: Annotated[
        str | None,
        "Created on or after this ISO 8601 date or time, such as 2025-11-29 or "
        "2025-11-29T10:00:00Z",
    ]
    end_date: Annotated[
        str | None,
        "Created on or before this ISO 8601 date or time; a date means the end of that day",
    ]
    metadata: Annotated[
        dict[str, Any] | None,
        "Metadata that must be equal, all of it, case-sensitive; a dot in a key descends. Example: "
        '{"status": "active"}',
    ]
    metadata_filters: Annotated[
        list[Filter] | None,
        'Metadata conditions, all of which must hold. Example: [{"key": "priority", "operator": '
        '"gte", "value": 7}]',
    ]
    include_images: IncludeImages
    explain_query: Annotated[bool, "Return the time the query took and SQLite's plan of it"]


class RequestedFilters:
    """The filters of one call, as the library takes them.

    which      keyword arguments for the library
    wanted     more of them, for what to return
    where      the conditions on metadata among them
    problems   one message for each condition that cannot be used
    """

    def __init__(self, db: Database, given: ContextFilters) -> None:
        self._db = db
        self.where: list[Condition] = []
        self.problems: list[str] = []
        for key, value in (given["metadata"] or {}).items():
            self._add("metadata", {"key": key, "value": value, "case_sensitive": True})
        for place, each in enumerate(given["metadata_filters"] or ()):
            self._add(f"metadata_filters[{place}]", each)
        self.problems = self.problems or db.memories.problems(self.where)
        chosen = {
            "thread": given["thread_id"],
            "source": given["source"],
            "tags": [tag for tag in given["tags"] or () if tag.strip()] or None,
            "content_type": given["content_type"],
            "start": given["start_date"],
            "end": given["end_date"],
        }
        self.count = len(self.where) + sum(value is not None for value in chosen.values())
        self.which: dict[str, Any] = {**chosen, "where": self.where}
        self.wanted: dict[str, Any] = {
            "images": given["include_images"],
            "explain": given["explain_query"],
        }

    def search(self, query: str, limit: int, offset: int, **options: Any) -> Results[Memory]:
        """The entries that fulfil the filters, ranked."""
        return self._db.memories.search(
            query,
            limit=limit,
            offset=offset,
            rerank=self._db.config.rerank_memories,
            fusion="rrf",  # whose numbers the specification shows
            **{"words": "match", **self.wanted, **self.which, **options},
        )

    def _add(self, place: str, given: Mapping[str, Any]) -> None:
        filled: dict[str, Any] = {"operator": "eq", "case_sensitive": False} | {
            name: each for name, each in given.items() if each is not None
        }
        key, operator = filled.get("key"), filled["operator"]
        if key is None:
            found = ["key is required"]
        elif not isinstance(key, str) or not _KEY.fullmatch(key):
            shown = repr(key[:80]) if isinstance(key, str) else f"a {type(key).__name__}"
            found = [f"key must be made of letters, digits, _ . and -, not {shown}"]
        else:
            value = None if operator in VALUELESS else filled.get("value")
            condition = Condition(f"metadata.{key}", operator, value, filled["case_sensitive"])
            self.where.append(condition)
            found = self._db.memories.problems([condition])
        self.problems += [f"{place}: {each}" for each in found]


def possible(ids: list[int]) -> list[int]:
    """The ids that an entry can have; unknown ids are no error for these tools."""
    return [id for id in ids if id > 0]


PREVIEW = 150
SHORTEST_PREVIEW = PREVIEW * 7 // 10
# The images that do not fit can be read by `get_context_by_ids`.
MAX_IMAGES = MAX_REPLY // 4
"""Most characters of images in the reply of a search."""


class ImageReply(TypedDict, total=False):
    """An image; `omitted` says how to get one that is too long for the reply."""

    data: str
    mime_type: str
    metadata: dict[str, Any]
    omitted: str


class EntryScores(TypedDict, total=False):
    """Why an entry was found: ranks count from 1, distances are better when low, scores when
    high.
    """

    rrf: float | None
    fts_rank: int | None
    semantic_rank: int | None
    fts_score: float | None
    semantic_distance: float | None
    rerank_score: float | None


class EntryReply(TypedDict, total=False):
    """One context."""

    id: int
    thread_id: str
    source: str
    content_type: str
    text_content: str
    metadata: dict[str, Any] | None
    tags: list[str]
    created_at: str
    updated_at: str
    is_truncated: bool
    images: list[ImageReply]
    scores: EntryScores
    highlighted: str


# What every search tool can reply in addition: filters that cannot be used, and notes.
_REFUSAL = {
    "error": str,
    "validation_errors": list[str],
    "note": str,
    "truncated": str,
    "stats": dict[str, Any],
}


def preview(text: str) -> str:
    """The first 150 characters, cut at the last space if that is not too far in front."""
    if len(text) <= PREVIEW:
        return text
    space = text.rfind(" ", 0, PREVIEW)
    return text[: space if space > SHORTEST_PREVIEW else PREVIEW] + "..."


def scores(found: Scores, legs: Sequence[str], reranked: bool) -> EntryScores:
    """Scores by the names of the tools; a tool with a single leg returns no ranks."""
    if len(legs) > 1:
        return EntryScores(
            rrf=found.rrf,
            fts_rank=found.text_rank,
            semantic_rank=found.vector_rank,
            fts_score=found.text,
            semantic_distance=found.distance,
            rerank_score=found.rerank,
        )
    made = (
        EntryScores(fts_score=found.text, fts_rank=None)
        if "fts" in legs
        else EntryScores(semantic_distance=found.distance, semantic_rank=None)
    )
    return EntryScores(**made, rerank_score=found.rerank) if reranked else made


def stats(explained: Explained, filters: int) -> dict[str, Any]:
    """The statistics that `explain_query` asks for."""
    return {
        "execution_time_ms": round(explained.milliseconds, 2),
        "filters_applied": filters,
        "rows_returned": explained.rows,
        "backend": "sqlite",
        "query_plan": explained.plan,
    }


def hybrid_stats(
    results: Results[Memory], explained: Explained, rrf_k: int, filters: int
) -> dict[str, Any]:
    """The statistics that `explain_query` asks for, of both legs and of their fusion."""
    legs = {leg: stats(part, filters) for leg, part in explained.legs.items()}
    counts = results.counts
    return {
        "execution_time_ms": round(explained.milliseconds, 2),
        "fts_stats": legs.get("text"),
        "semantic_stats": legs.get("vector"),
        "fusion_stats": {
            "rrf_k": rrf_k,
            "total_unique_documents": counts["total"],
            "documents_in_both": counts["both"],
            "documents_fts_only": counts["text"] - counts["both"],
            "documents_semantic_only": counts["vector"] - counts["both"],
        },
    }


# The library's parameters in its messages, and their names in these tools.
_PARAMETERS = (
    (r"^no memory\b", "no context"),
    (r"^thread\b", "thread_id"),
    (r"^start\b", "start_date"),
    (r"^end\b", "end_date"),
    (r" lies after end\b", " lies after end_date"),
)


def message(error: MCPVectorDBError) -> str:
    """An error's message, with the names that parameters have in these tools."""
    text = str(error)
    for library_name, tool_name in _PARAMETERS:
        text = re.sub(library_name, tool_name, text)
    return f"Context not found: {text}" if isinstance(error, NotFound) else text


def images_of(given: Sequence[dict[str, Any]] | None) -> list[Image] | None:
    """Images decoded from base64; a bad one raises InvalidInput with its index."""
    if given is None:
        return None
    images = []
    for place, item in enumerate(given):
        name, data, mime_type = f"images[{place}]", item.get("data"), item.get("mime_type")
        if not isinstance(data, str) or not data.strip():
            raise InvalidInput(f"{name} has no data: give the image in base64")
        if mime_type is not None and not isinstance(mime_type, str):
            raise InvalidInput(f"{name}.mime_type must be text such as image/png")
        try:
            raw = base64.b64decode("".join(data.split()), validate=True)
        except ValueError:
            raise InvalidInput(f"{name}.data is not base64") from None
        images.append(
            Image(data=raw, mime_type=mime_type or "image/png", metadata=item.get("metadata"))
        )
    return images


def entries(
    found: Iterable[tuple[Memory, EntryReply]], room: float = MAX_IMAGES
) -> list[EntryReply]:
    """Contexts as all tools return them, each with what a tool adds to it.

    They have their images, as far as these fit into so many characters.
    """
    shown: list[EntryReply] = []
    for context, more in found:
        each: EntryReply = {
            "id": context.id,
            "thread_id": context.thread,
            "source": context.source,
            "content_type": context.content_type,
            "text_content": context.text,
            "metadata": None if context.metadata is None else dict(context.metadata),
            "tags": list(context.tags),
            "created_at": context.created_at,
            "updated_at": context.updated_at,
            **more,
        }
        images: list[ImageReply] = []
        for image in context.images:
            data = base64.b64encode(image.data).decode()
            images.append(ImageReply(mime_type=image.mime_type))
            if len(data) > room:
                get = f"call get_context_by_ids with {context.id} to get them"
                images[-1]["omitted"] = f"{len(image.data):,} bytes; {get}"
                continue
            room -= len(data)
            images[-1]["data"] = data
            if image.metadata is not None:
                images[-1]["metadata"] = dict(image.metadata)
        if images:
            each["images"] = images
        shown.append(each)
    return shown


def _available(shelf: MemoryStats, leg: str) -> dict[str, Any]:
    reason = shelf.unavailable.get(leg)
    return {"enabled": True, "available": reason is None, **({"reason": reason} if reason else {})}


_LEGS = {"fts": "text", "semantic": "vector"}

Query = Annotated[str, Field(min_length=1), "What to look for"]
WordMode = Annotated[
    Literal["match", "prefix", "phrase", "boolean"],
    "match: all words, or any if none has all; prefix: beginnings of words; phrase: the words in "
    'this order; boolean: AND, OR, NOT, parentheses and "phrases"',
]


class ThreadReply(TypedDict):
    """One thread; `source_types` is how many different sources spoke in it."""

    thread_id: str
    entry_count: int
    source_types: int
    multimodal_count: int
    first_entry: str
    last_entry: str
    last_id: int


@listed_last("start_date end_date limit offset include_images explain_query")
@shows(**_REFUSAL, results=list[EntryReply], count=int)
def search_context(
    db: Database, *, limit: PageSize = 30, offset: Offset = 0, **filters: Unpack[ContextFilters]
) -> JsonReply:
    """List the entries that fulfil all filters, newest first, with the beginning of each text.

    Use this to see what is there or to go through a thread; to find something by what it says use
    `hybrid_search_context`. `get_context_by_ids` returns whole texts.
    """
    requested = RequestedFilters(db, filters)
    if requested.problems:
        return {"results": [], "count": 0, **_refused(requested)}
    page = db.memories.browse(limit=limit, offset=offset, **requested.wanted, **requested.which)
    previews = []
    for each in page:
        text = preview(each.text)
        previews.append((each, EntryReply(text_content=text, is_truncated=text != each.text)))
    reply = {"results": entries(previews), "count": len(page)}
    missing = "" if len(page) else db.memories.why_empty(**requested.which)
    noted(reply, missing, db.memories.backlog().note)
    if page.explained:
        reply["stats"] = stats(page.explained, len(requested.where))
    return reply


def get_context_by_ids(
    db: Database,
    *,
    context_ids: Annotated[Ids, "Ids that a search or a store returned"],
    include_images: IncludeImages = True,
) -> list[EntryReply]:
    """Return entries with their whole text and their images, newest first.

    Use this after a search. Ids that do not exist are left out.
    """
    found = db.memories.get(possible(context_ids), images=include_images)
    newest_first = sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)
    return entries(((each, EntryReply()) for each in newest_first), room=math.inf)


@shows(threads=list[ThreadReply], total_threads=int, truncated=str)
def list_threads(db: Database) -> JsonReply:
    """List all threads with the number of their entries and the times of the first and the last,
    newest first.

    Use this to learn which threads there are before narrowing a search by one.
    """
    threads = [
        ThreadReply(
            thread_id=each.name,
            entry_count=each.memories,
            source_types=each.sources,
            multimodal_count=each.multimodal,
            first_entry=each.first_at,
            last_entry=each.last_at,
            last_id=each.last_id,
        )
        for each in db.memories.threads()
    ]
    return {"threads": threads, "total_threads": len(threads)}


@shows(
    total_entries=int,
    by_source=dict[str, int],
    by_content_type=dict[str, int],
    total_images=int,
    unique_tags=int,
    database_size_mb=float,
    total_threads=int,
    avg_entries_per_thread=float,
    most_active_threads=list[dict[str, Any]],
    top_tags=list[dict[str, Any]],
    backend=str,
    connection_metrics=dict[str, Any],
    semantic_search=dict[str, Any],
    fts=dict[str, Any],
    chunking=dict[str, Any],
    reranking=dict[str, Any],
    truncated=str,
)
def get_statistics(db: Database) -> JsonReply:
    """Tell how many entries, threads, tags and images there are, how large the file is, and which
    searches are available.
    """
    shelf, file, backlog = db.memories.statistics(), db.stats(), db.memories.backlog()
    total = shelf.memories
    return {
        "total_entries": total,
        "by_source": dict(shelf.by_source),
        "by_content_type": dict(shelf.by_content_type),
        "total_images": shelf.images,
        "unique_tags": shelf.tags,
        "database_size_mb": round(file.bytes / 2**20, 2),
        "total_threads": shelf.threads,
        "avg_entries_per_thread": round(total / shelf.threads, 2) if total else 0.0,
        "most_active_threads": [
            {"thread_id": name, "count": count} for name, count in shelf.most_active_threads
        ],
        "top_tags": [{"tag": tag, "count": count} for tag, count in shelf.top_tags],
        "backend": "sqlite",
        "connection_metrics": {
            "read_only": db.read_only,
            "busy_timeout_seconds": db.config.busy_timeout,
        },
        "semantic_search": {
            **_available(shelf, "vector"),
            "model": file.model,
            "dimensions": file.dimension,
            "context_count": total,
            "embedding_count": shelf.embedded,
            "chunk_count": shelf.chunks,
            "coverage_percentage": round(100 * shelf.embedded / total, 2) if total else 0.0,
            **({"note": backlog.note} if backlog.note else {}),
        },
        "fts": {
            "enabled": True,
            "available": True,
            "engine": "fts5",
            "language": db.config.language,
            "indexed_entries": total,
        },
        "chunking": {
            "enabled": True,
            "available": True,
            "chunk_size": file.chunk_size,
            "chunk_overlap": file.chunk_overlap,
            "aggregation": "max",
        },
        "reranking": {**_available(shelf, "rerank"), "enabled": db.config.rerank_memories},
    }


@shows(**_REFUSAL, query=str, results=list[EntryReply], count=int, model=str)
def semantic_search_context(
    db: Database,
    *,
    query: Query,
    limit: PageSize = 5,
    offset: Offset = 0,
    **filters: Unpack[ContextFilters],
) -> JsonReply:
    """Find the entries whose meaning is nearest to a question or description, whatever words they
    use.

    Use `hybrid_search_context` unless only meaning should count. The filters apply before the
    ranking.
    """
    requested = RequestedFilters(db, filters)
    not_blank("query", query)
    reply = {"query": query, "results": [], "count": 0, "model": db.model}
    if requested.problems:
        return {**reply, **_refused(requested)}
    found = requested.search(query, limit, offset, mode="vector")
    if reason := _unavailable(db, found.reasons):
        raise ModelMissing(f"Semantic search is not available: {reason}")
    notes = (found.note, found.backlog.note, found.verdict)
    return _answered(reply, found, ["semantic"], requested, *notes)


@listed_last("highlight include_images explain_query")
@shows(**_REFUSAL, query=str, mode=str, results=list[EntryReply], count=int, language=str)
def fts_search_context(
    db: Database,
    *,
    query: Query,
    mode: WordMode = "match",
    limit: PageSize = 5,
    offset: Offset = 0,
    highlight: Annotated[bool, "Return texts with <mark> around what was found"] = False,
    **filters: Unpack[ContextFilters],
) -> JsonReply:
    """Find the entries that have certain words: names, codes, error messages, exact phrases.

    Use `hybrid_search_context` for questions. The filters apply before the ranking.
    """
    requested = RequestedFilters(db, filters)
    not_blank("query", query)
    reply = {
        "query": query,
        "mode": mode,
        "results": [],
        "count": 0,
        "language": db.config.language,
    }
    if requested.problems:
        return {**reply, **_refused(requested, explain=filters["explain_query"])}
    found = requested.search(query, limit, offset, mode="text", words=mode, highlight=highlight)
    note = found.note or found.reasons.get("text", "")
    return _answered(reply, found, ["fts"], requested, note)


@shows(
    **_REFUSAL,
    query=str,
    results=list[EntryReply],
    count=int,
    fusion_method=str,
    search_modes_used=list[str],
    fts_count=int,
    semantic_count=int,
)
def hybrid_search_context(
    db: Database,
    *,
    query: Query,
    limit: PageSize = 5,
    offset: Offset = 0,
    search_modes: Annotated[
        list[Literal["fts", "semantic"]] | None,
        Field(min_length=1),
        "By words (fts), by meaning (semantic), or both",
    ] = None,
    fusion_method: Annotated[Literal["rrf"], "Reciprocal rank fusion"] = "rrf",
    rrf_k: Annotated[
        int, Field(ge=1, le=1000), "The larger, the less the first ranks of each mode stand out"
    ] = 60,
    **filters: Unpack[ContextFilters],
) -> JsonReply:
    """Find the entries that answer a question best, by words and by meaning together.

    Use this first whenever something may have been remembered. The filters apply before the
    ranking. `scores` tells why each entry was found.
    """
    requested = RequestedFilters(db, filters)
    not_blank("query", query)
    reply = {
        "query": query,
        "results": [],
        "count": 0,
        "fusion_method": fusion_method,
        "search_modes_used": [],
        "fts_count": 0,
        "semantic_count": 0,
    }
    if requested.problems:
        return {**reply, **_refused(requested)}
    modes = {_LEGS[each] for each in search_modes or _LEGS}
    mode = modes.pop() if len(modes) == 1 else "hybrid"
    found = requested.search(query, limit, offset, mode=mode, rrf_k=rrf_k)
    used = [name for name, leg in _LEGS.items() if leg in found.legs]
    reason = _unavailable(db, found.reasons)
    if reason and not used:
        raise ModelMissing(f"No search mode is available: {reason}")
    reply |= {
        "search_modes_used": used,
        "fts_count": found.counts["text"],
        "semantic_count": found.counts["vector"],
    }
    unsearched = f"not searched by meaning: {reason}" if reason else ""
    backlog = found.backlog.note if "semantic" in used else ""
    notes = (unsearched, found.note, backlog, found.verdict)
    reply = _answered(reply, found, ["fts", "semantic"], requested, *notes)
    if found.explained:
        reply["stats"] = hybrid_stats(found, found.explained, rrf_k, requested.count)
    return reply


def _answered(
    reply: JsonReply,
    found: Results[Memory],
    legs: Sequence[str],
    requested: RequestedFilters,
    *notes: str,
) -> JsonReply:
    """The reply with what was found, with the scores of the legs that this tool has."""
    made = []
    for hit in found:
        shown = scores(hit.scores, legs, reranked="rerank" in found.legs)
        made.append((hit.item, EntryReply(scores=shown)))
        if hit.highlighted is not None:
            made[-1][1]["highlighted"] = hit.highlighted
    reply["results"], reply["count"] = entries(made), len(found)
    noted(reply, *notes)
    if found.explained:
        reply["stats"] = stats(found.explained, requested.count)
    return reply


def _refused(requested: RequestedFilters, *, explain: bool = False) -> JsonReply:
    """The part of a reply that reports filters that cannot be used; these tools flag no error."""
    refusal = {
        "error": "Metadata filter validation failed",
        "validation_errors": requested.problems,
    }
    nothing = Explained(milliseconds=0.0, rows=0, plan="")
    return {**refusal, "stats": stats(nothing, 0)} if explain else refusal


def _unavailable(db: Database, reasons: Mapping[str, str]) -> str:
    """Why nothing was searched by meaning; "" if it was, or if there is nothing to search."""
    reason = reasons.get("vector", "")
    return reason if reason and db.memories.count() else ""


# Characters of an argument: a little more than the images of one entry may have in base64.
MAX_TEXT = 150_000_000

Item = TypeVar("Item", Entry, Change)
Done = TypeVar("Done", Stored, Updated)


class StoreResult(TypedDict):
    """What became of one entry of a batch."""

    index: int
    success: bool
    context_id: int | None
    error: str | None


class UpdateResult(StoreResult):
    """What became of one update of a batch."""

    updated_fields: list[str] | None


# How much of a batch was done.
_BATCH = {
    "success": bool,
    "total": int,
    "succeeded": int,
    "failed": int,
    "message": str,
    "note": str,
    "truncated": str,
}
Atomic = Annotated[bool, "true: all or none; false: whatever can be done"]


@shows(success=bool, context_id=int, thread_id=str, message=str, note=str)
def store_context(
    db: Database,
    *,
    thread_id: Annotated[Name, "The conversation or task that it belongs to"],
    source: Annotated[Source, "Who says it: 'user' or 'agent'"],
    text: Annotated[Name, "The text to remember"],
    images: Annotated[list[GivenImage] | None, "Images in base64"] = None,
    metadata: Annotated[dict[str, Any] | None, "Any JSON object, to filter by later"] = None,
    tags: Annotated[list[str] | None, "Tags; kept in lower case, each once"] = None,
) -> JsonReply:
    """Remember a text in a thread, with tags, metadata and images, so that it can be found again by
    any of them.

    Use this for whatever a later conversation or another agent should know. Saying the same again
    at once stores nothing new: the entry keeps its id, and tags, images and metadata that are given
    replace its own. For many entries use `store_context_batch`.
    """
    stored = db.memories.add(
        thread_id,
        source,
        text,
        metadata=metadata,
        tags=tags,
        images=images_of(images),
        provenance=WRITER,
    )
    done = "stored" if stored.status == "added" else "updated"
    embedded = "" if stored.note else " (embedding generated)"
    reply = {
        "success": True,
        "context_id": stored.id,
        "thread_id": stored.memory.thread,
        "message": f"Context {done} with {len(images or ())} images{embedded}",
    }
    return noted(reply, stored.note, stored.redacted)


@shows(success=bool, context_id=int, updated_fields=list[str], message=str, note=str)
def update_context(
    db: Database,
    *,
    context_id: Annotated[int, Field(ge=1), "The entry's id"],
    text: Annotated[Name | None, "New text"] = None,
    metadata: Annotated[dict[str, Any] | None, "New metadata instead of all of the old"] = None,
    metadata_patch: Annotated[
        dict[str, Any] | None,
        (
            "Changes to the metadata (RFC 7396): null removes a key, objects are merged, anything "
            "else replaces. Not together with metadata"
        ),
    ] = None,
    tags: Annotated[list[str] | None, "New tags instead of the old; [] removes all"] = None,
    images: Annotated[
        list[GivenImage] | None, "New images instead of the old; [] removes all"
    ] = None,
) -> JsonReply:
    """Change an entry: only what is given changes, and id, thread, source and time of creation
    always stay.

    Use metadata_patch to change single keys, such as a status. For many entries use
    `update_context_batch`.
    """
    done = db.memories.update(
        context_id,
        text=text,
        metadata=metadata,
        metadata_patch=metadata_patch,
        tags=tags,
        images=images_of(images),
        provenance=WRITER,
    )
    changed = _fields(done)
    reply = {
        "success": True,
        "context_id": context_id,
        "updated_fields": changed,
        "message": f"Updated {', '.join(changed)}",
    }
    return noted(reply, done.note, done.redacted)


@shows(success=bool, deleted_count=int, message=str)
def delete_context(
    db: Database,
    *,
    context_ids: Annotated[Ids | None, "Entries to delete"] = None,
    thread_id: Annotated[
        Name | None, "Delete all entries of this thread; not used with context_ids"
    ] = None,
) -> JsonReply:
    """Delete entries by their ids, or a whole thread, with tags, images and embeddings, for good.

    Ask the user first. Ids and threads that do not exist are no error: deleted_count says how many
    entries went.
    """
    if context_ids is None and thread_id is None:
        raise InvalidInput("give context_ids or thread_id to say what to delete")
    which: dict[str, Any] = (
        {"threads": [thread_id]} if context_ids is None else {"ids": possible(context_ids)}
    )
    count = db.memories.delete(**which)
    return {"success": True, "deleted_count": count, "message": f"Deleted {count} context entries"}


OneEntry = Annotated[dict[str, Any], WithJsonSchema(arguments_of(store_context).schema)]
OneUpdate = Annotated[dict[str, Any], WithJsonSchema(arguments_of(update_context).schema)]


@shows(**_BATCH, results=list[StoreResult])
def store_context_batch(
    db: Database,
    *,
    entries: Annotated[
        list[OneEntry],
        Field(min_length=1, max_length=100),
        "Entries, each with the arguments of store_context",
    ],
    atomic: Atomic = True,
) -> JsonReply:
    """Remember up to 100 entries at once, each as `store_context` would, in their order.

    With atomic false, `results` says for each entry by its index, from 0, whether it was stored and
    why not.
    """
    return _batch(
        entries,
        store_context,
        lambda given: db.memories.checked(
            Entry(thread=given.pop("thread_id"), provenance=WRITER, **given)
        ),
        partial(db.memories.add_many, atomic=atomic),
        "stored",
        atomic,
        lambda _, done: {"context_id": done.id if done else None},
    )


@shows(**_BATCH, results=list[UpdateResult])
def update_context_batch(
    db: Database,
    *,
    updates: Annotated[
        list[OneUpdate],
        Field(min_length=1, max_length=100),
        "Updates, each with the arguments of update_context",
    ],
    atomic: Atomic = True,
) -> JsonReply:
    """Change up to 100 entries at once, each as `update_context` would, in their order.

    With atomic false, `results` says for each update by its index, from 0, whether it was made and
    why not.
    """
    return _batch(
        updates,
        update_context,
        lambda given: db.memories.checked(
            Change(id=given.pop("context_id"), provenance=WRITER, **given)
        ),
        partial(db.memories.update_many, atomic=atomic),
        "updated",
        atomic,
        lambda item, done: {
            "context_id": _context_id(item),
            "updated_fields": _fields(done) if done else None,
        },
    )


@shows(success=bool, deleted_count=int, message=str, criteria_used=list[str])
def delete_context_batch(
    db: Database,
    *,
    context_ids: Annotated[Ids | None, "Only these entries"] = None,
    thread_ids: Annotated[
        list[Name] | None, Field(min_length=1), "Only entries of these threads"
    ] = None,
    source: Annotated[
        Source | None, "Only entries by this source; not as the only criterion"
    ] = None,
    older_than_days: Annotated[
        int | None, Field(ge=1), "Only entries created more than so many days ago"
    ] = None,
) -> JsonReply:
    """Delete all entries that fulfil every given criterion, with tags, images and embeddings.
    IRREVERSIBLE.

    Ask the user first. At least one criterion besides source is needed.
    """
    if context_ids is None and thread_ids is None and older_than_days is None:
        raise InvalidInput(
            "give context_ids, thread_ids or older_than_days to say what to delete"
            + ("; source alone would delete too much" if source else "")
        )
    count = db.memories.delete(
        None if context_ids is None else possible(context_ids),
        threads=thread_ids,
        source=source,
        older_than_days=older_than_days,
    )
    used = {
        "context_ids": context_ids and f"{len(context_ids)} given",
        "thread_ids": thread_ids and ", ".join(thread_ids),
        "source": source,
        "older_than_days": older_than_days,
    }
    return {
        "success": True,
        "deleted_count": count,
        "message": f"Deleted {count} context entries",
        "criteria_used": [f"{name}: {value}" for name, value in used.items() if value is not None],
    }


def _batch(
    items: Sequence[dict[str, Any]],
    single: Callable[..., Any],
    read: Callable[[dict[str, Any]], Item],
    write: Callable[[list[Item]], list[Outcome[Done]]],
    verb: str,
    atomic: bool,
    shown: Callable[[dict[str, Any], Done | None], JsonReply],
) -> JsonReply:
    """Write the items of a batch that can be used, and say what became of each.

    `single` is the tool that takes one item. An atomic batch with an item that cannot be used
    raises InvalidInput before anything is written.
    """
    arguments = arguments_of(single)
    usable: dict[int, Item] = {}
    errors: dict[int, MCPVectorDBError] = {}
    for index, item in enumerate(items):
        try:
            given = arguments.read(item, max_text=MAX_TEXT)
            usable[index] = read({**given, "images": images_of(given["images"])})
        except MCPVectorDBError as error:
            errors[index] = error
    if atomic and errors:
        first = min(errors)
        raise InvalidInput(
            f"{len(errors)} of {len(items)} items cannot be {verb}, so none was; "
            f"the first is at index {first}: {message(errors[first])}"
        )
    done: dict[int, Done] = {}
    for index, outcome in zip(usable, write(list(usable.values())), strict=True):
        if outcome.result is not None:
            done[index] = outcome.result
        elif outcome.error is not None:
            errors[index] = outcome.error
    note = next((each.note for each in done.values() if each.note), "")
    secret = [f"index {index}: {each.redacted}" for index, each in done.items() if each.redacted]
    reply = {
        "success": not errors,
        "total": len(items),
        "succeeded": len(done),
        "failed": len(errors),
        "message": f"{len(done)} of {len(items)} entries {verb}",
    }
    remarks = ((index, arguments.ignored(item)) for index, item in enumerate(items))
    ignored = next((f"index {index}: {said}" for index, said in remarks if said), "")
    noted(reply, note, ignored, *secret)
    reply["results"] = [
        {
            "index": index,
            "success": index in done,
            **shown(item, done.get(index)),
            "error": message(errors[index]) if index in errors else None,
        }
        for index, item in enumerate(items)
    ]
    return reply


def _fields(done: Updated) -> list[str]:
    return ["text_content" if field == "text" else field for field in done.fields]


def _context_id(item: dict[str, Any]) -> int | None:
    """The id of the entry that an update is for, if it has a valid one."""
    id = coerce(int, item.get("context_id"))
    return id if isinstance(id, int) and not isinstance(id, bool) else None


def failure(tool: str, error: MCPVectorDBError) -> Reply:
    """An error as this surface reports it: MCP's error flag and one text."""
    return failed(message(error))


_LESS = "lower limit, ask again with a higher offset, or read single entries by get_context_by_ids"
_OTHERS = "ask for the other ids in another call"
_CHANGES = OVERWRITES._replace(idempotent=False)

SURFACE = Surface(
    name="context_server",
    version=VERSION,
    instructions=prose("context_server"),
    tools=(
        Tool(store_context, "Store an entry", STORES, max_text=MAX_TEXT),
        Tool(search_context, "List entries", READS, more=_LESS),
        Tool(get_context_by_ids, "Read entries", READS, more=_OTHERS),
        Tool(delete_context, "Delete entries", OVERWRITES),
        Tool(update_context, "Change an entry", _CHANGES, max_text=MAX_TEXT),
        Tool(list_threads, "List threads", READS, more="search by thread_id for the others"),
        Tool(get_statistics, "Statistics", READS),
        Tool(semantic_search_context, "Search by meaning", READS, more=_LESS),
        Tool(fts_search_context, "Search by words", READS, more=_LESS),
        Tool(hybrid_search_context, "Search by words and meaning", READS, more=_LESS),
        Tool(store_context_batch, "Store entries", STORES, max_text=MAX_TEXT),
        Tool(update_context_batch, "Change entries", _CHANGES, max_text=MAX_TEXT),
        Tool(delete_context_batch, "Delete entries by criteria", OVERWRITES),
    ),
    failure=failure,
)
