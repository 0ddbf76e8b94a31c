"""Merge another file, or a part of one, into this one, in one transaction.

Every version of an item has its place in one order (`Version.order`), a deletion too. The present
version of the result is the last one of both files; all others are its history. Taking a maximum
and a union gives the same result in any order and however often it is done: merging is idempotent,
commutative and associative, so copies may be merged along any way.

It is one transaction, because a kill in between must leave the old file, and because a copy that
replaces the file in the end would lose what others write meanwhile. Others wait for it; nothing is
parsed or embedded in it.

The schema of the other file is ours, but its values may be anybody's. Its clock may not be days
ahead of this machine's, none of its stamps later than its clock, and every version must be one that
this library could have written. Otherwise nothing is merged. Of its history comes as much as there
is room for, so that none of ours is dropped for it; and what it replaces or deletes here is kept
for as long as if that had been done here now.

What is merged is a `MergeSource`: another file here, a bundle that another machine has sent in
`remotes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mcpvectordb import metadata
from mcpvectordb.errors import Damaged
from mcpvectordb.history import clock
from mcpvectordb.history.log import MOST_CHANGES, count_merge, shown
from mcpvectordb.history.records import Merged
from mcpvectordb.history.timeline import TAKEN_BACK
from mcpvectordb.history.versions import Version, VersionedShelf, body_name, encoded
from mcpvectordb.index import spans
from mcpvectordb.index.arrays import METRICS
from mcpvectordb.index.chunks import ModelRow, active_model, every_model, precision
from mcpvectordb.projects import shelf as projects
from mcpvectordb.records import Progress, ProgressCallback
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore

_REPORT_EVERY = 500


class ModelSettings(NamedTuple):
    """A model by which texts were embedded, and the sizes of their chunks."""

    model: ModelRow
    chunk_size: int
    chunk_overlap: int
    precision: str


class ChangeRow(NamedTuple):
    """A row of the log; `undone` is the change (not its number) that an undo or redo is about."""

    change: int
    stamp: int
    actor: str
    action: str
    undone: int | None


class MergeSource(Protocol):
    """What is merged into a file: all that another one has, or some of it."""

    place: str

    def clock(self) -> int | None:
        """The last stamp that its file has shown."""

    def model(self) -> ModelSettings | None:
        """By which model its embeddings are."""

    def stores(self) -> Sequence[tuple[str, str, int]]:
        """Name, metric and stamp of stores of vectors."""

    def projects(self) -> Mapping[str, Mapping[Any, Any]]:
        """The names that projects have had, with their stamps, by the projects' keys."""

    def count(self) -> int:
        """How many items it has, for the progress."""

    def present(self) -> Iterator[Version]:
        """The present versions of its items."""

    def former(self) -> Iterator[tuple[Version, int]]:
        """Former versions, and up to when each was the present one, those of last first."""

    def body(self, version: Version, shelf: VersionedShelf) -> bytes:
        """The packed body of one of its versions."""

    def embeddings(self, version: Version, shelf: VersionedShelf) -> Mapping[int, bytes]:
        """The embeddings of a present version's chunks, by their positions."""

    def had(self, version: Version) -> bool:
        """Whether its file has, or had, a version of ours."""

    def changes(self) -> Iterator[ChangeRow]:
        """Its log, the newest first."""


