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

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb import dates, filters
from mcpvectordb.index.background import CODES_SHARE
from mcpvectordb.index.chunks import active_model
from mcpvectordb.index.keyword import MEMORIES, Occurrences, find
from mcpvectordb.index.resident import (
    Allowed,
    ResidentEntries,
    changes_since,
    newest_change,
)
from mcpvectordb.memories.rows import MemoryFilter, decoded
from mcpvectordb.ranking.ranker import Surroundings
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.store import OpenStore
from mcpvectordb.text.query import K1, B

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

NEAR = (0.5, 0.35, 0.25, 0.15)  # what an occurrence one, two … turns away counts
# KnownTurns longer than this need their neighbours less: they count by the root of the ratio.
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
# What notes begin with before a colon, and nobody is called. Notes that take turns by such labels
# would be found by the words of their neighbours: nDCG@10 of labelled titles was .321, not .354.
_LABELS = frozenset(
    "action actions architecture assumption blocked blocker bug bugs caveat change changelog "
    "conclusion constraint context convention decided decision decisions deadline definition done "
    "error event example fact facts feature finding fix fixed fixme goal goals hint idea ideas "
    "important info insight issue issues learned learning lesson lessons memory milestone next "
    "note notes observation open outcome plan preference principle problem progress project "
    "reason reference release reminder requirement resolved result results risk rule rules setup "
    "status step summary task tasks tip title todo todos topic update warning workaround "
    "achtung aufgabe aufgaben beschluss entscheidung erkenntnis fehler frist hinweis idee merke "
    "notiz regel risiko stand thema wichtig ziel".split()
)
_NAMED = re.compile(rf'"(?:{"|".join(_SPEAKER_KEYS)})"')  # a key of metadata that names a speaker

_BESIDE = (
    "SELECT y.id FROM contexts y WHERE y.thread = x.thread AND "
    "substr(y.thread, 1, 100) = substr(x.thread, 1, 100) AND y.id >> 40 = x.id >> 40 AND "
)
# Two statements for each direction, of which each is one step in an index.
_LINKS = (
    "SELECT x.id, "
    f"coalesce(({_BESIDE} y.created_at = x.created_at AND y.id < x.id ORDER BY y.id DESC LIMIT 1), "
    f"({_BESIDE} y.created_at < x.created_at ORDER BY y.created_at DESC, y.id DESC LIMIT 1), 0), "
    f"coalesce(({_BESIDE} y.created_at = x.created_at AND y.id > x.id ORDER BY y.id LIMIT 1), "
    f"({_BESIDE} y.created_at > x.created_at ORDER BY y.created_at, y.id LIMIT 1), 0) "
    "FROM contexts x WHERE x.id IN (SELECT value FROM json_each(?))"
)
_SAID = (
    "SELECT x.id, x.source, x.created_at, x.metadata, substr(c.tile, 1, ?), x.thread, "
    "coalesce(c.id, 0), "
    "coalesce((SELECT max(z.id) FROM context_chunks z WHERE z.owner = x.id), -1) "
    "FROM contexts x LEFT JOIN context_chunks c ON c.owner = x.id AND c.position = 0"
)

# All memories of a file in the order of their threads, as an index has it.
_IN_ORDER = "SELECT id, thread FROM contexts ORDER BY thread, created_at, id"
TURNS = "turns"  # the key of what a process keeps of all turns
TURN_BYTES = 80  # of memory that one takes


def speaker(metadata: str | None, head: str | None) -> str:
    """Who said something, in lower case: by its metadata, or by the name before the first colon.

    What stands there may also be the label of a note, such as TODO, which is nobody.
    """
    if metadata and _NAMED.search(metadata):
        given = decoded(metadata) or {}
        for key in _SPEAKER_KEYS:
            if isinstance(name := given.get(key), str) and len(name) <= _HEAD:
                return name.casefold()
    colon = _COLON.search(head) if head and ":" in head else None
    found = _NAME.search(head[: colon.start()]) if head and colon else None
    name = found["name"].casefold() if found else ""
    return "" if _LABELS.intersection(_WORD.findall(name)) else name


