"""Taking rows out of FTS5 tables that keep no text.

FTS5 notes the ids of removed rows in pages of its own, with room for twice as many. A page that is
full of one and the same id, as no sound one is, would make it look for more room until all memory
is used up; so they are looked at first.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from mcpvectordb.errors import Damaged

_FIRST = 1 << 53  # the pages' numbers in FTS5's own table begin here
# bytes of a page before the ids; the first is the size of an id, the last four are their number
_HEAD = 8


class Removals:
    """The way to take rows out of one FTS5 table."""

    def __init__(self, table: str) -> None:
        self._table, self._looked = table, False

    def take_out(self, sql: apsw.Connection, ids: Iterable[int]) -> None:
        """Remove rows; ids that have none are passed over."""
        if not self._looked and (found := self.flaws(sql)):
            raise Damaged(f"{found[0]}: run `mcpvectordb rebuild`")
        self._looked = True
        sql.executemany(f"DELETE FROM {self._table} WHERE rowid = ?", ((id,) for id in ids))

    def flaws(self, sql: apsw.Connection) -> list[str]:
        """What is wrong with the notes of earlier removals, in words."""
        pages = sql.execute(f"SELECT id, block FROM {self._table}_data WHERE id >= {_FIRST}")
        return [
            f"{self._table}: the removed rows on page {id} are not those that were removed"
            for id, block in pages
            if not _sound(block)
        ]


def _sound(block: object) -> bool:
    if not isinstance(block, bytes) or block[:1] not in (b"\4", b"\x08"):
        return False
    size, count = block[0], int.from_bytes(block[4:_HEAD], "big")
    ids = [id for at in range(_HEAD, len(block), size) if any(id := block[at : at + size])]
    return len(ids) == len(set(ids)) == count