class OtherFile:
    """All that another file has, inside of one transaction that reads it."""

    def __init__(self, store: OpenStore, shelves: Sequence[VersionedShelf], sql: Sql) -> None:
        self._store, self._shelves, self._sql = store, shelves, sql
        self.place = str(store.file.path)

    def clock(self) -> int | None:
        """The last stamp that the file has shown."""
        row = self._sql.execute("SELECT clock FROM history_state").fetchone()
        return None if row is None else int(row[0])

    def model(self) -> ModelSettings | None:
        """The model of the file."""
        found = active_model(self._sql)
        if found is None:
            return None
        every_model(self._sql)
        return ModelSettings(found, *self._store.encoder.sizes(self._sql), precision(self._sql))

    def stores(self) -> Sequence[tuple[str, str, int]]:
        """Name, metric and stamp of stores of vectors."""
        return self._sql.execute("SELECT name, metric, stamp FROM stores").fetchall()

    def projects(self) -> Mapping[str, Mapping[Any, Any]]:
        """The names of projects by their keys."""
        return projects.known_names(self._sql)

    def count(self) -> int:
        """How many items it has."""
        tables = ("documents", "contexts", "vectors", "libraries")
        return sum(self._sql.execute(f"SELECT count(*) FROM {each}").get for each in tables)

    def present(self) -> Iterator[Version]:
        """The present versions of all items."""
        for shelf in self._shelves:
            yield from shelf.present(self._sql)

    def former(self) -> Iterator[tuple[Version, int]]:
        """The whole history."""
        return self._store.history.all(self._sql)

    def body(self, version: Version, shelf: VersionedShelf) -> bytes:
        """The packed body of a version."""
        return self._store.history.body(self._sql, version, shelf.body)

    def embeddings(self, version: Version, shelf: VersionedShelf) -> Mapping[int, bytes]:
        """The embeddings of a present version's chunks."""
        model = active_model(self._sql)
        if model is None:
            return {}
        table = version.item.shelf.removesuffix("s")
        return spans.embeddings(self._sql, table, model.key, shelf.owner(version))

    def had(self, version: Version) -> bool:
        """Whether the history has a version; then what replaced it came after it."""
        return self._store.history.has(self._sql, version)

    def changes(self) -> Iterator[ChangeRow]:
        """The whole log."""
        yield from logged_changes(self._sql)


def logged_changes(sql: Sql, since: int = -1) -> Iterator[ChangeRow]:
    """What the log says of transactions after a stamp, the newest first."""
    for change, stamp, actor, action in sql.execute(
        "SELECT change, stamp, actor, action FROM history_changes WHERE stamp > ? "
        "ORDER BY stamp DESC",
        (since,),
    ):
        undone, taken = None, TAKEN_BACK.fullmatch(action)
        if taken:
            known = "SELECT change FROM history_changes WHERE number = ?"
            undone = sql.execute(known, (int(taken[2]),)).get
        yield ChangeRow(change, stamp, actor, action, undone)


