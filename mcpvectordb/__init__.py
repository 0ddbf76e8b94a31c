"""Documents, notes and memories in one SQLite file, found again by words and by meaning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpvectordb.config import Config
    from mcpvectordb.database import Database
    from mcpvectordb.embedding.embedder import Embedder
    from mcpvectordb.embedding.endpoint import add_endpoint
    from mcpvectordb.errors import (
        Busy,
        Closed,
        Damaged,
        DatabaseError,
        EmbeddingFailed,
        EndpointFailed,
        Exists,
        FetchFailed,
        IngestError,
        InvalidFilter,
        InvalidInput,
        MCPVectorDBError,
        ModelDamaged,
        ModelError,
        ModelMissing,
        NewerFile,
        NoText,
        NotFound,
        NotOurFile,
        ParseFailed,
        ReadOnly,
        ReadTimeout,
        Refused,
        RetryLater,
        TooLarge,
        Unreachable,
        Unreadable,
        UnsupportedFormat,
        Unwritable,
    )
    from mcpvectordb.history.records import ChangedItem, Forgotten, HistoryEntry, Merged, Undone
    from mcpvectordb.memories.memory import (
        Change,
        Entry,
        Image,
        Memory,
        MemoryStats,
        Outcome,
        Stored,
        Thread,
        Updated,
    )
    from mcpvectordb.postgres import Published, PublishedItems
    from mcpvectordb.records import (
        Backlog,
        Chunk,
        Condition,
        Coverage,
        Document,
        DocumentHeading,
        Embedded,
        Explained,
        Exported,
        Hit,
        Ingested,
        Library,
        Page,
        PassedOver,
        Place,
        Progress,
        Results,
        Scores,
        Source,
        Stats,
        Synced,
    )
    from mcpvectordb.search.records import (
        Context,
        Duplicates,
        LineMatch,
        LineMatches,
        Projection,
        Quotation,
    )
    from mcpvectordb.storage.dialect import is_database_url
    from mcpvectordb.transfer.items import Imported
    from mcpvectordb.vectors.vector import Added, AddedMany, Namespace, Store, Vector

__version__ = "0.1.0"

__all__ = [
    "Added",
    "AddedMany",
    "Backlog",
    "Busy",
    "Change",
    "ChangedItem",
    "Chunk",
    "Closed",
    "Condition",
    "Config",
    "Context",
    "Coverage",
    "Damaged",
    "Database",
    "DatabaseError",
    "Document",
    "DocumentHeading",
    "Duplicates",
    "Embedded",
    "Embedder",
    "EmbeddingFailed",
    "EndpointFailed",
    "Entry",
    "Exists",
    "Explained",
    "Exported",
    "FetchFailed",
    "Forgotten",
    "HistoryEntry",
    "Hit",
    "Image",
    "Imported",
    "IngestError",
    "Ingested",
    "InvalidFilter",
    "InvalidInput",
    "Library",
    "LineMatch",
    "LineMatches",
    "MCPVectorDBError",
    "Memory",
    "MemoryStats",
    "Merged",
    "ModelDamaged",
    "ModelError",
    "ModelMissing",
    "Namespace",
    "NewerFile",
    "NoText",
    "NotFound",
    "NotOurFile",
    "Outcome",
    "Page",
    "ParseFailed",
    "PassedOver",
    "Place",
    "Progress",
    "Projection",
    "Published",
    "PublishedItems",
    "Quotation",
    "ReadOnly",
    "ReadTimeout",
    "Refused",
    "Results",
    "RetryLater",
    "Scores",
    "Source",
    "Stats",
    "Store",
    "Stored",
    "Synced",
    "Thread",
    "TooLarge",
    "Undone",
    "Unreachable",
    "Unreadable",
    "UnsupportedFormat",
    "Unwritable",
    "Updated",
    "Vector",
    "__version__",
    "add_endpoint",
    "is_database_url",
]

# Where the names live, the cheapest first: a program that only wants a version or an error class
# need not wait for the rest, and --help answers at once.
_HOMES = (
    "errors",
    "config",
    "records",
    "memories.memory",
    "vectors.vector",
    "storage.dialect",
    "database",
    "embedding.embedder",
    "history.records",
    "search.records",
    "postgres",
    "transfer.items",
    "embedding.endpoint",
)

if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for home in _HOMES:
                module = import_module(f"{__name__}.{home}")
                if hasattr(module, name):
                    return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
