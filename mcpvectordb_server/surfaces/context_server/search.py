"""The tools of context_server that read: lists, statistics, and search by words and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from mcpvectordb import Database, InvalidInput, Memory, ModelMissing, Results
from mcpvectordb_server.surfaces.context_server import replies
from mcpvectordb_server.surfaces.context_server.filters import (
    BySource,
    Equal,
    Filters,
    Ids,
    InThread,
    Offset,
    OfType,
    PageSize,
    RequestedFilters,
    Since,
    Until,
    WithTags,
    possible,
    requested_filters,
)
from mcpvectordb_server.surfaces.context_server.replies import (
    ContextSearchReply,
    FtsReply,
    HybridReply,
    SemanticReply,
    StatisticsReply,
)

_LEGS = {"fts": "text", "semantic": "vector"}

Query = Annotated[str, Field(min_length=1), "What to look for"]
WordMode = Annotated[
    Literal["match", "prefix", "phrase", "boolean"],
    "match: all words, or any if none has all; prefix: beginnings of words; phrase: the words in "
    'this order; boolean: AND, OR, NOT, parentheses and "phrases"',
]
IncludeImages = Annotated[bool, "Return images too, in base64"]
Explain = Annotated[bool, "Return the time the query took and SQLite's plan of it"]


class ThreadReply(TypedDict):
    """One thread; `source_types` is how many different sources spoke in it."""

    thread_id: str
    entry_count: int
    source_types: int
    multimodal_count: int
    first_entry: str
    last_entry: str
    last_id: int


class ThreadsReply(TypedDict, total=False):
    """All threads."""

    threads: list[ThreadReply]
    total_threads: int
    truncated: str


def search_context(
    db: Database,
    *,
    thread_id: InThread = None,
    source: BySource = None,
    tags: WithTags = None,
    content_type: OfType = None,
    metadata: Equal = None,
    metadata_filters: Filters = None,
    start_date: Since = None,
    end_date: Until = None,
    limit: PageSize = 30,
    offset: Offset = 0,
    include_images: IncludeImages = False,
    explain_query: Explain = False,
) -> ContextSearchReply:
    """List the entries that fulfil all filters, newest first, with the beginning of each text.

    Use this to see what is there or to go through a thread; to find something by what it says use
    `hybrid_search_context`. `get_context_by_ids` returns whole texts.
    """
    requested = requested_filters(
        db,
        thread_id=thread_id,
        source=source,
        tags=tags,
        content_type=content_type,
        start_date=start_date,
        end_date=end_date,
        metadata=metadata,
        metadata_filters=metadata_filters,
    )
    if requested.problems:
        return ContextSearchReply(results=[], count=0, **_refused(requested))
    page = db.memories.browse(
        limit=limit, offset=offset, images=include_images, explain=explain_query, **requested.which
    )
    reply = ContextSearchReply(results=replies.previews(page), count=len(page))
    missing = "" if len(page) else db.memories.why_empty(**requested.which)
    if note := "; ".join(filter(None, [missing, db.memories.backlog().note])):
        reply["note"] = note
    if page.explained:
        reply["stats"] = replies.stats(page.explained, requested.metadata_count)
    return reply


def get_context_by_ids(
    db: Database,
    *,
    context_ids: Annotated[Ids, "Ids that a search or a store returned"],
    include_images: IncludeImages = True,
) -> list[replies.EntryReply]:
    """Return entries with their whole text and their images, newest first.

    Use this after a search. Ids that do not exist are left out.
    """
    found = db.memories.get(possible(context_ids), images=include_images)
    newest_first = sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)
    return [replies.whole(each) for each in newest_first]


def list_threads(db: Database) -> ThreadsReply:
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
    return ThreadsReply(threads=threads, total_threads=len(threads))


def get_statistics(db: Database) -> StatisticsReply:
    """Tell how many entries, threads, tags and images there are, how large the file is, and which
    searches are available.
    """
    return replies.statistics(db)


def semantic_search_context(
    db: Database,
    *,
    query: Query,
    limit: PageSize = 5,
    offset: Offset = 0,
    thread_id: InThread = None,
    source: BySource = None,
    tags: WithTags = None,
    content_type: OfType = None,
    start_date: Since = None,
    end_date: Until = None,
    metadata: Equal = None,
    metadata_filters: Filters = None,
    include_images: IncludeImages = False,
    explain_query: Explain = False,
) -> SemanticReply:
    """Find the entries whose meaning is nearest to a question or description, whatever words they
    use.

    Use `hybrid_search_context` unless only meaning should count. The filters apply before the
    ranking.
    """
    requested = requested_filters(
        db,
        thread_id=thread_id,
        source=source,
        tags=tags,
        content_type=content_type,
        start_date=start_date,
        end_date=end_date,
        metadata=metadata,
        metadata_filters=metadata_filters,
    )
    _not_blank(query)
    reply = SemanticReply(query=query, results=[], count=0, model=db.model)
    if requested.problems:
        return SemanticReply(**reply, **_refused(requested))
    page = _page(limit, offset, include_images, explain_query)
    found = _search(db, query, requested, mode="vector", **page)
    if reason := _unavailable(db, found.reasons):
        raise ModelMissing(f"Semantic search is not available: {reason}")
    reply["results"], reply["count"] = replies.hits(found, ["semantic"]), len(found)
    if note := "; ".join(filter(None, [found.note, found.backlog.note, found.verdict])):
        reply["note"] = note
    if found.explained:
        reply["stats"] = replies.stats(found.explained, requested.count)
    return reply


def fts_search_context(
    db: Database,
    *,
    query: Query,
    mode: WordMode = "match",
    limit: PageSize = 5,
    offset: Offset = 0,
    thread_id: InThread = None,
    source: BySource = None,
    tags: WithTags = None,
    content_type: OfType = None,
    start_date: Since = None,
    end_date: Until = None,
    metadata: Equal = None,
    metadata_filters: Filters = None,
    highlight: Annotated[bool, "Return texts with <mark> around what was found"] = False,
    include_images: IncludeImages = False,
    explain_query: Explain = False,
) -> FtsReply:
    """Find the entries that have certain words: names, codes, error messages, exact phrases.

    Use `hybrid_search_context` for questions. The filters apply before the ranking.
    """
    requested = requested_filters(
        db,
        thread_id=thread_id,
        source=source,
        tags=tags,
        content_type=content_type,
        start_date=start_date,
        end_date=end_date,
        metadata=metadata,
        metadata_filters=metadata_filters,
    )
    _not_blank(query)
    reply = FtsReply(query=query, mode=mode, results=[], count=0, language=db.config.language)
    if requested.problems:
        return FtsReply(**reply, **_refused(requested, explain=explain_query))
    page = _page(limit, offset, include_images, explain_query)
    found = _search(db, query, requested, mode="text", words=mode, highlight=highlight, **page)
    reply["results"], reply["count"] = replies.hits(found, ["fts"]), len(found)
    if note := found.note or found.reasons.get("text"):
        reply["note"] = note
    if found.explained:
        reply["stats"] = replies.stats(found.explained, requested.count)
    return reply


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
    thread_id: InThread = None,
    source: BySource = None,
    tags: WithTags = None,
    content_type: OfType = None,
    start_date: Since = None,
    end_date: Until = None,
    metadata: Equal = None,
    metadata_filters: Filters = None,
    include_images: IncludeImages = False,
    explain_query: Explain = False,
) -> HybridReply:
    """Find the entries that answer a question best, by words and by meaning together.

    Use this first whenever something may have been remembered. The filters apply before the
    ranking. `scores` tells why each entry was found.
    """
    requested = requested_filters(
        db,
        thread_id=thread_id,
        source=source,
        tags=tags,
        content_type=content_type,
        start_date=start_date,
        end_date=end_date,
        metadata=metadata,
        metadata_filters=metadata_filters,
    )
    _not_blank(query)
    modes = {_LEGS[each] for each in search_modes or _LEGS}
    page = _page(limit, offset, include_images, explain_query)
    options = {"mode": modes.pop() if len(modes) == 1 else "hybrid", "rrf_k": rrf_k, **page}
    reply = HybridReply(query=query, results=[], count=0, fusion_method=fusion_method)
    return _hybrid(db, reply, requested, options)


def _hybrid(
    db: Database, reply: HybridReply, requested: RequestedFilters, options: Mapping[str, Any]
) -> HybridReply:
    """The reply to a hybrid search, which holds the query, with the results put into it."""
    reply |= HybridReply(search_modes_used=[], fts_count=0, semantic_count=0)
    if requested.problems:
        return HybridReply(**reply, **_refused(requested))
    found = _search(db, reply["query"], requested, **options)
    used = [name for name, leg in _LEGS.items() if leg in found.legs]
    reason = _unavailable(db, found.reasons)
    if reason and not used:
        raise ModelMissing(f"No search mode is available: {reason}")
    reply |= HybridReply(
        results=replies.hits(found, ["fts", "semantic"]),
        count=len(found),
        search_modes_used=used,
        fts_count=found.counts["text"],
        semantic_count=found.counts["vector"],
    )
    notes = [f"not searched by meaning: {reason}" if reason else "", found.note]
    notes += [found.backlog.note] if "semantic" in used else []
    notes.append(found.verdict)
    if any(notes):
        reply["note"] = "; ".join(filter(None, notes))
    if found.explained:
        reply["stats"] = replies.hybrid_stats(
            found, found.explained, options["rrf_k"], requested.count
        )
    return reply


def _page(limit: int, offset: int, images: bool, explain: bool) -> dict[str, Any]:
    return {"limit": limit, "offset": offset, "images": images, "explain": explain}


def _search(
    db: Database, query: str, requested: RequestedFilters, **options: Any
) -> Results[Memory]:
    return db.memories.search(query, rerank=db.config.rerank_memories, **requested.which, **options)


def _refused(requested: RequestedFilters, *, explain: bool = False) -> replies.FilterRefusal:
    """The part of a reply that reports filters that cannot be used; these tools flag no error."""
    refusal = replies.FilterRefusal(
        error="Metadata filter validation failed", validation_errors=requested.problems
    )
    if explain:
        refusal["stats"] = {
            "execution_time_ms": 0.0,
            "filters_applied": 0,
            "rows_returned": 0,
            "backend": "sqlite",
            "query_plan": "",
        }
    return refusal


def _not_blank(query: str) -> None:
    if not query.strip():
        raise InvalidInput("query must not be blank")


def _unavailable(db: Database, reasons: Mapping[str, str]) -> str:
    """Why nothing was searched by meaning; "" if it was, or if there is nothing to search."""
    reason = reasons.get("vector", "")
    return reason if reason and db.memories.count() else ""
