"""What a memory is surrounded by in its thread, and who said it when, for the ranking.

A turn of a conversation is often understood by those around it alone: "Yes, in May!" has no word of
the question before it. So a word that a neighbour has counts for a turn as a part of an occurrence,
the less the further away it stands (`NEAR`), in one BM25 whose statistics are those of what is
searched. It is computed when a question is asked: nothing is stored twice, and a later turn changes
its neighbours by itself. Neighbours are the memories before and after in the same thread, by time.

Notes that happen to be stored one after the other are no conversation: neighbours count as far as
different speakers take turns. Where nobody does, memories are ranked as documents are.

Who said something is in its metadata, or before the first colon of its text; the day is in the
metadata, at the beginning of the text, or when it was stored. A question that names a speaker or a
time prefers what was said by them, or then. (benchmarks/results/memories.md has what each gains.)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb import dates
from mcpvectordb.index.keyword import Occurrences
from mcpvectordb.memories.rows import MemoryFilter, decoded
from mcpvectordb.ranking.ranker import Surroundings
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.text.query import K1, B

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

NEAR = (0.5, 0.35, 0.25, 0.15)  # what an occurrence one, two … turns away counts
# Turns longer than this need their neighbours less: they count by the root of the ratio.
SHORT = 36  # tokens: a sentence or two
MEANING = 0.7  # of the usual weight of meaning, where words see a whole conversation
RARELY = 100  # who speaks has said more than one of so many memories
SPEAKER, TIME = 0.07, 0.2  # weights of who and when, where a question names them
_SPEAKER_KEYS = ("speaker", "author", "sender", "from", "name", "user", "role")
_HEAD = 100  # characters of a text in which its speaker and day are looked for
_COLON = re.compile(r"(?: ?[(\[][^()\[\]]*[)\]])?[*_]*:[*_]*\s")  # (8 May 2023): after a name
_NAME = re.compile(  # up to three words, at the beginning or after a day or another label
    r"(?:^|[\])>|,;\n–—-]|\d)[\s*_]*(?P<name>[^\W\d_][\w.'’]*(?: (?:[^\W\d_][\w.'’]*|\d\d?)){0,2})$"
)
_WORD = re.compile(r"[^\W_]+")

_BESIDE = (
    "SELECT y.id FROM contexts y WHERE y.thread = x.thread AND "
    "substr(y.thread, 1, 100) = substr(x.thread, 1, 100) AND y.id >> 40 = x.id >> 40 AND "
)
# Two statements for each direction, of which each is one step in an index.
_LINKS = (
    "SELECT x.id, "
    f"coalesce(({_BESIDE} y.created_at = x.created_at AND y.id < x.id ORDER BY y.id DESC LIMIT 1), "
    f"({_BESIDE} y.created_at < x.created_at ORDER BY y.created_at DESC, y.id DESC LIMIT 1)), "
    f"coalesce(({_BESIDE} y.created_at = x.created_at AND y.id > x.id ORDER BY y.id LIMIT 1), "
    f"({_BESIDE} y.created_at > x.created_at ORDER BY y.created_at, y.id LIMIT 1)) "
    "FROM contexts x WHERE x.id IN (SELECT value FROM json_each(?))"
)
_SAID = (
    "SELECT x.id, x.source, x.created_at, x.metadata, substr(c.tile, 1, ?) "
    "FROM contexts x LEFT JOIN context_chunks c ON c.owner = x.id AND c.position = 0 "
    "WHERE x.id IN (SELECT value FROM json_each(?))"
)

Beside = tuple[int | None, int | None]
"""The ids of the memories before and after one."""


class Said(NamedTuple):
    """What is known of a memory beside its words: who said it, and what may name its day."""

    source: str
    speaker: str
    times: Sequence[str]

    @classmethod
    def of(cls, source: str, created_at: str, metadata: str | None, head: str | None) -> Said:
        """What a row of the file says."""
        given: Mapping[str, Any] = decoded(metadata) or {}
        texts = [each for each in given.values() if isinstance(each, str) and len(each) <= _HEAD]
        named = [given[key] for key in _SPEAKER_KEYS if given.get(key) in texts]
        head = head or ""
        return cls(source, named[0] if named else speaker(head), [*texts, head, created_at])

    @property
    def by(self) -> tuple[str, str]:
        """Who said it, to be compared."""
        return self.source, self.speaker.casefold()

    @property
    def day(self) -> date | None:
        """When it was said."""
        return next(filter(None, map(dates.spoken_day, self.times)), None)


def speaker(head: str) -> str:
    """The name before the first colon of a text, "" if there is none."""
    colon = _COLON.search(head)
    found = _NAME.search(head[: colon.start()]) if colon else None
    return found["name"] if found else ""


class Conversations:
    """The threads of a file around the candidates of one question; see `ranker.Neighbourhood`.

    words    the content words of the question, in lower case
    period   the time that it names
    which    the memories that may be found
    count    how often some memories have each word of the question
    """

    def __init__(
        self,
        sql: Sql,
        words: Sequence[str],
        period: dates.SpokenPeriod | None,
        which: MemoryFilter | None,
        count: Callable[[NDArray[np.int64]], Occurrences],
    ) -> None:
        self._sql, self._period, self._which, self._count = sql, period, which, count
        self._words = {part for word in words for part in _WORD.findall(word)}
        self._links: dict[int, Beside] = {}
        self._known: dict[int, Said] = {}

    def beside(self, ids: Sequence[int]) -> list[int]:
        """The turns before and after these, as far as they may be found, too."""
        if self._which is None or not self._turn_taking(ids):
            return []
        near = {id for own in ids for id in self._links[own] if id is not None} - {*ids}
        rows = self._sql.execute(
            "SELECT x.id FROM contexts x WHERE x.id IN (SELECT value FROM json_each(?)) "
            f"AND {self._which.condition}",
            (json.dumps(sorted(near)), *self._which.bindings),
        )
        return [id for (id,) in rows]

    def around(self, ids: NDArray[np.int64]) -> Surroundings | None:
        """What surrounds these candidates, None if nothing does; ids ascend."""
        own = ids.tolist()
        share = self._turn_taking(own)
        legs = self._legs([self._known[id] for id in own])
        if not share:
            return Surroundings(None, 1.0, legs) if legs else None
        steps = self._steps(own)
        every = np.unique([*own, *(id for step in steps for side in step for id in side if id > 0)])
        found = self._count(every)
        places = [[_places(every, side) for side in step] for step in steps]
        own_places = np.searchsorted(every, ids)
        weight = share * context_weight(found.lengths[own_places])
        words = window_scores(found, own_places, places, weight)
        return Surroundings(words, 1 - (1 - MEANING) * share, legs)

    def _turn_taking(self, ids: Sequence[int]) -> float:
        """`turn_taking` of these memories, of which all that it needs is then known."""
        self._link(ids)
        beside = {id: self._links[id] for id in ids}
        asked = {*ids, *(id for each in beside.values() for id in each if id is not None)}
        rows = self._sql.execute(_SAID, (_HEAD, json.dumps(sorted(asked - self._known.keys()))))
        self._known |= {id: Said.of(*row) for id, *row in rows}
        return turn_taking(beside, self._known)

    def _link(self, ids: Iterable[int]) -> None:
        new = sorted({*ids} - self._links.keys())
        rows = self._sql.execute(_LINKS, (json.dumps(new),)) if new else ()
        self._links |= {id: (before, after) for id, before, after in rows}

    def _steps(self, ids: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """The memories one, two … steps before and after each of these, 0 for none."""
        before, after = list(ids), list(ids)
        steps = []
        for _ in NEAR:
            self._link(id for id in (*before, *after) if id)
            before = [(self._links[id][0] or 0) if id else 0 for id in before]
            after = [(self._links[id][1] or 0) if id else 0 for id in after]
            steps.append((before, after))
        return steps

    def _legs(self, said: Sequence[Said]) -> list[tuple[Numbers, float]]:
        """Whether each was said by whom the question names, and then."""
        legs = []
        named = np.array([self._is_named(each.speaker) for each in said], np.float64)
        if named.any():
            legs.append((named, SPEAKER))
        if self._period is not None:
            days = [each.day for each in said]
            near = np.array([self._period.closeness(day) if day else 0.0 for day in days])
            if near.any():
                legs.append((near, TIME))
        return legs

    def _is_named(self, speaker: str) -> bool:
        return any(part in self._words for part in _WORD.findall(speaker.casefold()))


def turn_taking(beside: Mapping[int, Beside], said: Mapping[int, Said]) -> float:
    """The share of memories, 0 to 1, before or after which somebody else speaks.

    Somebody who speaks speaks again: what stands before a colon only once in a while is no name.
    """
    counts = Counter(each.by for each in said.values())
    least = max(2, len(said) // RARELY)
    by = {
        id: each.by if counts[each.by] >= least else (each.source, "") for id, each in said.items()
    }
    turns = [
        any(id is not None and by[id] != by[own] for id in each) for own, each in beside.items()
    ]
    return sum(turns) / len(turns) if turns else 0.0


def context_weight(lengths: Numbers) -> float:
    """How much neighbours count, 0 to 1, for candidates of these lengths."""
    return float(np.sqrt(SHORT / max(SHORT, lengths.mean()))) if len(lengths) else 1.0


def window_scores(
    found: Occurrences, own: Places, steps: Sequence[Sequence[Places]], weight: float
) -> Numbers:
    """The BM25 of rows (`own`: their places) with the rows beside them, which count by `weight`.

    `steps` has the places of those before and after each at every distance, -1 for none. Terms are
    weighted by how many of the rows that may be found have them, by a formula that is never
    negative: a thread may have few rows, and names in most of them.
    """
    counts, lengths = found.counts[:, own], found.lengths[own]
    usual = 1.0
    for near, sides in zip(NEAR, steps, strict=True):
        usual += len(sides) * near * weight
        for places in sides:
            there = places >= 0
            counts = counts + near * weight * np.where(there, found.counts[:, places], 0.0)
            lengths = lengths + near * weight * np.where(there, found.lengths[places], 0.0)
    norms = K1 * (1 - B + B * lengths / (usual * found.average))
    rare = np.maximum(found.rows - found.frequencies, 0) + 0.5
    idf = np.log1p(rare / (found.frequencies + 0.5))
    scores: Numbers = (idf[:, None] * counts * (K1 + 1) / (counts + norms)).sum(axis=0)
    return scores


def _places(every: NDArray[np.int64], ids: Sequence[int]) -> Places:
    """The places of ids among ascending ones, -1 for 0."""
    found = np.array(ids, np.int64)
    return np.where(found > 0, np.searchsorted(every, found), -1)
