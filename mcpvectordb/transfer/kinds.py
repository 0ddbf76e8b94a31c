"""The table of all kinds of sources that can be imported, and the detection of a source's kind.

A kind is a row of `KINDS` with a function that reads a source, and one that recognises it by its
content, or the tables by which a database is recognised. A source is opened for reading only, and
may be in use, damaged or hostile; `ImportSource` has what is needed to read it safely.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput, UnsupportedFormat, quoted
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.ingest.sources import VAULT_FOLDER
from mcpvectordb.storage.schema import APPLICATION_ID
from mcpvectordb.transfer import conversations, databases, rows
from mcpvectordb.transfer.chroma import read_chroma
from mcpvectordb.transfer.items import FollowedFolder, ImportOptions, Item
from mcpvectordb.transfer.source import ImportSource


class ImportKind(NamedTuple):
    """One kind of source.

    - name: what the user calls it; summary: what it is, for help and errors.
    - reader: returns the items of a source. `recogniser`: whether a source is of this kind; without
      one it is a database that has one of these groups of tables, each with these columns.
    - file: the file that is read if the source is the folder in which it lies.
    - beside: further files to read, as patterns relative to the folder of that file. Those with a
      * may be many, and are read only if the file has that name, or the kind was named.
    """

    name: str
    summary: str
    reader: Callable[[ImportSource, ImportOptions], Iterator[Item]]
    recogniser: Callable[[ImportSource], bool] | None = None
    tables: Sequence[Mapping[str, str]] = ()
    file: str = ""
    beside: tuple[str, ...] = ()

    def recognises(self, source: ImportSource) -> bool:
        """Whether a source is of this kind, by its content."""
        if self.recogniser is not None:
            return self.recogniser(source)
        return any(map(source.has, self.tables))

    def read(self, source: ImportSource, options: ImportOptions) -> Iterator[Item]:
        """The items of a source; UnsupportedFormat for a database of another program."""
        database = source.database
        if database is not None and not database.unread and not self.recognises(source):
            raise UnsupportedFormat(
                f"{source.path} is not {self.summary.partition(' (')[0]}: it has the tables "
                f"{', '.join(database.columns)}"
            )
        return self.reader(source, options)


def _is_vault(source: ImportSource) -> bool:
    """Whether it is a folder that Obsidian has opened as a vault."""
    return (source.path / VAULT_FOLDER).is_dir()


def _read_vault(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A library that follows the folder, which the user has named.

    What is in it comes with its sync. Links, tags and aliases are read wherever a Markdown file
    lies in a vault (`ingest.formats.text`), so they stay right when notes change.
    """
    if not _is_vault(source):
        raise UnsupportedFormat(
            f"{source.path} is no vault: it has no folder {VAULT_FOLDER}. Any folder of notes is "
            "followed by `mcpvectordb library add NAME FOLDER`"
        )
    root = source.path.resolve()
    library = options.library or root.name
    yield FollowedFolder(library=library, root=str(root), pattern=EVERYTHING, confirmed=True)


# Special kinds come before general ones: the first that recognises a source reads it.
KINDS = (
    ImportKind(
        "mcpvectordb", "an export of mcpvectordb as JSONL", rows.read_own_export, rows.is_own_export
    ),
    ImportKind(
        "qmd",
        "the index of qmd (index.sqlite)",
        databases.read_qmd,
        tables=[{"content": "hash doc", "documents": "collection path hash active"}],
        file="index.sqlite",
        beside=("{stem}.yml", "../../.config/qmd/{stem}.yml"),
    ),
    ImportKind(
        "mcp-context-server",
        "the database of mcp-context-server (context_storage.db)",
        databases.read_context_server,
        tables=[
            {"context_entries": "id thread_id source text_content", "tags": "context_entry_id tag"}
        ],
        file="context_storage.db",
    ),
    ImportKind(
        "chroma",
        "a folder of Chroma (chroma.sqlite3)",
        read_chroma,
        tables=[
            {
                "collections": "id name",
                "embeddings": "id segment_id embedding_id",
                "embedding_metadata": "id key string_value",
            }
        ],
        file="chroma.sqlite3",
        beside=("*/header.bin", "*/data_level0.bin", "*/length.bin", "*/index_metadata.pickle"),
    ),
    ImportKind(
        "mcp-memory-service",
        "the database of mcp-memory-service (sqlite_vec.db)",
        databases.read_memory_service,
        tables=[{"memories": "content_hash content tags memory_type created_at"}],
        file="sqlite_vec.db",
    ),
    ImportKind(
        "llm",
        "embeddings.db or logs.db of llm",
        databases.read_llm,
        tables=[
            databases.LLM_EMBEDDINGS,
            {"responses": "prompt response conversation_id"},
            {"turns": "thread_id tip_message_hash"},
        ],
    ),
    ImportKind(
        "chatgpt",
        "the export of ChatGPT (conversations.json, or the ZIP)",
        partial(conversations.read_export, conversations.chatgpt_messages),
        partial(conversations.is_export, "mapping"),
    ),
    ImportKind(
        "claude",
        "the export of Claude (conversations.json, or the ZIP)",
        partial(conversations.read_export, conversations.claude_messages),
        partial(conversations.is_export, "chat_messages"),
    ),
    ImportKind(
        "claude-code",
        "sessions of Claude Code (~/.claude/projects)",
        conversations.read_sessions,
        conversations.has_sessions,
    ),
    ImportKind(
        "obsidian", "a vault of Obsidian, which a library then follows", _read_vault, _is_vault
    ),
    ImportKind(
        "jsonl", "JSON Lines with id, text, metadata, embedding", rows.read_json, rows.is_json
    ),
    ImportKind("csv", "CSV with id, text, metadata, embedding", rows.read_csv, rows.is_csv),
    ImportKind(
        "parquet", "Parquet with id, text, metadata, embedding", rows.read_parquet, rows.is_parquet
    ),
    # The group without tables: every database has these.
    ImportKind("sqlite", "any table of a SQLite database (--table)", rows.read_table, tables=[{}]),
)
BY_NAME = {each.name: each for each in KINDS}


def named(name: str) -> ImportKind:
    """The kind with this name; InvalidInput lists all of them."""
    if name in BY_NAME:
        return BY_NAME[name]
    near = get_close_matches(name, BY_NAME, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidInput(
        f"{quoted(name)} is no kind of source{hint} (there are {', '.join(BY_NAME)})"
    )


def detect(source: ImportSource) -> ImportKind:
    """The kind that recognises a source by its content; UnsupportedFormat if none does."""
    database = source.database
    if database is not None and database.application_id == APPLICATION_ID:
        raise UnsupportedFormat(
            f"{source.path} is a database of mcpvectordb itself: export it "
            f"(`mcpvectordb --db {shlex.quote(str(source.path))} export all.jsonl`) and import that"
        )
    for kind in KINDS:
        found = source.inside(kind.file)
        if found is not None and kind.recognises(found):
            return kind
    raise UnsupportedFormat(
        f"{source.path} is none of the sources that can be recognised: {', '.join(BY_NAME)}; "
        "if it is one of them, name the kind in front of the path. Files and folders of documents "
        "are taken in with `ingest`"
    )
