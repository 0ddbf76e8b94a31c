"""The replies of the surface context_server: entries, scores, statistics, images and errors."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from mcpvectordb import (
    Database,
    Explained,
    Hit,
    Image,
    InvalidInput,
    MCPVectorDBError,
    Memory,
    MemoryStats,
    NotFound,
    Results,
    Scores,
)
from mcpvectordb_server.replies import MAX_REPLY

PREVIEW = 150
SHORTEST_PREVIEW = PREVIEW * 7 // 10
# The images that do not fit can be read by `get_context_by_ids`.
MAX_IMAGES = MAX_REPLY // 4
"""Most characters of images in the reply of a search."""

GivenImage = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "required": ["data"],
            "properties": {
                "data": {"type": "string", "description": "The image in base64"},
                "mime_type": {"type": "string", "default": "image/png"},
                "metadata": {"type": "object"},
            },
        }
    ),
]


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


class FilterRefusal(TypedDict, total=False):
    """What every search tool can reply in addition: filters that cannot be used, and notes."""

    error: str
    validation_errors: list[str]
    note: str
    truncated: str
    stats: dict[str, Any]


class ContextSearchReply(FilterRefusal, total=False):
    """Entries, newest first."""

    results: list[EntryReply]
    count: int


class SemanticReply(FilterRefusal, total=False):
    """Entries, nearest first."""

    query: str
    results: list[EntryReply]
    count: int
    model: str


class FtsReply(FilterRefusal, total=False):
    """Entries, best first."""

    query: str
    mode: str
    results: list[EntryReply]
    count: int
    language: str


class HybridReply(FilterRefusal, total=False):
    """Entries, best first."""

    query: str
    results: list[EntryReply]
    count: int
    fusion_method: str
    search_modes_used: list[str]
    fts_count: int
    semantic_count: int


# Entries


def entry(context: Memory, *, text: str | None = None) -> EntryReply:
    """A context as all tools return it, without images."""
    return EntryReply(
        id=context.id,
        thread_id=context.thread,
        source=context.source,
        content_type=context.content_type,
        text_content=context.text if text is None else text,
        metadata=None if context.metadata is None else dict(context.metadata),
        tags=list(context.tags),
        created_at=context.created_at,
        updated_at=context.updated_at,
    )


def whole(context: Memory) -> EntryReply:
    """A context with all its images."""
    made = entry(context)
    if context.images:
        made["images"] = [_image_reply(image) for image in context.images]
    return made


def previews(contexts: Iterable[Memory]) -> list[EntryReply]:
    """Contexts with the beginning of their texts, and images as far as they fit."""
    made = []
    for context in contexts:
        text = preview(context.text)
        made.append(
            (context, EntryReply(**entry(context, text=text), is_truncated=text != context.text))
        )
    return _with_images(made)


def hits(results: Results[Memory], legs: Sequence[str]) -> list[EntryReply]:
    """The results of a search, with the scores of the legs that this tool has."""
    reranked = "rerank" in results.legs
    return _with_images([(hit.item, _hit(hit, legs, reranked)) for hit in results])


def preview(text: str) -> str:
    """The first 150 characters, cut at the last space if that is not too far in front."""
    if len(text) <= PREVIEW:
        return text
    space = text.rfind(" ", 0, PREVIEW)
    return text[: space if space > SHORTEST_PREVIEW else PREVIEW] + "..."


def _hit(hit: Hit[Memory], legs: Sequence[str], reranked: bool) -> EntryReply:
    made = EntryReply(**entry(hit.item), scores=scores(hit.scores, legs, reranked))
    if hit.highlighted is not None:
        made["highlighted"] = hit.highlighted
    return made


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


# Errors


# The library's parameters in its messages, and their names in these tools.
_PARAMETERS = (
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


# Images


def images_of(given: Sequence[dict[str, Any]] | None) -> list[Image] | None:
    """Images decoded from base64; a bad one raises InvalidInput with its index."""
    if given is None:
        return None
    return [_image(f"images[{place}]", item) for place, item in enumerate(given)]


def _image(name: str, item: dict[str, Any]) -> Image:
    data, mime_type = item.get("data"), item.get("mime_type")
    if not isinstance(data, str) or not data.strip():
        raise InvalidInput(f"{name} has no data: give the image in base64")
    if mime_type is not None and not isinstance(mime_type, str):
        raise InvalidInput(f"{name}.mime_type must be text such as image/png")
    return Image(
        data=_bytes(name, data), mime_type=mime_type or "image/png", metadata=item.get("metadata")
    )


def _bytes(name: str, data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{name}.data is not base64") from None


def _image_reply(image: Image) -> ImageReply:
    made = ImageReply(data=base64.b64encode(image.data).decode(), mime_type=image.mime_type)
    if image.metadata is not None:
        made["metadata"] = dict(image.metadata)
    return made


def _with_images(made: Sequence[tuple[Memory, EntryReply]]) -> list[EntryReply]:
    """Entries with their images, as far as these fit into MAX_IMAGES."""
    room = MAX_IMAGES
    for context, each in made:
        pictures = [_image_reply(image) for image in context.images]
        for place, picture in enumerate(pictures):
            if len(picture["data"]) > room:
                pictures[place] = ImageReply(
                    mime_type=picture["mime_type"],
                    omitted=(
                        f"{len(context.images[place].data):,} bytes; call get_context_by_ids with "
                        f"{context.id} to get them"
                    ),
                )
            else:
                room -= len(picture["data"])
        if pictures:
            each["images"] = pictures
    return [each for _, each in made]


# Statistics


class StatisticsReply(TypedDict, total=False):
    """How much is stored, and how it can be searched."""

    total_entries: int
    by_source: dict[str, int]
    by_content_type: dict[str, int]
    total_images: int
    unique_tags: int
    database_size_mb: float
    total_threads: int
    avg_entries_per_thread: float
    most_active_threads: list[dict[str, Any]]
    top_tags: list[dict[str, Any]]
    backend: str
    connection_metrics: dict[str, Any]
    semantic_search: dict[str, Any]
    fts: dict[str, Any]
    chunking: dict[str, Any]
    reranking: dict[str, Any]
    truncated: str


def statistics(db: Database) -> StatisticsReply:
    """The reply of `get_statistics`."""
    shelf, file, backlog = db.memories.statistics(), db.stats(), db.memories.backlog()
    total = shelf.memories
    return StatisticsReply(
        total_entries=total,
        by_source=dict(shelf.by_source),
        by_content_type=dict(shelf.by_content_type),
        total_images=shelf.images,
        unique_tags=shelf.tags,
        database_size_mb=round(file.bytes / 2**20, 2),
        total_threads=shelf.threads,
        avg_entries_per_thread=round(total / shelf.threads, 2) if total else 0.0,
        most_active_threads=[
            {"thread_id": name, "count": count} for name, count in shelf.most_active_threads
        ],
        top_tags=[{"tag": tag, "count": count} for tag, count in shelf.top_tags],
        backend="sqlite",
        connection_metrics={
            "read_only": db.read_only,
            "busy_timeout_seconds": db.config.busy_timeout,
        },
        semantic_search={
            **_available(shelf, "vector"),
            "model": file.model,
            "dimensions": file.dimension,
            "context_count": total,
            "embedding_count": shelf.embedded,
            "chunk_count": shelf.chunks,
            "coverage_percentage": round(100 * shelf.embedded / total, 2) if total else 0.0,
            **({"note": backlog.note} if backlog.note else {}),
        },
        fts={
            "enabled": True,
            "available": True,
            "engine": "fts5",
            "language": db.config.language,
            "indexed_entries": total,
        },
        chunking={
            "enabled": True,
            "available": True,
            "chunk_size": file.chunk_size,
            "chunk_overlap": file.chunk_overlap,
            "aggregation": "max",
        },
        reranking={**_available(shelf, "rerank"), "enabled": db.config.rerank_memories},
    )


def _available(shelf: MemoryStats, leg: str) -> dict[str, Any]:
    reason = shelf.unavailable.get(leg)
    return {"enabled": True, "available": reason is None, **({"reason": reason} if reason else {})}
