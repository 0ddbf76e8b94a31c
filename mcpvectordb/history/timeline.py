"""Read the history and take changes back.

What a change did to an item is read from the item's versions: the last one that has a stamp of the
change, and the last one before. Undoing it makes the earlier one the present one again, which is a
change like any other, so an undo can be undone. It is done only where an item is what the change
made of it: one that was changed again since stays as it is, and is named. Which changes were taken
back is read from the actions in the log: "undo 7" takes change 7 back, "redo 7" the undo of it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from mcpvectordb.errors import InvalidInput, NotFound, quoted
from mcpvectordb.history import clock, line_diff
from mcpvectordb.history.log import History
from mcpvectordb.history.records import ChangedItem, HistoryEntry, Kind, Undone
from mcpvectordb.history.versions import Item, Version, VersionedShelf
from mcpvectordb.metadata import storable
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.file import File

SHOWN = 100
"""Items of an entry that are listed."""

MOST_LINES = 1_000_000
"""Lines of a version that are compared; as a line, a character takes fifty times its memory."""

TAKEN_BACK = re.compile(r"(undo|redo) ([1-9][0-9]{0,17})")
"""The action of a change that took another one back, with the number of that."""

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

TABLES = {
    "documents": "published_documents",
    "contexts": "contexts",
    "vectors": "vectors",
    "libraries": "libraries",
}


# Items by what people call them: a document by its path, the end of its source or an id that it
# had, a memory by its id or uid, a vector by its id, a library by its name. A memory of another
# file, merged into this one, may have had an id there that one has here: that one alone is meant.
_NAMED = """
SELECT 'documents', library, source, twin FROM published_documents
WHERE id IN (SELECT value FROM json_each(:ids))
UNION SELECT shelf, place, name, twin FROM history_versions WHERE shelf = 'documents' AND (
    name = :name OR place || '/' || ltrim(name, '/') = :name OR fields ->> '$.local.id' = :name
    OR substr(name, -length(:name) - 1) = '/' || :name
    OR EXISTS (SELECT 1 FROM json_each(:sources) WHERE value ->> 0 = place AND value ->> 1 = name))
UNION SELECT 'contexts', '', uid, '' FROM contexts WHERE id = :context OR uid = :name
UNION SELECT shelf, place, name, twin FROM history_versions
WHERE shelf = 'contexts' AND (name = :name OR fields ->> '$.local.id' = :context
    AND NOT EXISTS (SELECT 1 FROM contexts WHERE id = :context))
UNION SELECT 'vectors', s.name, v.id, v.namespace FROM vectors v JOIN stores s ON s.key = v.store
WHERE :name IN (v.id, s.name || '/' || v.id, s.name || '/' || namespace || '/' || v.id)
UNION SELECT shelf, place, name, twin FROM history_versions WHERE shelf = 'vectors' AND (
    name = :name OR place || '/' || name = :name OR place || '/' || twin || '/' || name = :name)
