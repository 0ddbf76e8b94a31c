"""Three copies of a file, changed in any way by machines whose clocks jump: merging them is
idempotent, commutative and associative in all that can be read, and every file stays sound. A clock
that jumps by years makes a file that is refused, until it is mended.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mcpvectordb import Config, Damaged, Database, InvalidInput, NotFound
from tests.properties.test_documents_machine import SLICES
from tests.support import Letters, scaled

FILES = st.integers(0, 2)
SOURCES = st.sampled_from(["a.md", "b.md", "c.py"])
LIBRARIES = st.sampled_from(["one", "two"])
TEXTS = st.sampled_from(
    ["apple pie", "pear " * 40, "# Plum\n\n" + "plum tart. " * 60, "数据库", "---\nby: x\n---\nfig"]
)
VALUES = st.none() | st.sampled_from(["x", "y"])
# Dropping versions by age is no part of the laws: a deletion that is forgotten is undone.
CONFIG = Config(chunk_size=16, chunk_overlap=4, history_days=36_500, history_share=1.0)
NOW = 1.8e9
DAY, YEAR = 86_400.0, 365 * 86_400.0


def readable(db: Database) -> dict[str, Any]:
    """All that can be read of a file, apart from ids and orders that are its own."""
    documents = db.documents.browse(limit=1000)
    memories = db.memories.browse(limit=1000, images=True)
    with db._file.reading() as sql:
        uids = dict(sql.execute("SELECT id, uid FROM contexts"))
        versions = {
            (*version.item, version.stamp, version.digest)
            for version in itertools.chain(
                (version for version, _ in db._history.all(sql)),
                *(shelf.present(sql) for shelf in db._versioned),
            )
        }
    return {
        "documents": {
            (each.library, each.source): (
                each.title,
                each.hash,
                dict(each.metadata),
                each.created_at,
                db.documents.text(each.id),
            )
            for each in documents
        },
        "contexts": {
            uids[each.id]: (each.thread, each.text, each.metadata, each.tags, each.updated_at)
            for each in memories
        },
        "vectors": {
            (each.store, each.namespace, each.id): (each.raw, dict(each.metadata))
            for each in db.vectors.browse(store=None, limit=1000)
        },
        "stores": [(each.name, each.metric) for each in db.vectors.stores()],
        "libraries": [
            (each.name, each.documents, each.root, each.description)
            for each in db.documents.libraries()
        ],
        "versions": versions,
    }


class MergeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clocks = [NOW, NOW, NOW]
        self.copies = itertools.count()
        self.dbs: list[Database] = []

    def open(self, path: Path, number: int) -> Database:
        db = Database(path, embedder=Letters(), config=CONFIG, tuning=SLICES)

        def wall_clock() -> float:
            self.clocks[number] += 0.5
            return self.clocks[number]

        db._history.wall_clock = wall_clock
        return db

    def copied(self, number: int) -> Database:
        """A copy of a file, on a machine with its clock."""
        path = self.folder / f"copy-{next(self.copies)}.db"
        self.dbs[number].copy_to(path)
        return self.open(path, number)

    @initialize(text=TEXTS, alike=st.booleans())
    def start(self, text: str, alike: bool) -> None:
        """Copies of one file or, sometimes, three files that have nothing in common."""
        first = self.open(self.folder / "0.db", 0)
        self.dbs.append(first)
        first.documents.ingest_text(text, source="a.md", library="one")
        first.memories.add("thread", "user", text)
        first.vectors.add("v", [1.0, 2.0])
        for number in (1, 2):
            path = self.folder / f"{number}.db"
            if alike:
                first.copy_to(path)
            self.dbs.append(self.open(path, number))

    @rule(file=FILES, seconds=st.sampled_from([-DAY, -3600.0, 3600.0, DAY]))
    def jump(self, file: int, seconds: float) -> None:
        self.clocks[file] = min(max(self.clocks[file] + seconds, NOW - DAY / 2), NOW + DAY / 2)

    @rule(file=FILES, text=TEXTS, years=st.sampled_from([2.0, 9.9, 70.0]), data=st.data())
    def write_with_a_wrong_clock(
        self, file: int, text: str, years: float, data: st.DataObject
    ) -> None:
        """Once; then the clock is right again, and its owner mends the file."""
        db, right = self.dbs[file], self.clocks[file]
        self.clocks[file] += years * YEAR
        db.documents.ingest_text(text, source="wrong.md", library="one")
        self.clocks[file] = right
        db.documents.ingest_text(text + " again", source="wrong.md", library="one")
        other = self.dbs[data.draw(st.sampled_from([each for each in range(3) if each != file]))]
        before = readable(other)
        try:
            other.merge(db.path)
        except Damaged as error:
            assert "rebuild --clock" in str(error)
        else:
            raise AssertionError("a clock that is years ahead was adopted")
        assert readable(other) == before
        written = readable(db)
        db.rebuild(clock=True)
        mended = readable(db)
        del written["versions"], mended["versions"]  # they have other stamps
        assert mended == written
        other.merge(db.path)

    @rule(file=FILES, source=SOURCES, library=LIBRARIES, text=TEXTS, embed=st.booleans())
    def ingest(self, file: int, source: str, library: str, text: str, embed: bool) -> None:
        self.dbs[file].documents.ingest_text(text, source=source, library=library, embed=embed)

    @rule(file=FILES, data=st.data(), title=st.none() | st.just("Zebra"), by=VALUES)
    def update(self, file: int, data: st.DataObject, title: str | None, by: str | None) -> None:
        if found := self.dbs[file].documents.browse(limit=100):
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda each: each.path)))
            self.dbs[file].documents.update(chosen.id, title=title, metadata_patch={"by": by})

    @rule(file=FILES, data=st.data(), library=LIBRARIES)
    def move(self, file: int, data: st.DataObject, library: str) -> None:
        if found := self.dbs[file].documents.browse(limit=100):
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda each: each.path)))
            try:
                self.dbs[file].documents.update(chosen.id, library=library)
            except InvalidInput as error:
                assert "already has a document" in str(error)

    @rule(file=FILES, data=st.data())
    def delete(self, file: int, data: st.DataObject) -> None:
        if found := self.dbs[file].documents.browse(limit=100):
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda each: each.path)))
            self.dbs[file].documents.delete(chosen.id)

    @rule(file=FILES, library=LIBRARIES)
    def follow(self, file: int, library: str) -> None:
        db = self.dbs[file]
        if not any(each.root for each in db.documents.libraries() if each.name == library):
            db.documents.add_library(library, self.folder, description=f"by {file}")
        db.documents.describe(library, "part", f"of {file}")

    @rule(file=FILES, library=LIBRARIES)
    def remove_library(self, file: int, library: str) -> None:
        with contextlib.suppress(NotFound):
            self.dbs[file].documents.remove_library(library)

    @rule(file=FILES, text=TEXTS, tags=st.none() | st.just(["t"]))
    def remember(self, file: int, text: str, tags: list[str] | None) -> None:
        self.dbs[file].memories.add("thread", "agent", text, tags=tags)

    @rule(file=FILES, data=st.data(), text=st.none() | TEXTS, by=VALUES)
    def correct(self, file: int, data: st.DataObject, text: str | None, by: str | None) -> None:
        if found := self.dbs[file].memories.browse(limit=100).items:
            chosen = data.draw(st.sampled_from([each.id for each in found]))
            self.dbs[file].memories.update(chosen, text=text, metadata_patch={"by": by})

    @rule(file=FILES, data=st.data())
    def forget(self, file: int, data: st.DataObject) -> None:
        if found := self.dbs[file].memories.browse(limit=100).items:
            self.dbs[file].memories.delete([data.draw(st.sampled_from([x.id for x in found]))])

    @rule(file=FILES, id=st.sampled_from("vw"), value=st.sampled_from([1.0, 2.0]), by=VALUES)
    def vector(self, file: int, id: str, value: float, by: str | None) -> None:
        self.dbs[file].vectors.add(id, [value, 1.0], metadata={"by": by})

    @rule(file=FILES, metric=st.sampled_from(["cosine", "dot"]))
    def store(self, file: int, metric: Any) -> None:
        if "s" not in [each.name for each in self.dbs[file].vectors.stores()]:
            self.dbs[file].vectors.add("x", [1.0], store="s", metric=metric)

    @rule(file=FILES, id=st.sampled_from("vw"))
    def delete_vector(self, file: int, id: str) -> None:
        self.dbs[file].vectors.delete(id)

    @rule(file=FILES)
    def undo(self, file: int) -> None:
        with contextlib.suppress(NotFound, InvalidInput):  # nothing to undo, or changed since
            self.dbs[file].undo()

    @rule(into=FILES, source_file=FILES)
    def merge(self, into: int, source_file: int) -> None:
        if into == source_file:
            return
        ours, theirs = readable(self.dbs[into]), readable(self.dbs[source_file])
        self.dbs[into].merge(self.dbs[source_file].path)
        both = readable(self.dbs[into])
        for shelf in ("documents", "contexts", "vectors"):
            assert ours[shelf].keys() & theirs[shelf].keys() <= both[shelf].keys()
        assert both["versions"] == ours["versions"] | theirs["versions"]
        again = self.dbs[into].merge(self.dbs[source_file].path)
        assert readable(self.dbs[into]) == both
        assert not (again.added or again.updated or again.deleted or again.lost)

    @rule()
    def the_order_of_merges_does_not_matter(self) -> None:
        left, right, other = self.copied(0), self.copied(1), self.copied(1)
        left.merge(self.dbs[1].path)
        left.merge(self.dbs[2].path)  # (0 + 1) + 2
        right.merge(self.dbs[2].path)
        other.merge(self.dbs[0].path)
        swapped = self.copied(2)
        swapped.merge(other.path)  # 2 + (1 + 0)
        associated = self.copied(0)
        associated.merge(right.path)  # 0 + (1 + 2)
        results = [readable(each) for each in (left, swapped, associated)]
        assert results[0] == results[1] == results[2]
        for each in (left, right, other, swapped, associated):
            assert each.check() == []
            each.close()
            each.path.unlink()

    @invariant()
    def every_file_is_sound(self) -> None:
        for each in self.dbs:
            assert each.check() == []

    def teardown(self) -> None:
        for each in self.dbs:
            each.close()
        shutil.rmtree(self.folder)


TestMerge = MergeMachine.TestCase
TestMerge.settings = settings(max_examples=scaled(8), stateful_step_count=14, deadline=None)
