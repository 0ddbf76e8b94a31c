"""The records of merges."""

from __future__ import annotations

from mcpvectordb.records import Record


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
