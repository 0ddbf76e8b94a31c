"""What files have published to PostgreSQL; the other modules need psycopg."""

from __future__ import annotations

from dataclasses import field

from mcpvectordb.errors import InvalidInput
from mcpvectordb.records import Record


def require_driver() -> None:
    """Raise InvalidInput, which names the extra, if psycopg is not installed."""
    try:
        import psycopg  # noqa: F401  whether it is there
    except ImportError:
        raise InvalidInput(
            "PostgreSQL needs psycopg, which is not installed: pip install 'mcpvectordb[postgres]'"
        ) from None


class PublishedItems(Record):
    """How many items of a shelf a publish added, changed and deleted, and how many it left."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0

    @property
    def changes(self) -> int:
        """How many items are others than before."""
        return self.added + self.updated + self.deleted


class Published(Record):
    """What a publish did to an origin in PostgreSQL.

    passages  how many passages of documents and memories were sent
    waiting   how many of the file have no embedding yet: they are found by words, and by meaning
              once they are embedded and published again
    notice    what an administrator of the database should do; "" if nothing
    """

    origin: str
    documents: PublishedItems
    memories: PublishedItems
    vectors: PublishedItems
    passages: int
    waiting: int
    notice: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def changes(self) -> int:
        """How many items are others than before."""
        return self.documents.changes + self.memories.changes + self.vectors.changes
