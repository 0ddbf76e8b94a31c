"""Search documents and memories together; see `Database.search`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mcpvectordb import dates, filters
from mcpvectordb.documents.rows import CHUNK_FIELDS as DOCUMENT_FIELDS
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.errors import InvalidInput, quoted
from mcpvectordb.filters import Where
from mcpvectordb.joint import ranking
from mcpvectordb.joint.ranking import Found
from mcpvectordb.memories.memory import Memory
from mcpvectordb.memories.rows import FIELDS as MEMORY_FIELDS
from mcpvectordb.metadata import storable
from mcpvectordb.records import Backlog, Chunk, Condition, Mode, Results
from mcpvectordb.search import relevance
from mcpvectordb.search.ranker import checked_window
from mcpvectordb.storage.file import File

if TYPE_CHECKING:
    from mcpvectordb.memories.shelf import Memories

Kind = Literal["documents", "memories"]
KINDS: tuple[Kind, ...] = ("documents", "memories")
MODES: Mapping[str, Mode] = {"words": "text", "meaning": "vector", "text": "hybrid"}
MAX_SEARCHES = 8  # in one question: each costs as much as a question of its own
DEPTH = 30  # hits of each of several searches that are fused at least

Query = str | Sequence[Mapping[str, str]]
"""A text, or typed searches: each has one of the keys `words`, `meaning` and `text`."""


class JointQuery(NamedTuple):
    """A checked question: (mode, text) of each search, and which hits to return."""

    searches: list[tuple[Mode, str]]
    limit: int
    offset: int
    min_relevance: float
    group: bool
    newer: str | None

    @staticmethod
    def checked(
        query: Query, limit: int, offset: int, min_relevance: float, group: bool, newer: str | None
    ) -> JointQuery:
        """The question as it is asked; raises InvalidInput."""
        checked_window(limit, offset)
        return JointQuery(
            _searches(query), limit, offset, relevance.checked(min_relevance), group, newer
        )

    @property
    def end(self) -> int:
        """The rank of the last hit to return."""
        return self.limit + self.offset

    @property
    def depth(self) -> int:
        """How many hits each search returns."""
        return self.end if len(self.searches) == 1 else max(self.end, DEPTH)


class JointFilter(NamedTuple):
    """Checked filters: the kinds that can match, and what narrows each of them.

    A kind that has no libraries, threads, tags or fields such as the filters name cannot match.
    """

    kinds: tuple[Kind, ...]
    library: str | None
    thread: str | None
    tags: Sequence[str] | None
    where: tuple[Condition, ...]
    since: str | None
    until: str | None

    @staticmethod
    def checked(
        kind: str | None = None,
        *,
        library: str | None = None,
        thread: str | None = None,
        tags: Sequence[str] | None = None,
        where: Where | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> JointFilter:
        """The filters as they are used; raises InvalidInput if they exclude each other."""
        conditions = filters.conditions(where)
        left_out = _left_out(kind, library, thread, tags, conditions)
        kinds = tuple(each for each in KINDS if not left_out[each])
        if not kinds:
            reasons = " and ".join(
                f"{', '.join(why)} is no {each}" for each, why in left_out.items()
            )
            raise InvalidInput(f"nothing can match these filters: {reasons}")
        _check_period(since, until)
        return JointFilter(kinds, library, thread, tags, tuple(conditions), since, until)

    @property
    def of_documents(self) -> tuple[Condition, ...]:
        """The conditions on documents."""
        return (*self.where, *self._period("date"))

    @property
    def of_memories(self) -> tuple[Condition, ...]:
        """The conditions on memories."""
        return (*self.where, *self._period("created_at"))

    def _period(self, field: str) -> list[Condition]:
        bounds = (("gte", self.since), ("lte", self.until))
        return [Condition(field, sign, bound) for sign, bound in bounds if bound is not None]


EVERYTHING = JointFilter(KINDS, None, None, None, (), None, None)


class JointSearch:
    """Searches both shelves; `memories` is called only if there are any: it loads their shelf."""

    def __init__(self, file: File, documents: Documents, memories: Callable[[], Memories]) -> None:
        self._file, self._documents, self._memories = file, documents, memories

    def search(self, question: JointQuery, which: JointFilter) -> Results[Chunk | Memory]:
        """The best of both shelves, in one ranking; all of it is read in one snapshot."""
        with self._file.reading():
            answers = [
                self._answers(mode, text, question, which) for mode, text in question.searches
            ]
        fused = ranking.fuse(
            [
                ranking.merge(*(found[kind].hits if kind in found else () for kind in KINDS))
                for found in answers
            ]
        )
        if question.group and len(answers) > 1:
            fused = ranking.grouped(fused)
        kept = [
            hit for hit in fused if hit.relevance is None or hit.relevance >= question.min_relevance
        ]
        page = kept[question.offset : question.end]
        return _results(page, fused, answers, question.min_relevance)

    def _answers(
        self, mode: Mode, text: str, question: JointQuery, which: JointFilter
    ) -> dict[Kind, Results[Any]]:
        """What each shelf finds that can match."""
        found: dict[Kind, Results[Any]] = {}
        if "documents" in which.kinds:
            found["documents"] = self._documents.search(
                text,
                mode=mode,
                library=which.library,
                where=which.of_documents,
                limit=question.depth,
                group=question.group,
                newer=question.newer,
            )
        if which.kinds == ("memories",) or ("memories" in which.kinds and self._has_memories()):
            found["memories"] = self._memories().search(
                text,
                mode=mode,
                limit=question.depth,
                newer=question.newer,
                thread=which.thread,
                tags=which.tags,
                where=which.of_memories,
            )
        return found

    def _has_memories(self) -> bool:
        with self._file.reading() as sql:
            return bool(sql.execute("SELECT EXISTS (SELECT 1 FROM contexts)").get)


def _searches(query: Query) -> list[tuple[Mode, str]]:
    if isinstance(query, str):
        return [("hybrid", storable(query, "query"))]
    if not isinstance(query, Sequence) or not 1 <= len(query) <= MAX_SEARCHES:
        raise InvalidInput(f"query must be a text, or a list of 1 to {MAX_SEARCHES} searches")
    searches: list[tuple[Mode, str]] = []
    for each in query:
        if not isinstance(each, Mapping) or len(each) != 1 or not each.keys() <= MODES.keys():
            raise InvalidInput(
                "each search in query must have one of the keys words, meaning and text, such as "
                f'{{"words": "green tea"}}, not {quoted(str(each))}'
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


def _results(
    page: Sequence[Found],
    ranked: Sequence[Found],
    answers: Sequence[Mapping[Kind, Results[Any]]],
    least: float,
) -> Results[Chunk | Memory]:
    """A page of a ranking, with what the searches that it is made of say about themselves."""
    found = [each for answer in answers for each in answer.values()]
    return Results(
        hits=tuple(page),
        legs=tuple(dict.fromkeys(leg for each in found for leg in each.legs)),
        reasons={leg: why for each in reversed(found) for leg, why in each.reasons.items()},
        verdict=_verdict(ranked, found, least),
        uncalibrated=next((each.uncalibrated for each in found if each.uncalibrated), ""),
        note="; ".join(dict.fromkeys(each.note for each in found if each.note)),
        backlog=_backlog(answers),
    )


def _verdict(ranked: Sequence[Found], found: Sequence[Results[Any]], least: float) -> str:
    """That nothing relevant was found, if every search says so, or nothing relevant enough.

    A shelf of few passages does not say so.
    """
    said = [each for each in found if each.hits]
    if said and all(each.verdict for each in said):
        return max(said, key=lambda each: max(hit.relevance or 0.0 for hit in each)).verdict
    return relevance.verdict([hit.relevance for hit in ranked], least, few=True) if least else ""


def _backlog(answers: Sequence[Mapping[Kind, Results[Any]]]) -> Backlog:
    """What waits for its embedding on the shelves that were searched by meaning."""
    shelves = {kind: each.backlog for answer in answers for kind, each in answer.items()}
    return Backlog(
        passages=sum(each.passages for each in shelves.values()),
        pending=sum(each.pending for each in shelves.values()),
        outlook=next((each.outlook for each in shelves.values() if each.outlook), ""),
    )
