"""Search documents and memories together; see `Database.search`.

Two rankings are merged by relevance, the probability that a judge would call a hit relevant: it has
the same meaning for passages of documents and for memories, while their scores do not compare. Each
ranking keeps its own order, and the first hit of either is among the first FIRST if it is strong.
Where the relevance of any hit is unknown (a model or a language without calibration), the rankings
alternate, the first one first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from mcpvectordb import dates, filters
from mcpvectordb.documents.rows import CHUNK_FIELDS as DOCUMENT_FIELDS
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.filters import Where
from mcpvectordb.memories.memory import Memory
from mcpvectordb.memories.rows import ANY_TIME
from mcpvectordb.memories.rows import FIELDS as MEMORY_FIELDS
from mcpvectordb.metadata import storable
from mcpvectordb.projects.shelf import ProjectScope
from mcpvectordb.ranking import relevance
from mcpvectordb.ranking.ranker import checked_relevance, checked_window, rrf
from mcpvectordb.records import RRF_K, Backlog, Chunk, Condition, Hit, Mode, Results
from mcpvectordb.storage.file import File

if TYPE_CHECKING:  # loaded only if there are any memories
    from mcpvectordb.memories.shelf import Memories

Kind = Literal["documents", "memories"]
KINDS: tuple[Kind, ...] = ("documents", "memories")
MODES: Mapping[str, Mode] = {"words": "text", "meaning": "vector", "text": "hybrid"}
MAX_SEARCHES = 8  # in one question: each costs as much as a question of its own
DEPTH = 30  # hits of each of several searches that are fused at least
FIRST = 3  # hits among which the best of documents and of memories are, if they are strong
FIRST_WEIGHT = 2.0  # of the first of several searches; the others count 1

Query = str | Sequence[Mapping[str, str]]
"""A text, or typed searches: each has one of the keys `words`, `meaning` and `text`."""

Filters = Mapping[Kind, Mapping[str, Any]]
"""For each kind that can match, the filters as its shelf takes them."""

Found = Hit[Chunk | Memory]


def checked_filters(
    kind: str | None = None,
    *,
    library: str | None = None,
    thread: str | None = None,
    project: ProjectScope | None = None,
    tags: Sequence[str] | None = None,
    where: Where | None = None,
    since: str | None = None,
    until: str | None = None,
    as_of: str | None = None,
) -> Filters:
    """The filters of each kind that can match; raises InvalidInput if they exclude each other.

    A kind that has no libraries, threads, tags or fields such as the filters name cannot match.
    Of documents nobody says when they hold, so `as_of` is one of memories only.
    """
    conditions = filters.conditions(where)
    left_out = _left_out(kind, library, thread, tags, conditions)
    if all(left_out.values()):
        reasons = " and ".join(f"{', '.join(why)} is no {each}" for each, why in left_out.items())
        raise InvalidInput(f"nothing can match these filters: {reasons}")
    _check_period(since, until)
    if as_of is not None and as_of != ANY_TIME:
        dates.named_period(as_of, "as_of")
    bounds = [(sign, at) for sign, at in (("gte", since), ("lte", until)) if at is not None]
    within: dict[Kind, list[Condition]] = {
        each: [*conditions, *(Condition(field, sign, at) for sign, at in bounds)]
        for each, field in zip(KINDS, ("date", "created_at"), strict=True)
    }
    if project is not None:
        within["documents"].append(Condition("library", "in", project.libraries))
    found: Filters = {
        "documents": {"library": library, "where": within["documents"]},
        "memories": {
            "thread": thread,
            "project": project and project.name,
            "tags": tags,
            "where": within["memories"],
            "as_of": as_of,
        },
    }
    return {each: found[each] for each in KINDS if not left_out[each]}


def search(
    file: File,
    documents: Documents,
    memories: Callable[[], Memories],
    query: Query,
    which: Filters,
    *,
    mode: Mode,
    limit: int,
    offset: int,
    min_relevance: float,
    rerank: bool,
    group: bool,
    fold: bool,
    newer: str | None,
) -> Results[Chunk | Memory]:
    """The best of both kinds, in one ranking; all of it is read in one snapshot.

    `memories` is called only if there are any: it loads their shelf.
    """
    checked_window(limit, offset)
    searches, least = _searches(query, mode), checked_relevance(min_relevance)
    depth = limit + offset if len(searches) == 1 else max(limit + offset, DEPTH)
    answers: list[dict[Kind, Results[Any]]] = []
    with file.reading() as sql:
        stored = "memories" in which and (
            len(which) == 1 or sql.execute("SELECT EXISTS (SELECT 1 FROM contexts)").get
        )
        for by, text in searches:
            asked: dict[str, Any] = {"mode": by, "limit": depth, "rerank": rerank, "newer": newer}
            found: dict[Kind, Results[Any]] = {}
            if "documents" in which:
                found["documents"] = documents.search(
                    text, group=group, fold=fold, **asked, **which["documents"]
                )
            if stored:
                found["memories"] = memories().search(text, **asked, **which["memories"])
            answers.append(found)
    fused = fuse(
        [merge(*(found[kind].hits if kind in found else () for kind in KINDS)) for found in answers]
    )
    if group and len(answers) > 1:
        fused = grouped(fused)
    kept = [hit for hit in fused if hit.relevance is None or hit.relevance >= least]
    parts = [each for answer in answers for each in answer.values()]
    notes: dict[str, Kind] = {}
    if all(each.note for each in parts):
        notes = {each.note: kind for answer in answers for kind, each in answer.items()}
        # What one kind does not have, such as a key of metadata, the other one may have.
        shelves: dict[Kind, Any] = {"documents": documents}
        if stored:
            shelves["memories"] = memories()
        lacking = {
            shelves[kind].why_empty(**{name: given[name] for name in given if name != "as_of"})
            for kind, given in which.items()
            if kind in shelves
        }
        notes = {each: kind for each, kind in notes.items() if each not in lacking} or notes
    said = list(notes) if len(notes) < 2 else [f"{kind}: {each}" for each, kind in notes.items()]
    if not fused and (tags := which.get("memories", {}).get("tags")):
        said += _tagged_documents(documents, tags)
    return Results(
        hits=tuple(kept[offset : limit + offset]),
        legs=tuple(dict.fromkeys(leg for each in parts for leg in each.legs)),
        reasons={leg: why for each in reversed(parts) for leg, why in each.reasons.items()},
        verdict=relevance.verdict([hit.relevance for hit in fused], least) if fused else "",
        uncalibrated=next((each.uncalibrated for each in parts if each.uncalibrated), ""),
        note="; ".join(said),
        backlog=_backlog(answers),
    )


def _tagged_documents(documents: Documents, tags: Sequence[str]) -> list[str]:
    """How to find documents that have such tags in their metadata, if any has."""
    found = []
    for tag in tags:
        where = {"metadata.tags": {"array_contains": tag}}
        if count := documents.count(where=where):
            have = "1 document has" if count == 1 else f"{count:,} documents have"
            found.append(
                f"{have} it in the metadata, where tags of documents are: search with "
                f"where={json.dumps(where, ensure_ascii=False)}"
            )
    return found


def key(hit: Found) -> int:
    """The number of a hit among those of both shelves: even for documents, odd for memories."""
    return 2 * hit.item.id + isinstance(hit.item, Memory)


def merge(first: Sequence[Found], second: Sequence[Found]) -> list[Found]:
    """Two rankings as one, by relevance; of each, the first hit is among FIRST if it is strong."""
    known = all(hit.relevance is not None for hit in (*first, *second))
    weigh = _worth if known else _by_rank
    tagged = [
        (-worth, number, place, hit)
        for number, ranking in enumerate((first, second))
        for place, (worth, hit) in enumerate(zip(weigh(ranking), ranking, strict=True))
    ]
    merged = [hit for _, _, _, hit in sorted(tagged, key=lambda each: each[:3])]
    for ranking in (first, second):
        if ranking and ranking[0].confidence == "strong":
            place = next(at for at, hit in enumerate(merged) if hit is ranking[0])
            merged.insert(min(place, FIRST - 1), merged.pop(place))
    return _in_order(merged)


def _in_order(hits: Sequence[Found]) -> list[Found]:
    """The hits, each with the highest relevance of any that is not above it."""
    most = list(accumulate((hit.relevance or 0.0 for hit in reversed(hits)), max))[::-1]
    return [
        hit if hit.relevance in (None, best) else replace(hit, relevance=best)
        for hit, best in zip(hits, most, strict=True)
    ]


def _worth(ranking: Sequence[Found]) -> list[float]:
    """The relevance of each hit; where newer ones are preferred, it loses with age as scores do.

    Never more than that of the hit before, so that a merge by it keeps the order.
    """
    aged = (
        (hit.relevance or 0.0) * (1.0 if hit.scores.recency is None else hit.scores.recency)
        for hit in ranking
    )
    return list(accumulate(aged, min))


def _by_rank(ranking: Sequence[Found]) -> list[float]:
    return [-float(place) for place in range(len(ranking))]


def fuse(rankings: Sequence[Sequence[Found]]) -> list[Found]:
    """The rankings of several searches as one, by reciprocal ranks; the first counts double.

    A hit has the highest relevance that any of the searches gave it, and the score of a hit that
    is first everywhere is 1.
    """
    if len(rankings) == 1:
        return list(rankings[0])
    weights = [FIRST_WEIGHT] + [1.0] * (len(rankings) - 1)
    hits: dict[int, Found] = {}
    for ranking in rankings:
        for hit in ranking:
            best = hits.setdefault(key(hit), hit)
            if (hit.relevance or 0.0) > (best.relevance or 0.0):
                hits[key(hit)] = replace(best, relevance=hit.relevance)
    fused = rrf([[key(hit) for hit in each] for each in rankings], RRF_K, weights)
    highest = sum(weights) / (RRF_K + 1)
    return _in_order(
        [replace(hits[each], score=min(1.0, score / highest)) for each, score in fused]
    )


def grouped(hits: Sequence[Found]) -> list[Found]:
    """The hits with the best passage of each document, and all memories, before the others."""
    first: dict[object, Found] = {}
    for hit in hits:
        owner = hit.item.document.id if isinstance(hit.item, Chunk) else key(hit)
        first.setdefault(owner, hit)
    best = set(map(key, first.values()))
    return [*first.values(), *(hit for hit in hits if key(hit) not in best)]


def _named(search: object) -> str:
    """What a search is that cannot be used: its keys, or its type."""
    keys = ", ".join(map(str, search)) if isinstance(search, Mapping) else ""
    return quoted(keys) if keys else "an empty one" if search == {} else quoted(str(search))


def _searches(query: Query, mode: Mode) -> list[tuple[Mode, str]]:
    if isinstance(query, str):
        return [(mode, storable(query, "query"))]
    if not isinstance(query, Sequence) or not 1 <= len(query) <= MAX_SEARCHES:
        raise InvalidInput(f"query must be a text, or a list of 1 to {MAX_SEARCHES} searches")
    searches: list[tuple[Mode, str]] = []
    for each in query:
        if not isinstance(each, Mapping) or len(each) != 1 or not each.keys() <= MODES.keys():
            raise InvalidInput(
                "each search in query must have one of the keys words, meaning and text, such as "
                f'{{"words": "green tea"}}, not {_named(each)}'
            )
        [(kind, text)] = each.items()
        searches.append((MODES[kind], storable(text, f"query.{kind}")))
    return searches


def _left_out(
    kind: str | None,
    library: str | None,
    thread: str | None,
    tags: Sequence[str] | None,
    conditions: Sequence[Condition],
) -> dict[Kind, list[str]]:
    """Which filters leave out each kind."""
    if kind is not None and kind not in KINDS:
        raise InvalidInput(f"kind must be {' or '.join(KINDS)}, not {quoted(kind)}")
    named = {
        each.field.split(".")[0] if isinstance(each.field, str) else each.field[0]
        for each in conditions
    } - {"metadata"}
    documents = [each for each, given in (("thread", thread), ("tags", tags)) if given is not None]
    documents += sorted(named & MEMORY_FIELDS.keys() - DOCUMENT_FIELDS.keys())
    memories = [] if library is None else ["library"]
    memories += sorted(named & DOCUMENT_FIELDS.keys() - MEMORY_FIELDS.keys())
    if kind is not None:
        (memories if kind == "documents" else documents).append(f"kind {kind}")
    return {"documents": documents, "memories": memories}


def _check_period(since: str | None, until: str | None) -> None:
    first = None if since is None else dates.named_period(since, "since").start
    last = None if until is None else dates.named_period(until, "until").end
    if first is not None and last is not None and first > last:
        raise InvalidInput(f"since ({since}) lies after until ({until})")


def _backlog(answers: Sequence[Mapping[Kind, Results[Any]]]) -> Backlog:
    """What waits for its embedding on the shelves that were searched by meaning."""
    shelves = {kind: each.backlog for answer in answers for kind, each in answer.items()}
    return Backlog(
        passages=sum(each.passages for each in shelves.values()),
        pending=sum(each.pending for each in shelves.values()),
        outlook=next((each.outlook for each in shelves.values() if each.outlook), ""),
    )
