"""Merge another file into this one, in one transaction.

Every version of an item has its place in one order (`Version.order`), a deletion too. The present
version of the result is the last one of both files; all others are its history. Taking a maximum
and a union gives the same result in any order and however often it is done: merging is idempotent,
commutative and associative, so copies may be merged along any way.

It is one transaction, because a kill in between must leave the old file, and because a copy that
replaces the file in the end would lose what others write meanwhile. Others wait for it; nothing is
parsed or embedded in it. What the other file holds is checked as any bytes from outside are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.history import clock
from mcpvectordb.history.log import History
from mcpvectordb.history.versions import Item, Version, VersionedShelf, body_name
from mcpvectordb.index import arrays, models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.metrics import METRICS
from mcpvectordb.merge.records import Merged
from mcpvectordb.records import Progress, ProgressCallback
from mcpvectordb.storage.file import File
from mcpvectordb.vectors.store import VectorStore

AHEAD_SECONDS = 10 * 365 * 86_400.0
"""A clock that is so far ahead of ours is wrong: its changes would win for as long."""

_REPORT_EVERY = 500


class MergedFile(NamedTuple):
    """A file and what is needed to read its versions, or to write them."""

    file: File
    history: History
    shelves: Sequence[VersionedShelf]
    indexes: Sequence[ChunkIndex]
    encoder: Encoder
    store: VectorStore


class FileMerge:
    """One merge of `theirs` into `ours`."""

    def __init__(
        self, ours: MergedFile, theirs: MergedFile, progress: ProgressCallback | None = None
    ) -> None:
        self._ours, self._theirs, self._progress = ours, theirs, progress
        self._shelves = {each.shelf: each for each in ours.shelves}
        self._their_shelves = {each.shelf: each for each in theirs.shelves}
        self._indexes = dict(zip(("documents", "contexts"), ours.indexes, strict=True))
        self._their_indexes = dict(zip(("documents", "contexts"), theirs.indexes, strict=True))
        self._names: dict[str, list[str]] = {
            each: [] for each in ("added", "updated", "deleted", "lost")
        }
        self._models: tuple[int, int, int] | None = None
        self._embedded = 0

    def run(self) -> Merged:
        """Merge; raises Damaged, and changes nothing, if the other file is not sound."""
        history = self._ours.history
        with (
            self._theirs.file.reading(limited=False) as other,
            history.change("merge"),
            self._ours.file.writing() as sql,
        ):
            last, dropped = self._clock(other)
            history.stamp(sql)
            self._models = self._adopt_model(sql, other)
            self._merge_stores(sql, other)
            for version in self._each_present(other):
                self._merge_present(sql, other, version)
            for version, until in self._theirs.history.all(other):
                self._merge_former(sql, other, version, until)
            self._merge_changes(sql, other)
            sql.execute(
                "UPDATE history_state SET clock = max(clock, ?), dropped = max(dropped, ?)",
                (last, dropped),
            )
        names = {what: tuple(found) for what, found in self._names.items()}
        return Merged(
            path=str(self._theirs.file.path),
            added=names["added"],
            updated=names["updated"],
            deleted=names["deleted"],
            lost=names["lost"],
            embedded=self._embedded,
        )

    def _clock(self, other: apsw.Connection) -> tuple[int, int]:
        """The last stamp of the other file, and up to which its history was dropped."""
        row = other.execute("SELECT clock, dropped FROM history_state").fetchone()
        latest = clock.next_stamp(0, self._ours.history.wall_clock() + AHEAD_SECONDS)
        if row is None or not 0 <= row[0] <= min(latest, clock.LAST):
            at = f" ({clock.moment(row[0])})" if row and row[0] >= 0 else ""
            raise Damaged(f"its clock is wrong{at}, so nobody can say which change is the later")
        return int(row[0]), int(row[1])

    def _each_present(self, other: apsw.Connection) -> Iterator[Version]:
        total = sum(
            other.execute(f"SELECT count(*) FROM {table}").get
            for table in ("documents", "contexts", "vectors", "libraries")
        )
        done = 0
        for shelf in self._theirs.shelves:
            for version in shelf.present(other):
                if self._progress and done % _REPORT_EVERY == 0:
                    self._progress(Progress(step="merge", done=done, total=total))
                done += 1
                yield version

    # Items.

    def _merge_present(self, sql: apsw.Connection, other: apsw.Connection, theirs: Version) -> None:
        """Take the version that the other file has, if it is the later one; else keep it."""
        shelf = self._shelves[theirs.item.shelf]
        ours = shelf.find(sql, theirs.item)
        if ours is not None and ours.order == theirs.order:
            return
        latest = ours or self._deletion(sql, self._ours.history, theirs.item)
        if latest is not None and latest.order > theirs.order:
            self._keep(sql, other, theirs, latest.stamp)
            return
        self._check(theirs)
        with self._ours.history.stamped(sql, theirs.stamp):
            shelf.restore(theirs, self._body(other, theirs))
        self._take_embeddings(sql, other, theirs)
        if ours is None:
            self._name("added", sql, theirs)
        elif self._known(other, ours):
            self._name("updated", sql, theirs)
        else:
            self._name("lost", sql, theirs)

    def _merge_former(
        self, sql: apsw.Connection, other: apsw.Connection, theirs: Version, until: int
    ) -> None:
        """Keep a former version of the other file; a deletion is made here if it is later."""
        if theirs.item.shelf not in self._shelves:
            raise Damaged(f"its history is of a shelf {theirs.item.shelf!r:.50}, which is none")
        ours = self._shelves[theirs.item.shelf].find(sql, theirs.item)
        if theirs.fields is None and ours is not None and ours.order < theirs.order:
            self._check(theirs)
            known = self._known(other, ours)
            with self._ours.history.stamped(sql, theirs.stamp):
                self._shelves[theirs.item.shelf].remove(theirs.item)
            self._name("deleted" if known else "lost", sql, ours)
        elif ours is None or ours.order != theirs.order:
            self._keep(sql, other, theirs, until)

    def _keep(
        self, sql: apsw.Connection, other: apsw.Connection, theirs: Version, until: int
    ) -> None:
        """Add a version of the other file to the history, unless it is there."""
        history = self._ours.history
        if self._has(sql, theirs) or not history.keeps(sql):
            return
        self._check(theirs)
        body = None if theirs.body is None else self._body(other, theirs)
        if body is not None:
            self._shelves[theirs.item.shelf].text(body)  # raises Damaged: it is never taken unread
        name = None if body is None else body_name(body)
        present = self._their_shelves[theirs.item.shelf].find(other, theirs.item)
        history.add(sql, theirs._replace(body=name), max(until, theirs.stamp), body)
        if present is not None and present.order == theirs.order:
            self._name("lost", sql, theirs)

    def _check(self, version: Version) -> None:
        """Raise Damaged unless a version of the other file is what one is."""
        if not 0 <= version.stamp <= clock.LAST:
            raise Damaged(f"the stamp {version.stamp} of {version.item.name!r:.100} is none")
        if version.fields is not None:
            self._shelves[version.item.shelf].check(version)

    def _known(self, other: apsw.Connection, ours: Version) -> bool:
        """Whether the other file had our version, so that its own came after ours."""
        return self._has(other, ours)

    def _has(self, sql: apsw.Connection, version: Version) -> bool:
        return bool(
            sql.execute(
                "SELECT EXISTS (SELECT 1 FROM history_versions WHERE shelf = ? AND place = ? "
                "AND name = ? AND twin = ? AND stamp = ? AND digest = ?)",
                (*version.item, version.stamp, version.digest),
            ).get
        )

    def _deletion(self, sql: apsw.Connection, history: History, item: Item) -> Version | None:
        """The last deletion of an item that is not there."""
        deletions = (each for each in history.of(sql, item) if each.fields is None)
        return max(deletions, key=lambda each: each.order, default=None)

    def _body(self, other: apsw.Connection, version: Version) -> bytes:
        kept = self._theirs.history.body(other, version.body) if version.body else b""
        shelf = self._their_shelves[version.item.shelf]
        return shelf.body(other, version) if kept is None else kept

    def _name(self, what: str, sql: apsw.Connection, version: Version) -> None:
        self._names[what].append(self._shelves[version.item.shelf].label(sql, version))

    # Embeddings, stores, and the log.

    def _adopt_model(
        self, sql: apsw.Connection, other: apsw.Connection
    ) -> tuple[int, int, int] | None:
        """Our key, their key and the dimension of the model of both files; None if they differ.

        A file that has no model yet gets that of the other one, and its chunk sizes and precision.
        """
        theirs = models.active(other)
        if theirs is None:
            return None
        ours = models.active(sql)
        if ours is None:
            ours = self._ours.encoder.adopt(
                sql, theirs, *self._theirs.encoder.sizes(other), models.precision(other)
            )
        return (ours.key, theirs.key, ours.dimension) if ours[1:] == theirs[1:] else None

    def _take_embeddings(
        self, sql: apsw.Connection, other: apsw.Connection, theirs: Version
    ) -> None:
        """Store the other file's embeddings of a version that was taken from it."""
        index = self._indexes.get(theirs.item.shelf)
        ours = self._shelves[theirs.item.shelf].find(sql, theirs.item)
        if index is None or ours is None or self._models is None:
            return
        model, their_model, dimension = self._models
        owner, their_owner = (
            self._shelves[theirs.item.shelf].owner(each) for each in (ours, theirs)
        )
        found = self._their_indexes[theirs.item.shelf].embeddings_of(
            other, their_model, their_owner
        )
        usable = {
            position: embedding
            for position, embedding in found.items()
            if arrays.is_rankable(embedding, dimension)
        }
        self._embedded += index.settle_positions(sql, model, owner, usable)

    def _merge_stores(self, sql: apsw.Connection, other: apsw.Connection) -> None:
        """Make the stores that are missing; of two metrics the one of the older store counts."""
        changed = False
        rows: list[Any] = other.execute("SELECT name, metric, stamp FROM stores").fetchall()
        for name, metric, stamp in rows:
            if metric not in METRICS or not 0 <= stamp <= clock.LAST:
                raise Damaged(f"its store {name!r:.100} is not what was written")
            ours = sql.execute(
                "SELECT stamp, metric FROM stores WHERE name = ?", (name,)
            ).fetchone()
            if ours is None:
                with self._ours.history.stamped(sql, stamp):
                    self._ours.store.create(sql, name, metric)
            elif (stamp, metric) < ours:
                sql.execute(
                    "UPDATE stores SET metric = ?, stamp = ? WHERE name = ?", (metric, stamp, name)
                )
                changed = changed or metric != ours[1]
        if changed:
            self._ours.store.rebuild(sql)

    def _merge_changes(self, sql: apsw.Connection, other: apsw.Connection) -> None:
        """Add the log of the other file."""
        if not self._ours.history.keeps(sql):
            return
        for row in other.execute("SELECT change, stamp, actor, action FROM history_changes"):
            sql.execute(
                "INSERT INTO history_changes (change, stamp, actor, action) "
                "SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM history_changes "
                "WHERE stamp = ?2 AND change = ?1)",
                row,
            )