def day(created_at: str, metadata: str | None, head: str | None) -> date | None:
    """When something was said: by its metadata, the beginning of its text, or when it was stored.

    The first text in which a day is found says it.
    """
    given: Mapping[str, Any] = decoded(metadata) or {}
    texts = [each for each in given.values() if isinstance(each, str) and len(each) <= _HEAD]
    times = map(dates.spoken_day, (*texts, head or "", created_at))
    return next(filter(None, times), None)


@dataclass(frozen=True, slots=True)
class ById:
    """Some numbers of each of some memories: a line for each number, ids ascend."""

    ids: Ids
    values: Ids

    def of(self, ids: Ids, line: int | slice = slice(None)) -> Ids:
        """The numbers of these memories, or one of them; 0 where there is no such memory."""
        values = self.values[line]
        if not len(self.ids):
            return np.zeros((*values.shape[:-1], len(ids)), np.int64)
        found = find(self.ids, ids)
        numbers: Ids = values.take(found, axis=-1, mode="wrap")
        numbers[..., found < 0] = 0
        return numbers

    def updated(self, ids: Ids, new: ById) -> ById:
        """The same with what is known now of some memories, and without those that are gone."""
        kept = ~np.isin(self.ids, ids)
        every = np.concatenate([self.ids[kept], new.ids])
        values = np.concatenate([self.values[:, kept], new.values], axis=1)
        return ById(every, values).sorted()

    def sorted(self) -> ById:
        """The same by ascending id, each line in one piece: `take` would copy it otherwise."""
        order = self.ids.argsort(kind="stable")
        return ById(self.ids[order], np.ascontiguousarray(self.values[:, order]))


def _by_id(rows: Iterable[Sequence[int]], lines: int) -> ById:
    """What rows of an id and some numbers say."""
    found = np.fromiter(itertools.chain.from_iterable(rows), np.int64).reshape(-1, lines + 1)
    return ById(found[:, 0], found[:, 1:].T).sorted()