class Merge:
    """One merge of `theirs` into `ours`, whose items `shelves` write."""

    def __init__(
        self,
        ours: OpenStore,
        shelves: Sequence[VersionedShelf],
        theirs: MergeSource,
        progress: ProgressCallback | None = None,
    ) -> None:
        self._ours, self._theirs, self._progress = ours, theirs, progress
        self._history = ours.history
        self._shelves = {each.shelf: each for each in shelves}
        self._indexes = dict(zip(("documents", "contexts"), ours.indexes, strict=True))
        self._names: dict[str, list[str]] = {
            each: [] for each in ("added", "updated", "deleted", "lost")
        }
        self._model: ModelRow | None = None  # of both
        self._embedded = 0
        self._last = 0  # the last stamp of the other file's clock
        self._stamps: set[int] = set()  # of its versions
        self._room = 0  # bytes of its history that may still come

    def run(self) -> Merged:
        """Merge; raises Damaged, and changes nothing, if the other file is not sound."""
        try:
            self._run()
        except (ValueError, RecursionError) as error:  # InvalidInput, no UTF-8, no JSON …
            raise Damaged(f"one of its values is none that is ever written ({error})") from None
        return Merged(
            path=self._theirs.place,
            embedded=self._embedded,
            **{what: tuple(found) for what, found in self._names.items()},  # type: ignore[arg-type]
        )

    def _run(self) -> None:
        theirs = self._theirs
        with self._history.change("merge"), self._ours.file.writing() as sql:
            self._last = self._clock(sql)
            self._history.stamp(sql)
            self._model = self._adopt_model(sql)
            self._merge_stores(sql)
            for key, names in theirs.projects().items():
                projects.unite(sql, key, names)
            total = theirs.count()
            for done, version in enumerate(theirs.present()):
                if self._progress and done % _REPORT_EVERY == 0:
                    self._progress(Progress(step="merge", done=done, total=total))
                self._merge_present(sql, version)
            self._room = self._history.spare(sql)
            for version, until in theirs.former():
                self._merge_former(sql, version, until)
            self._merge_changes(sql)
            sql.execute("UPDATE history_state SET clock = max(clock, ?)", (self._last,))
            count_merge(sql)

    def _clock(self, sql: Sql) -> int:
        """The last stamp of the other file; raises Damaged if it is ahead of ours and this machine.

        A file whose own clock is ahead already takes what others made with that in view.
        """
        last = self._theirs.clock()
        if last is None or last < 0:
            raise Damaged("its clock is missing, so nobody can say which change is the later")
        ours = clock.end_of_millisecond(sql.execute("SELECT clock FROM history_state").get)
        if last > min(max(clock.latest(self._history.wall_clock()), ours), clock.LAST):
            raise Damaged(self._history.ahead(last))
        return last

    def _checked_stamp(self, stamp: int, what: str) -> int:
        """A stamp of the other file; raises Damaged unless its clock has shown it."""
        if not 0 <= stamp <= self._last:
            raise Damaged(f"the stamp {stamp} of {what} was never shown by its clock")
        return stamp

    # Items.

    def _merge_present(self, sql: Sql, theirs: Version) -> None:
        """Take the version that the other file has, if it is the later one; else keep it."""
        self._check(theirs)
        shelf = self._shelves[theirs.item.shelf]
        ours = shelf.find(sql, theirs.item)
        if ours is not None and ours.order == theirs.order:
            return
        latest = ours
        if latest is None:  # its last deletion
            deletions = (each for each in self._history.of(sql, theirs.item) if each.fields is None)
            latest = max(deletions, key=lambda each: each.order, default=None)
        if latest is not None and latest.order > theirs.order:
            if self._keep(sql, theirs, max(latest.stamp, self._history.stamp(sql))):
                self._name("lost", sql, theirs)
            return
        with self._history.stamped(sql, theirs.stamp):
            shelf.restore(theirs, shelf.checked(theirs, self._theirs.body(theirs, shelf)))
        if (now := shelf.find(sql, theirs.item)) is None or now.order != theirs.order:
            raise Damaged(f"{theirs.item.name!r:.100} is not what it says of itself")
        self._take_embeddings(sql, theirs, now)
        known = ours is not None and self._theirs.had(ours)
        self._name("added" if ours is None else "updated" if known else "lost", sql, theirs)

    def _merge_former(self, sql: Sql, theirs: Version, until: int) -> None:
        """Keep a former version of the other file; a deletion is made here if it is later."""
        self._check(theirs)
        if self._checked_stamp(until, f"{theirs.item.name!r:.100}") < theirs.stamp:
            raise Damaged(f"{theirs.item.name!r:.100} was replaced before it was there")
        ours = self._shelves[theirs.item.shelf].find(sql, theirs.item)
        if theirs.fields is None and ours is not None and ours.order < theirs.order:
            known = self._theirs.had(ours)
            with self._history.stamped(sql, theirs.stamp):
                self._shelves[theirs.item.shelf].remove(theirs.item)
            self._name("deleted" if known else "lost", sql, ours)
        elif ours is None or ours.order != theirs.order:
            self._keep(sql, theirs, until, former=True)

    def _keep(self, sql: Sql, theirs: Version, until: int, *, former: bool = False) -> bool:
        """Add a version of the other file to the history, unless it is there; whether it was added.

        A `former` one is left out if there is no room for it.
        """
        if self._history.has(sql, theirs) or not self._history.keeps(sql):
            return False
        shelf = self._shelves[theirs.item.shelf]
        body = None if theirs.fields is None else self._theirs.body(theirs, shelf)
        if body is not None:
            shelf.checked(theirs, body)
            size = len(encoded(theirs.fields).encode()) + len(body)
            if former and size > self._room:
                return False
            self._room -= size
        name = body_name(body) if body else None
        self._history.add(sql, theirs._replace(body=name), until, body)
        return True

    def _check(self, version: Version) -> None:
        """Raise Damaged unless a version of the other file has a stamp, and JSON as its fields."""
        if version.item.shelf not in self._shelves:
            raise Damaged(f"its history is of a shelf {version.item.shelf!r:.50}, which is none")
        self._stamps.add(self._checked_stamp(version.stamp, f"{version.item.name!r:.100}"))
        if version.fields is None and version.body is not None:
            raise Damaged(f"{version.item.name!r:.100} was deleted, and has a text")
        metadata.check(version.fields)

    def _name(self, what: str, sql: Sql, version: Version) -> None:
        self._names[what].append(self._shelves[version.item.shelf].label(sql, version))

    # Embeddings, stores, and the log.

    def _adopt_model(self, sql: Sql) -> ModelRow | None:
        """The model of both files; None if they differ.

        A file that has no model yet gets that of the other one, and its chunk sizes and precision.
        """
        theirs = self._theirs.model()
        if theirs is None:
            return None
        ours = active_model(sql)
        if ours is None:
            size, overlap = theirs.chunk_size, theirs.chunk_overlap
            if not 16 <= size <= 2000 or not 0 <= overlap <= size // 2:
                raise Damaged(f"its chunks of {size} tokens, {overlap} of them twice, are none")
            ours = self._ours.encoder.adopt(sql, *theirs)
        return ours if ours[1:] == theirs.model[1:] else None

    def _take_embeddings(self, sql: Sql, theirs: Version, ours: Version) -> None:
        """Store the other file's embeddings of a version that was taken from it."""
        index = self._indexes.get(theirs.item.shelf)
        if index is None or self._model is None:
            return
        shelf = self._shelves[theirs.item.shelf]
        found = self._theirs.embeddings(theirs, shelf)
        self._embedded += index.settle_positions(sql, self._model, shelf.owner(ours), found)

    def _merge_stores(self, sql: Sql) -> None:
        """Make the stores that are missing; of two metrics the one of the older store counts."""
        changed = False
        for name, metric, stamp in self._theirs.stores():
            self._checked_stamp(stamp, f"its store {name!r:.100}")
            if metric not in METRICS or not name.strip():
                raise Damaged(f"its store {name!r:.100} is not what was written")
            ours = sql.execute(
                "SELECT stamp, metric FROM stores WHERE name = ?", (name,)
            ).fetchone()
            if ours is None:
                with self._history.stamped(sql, stamp):
                    self._ours.vector_store.create(sql, name, metric)
            elif (stamp, metric) < ours:
                sql.execute(
                    "UPDATE stores SET metric = ?, stamp = ? WHERE name = ?", (metric, stamp, name)
                )
                changed = changed or metric != ours[1]
        if changed:
            self._ours.vector_store.rebuild(sql)

    def _merge_changes(self, sql: Sql) -> None:
        """Add the log of the other file, as far as it says anything and there is room for it.

        What is noted of one of our own stamps does not become part of another change of ours.
        """
        if not self._history.keeps(sql):
            return
        room = MOST_CHANGES - sql.execute("SELECT count(*) FROM history_changes").get
        undos = dict[int, tuple[str, int | None]]()
        for change, stamp, actor, action, undone in self._theirs.changes():
            self._checked_stamp(stamp, "a change")
            if room <= 0 or stamp not in self._stamps:
                continue
            sql.execute(
                "INSERT INTO history_changes (change, stamp, actor, action) "
                "SELECT ?1, ?2, ?3, ?4 WHERE NOT (EXISTS (SELECT 1 FROM history_changes "
                "WHERE change = ?1) AND EXISTS (SELECT 1 FROM history_changes WHERE stamp = ?2))",
                (change, stamp, shown(actor), shown(action)),
            )
            room -= sql.changes()
            if sql.changes() and (taken := TAKEN_BACK.fullmatch(action)):
                undos[sql.last_insert_rowid()] = taken[1], undone
        for row, (word, undone) in undos.items():  # a change's number differs in each file
            number = sql.execute(
                "SELECT min(number) FROM history_changes WHERE change = ?", (undone,)
            ).get
            sql.execute(
                "UPDATE history_changes SET action = ? WHERE number = ?",
                (f"{word} {number}" if number else word, row),
            )
