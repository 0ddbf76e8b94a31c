"""The records of the history, and of merges."""

from __future__ import annotations

from typing import Literal

from mcpvectordb.records import Record

Kind = Literal["added", "replaced", "updated", "deleted"]


class ChangedItem(Record):
    """What a change did to one item.

    shelf  "documents", "memories", "vectors" or "libraries"
    name   a document's path, memory:7, store/namespace/id of a vector, or a library's name
    title  a document's title, or the beginning of a memory's thread; "" for others
    """

    shelf: str
    name: str
    kind: Kind
    title: str = ""


class HistoryEntry(Record):
    """One change: a call that changed something, whatever number of items and transactions it took.

    number  its number in this file, for `Database.undo` and `as_of`
    time    when it ended (UTC), by the clock of the file, which never goes back
    actor   by whom: "shell", "python", or the name of an MCP client and the surface that it used
    action  what was called, where one word says it: sync, undo 7, merge …
    items   the first 100 items that it changed
    count   the number of all of them
    """

    number: int
    time: str
    actor: str
    action: str
    items: tuple[ChangedItem, ...]
    count: int


class Undone(Record):
    """What an undo did, as names of items.

    restored  they are again what they were before the change
    removed   they did not exist before the change
    kept      they were changed again since, and stay as they are
    note      why restored texts are not found by meaning yet; "" if they are
    """

    number: int
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    note: str = ""


class Forgotten(Record):
    """The name of what was deleted for good, and how many former versions of it went with it."""

    name: str
    versions: int


class Merged(Record):
    """What a merge did, as names of items (a document's path, memory:7 …).

    added     the other file had them, and this one did not
    updated   the other file had a later version of what was here before
    deleted   they were deleted in the other file, later than they were changed here
    lost      both files had changed them: the earlier change lost, and is in the history
    embedded  how many passages brought their embeddings along
    note      why there is something left to do; "" if there is not
    """

    path: str
    added: tuple[str, ...]
    updated: tuple[str, ...]
    deleted: tuple[str, ...]
    lost: tuple[str, ...]
    embedded: int
    note: str = ""