@dataclass(slots=True)
class KnownTurns:
    """Where memories stand in their threads, who said them, and which passages they have.

    beside   the ids of those before and after each, 0 for none
    said     who said it: twice the speaker's place in `names`, and one for an agent; then the
             number of its thread, and the ids of its first and its last passage
    seq      the change that all memories are known as of; None if what is not known is to be read
    """

    beside: ById = field(default_factory=lambda: _by_id((), 2))
    said: ById = field(default_factory=lambda: _by_id((), 4))
    names: list[str] = field(default_factory=lambda: [""])
    places: dict[str, int] = field(default_factory=lambda: {"": 0})
    threads: dict[str, int] = field(default_factory=dict)
    seq: int | None = None
    # The first passages of all, ascending, and the places of their memories.
    ordered: tuple[Ids, Places] | None = None

    @property
    def size(self) -> int:
        """How many bytes of memory this takes."""
        return TURN_BYTES * len(self.said.ids) + 200 * (len(self.names) + len(self.threads))

    def read_beside(self, sql: Sql, ids: Ids) -> ById:
        """The memories before and after these."""
        return _by_id(sql.execute(_LINKS, (json.dumps(ids.tolist()),)), 2)

    def read_every_beside(self, sql: Sql) -> ById:
        """The memories before and after each, of all."""
        number = self.threads.setdefault
        rows = ((id, number(thread, len(self.threads))) for id, thread in sql.execute(_IN_ORDER))
        found = np.fromiter(itertools.chain.from_iterable(rows), np.int64).reshape(-1, 2)
        ids, threads = np.pad(found, ((1, 1), (0, 0)), constant_values=(0, -1)).T
        before = np.where(threads[1:-1] == threads[:-2], ids[:-2], 0)
        after = np.where(threads[1:-1] == threads[2:], ids[2:], 0)
        return ById(ids[1:-1], np.stack([before, after])).sorted()

    def read_said(self, sql: Sql, ids: Ids | None = None) -> ById:
        """Who said these memories, or all, and their passages."""
        chosen = "WHERE x.id IN (SELECT value FROM json_each(?))" if ids is not None else ""
        bindings = (json.dumps(ids.tolist()),) if ids is not None else ()
        rows = sql.execute(f"{_SAID} {chosen}", (_HEAD, *bindings))
        thread = self.threads.setdefault
        return _by_id(
            (
                (
                    id,
                    2 * self._place(speaker(given, head)) + (source == "agent"),
                    thread(name, len(self.threads)),
                    *passages,
                )
                for id, source, _, given, head, name, *passages in rows
            ),
            4,
        )

    def _place(self, name: str) -> int:
        place = self.places.setdefault(name, len(self.names))
        if place == len(self.names):
            self.names.append(name)
        return place

    def followed(self, sql: Sql, seq: int, changed: Sequence[int]) -> KnownTurns:
        """The same as of a later change, since which these memories were written or deleted."""
        if not changed:
            return replace(self, seq=seq)
        ids = np.unique(np.array(changed, np.int64))
        near = np.union1d(self.beside.of(ids), self.read_beside(sql, ids).values)
        moved = np.union1d(ids, near[near > 0])
        return replace(
            self,
            beside=self.beside.updated(moved, self.read_beside(sql, moved)),
            said=self.said.updated(ids, self.read_said(sql, ids)),
            seq=seq,
            ordered=None,
        )

    # The passages of one memory were stored together, so their ids follow each other.

    def chunks_of(self, sql: Sql, owners: Ids) -> tuple[Ids, Ids]:
        """The passages of these memories, and the memory of each."""
        return self._passages(owners)

    def owner_of(self, sql: Sql, ids: Sequence[int]) -> dict[int, int]:
        """The memory of each of these passages that exists."""
        *_, first, last = self.said.values
        if not len(first):
            return {}
        if self.ordered is None:
            order = first.argsort(kind="stable")
            self.ordered = first[order], order
        chunks = np.array(ids, np.int64)
        passages, order = self.ordered
        places = order[passages.searchsorted(chunks, "right") - 1]
        there = (first[places] <= chunks) & (chunks <= last[places])
        owners = self.said.ids[places[there]]
        return dict(zip(chunks[there].tolist(), owners.tolist(), strict=True))

    def _passages(self, ids: Ids) -> tuple[Ids, Ids]:
        """The passages of these memories, and the memory of each."""
        *_, first, last = self.said.of(ids)
        counts = np.where(first, last - first + 1, 0)
        places = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return np.repeat(first, counts) + places, np.repeat(ids, counts)

    def chosen(self, sql: Sql, which: MemoryFilter) -> tuple[Allowed, Allowed]:
        """The memories that a filter chooses, and their passages; looked up once, if at all."""
        memories, passages = which.memories, which.chunks
        if self.seq is None or not memories.select:
            return memories, passages
        if which.simple and which.thread is not None:
            ids = self.said.ids[self.said.values[1] == self.threads.get(which.thread, -1)]
            if which.excluded:
                ids = np.setdiff1d(ids, which.without.ids(sql))
        else:
            ids = memories.ids(sql)
        return replace(memories, known=ids), replace(passages, known=self._passages(ids)[0])


