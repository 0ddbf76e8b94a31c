"""Documents, notes and memories in one SQLite file, found again by words and by meaning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpvectordb.access import Access as Access
    from mcpvectordb.access import ConnectedClient as ConnectedClient
    from mcpvectordb.access import Token as Token
    from mcpvectordb.config import Config as Config
    from mcpvectordb.database import Database as Database
    from mcpvectordb.embedding.embedder import Embedder as Embedder
    from mcpvectordb.embedding.endpoint import add_endpoint as add_endpoint
    from mcpvectordb.errors import Busy as Busy
    from mcpvectordb.errors import Closed as Closed
    from mcpvectordb.errors import Damaged as Damaged
    from mcpvectordb.errors import DatabaseError as DatabaseError
    from mcpvectordb.errors import EmbeddingFailed as EmbeddingFailed
    from mcpvectordb.errors import EndpointFailed as EndpointFailed
    from mcpvectordb.errors import Exists as Exists
    from mcpvectordb.errors import FetchFailed as FetchFailed
    from mcpvectordb.errors import IngestError as IngestError
    from mcpvectordb.errors import InvalidFilter as InvalidFilter
    from mcpvectordb.errors import InvalidInput as InvalidInput
    from mcpvectordb.errors import MCPVectorDBError as MCPVectorDBError
    from mcpvectordb.errors import ModelDamaged as ModelDamaged
    from mcpvectordb.errors import ModelError as ModelError
    from mcpvectordb.errors import ModelMissing as ModelMissing
    from mcpvectordb.errors import NewerFile as NewerFile
    from mcpvectordb.errors import NoText as NoText
    from mcpvectordb.errors import NotFound as NotFound
    from mcpvectordb.errors import NotOurFile as NotOurFile
    from mcpvectordb.errors import ParseFailed as ParseFailed
    from mcpvectordb.errors import ReadOnly as ReadOnly
    from mcpvectordb.errors import ReadTimeout as ReadTimeout
    from mcpvectordb.errors import Refused as Refused
    from mcpvectordb.errors import RetryLater as RetryLater
    from mcpvectordb.errors import TooLarge as TooLarge
    from mcpvectordb.errors import Unreachable as Unreachable
    from mcpvectordb.errors import Unreadable as Unreadable
    from mcpvectordb.errors import UnsupportedFormat as UnsupportedFormat
    from mcpvectordb.errors import Unwritable as Unwritable
    from mcpvectordb.history.records import ChangedItem as ChangedItem
    from mcpvectordb.history.records import Forgotten as Forgotten
    from mcpvectordb.history.records import HistoryEntry as HistoryEntry
    from mcpvectordb.history.records import Merged as Merged
    from mcpvectordb.history.records import Undone as Undone
    from mcpvectordb.memories.memory import Change as Change
    from mcpvectordb.memories.memory import Entry as Entry
    from mcpvectordb.memories.memory import Image as Image
    from mcpvectordb.memories.memory import Memory as Memory
    from mcpvectordb.memories.memory import MemoryStats as MemoryStats
    from mcpvectordb.memories.memory import Near as Near
    from mcpvectordb.memories.memory import Outcome as Outcome
    from mcpvectordb.memories.memory import Stored as Stored
    from mcpvectordb.memories.memory import Thread as Thread
    from mcpvectordb.memories.memory import Turn as Turn
    from mcpvectordb.memories.memory import Updated as Updated
    from mcpvectordb.postgres import Published as Published
    from mcpvectordb.postgres import PublishedItems as PublishedItems
    from mcpvectordb.projects.shelf import ListedProject as ListedProject
    from mcpvectordb.projects.shelf import Project as Project
    from mcpvectordb.projects.shelf import ProjectScope as ProjectScope
    from mcpvectordb.records import Backlog as Backlog
    from mcpvectordb.records import Chunk as Chunk
    from mcpvectordb.records import Condition as Condition
    from mcpvectordb.records import Coverage as Coverage
    from mcpvectordb.records import Document as Document
    from mcpvectordb.records import DocumentHeading as DocumentHeading
    from mcpvectordb.records import Embedded as Embedded
    from mcpvectordb.records import Explained as Explained
    from mcpvectordb.records import Exported as Exported
    from mcpvectordb.records import Hit as Hit
    from mcpvectordb.records import Ingested as Ingested
    from mcpvectordb.records import Library as Library
    from mcpvectordb.records import Page as Page
    from mcpvectordb.records import PassedOver as PassedOver
    from mcpvectordb.records import Place as Place
    from mcpvectordb.records import Progress as Progress
    from mcpvectordb.records import Results as Results
    from mcpvectordb.records import Scores as Scores
    from mcpvectordb.records import Source as Source
    from mcpvectordb.records import Stats as Stats
    from mcpvectordb.records import Synced as Synced
    from mcpvectordb.remotes.records import Exchanged as Exchanged
    from mcpvectordb.remotes.records import Remote as Remote
    from mcpvectordb.search.records import Context as Context
    from mcpvectordb.search.records import Duplicates as Duplicates
    from mcpvectordb.search.records import LineMatch as LineMatch
    from mcpvectordb.search.records import LineMatches as LineMatches
    from mcpvectordb.search.records import Projection as Projection
    from mcpvectordb.search.records import Quotation as Quotation
    from mcpvectordb.storage.dialect import is_database_url as is_database_url
    from mcpvectordb.text.distinguishing import distinguishing_words as distinguishing_words
    from mcpvectordb.transfer.items import Imported as Imported
    from mcpvectordb.vectors.vector import Added as Added
    from mcpvectordb.vectors.vector import AddedMany as AddedMany
    from mcpvectordb.vectors.vector import Namespace as Namespace
    from mcpvectordb.vectors.vector import Store as Store
    from mcpvectordb.vectors.vector import Vector as Vector

__version__ = "0.1.0"

# Where the names live. A module is loaded when a name of it is asked for: a program that only wants
# a version or an error class need not wait for the rest, and --help answers at once.
_HOMES = {
    "access": "Access ConnectedClient Token",
    "config": "Config",
    "database": "Database",
    "embedding.embedder": "Embedder",
    "embedding.endpoint": "add_endpoint",
    "errors": """
        Busy Closed Damaged DatabaseError EmbeddingFailed EndpointFailed Exists FetchFailed
        IngestError InvalidFilter InvalidInput MCPVectorDBError ModelDamaged ModelError
        ModelMissing NewerFile NoText NotFound NotOurFile ParseFailed ReadOnly ReadTimeout
        Refused RetryLater TooLarge Unreachable Unreadable UnsupportedFormat Unwritable
    """,
    "history.records": "ChangedItem Forgotten HistoryEntry Merged Undone",
    "memories.memory": (
        "Change Entry Image Memory MemoryStats Near Outcome Stored Thread Turn Updated"
    ),
    "postgres": "Published PublishedItems",
    "projects.shelf": "ListedProject Project ProjectScope",
    "records": """
        Backlog Chunk Condition Coverage Document DocumentHeading Embedded Explained Exported
        Hit Ingested Library Page PassedOver Place Progress Results Scores Source Stats Synced
    """,
    "remotes.records": "Exchanged Remote",
    "search.records": "Context Duplicates LineMatch LineMatches Projection Quotation",
    "storage.dialect": "is_database_url",
    "text.distinguishing": "distinguishing_words",
    "transfer.items": "Imported",
    "vectors.vector": "Added AddedMany Namespace Store Vector",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted([*_HOME_OF, "__version__"])

if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_HOME_OF[name]}")
        return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return __all__
