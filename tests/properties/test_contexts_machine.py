"""After any sequence of operations on memories, the file equals a model in memory and is sound."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mcpvectordb import (
    Change,
    Condition,
    Config,
    Database,
    Entry,
    Image,
    InvalidInput,
    Memory,
    NotFound,
)
from tests.properties.machines import DatabaseMachine
from tests.support import Letters, scaled

THREADS = st.sampled_from(["one", "two"])
SOURCES = st.sampled_from(["user", "agent"])
WORDS = ["apple", "pear", "plum", "parseHTML", "数据库", "E-4021", "zebra"]
TEXTS = (
    st.lists(st.sampled_from([*WORDS, "\n\n", "# Head\n", "\x00", "é"]), min_size=1, max_size=40)
    .map(" ".join)
    .filter(lambda text: bool(text.strip()))
)
VALUES = st.sampled_from(["open", "Done", 1, 2.5, True, None, [1], {"b": 1}])
OBJECTS = st.dictionaries(
    st.sampled_from(["status", "a", "n"]),
    VALUES | st.dictionaries(st.sampled_from("xy"), VALUES, max_size=2),
    max_size=3,
)
TAGS = st.lists(st.sampled_from(["x", " X", "y", " ", "É"]), max_size=3)
IMAGES = st.lists(
    st.builds(Image, data=st.binary(min_size=1, max_size=5), metadata=st.none() | OBJECTS),
    max_size=2,
)
ENTRIES = st.builds(
    Entry,
    thread=THREADS,
    source=SOURCES,
    text=TEXTS,
    metadata=st.none() | OBJECTS,
    tags=st.none() | TAGS,
    images=st.none() | IMAGES,
)
BAD_ENTRIES = st.sampled_from(
    [
        Entry(thread="one", source="robot", text="x"),
        Entry(thread=" ", source="user", text="x"),
        Entry(thread="one", source="user", text=" "),
    ]
)
CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "metadata": OBJECTS,
    "metadata_patch": OBJECTS,
    "tags": TAGS,
    "images": IMAGES,
}
CONFIG = Config(chunk_size=16, chunk_overlap=4, indexed_metadata="status,a.x")


@dataclass(frozen=True)
class Remembered:
    """A memory in the model."""

    thread: str
    source: str
    text: str
    metadata: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()
    images: tuple[Image, ...] = field(default=())


def tidy(tags: list[str]) -> tuple[str, ...]:
    return tuple(sorted({tag.strip().lower() for tag in tags if tag.strip()}))


def patched(target: Any, patch: Any) -> Any:
    """A second implementation of RFC 7396, from its pseudocode."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result


