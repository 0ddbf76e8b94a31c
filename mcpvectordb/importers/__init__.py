"""The table of all kinds of sources that can be imported, and the detection of a source's kind.

A kind is one entry in `KINDS` and one module in this package with two functions:

    recognises(source: ImportSource) -> bool
    read(source: ImportSource, options: ImportOptions) -> Iterator[Item]

Modules are imported when they are needed. A source is opened for reading only, and may be in use,
damaged or hostile; `ImportSource` has what is needed to read it safely.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from mcpvectordb.errors import InvalidInput, UnsupportedFormat, quoted
from mcpvectordb.importers.items import ImportOptions, Item
from mcpvectordb.importers.source import ImportSource


class ImportKind(NamedTuple):
    """One kind of source.

    - name: what the user calls it; module: the module of this package that reads it.
    - summary: what it is, for help and errors.
    - file: the file that is read if the source is the folder in which it lies.
    - beside: further files to read, as patterns relative to the folder of that file. Those with a
      * may be many, and are read only if the file has that name, or the kind was named.
    - preload: a module to import before the reading process is confined, for a file that begins
      with these bytes.
    """

    name: str
    module: str
    summary: str
    file: str = ""
    beside: tuple[str, ...] = ()
    preload: tuple[str, bytes] = ("", b"")

    def recognises(self, source: ImportSource) -> bool:
        """Whether a source is of this kind, by its content."""
        return bool(self._reader.recognises(source))

    def read(self, source: ImportSource, options: ImportOptions) -> Iterator[Item]:
        """The items of a source; UnsupportedFormat for a database of another program."""
        database = source.database
        if database is not None and not database.unread and not self.recognises(source):
            raise UnsupportedFormat(
                f"{source.path} is not {self.summary.partition(' (')[0]}: it has the tables "
                f"{', '.join(database.columns)}"
            )
        items: Iterator[Item] = self._reader.read(source, options)
        return items

    @property
    def _reader(self) -> Any:
        return import_module(f"{__name__}.{self.module}")


# Special kinds come before general ones: the first that recognises a source reads it.
KINDS = (
    ImportKind("mcpvectordb", "own_export", "an export of mcpvectordb as JSONL"),
    ImportKind(
        "qmd",
        "qmd",
        "the index of qmd (index.sqlite)",
        file="index.sqlite",
        beside=("{stem}.yml", "../../.config/qmd/{stem}.yml"),
    ),
    ImportKind(
        "mcp-context-server",
        "context_server",
        "the database of mcp-context-server (context_storage.db)",
        file="context_storage.db",
    ),
    ImportKind(
        "chroma",
        "chroma",
        "a folder of Chroma (chroma.sqlite3)",
        file="chroma.sqlite3",
        beside=("*/header.bin", "*/data_level0.bin", "*/length.bin", "*/index_metadata.pickle"),
    ),
    ImportKind(
        "mcp-memory-service",
        "memory_service",
        "the database of mcp-memory-service (sqlite_vec.db)",
        file="sqlite_vec.db",
    ),
    ImportKind("llm", "llm", "embeddings.db or logs.db of llm"),
    ImportKind("chatgpt", "chatgpt", "the export of ChatGPT (conversations.json, or the ZIP)"),
    ImportKind("claude", "claude", "the export of Claude (conversations.json, or the ZIP)"),
    ImportKind("claude-code", "claude_code", "sessions of Claude Code (~/.claude/projects)"),
    ImportKind("obsidian", "obsidian", "a vault of Obsidian, which a library then follows"),
    ImportKind("jsonl", "json_lines", "JSON Lines with id, text, metadata, embedding"),
    ImportKind("csv", "csv_table", "CSV with id, text, metadata, embedding"),
    ImportKind(
        "parquet",
        "parquet_table",
        "Parquet with id, text, metadata, embedding",
        preload=("pyarrow.parquet", b"PAR1"),
    ),
    ImportKind("sqlite", "sqlite_table", "any table of a SQLite database (--table)"),
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
    if source.is_ours:
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
