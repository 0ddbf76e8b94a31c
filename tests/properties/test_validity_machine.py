"""At any time exactly those memories are found that hold then, whatever was done to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mcpvectordb import Database, InvalidInput, dates
from tests.properties.machines import DatabaseMachine
from tests.support import Letters, scaled

FIRST = datetime(2025, 1, 1, tzinfo=UTC)
DAYS = st.integers(-5, 40)
BOUNDS = st.none() | DAYS
TRUST = ["person", "agent", "document", "web"]
PROVENANCES = st.none() | st.sampled_from(TRUST)
TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class Fact:
    """A memory in the model: it holds from `start` (None: from its creation) up to `end`."""

    created: datetime
    start: datetime | None
    end: datetime | None
    trust: int
    by: int | None = None

    def holds(self, moment: datetime, *, as_of: bool) -> bool:
        if self.end is not None and moment > self.end:
            return False
        if self.start is not None:
            return self.start <= moment
        return not as_of or self.created <= moment


def day(number: int) -> datetime:
    return FIRST + timedelta(days=number)


def written(number: int | None) -> str | None:
    return None if number is None else day(number).date().isoformat()


class ValidityMachine(DatabaseMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, Fact] = {}
        self.now = FIRST
        self.added = 0

    def opened(self, path: Path) -> Database:
        db = Database(path, embedder=Letters())
        db.memories._clock = lambda: self.now
        return db

    @initialize()
    def start(self) -> None:
        self.open()
        self.add(None, None, None)

    def period(self, first: int | None, last: int | None) -> dict[str, datetime | None]:
        return {
            "start": None if first is None else day(first),
            "end": None if last is None else day(last + 1) - TICK,
        }

    def entry(self) -> str:
        self.added += 1
        return f"tea {'a' * self.added}"

    @rule(first=BOUNDS, last=BOUNDS, provenance=PROVENANCES)
    def add(self, first: int | None, last: int | None, provenance: Any) -> None:
        given: dict[str, Any] = {"valid_from": written(first), "valid_to": written(last)}
        if first is not None and last is not None and first > last:
            try:
                self.db.memories.add("t", "user", "tea", **given)
            except InvalidInput:
                return
            raise AssertionError
        done = self.db.memories.add("t", "user", self.entry(), provenance=provenance, **given)
        trust = TRUST.index(provenance or "person")
        self.model[done.id] = Fact(self.now, **self.period(first, last), trust=trust)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), first=BOUNDS, provenance=PROVENANCES)
    def replace(self, data: st.DataObject, first: int | None, provenance: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        old = self.model[id]
        given: dict[str, Any] = {"replaces": id, "provenance": provenance}
        try:
            done = self.db.memories.add(
                "t", "agent", self.entry(), valid_from=written(first), **given
            )
        except InvalidInput:
            assert old.by in self.model
            return
        assert old.by not in self.model
        begins = self.now if first is None else day(first)
        end = begins - TICK if old.end is None else min(begins - TICK, old.end)
        self.model[id] = replace(old, end=end, by=done.id)
        trust = max(TRUST.index(provenance or "agent"), old.trust)
        self.model[done.id] = Fact(self.now, **self.period(first, None), trust=trust)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), last=DAYS | st.just(None))
    def end(self, data: st.DataObject, last: int | None) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        old = self.model[id]
        end = self.period(None, last)["end"]
        try:
            self.db.memories.update(id, valid_to=written(last) or "")
        except InvalidInput:
            assert end is not None
            backwards = old.start is not None and old.start > end
            assert backwards or (old.by in self.model and end > old.end)
            return
        assert end is None or old.by not in self.model or end <= old.end
        self.model[id] = replace(old, end=end, by=None if end is None else old.by)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), provenance=PROVENANCES)
    def rewrite(self, data: st.DataObject, provenance: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self.db.memories.update(id, text=self.entry(), provenance=provenance)
        known = self.model[id]
        trust = max(known.trust, TRUST.index(provenance) if provenance else 0)
        self.model[id] = replace(known, trust=trust)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self.db.memories.delete(id)
        del self.model[id]

    @rule(days=st.integers(0, 9))
    def wait(self, days: int) -> None:
        self.now += timedelta(days=days, seconds=1)

    def found(self, as_of: str | None = None) -> set[int]:
        hits = self.db.memories.search("tea", mode="text", limit=1_000, as_of=as_of)
        return {hit.item.id for hit in hits}

    def assert_file_equals_model(self) -> None:
        model = self.model
        assert self.found() == {
            id for id, each in model.items() if each.holds(self.now, as_of=False)
        }
        assert self.found("any") == set(model)
        newest = [model[id] for id in sorted(model)[-3:]]
        edges = {edge for each in newest for edge in (each.start, each.end, each.created) if edge}
        for moment in {day(-6), day(41)}.union(
            *({each - TICK, each, each + TICK} for each in edges)
        ):
            held = {id for id, each in model.items() if each.holds(moment, as_of=True)}
            assert self.found(dates.stored(moment)) == held
        stored = {
            each.id: (each.valid_from, each.valid_to, each.provenance, each.replaced_by)
            for each in self.db.memories
        }
        assert stored == {
            id: (
                each.start and dates.stored(each.start),
                each.end and dates.stored(each.end),
                TRUST[each.trust],
                each.by if each.by in model else None,
            )
            for id, each in model.items()
        }


TestValidity = ValidityMachine.TestCase
TestValidity.settings = settings(max_examples=scaled(20), stateful_step_count=20)