def turns_of(sql: Sql, memory: ResidentEntries | None) -> KnownTurns:
    """All turns, which a process keeps from its second question on; or none, to be read as needed.

    What is kept and when it may be used is as for postings (`Postings`).
    """
    if memory is None or sql.may_roll_back or not memory.worth_loading(MEMORIES, 0, 0):
        return KnownTurns()
    with memory.loading(MEMORIES):
        known: KnownTurns | None = memory.get(MEMORIES, TURNS)
        seq = newest_change(sql)
        if known is not None and known.seq is not None and known.seq >= seq:
            return known if known.seq == seq else KnownTurns()
        changed = changes_since(sql, MEMORIES, known.seq) if known and known.seq else None
        if known is not None and changed is not None:
            turns = known.followed(sql, seq, changed)
        else:
            count = sql.execute("SELECT count(*) FROM contexts").get
            if not memory.has_room(TURN_BYTES * count):
                return KnownTurns()
            turns = KnownTurns(seq=seq)
            turns.beside, turns.said = turns.read_every_beside(sql), turns.read_said(sql)
        memory.put(MEMORIES, TURNS, turns)
        return turns


def read_ahead(store: OpenStore) -> None:
    """Read all turns, and the codes of their embeddings, before a question needs them."""
    memory = store.fulltext.memory
    with store.file.reading(limited=False) as sql:
        if memory is None or not sql.execute("SELECT EXISTS (SELECT 1 FROM contexts)").get:
            return
        memory.worth_loading(MEMORIES, 0, 0)  # this process will ask more than once
        turns_of(sql, memory)
        if (model := active_model(sql)) is not None:
            budget = (store.config.resident_bytes - memory.size) // CODES_SHARE
            store.memories.vector.preload(sql, model.key, model.dimension, budget)


class Named(NamedTuple):
    """What a question names: its content words, in lower case, and a time."""

    words: Sequence[str]
    period: dates.SpokenPeriod | None


class Conversations:
    """The threads of a file around the candidates of one question; see `ranker.Neighbourhood`.

    turns    where memories stand, and who said them
    named    the words and the time of the question
    which    the memories that may be found
    count    how often some memories have each word of the question
    """

    def __init__(
        self,
        sql: Sql,
        turns: KnownTurns,
        named: Named,
        which: MemoryFilter | None,
        count: Callable[[Ids], Occurrences],
    ) -> None:
        self._sql, self._turns, self._which = sql, turns, which
        self._period, self._count = named.period, count
        self._words = {part for word in named.words for part in _WORD.findall(word)}

    def beside(self, ids: Sequence[int]) -> list[int]:
        """The turns before and after these, as far as they may be found, too."""
        own = distinct(np.array(ids, np.int64))
        beside = self._beside(own)
        if self._which is None or not self._turn_taking(own, beside):
            return []
        others = distinct(beside)
        near: list[int] = others[find(own, others) < 0].tolist()
        if self._which.condition == filters.EVERYTHING:
            return near
        rows = self._sql.execute(
            "SELECT x.id FROM contexts x WHERE x.id IN (SELECT value FROM json_each(?)) "
            f"AND {self._which.condition}",
            (json.dumps(near), *self._which.bindings),
        )
        return [id for (id,) in rows]

    def around(self, ids: Ids) -> Surroundings | None:
        """What surrounds these candidates, None if nothing does; ids ascend."""
        beside = self._beside(ids)
        share = self._turn_taking(ids, beside)
        legs = self._legs(ids)
        if not share:
            return Surroundings(None, 1.0, legs) if legs else None
        steps = [*beside]
        for _ in NEAR[1:]:
            steps += [self._beside(each, side) for side, each in enumerate(steps[-2:])]
        near = np.stack(steps)
        every = distinct(ids, near)
        found = self._count(every)
        own, others = every.searchsorted(ids), np.where(near, every.searchsorted(near), -1)
        weight = share * context_weight(found.lengths[own])
        words = window_scores(found, own, others, weight)
        return Surroundings(words, 1 - (1 - MEANING) * share, legs)

    def _beside(self, ids: Ids, side: int | slice = slice(None)) -> Ids:
        """The memories before (side 0) and after (1) these, 0 for none; a line for each side."""
        turns = self._turns
        if turns.seq is None:
            new = np.setdiff1d(ids, np.append(turns.beside.ids, 0))
            turns.beside = turns.beside.updated(new, turns.read_beside(self._sql, new))
        return turns.beside.of(ids, side)

    def _by(self, ids: Ids) -> Ids:
        """Who said these."""
        turns = self._turns
        if turns.seq is None:
            new = np.setdiff1d(ids, np.append(turns.said.ids, 0))
            turns.said = turns.said.updated(new, turns.read_said(self._sql, new))
        return turns.said.of(ids, 0)

    def _turn_taking(self, ids: Ids, beside: Ids) -> float:
        """The share of these memories, 0 to 1, before or after which somebody else speaks."""
        every = distinct(ids, beside)
        return turn_taking(every, self._by(every), ids, beside)

    def _legs(self, ids: Ids) -> list[tuple[Numbers, float]]:
        """Whether each was said by whom the question names, and then."""
        legs = []
        by = self._by(ids) // 2
        names = self._turns.names
        named = [place for place in distinct(by).tolist() if self._is_named(names[place])]
        if named:
            legs.append((np.isin(by, named).astype(np.float64), SPEAKER))
        if self._period is not None:
            chosen = "WHERE x.id IN (SELECT value FROM json_each(?))"
            rows = self._sql.execute(f"{_SAID} {chosen}", (_HEAD, json.dumps(ids.tolist())))
            days = {id: day(*said[:3]) for id, _, *said in rows}
            known = [days.get(id) for id in ids.tolist()]
            near = np.array([self._period.closeness(each) if each else 0.0 for each in known])
            if near.any():
                legs.append((near, TIME))
        return legs

    def _is_named(self, speaker: str) -> bool:
        return any(part in self._words for part in _WORD.findall(speaker))