UNION SELECT 'libraries', '', name, '' FROM libraries WHERE name = :name
UNION SELECT shelf, place, name, twin FROM history_versions
WHERE shelf = 'libraries' AND name = :name
"""


class ItemChange(NamedTuple):
    """What a change did to an item: its versions before and after; None where it was not there."""

    item: Item
    before: Version | None
    after: Version

    @property
    def kind(self) -> Kind:
        """In one word."""
        if self.after.fields is None:
            return "deleted"
        if self.before is None or self.before.fields is None:
            return "added"
        same = self.before.fields.get("hash") == self.after.fields.get("hash")
        return "updated" if same else "replaced"


class _LoggedChange(NamedTuple):
    """A change in the log: the number of its first transaction, and the stamps of all."""

    number: int
    stamps: Sequence[int]
    actor: str
    action: str


class Timeline:
    """The history of a file, read and taken back over all of its shelves."""

    def __init__(self, file: File, history: History, shelves: Sequence[VersionedShelf]) -> None:
        self._file, self._history = file, history
        self._shelves = {each.shelf: each for each in shelves}

    def entries(
        self, items: Collection[Item] | None, since: str | None, limit: int
    ) -> list[HistoryEntry]:
        """The newest changes first: all, or those of some items, and those since a time."""
        first = 0
        if since is not None:
            first = clock.first_stamp(since, "since", self._history.wall_clock())
        with self._file.reading() as sql:
            found = (self._entry(sql, change, items) for change in self._changes(sql, first, items))
            return list(itertools.islice((each for each in found if each.count), limit))

    def named(
        self, name: str, ids: Sequence[str], sources: Sequence[tuple[str, str]]
    ) -> list[Item]:
        """The items that a name may mean; raises NotFound.

        `ids` are those of stored documents, `sources` the libraries and sources of others.
        """
        memory = re.fullmatch(r"memory:([0-9]{1,18})", name)
        with self._file.reading() as sql:
            bindings = {
                "name": storable(name, "name"),
                "ids": json.dumps(ids),
                "sources": json.dumps(sources),
                "context": int(memory[1]) if memory else -1,
            }
            found = [Item(*row) for row in sql.execute(_NAMED, bindings)]
        if not found:
            raise NotFound(f"nothing has, or had, the name {quoted(name)}")
        return found

    def same(self, item: Item) -> dict[Item, int]:
        """An item, and those that a document was under the names that it had; until which stamp."""
        with self._file.reading(limited=False) as sql:
            found = {item: int(sql.execute("SELECT clock FROM history_state").get)}
            if item.shelf == "documents":
                ids = {each.local.get("id") for each in self.versions(sql, item)} - {None}
                rows = sql.execute(
                    "SELECT shelf, place, name, twin, max(until) FROM history_versions "
                    "WHERE shelf = ? AND fields ->> '$.local.id' IN "
                    "(SELECT value FROM json_each(?)) GROUP BY place, name, twin",
                    (item.shelf, json.dumps(list(ids))),
                )
                found = {Item(*former): until for *former, until in rows} | found
            return found

    def forget(self, item: Item, until: int) -> int:
        """Delete what an item was up to a stamp; the number of former versions."""
        shelf = self._shelves[item.shelf]
        with self._file.writing() as sql:
            present = shelf.find(sql, item)
            if present is not None and present.stamp <= until:
                with self._history.suspended(sql):
                    shelf.remove(item)
            return self._history.forget(sql, item, until)

    def diff(self, number: int, items: Collection[Item] | None = None) -> str:
        """What a change did to texts and fields of all items, or of some, as a unified diff."""
        with self._file.reading() as sql:
            parts: list[str] = []
            for each in self._item_changes(sql, self._find(sql, number).stamps):
                if items is None or each.item in items:
                    name = self._label(sql, each)
                    parts += line_diff.unified(
                        self._lines(sql, each.before),
                        self._lines(sql, each.after),
                        f"{name} before" if _was(each) else "/dev/null",
                        f"{name} after" if each.after.fields is not None else "/dev/null",
                    )
        return "".join(parts)

    def next_undo(self, *, redo: bool) -> HistoryEntry:
        """The change that `undo` takes back if it gets no number, or the undo that `redo` does."""
        with self._file.reading() as sql:
            return self._entry(sql, self._undone_last(sql) if redo else self._latest(sql), None)

    def undo(self, number: int | None) -> Undone:
        """Take a change back, or the latest that still counts; raises NotFound or InvalidInput.

        After a kill in between, the same call with the number does the rest.
        """
        with self._file.reading(limited=False) as sql:
            change = self._latest(sql) if number is None else self._find(sql, number)
        return self._take_back(change, f"undo {change.number}")

    def redo(self) -> Undone:
        """Take the last undo back; raises NotFound, or InvalidInput after another change."""
        with self._file.reading(limited=False) as sql:
            change = self._undone_last(sql)
        return self._take_back(change, change.action.replace("undo", "redo"))

    def _take_back(self, change: _LoggedChange, action: str) -> Undone:
        due, kept = list[ItemChange](), list[str]()  # kept is what was changed again since
        with self._file.reading(limited=False) as sql:
            for each in self._item_changes(sql, change.stamps):
                last = max(self.versions(sql, each.item), key=attrgetter("order"))
                if _equal(last, each.after):
                    due.append(each)
                elif not _equal(last, each.before):  # else an interrupted undo has done it
                    kept.append(self._label(sql, each))
            names = {each.item: self._label(sql, each) for each in due}
        if not due:
            raise InvalidInput(
                f"change {change.number} cannot be undone: {', '.join(kept[:5])} was changed again "
                "since; undo that first (`mcpvectordb history NAME` lists its changes)"
                if kept
                else f"there is nothing to undo of change {change.number}"
            )
        with self._history.change(action, needed=min(change.stamps)):
            # What is removed first may have the id of what is restored.
            for each in due:
                if not _was(each):
                    self._shelves[each.item.shelf].remove(each.item)
            for each in due:
                if each.before is not None and _was(each):
                    shelf = self._shelves[each.item.shelf]
                    with self._file.reading(limited=False) as sql:
                        body = self._history.body(sql, each.before, shelf.body)
                    shelf.restore(each.before, shelf.checked(each.before, body))
        return Undone(
            number=change.number,
            restored=tuple(names[each.item] for each in due if _was(each)),
            removed=tuple(names[each.item] for each in due if not _was(each)),
            kept=tuple(kept),
        )

    def versions(self, sql: Sql, item: Item) -> list[Version]:
        """All versions of an item, the present one included."""
        present = self._shelves[item.shelf].find(sql, item)
        return [*self._history.of(sql, item), *([present] if present else [])]

    def _changes(
        self,
        sql: Sql,
        first: int = 0,
        items: Collection[Item] | None = None,
        number: int | None = None,
    ) -> Iterator[_LoggedChange]:
        """The newest first: since a stamp, of some items, or the one with a number."""
        chosen, bindings = "", list[Any]([first])
        if items is not None:
            stamps = [each.stamp for item in items for each in self.versions(sql, item)]
            chosen = "WHERE c.stamp IN (SELECT value FROM json_each(?2))"
            bindings.append(json.dumps(stamps))
        elif number is not None:
            chosen = "WHERE c.number = ?2"
            bindings.append(number)
        rows: list[Any] = sql.execute(
            "SELECT min(a.number), json_group_array(a.stamp), min(a.actor), min(a.action) "
            "FROM history_changes a WHERE a.change IN "
            f"(SELECT c.change FROM history_changes c {chosen}) "
            "GROUP BY a.change HAVING max(a.stamp) >= ?1 "
            "ORDER BY max(a.stamp) DESC, min(a.number) DESC",
            bindings,
        ).fetchall()
        for number, made, actor, action in rows:
            yield _LoggedChange(number, json.loads(made), actor, action)

    def _counting(self, sql: Sql) -> Iterator[_LoggedChange]:
        """The changes that did anything and were not taken back, undos too; the newest first."""
        undone, redone = set[int](), list[int]()
        for change in self._changes(sql):
            action = TAKEN_BACK.fullmatch(change.action)
            number = int(action[2]) if action else 0
            if change.number in undone:
                continue
            if action and action[1] == "redo":
                redone.append(number)
            elif number in redone:
                redone.remove(number)
            else:
                undone.add(number)
                if any(True for _ in self._made(sql, change.stamps)):
                    yield change

    def _latest(self, sql: Sql) -> _LoggedChange:
        """The latest change that counts and is no undo; raises NotFound."""
        for change in self._counting(sql):
            if not TAKEN_BACK.fullmatch(change.action):
                return change
        raise NotFound("there is no change in the history that could be undone")

    def _undone_last(self, sql: Sql) -> _LoggedChange:
        """The last undo that counts; raises NotFound, or InvalidInput after another change."""
        later = None
        for change in self._counting(sql):
            if not TAKEN_BACK.fullmatch(change.action):
                later = later or change
            elif later is None:
                return change
            else:
                raise InvalidInput(
                    f"there is nothing to redo: change {later.number} was made after the last "
                    f"undo; `mcpvectordb undo {change.number}` takes that undo back nevertheless"
                )
        raise NotFound("there is no undo in the history that could be taken back")

    def _find(self, sql: Sql, number: int) -> _LoggedChange:
        """The change with this number; raises NotFound."""
        if type(number) is not int or not 0 < number < 2**63:
            raise InvalidInput(f"a change is a number of the history, not {quoted(number)}")
        found = next(self._changes(sql, number=number), None)
        if found is None:
            raise NotFound(
                f"there is no change {number} in the history: it never was, or it is too old; "
                "`mcpvectordb history` lists those that there are"
            )
        return found

    def _made(self, sql: Sql, stamps: Sequence[int]) -> Iterator[Version]:
        """The versions that were made at these stamps: former ones, and those that are present."""
        yield from self._history.made_at(sql, stamps)
        for shelf in self._shelves.values():
            yield from shelf.present(sql, stamps)

    def _item_changes(
        self, sql: Sql, stamps: Sequence[int], most: int | None = None
    ) -> list[ItemChange]:
        made: dict[Item, list[Version]] = {}
        for version in self._made(sql, stamps):
            made.setdefault(version.item, []).append(version)
            if len(made) == most:
                break
        order, changes = attrgetter("order"), []
        for item, versions in made.items():
            first = min(map(order, versions))
            earlier = (each for each in self._history.of(sql, item) if each.order < first)
            before = max(earlier, key=order, default=None)
            changes.append(ItemChange(item, before, max(versions, key=order)))
        return changes

    def _entry(
        self, sql: Sql, change: _LoggedChange, items: Collection[Item] | None
    ) -> HistoryEntry:
        changes = self._item_changes(sql, change.stamps, None if items is not None else SHOWN)
        if items is not None:
            changes = [each for each in changes if each.item in items]
        count = len(changes)
        if count >= SHOWN:
            stamps = json.dumps(list(change.stamps))
            count = len({each.item for each in self._history.made_at(sql, change.stamps)})
            for table in TABLES.values():
                chosen = f"{table} WHERE stamp IN (SELECT value FROM json_each(?))"
                count += sql.execute(f"SELECT count(*) FROM {chosen}", (stamps,)).get
        return HistoryEntry(
            number=change.number,
            time=clock.moment(max(change.stamps)),
            actor=change.actor,
            action=change.action,
            items=tuple(
                ChangedItem(
                    # Only tables and exports call memories contexts.
                    shelf="memories" if each.item.shelf == "contexts" else each.item.shelf,
                    name=self._label(sql, each),
                    kind=each.kind,
                    title=_title(each),
                )
                for each in changes[:SHOWN]
            ),
            count=count,
        )

    def _label(self, sql: Sql, change: ItemChange) -> str:
        named = change.after if change.after.fields is not None else change.before or change.after
        return self._shelves[change.item.shelf].label(sql, named)

    def _lines(self, sql: Sql, version: Version | None) -> list[str]:
        """The fields that people give, a line for each, then the text."""
        if version is None or version.fields is None:
            return []
        shelf = self._shelves[version.item.shelf]
        shown = ("title", "thread", "metadata", "tags", "description", "pattern")
        said = [f"{each}: {version.fields[each]}" for each in shown if each in version.fields]
        text = shelf.text(self._history.body(sql, version, shelf.body))
        if sum(map(text.count, _LINE_ENDS)) > MOST_LINES:
            raise InvalidInput(
                f"{shelf.label(sql, version)} has more than {MOST_LINES:,} lines, which are not "
                "compared; `mcpvectordb get --as-of TIME` shows what it was"
            )
        return [*map(line_diff.one_line, said), "", *text.splitlines()]


def _was(change: ItemChange) -> bool:
    """Whether the item was there before the change."""
    return change.before is not None and change.before.fields is not None


def _equal(present: Version, before: Version | None) -> bool:
    if before is None or before.fields is None:
        return present.fields is None
    return present.digest == before.digest


def _title(change: ItemChange) -> str:
    version = change.after if change.after.fields is not None else change.before
    fields = (version.fields if version else None) or {}
    return str(fields.get("title") or fields.get("thread") or "")