class MemoriesMachine(DatabaseMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, Remembered] = {}
        self.largest = 0

    def opened(self, path: Path) -> Database:
        return Database(path, embedder=Letters(), config=CONFIG)

    @initialize(entries=st.lists(ENTRIES, min_size=1, max_size=3))
    def start(self, entries: list[Entry]) -> None:
        self.open()
        for entry in entries:
            self.add(entry)

    # The model.

    def expected(self, entry: Entry) -> int | None:
        """The id of the memory that an entry repeats."""
        thread = [id for id, known in self.model.items() if known.thread == entry.thread]
        last = max(thread, default=0)
        known = self.model.get(last)
        return (
            last
            if known and (known.source, known.text) == (entry.source, entry.text.strip())
            else None
        )

    def remember(self, id: int, entry: Entry) -> None:
        known = self.model.get(id, Remembered(entry.thread, entry.source, entry.text.strip()))
        self.model[id] = replace(
            known,
            metadata=known.metadata if entry.metadata is None else (dict(entry.metadata) or None),
            tags=known.tags if entry.tags is None else tidy(list(entry.tags)),
            images=known.images if entry.images is None else tuple(entry.images),
        )

    def altered(self, change: Change) -> Remembered:
        known = self.model[change.id]
        return replace(
            known,
            text=known.text if change.text is None else change.text.strip(),
            metadata=dict(change.metadata)
            if change.metadata is not None
            else known.metadata
            if change.metadata_patch is None
            else patched(known.metadata, change.metadata_patch),
            tags=known.tags if change.tags is None else tidy(list(change.tags)),
            images=known.images if change.images is None else tuple(change.images),
        )

    def change(self, data: st.DataObject, ids: st.SearchStrategy[int]) -> Change:
        fields = data.draw(
            st.sets(st.sampled_from(sorted(CHANGES)), min_size=1).filter(
                lambda chosen: not {"metadata", "metadata_patch"} <= chosen
            )
        )
        return Change(
            id=data.draw(ids), **{name: data.draw(CHANGES[name]) for name in sorted(fields)}
        )

    def took(self, entry: Entry, stored: Any) -> None:
        repeated = self.expected(entry)
        assert stored.status == ("added" if repeated is None else "repeated")
        assert stored.id == repeated or (repeated is None and stored.id > self.largest)
        self.largest = max(self.largest, stored.id)
        self.remember(stored.id, entry)

    # Writing.

    @rule(entry=ENTRIES)
    def add(self, entry: Entry) -> None:
        self.took(
            entry,
            self.db.memories.add(
                entry.thread,
                entry.source,
                entry.text,
                metadata=entry.metadata,
                tags=entry.tags,
                images=entry.images,
            ),
        )

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def say_again(self, data: st.DataObject) -> None:
        known = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        self.add(Entry(thread=known.thread, source=known.source, text=known.text))

    @rule(entries=st.lists(ENTRIES | BAD_ENTRIES, max_size=4), atomic=st.booleans())
    def add_many(self, entries: list[Entry], atomic: bool) -> None:
        good = [
            entry.source != "robot" and bool(entry.thread.strip() and entry.text.strip())
            for entry in entries
        ]
        if atomic and not all(good):
            try:
                self.db.memories.add_many(entries)
            except InvalidInput as error:
                assert f"index {good.index(False)}:" in str(error)
                return
            raise AssertionError("a bad batch was stored")
        outcomes = self.db.memories.add_many(entries, atomic=atomic)
        assert [outcome.error is None for outcome in outcomes] == good
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.result:
                self.took(entry, outcome.result)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        change = self.change(data, st.sampled_from(sorted(self.model)))
        expected = self.altered(change)
        before = self.db.memories.get([change.id])[0]
        updated = self.db.memories.update(
            change.id,
            text=change.text,
            metadata=change.metadata,
            tags=change.tags,
            metadata_patch=change.metadata_patch,
            images=change.images,
        )
        assert (
            updated.memory.created_at == before.created_at
            and updated.memory.updated_at >= before.updated_at
        )
        self.model[change.id] = expected

    @precondition(lambda self: self.model)
    @rule(data=st.data(), atomic=st.booleans())
    def update_many(self, data: st.DataObject, atomic: bool) -> None:
        ids = st.sampled_from([*sorted(self.model), 10**6])
        changes = [self.change(data, ids) for _ in range(data.draw(st.integers(1, 3)))]
        if atomic and any(change.id not in self.model for change in changes):
            try:
                self.db.memories.update_many(changes)
            except NotFound:
                return
            raise AssertionError("an unknown context was changed")
        for change, outcome in zip(
            changes, self.db.memories.update_many(changes, atomic=atomic), strict=True
        ):
            assert (outcome.error is None) == (change.id in self.model)
            if outcome.result:
                self.model[change.id] = self.altered(change)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        doomed = data.draw(st.sets(st.sampled_from(sorted(self.model)), min_size=1))
        source = data.draw(st.none() | SOURCES)
        gone = {id for id in doomed if source in (None, self.model[id].source)}
        assert self.db.memories.delete(sorted(doomed), source=source) == len(gone)
        self.model = {id: known for id, known in self.model.items() if id not in gone}

    @rule(thread=THREADS)
    def delete_thread(self, thread: str) -> None:
        gone = {id for id, known in self.model.items() if known.thread == thread}
        assert self.db.memories.delete(threads=[thread]) == len(gone)
        self.model = {id: known for id, known in self.model.items() if id not in gone}

    @rule(keys=st.sampled_from([["status"], ["a.x", "n"], []]))
    def index_keys(self, keys: list[str]) -> None:
        self.db.memories.index_keys(keys)

    # Reading.

    @rule(word=st.sampled_from(WORDS), other=st.sampled_from(WORDS), thread=THREADS)
    def search_by_words(self, word: str, other: str, thread: str) -> None:
        def having(word: str) -> set[int]:
            return {
                id
                for id, known in self.model.items()
                if known.thread == thread and word in known.text.split()
            }

        for query, expected in (
            (f'"{word}" AND "{other}"', having(word) & having(other)),
            (f'"{word}" OR "{other}"', having(word) | having(other)),
            (f'"{word}" NOT "{other}"', having(word) - having(other)),
        ):
            hits = self.db.memories.search(
                query, mode="text", words="boolean", limit=100, thread=thread
            )
            assert {hit.item.id for hit in hits} == expected
        found = {
            hit.item.id
            for hit in self.db.memories.search(
                f"{word} {other}", mode="text", limit=100, thread=thread
            )
        }
        both = having(word) & having(other)
        assert found == both if both else found >= having(word) | having(other)

    @rule(word=st.sampled_from(WORDS), source=SOURCES)
    def search_by_meaning(self, word: str, source: str) -> None:
        hits = self.db.memories.search(word, mode="vector", limit=100, source=source)
        assert {hit.item.id for hit in hits} == {
            id for id, known in self.model.items() if known.source == source
        }
        assert all(hit.passage in hit.item.text for hit in hits)

    @rule(value=st.sampled_from(["open", "done", 1, True]))
    def browse_by_metadata(self, value: Any) -> None:
        def fold(each: Any) -> Any:
            return each.casefold() if isinstance(each, str) else each

        found = self.db.memories.browse(
            where=[Condition("metadata.status", "eq", value, False)], limit=100
        )
        assert {memory.id for memory in found} == {
            id
            for id, known in self.model.items()
            if known.metadata
            and type(known.metadata.get("status")) is type(value)
            and fold(known.metadata["status"]) == value
        }

    @rule(tags=TAGS)
    def browse_by_tags(self, tags: list[str]) -> None:
        wanted = set(tidy(tags))
        having = [known for known in self.model.values() if not wanted or wanted & set(known.tags)]
        assert self.db.memories.count(tags=tags) == len(having)

    def assert_file_equals_model(self) -> None:
        memories = self.db.memories.browse(limit=100, images=True)
        assert {memory.id: as_remembered(memory) for memory in memories} == self.model
        assert [memory.id for memory in memories] == sorted(self.model, reverse=True)
        assert {thread.name for thread in self.db.memories.threads()} == {
            known.thread for known in self.model.values()
        }


def as_remembered(memory: Memory) -> Remembered:
    assert memory.content_type == ("multimodal" if memory.images else "text")
    metadata = None if memory.metadata is None else dict(memory.metadata)
    return Remembered(
        memory.thread, memory.source, memory.text, metadata, memory.tags, memory.images
    )


TestMemories = MemoriesMachine.TestCase
TestMemories.settings = settings(max_examples=scaled(25), stateful_step_count=15)