def turn_taking(every: Ids, by: Ids, own: Ids, beside: Ids) -> float:
    """The share of memories, 0 to 1, before or after which somebody else speaks.

    `every` are their ids (`own`) and those beside them, `by` who said them. Somebody who speaks
    speaks again: what stands before a colon only once in a while is no name.
    """
    if not len(own):
        return 0.0
    speak = np.bincount(by)[by] >= max(2, len(every) // RARELY)
    speaking = np.where(speak, by, by % 2)
    others = speaking[np.minimum(every.searchsorted(beside), len(every) - 1)]
    turns = (beside > 0) & (others != speaking[every.searchsorted(own)])
    return float(turns.any(axis=0).mean())


def context_weight(lengths: Numbers) -> float:
    """How much neighbours count, 0 to 1, for candidates of these lengths."""
    return float(np.sqrt(SHORT / max(SHORT, lengths.mean()))) if len(lengths) else 1.0


def window_scores(found: Occurrences, own: Places, near: Places, weight: float) -> Numbers:
    """The BM25 of rows (`own`: their places) with the rows beside them, which count by `weight`.

    `near` has the places of those before and after each at every distance, -1 for none: a line for
    each. Terms are weighted by how many of the rows that may be found have them, by a formula that
    is never negative: a thread may have few rows, and names in most of them.
    """
    weights = weight * np.repeat(NEAR, 2)
    rows = np.vstack([found.counts, found.lengths])
    beside = np.append(rows, np.zeros((len(rows), 1)), axis=1)[:, near]  # of none, the zeros
    every = rows[:, own] + np.einsum("d,tdn->tn", weights, beside)
    counts, lengths = every[:-1], every[-1]
    usual = 1.0 + weights.sum()
    norms = K1 * (1 - B + B * lengths / (usual * found.average))
    rare = np.maximum(found.rows - found.frequencies, 0) + 0.5
    idf = np.log1p(rare / (found.frequencies + 0.5))
    scores: Numbers = (idf[:, None] * counts * (K1 + 1) / (counts + norms)).sum(axis=0)
    return scores


def distinct(*ids: Ids) -> Ids:
    """The distinct ones of these numbers that are not 0, ascending: quicker than `np.unique`."""
    ordered = np.concatenate([np.zeros(1, np.int64), *(each.ravel() for each in ids)])
    ordered.sort()
    different: Ids = ordered[1:][ordered[1:] != ordered[:-1]]
    return different
