"""Any table of a SQLite database: a document for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mcpvectordb.errors import InvalidInput
from mcpvectordb.importers import values
from mcpvectordb.importers.foreign_database import ForeignDatabase
from mcpvectordb.importers.items import ImportedDocument, ImportOptions, Item, LeftOut
from mcpvectordb.importers.source import ImportSource


def recognises(source: ImportSource) -> bool:
    """Whether it is a SQLite database."""
    return source.database is not None


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """A document for each row of a table; its text is that of the named columns."""
    database = source.sqlite()
    table = _table(database, options)
    columns = database.columns[table]
    text = _known(table, options.text, columns, "--text")
    if not text:
        raise InvalidInput(
            f"name the columns of {table} that have the text (--text): {', '.join(columns)}"
        )
    [key] = _known(table, [options.id], columns, "--id") if options.id else [_key(database, table)]
    [title] = _known(table, [options.title], columns, "--title") if options.title else [""]
    others = _known(table, options.metadata, columns, "--metadata") or [
        each for each in columns if each not in (*text, key, title)
    ]
    library = options.library or source.path.stem
    for row in database.rows(table, *columns, "rowid"):
        cells: dict[str, Any] = dict(zip((*columns, "rowid"), row, strict=True))
        id = f"{table}/{cells[key]}"
        body = "\n\n".join(str(cells[each]) for each in text if _is_text(cells[each]))
        if not body.strip():
            yield LeftOut(id=id, reason="no text in the named columns")
            continue
        yield ImportedDocument(
            id=id,
            text=body,
            library=library,
            title=str(cells[title] or "") if title else "",
            metadata=values.metadata({each: cells[each] for each in others}),
        )


def _table(database: ForeignDatabase, options: ImportOptions) -> str:
    """The table that is asked for; InvalidInput lists those that there are."""
    names = [name for name in database.columns if not name.startswith("sqlite_")]
    if options.table in names:
        return options.table
    if not options.table:
        damage = "".join(f" ({each})" for each in database.unread)
        raise InvalidInput(f"name the table (--table): {_listed(database, names)}{damage}")
    raise InvalidInput(f"there is no table {options.table!r}; there are {_listed(database, names)}")


def _listed(database: ForeignDatabase, names: Sequence[str]) -> str:
    return "; ".join(f"{name} ({', '.join(database.columns[name])})" for name in names[:20]) or (
        "none"
    )


def _known(table: str, asked: Sequence[str], columns: Sequence[str], option: str) -> list[str]:
    for each in asked:
        if each not in columns:
            raise InvalidInput(
                f"{option}: the table {table} has no column {each!r}; it has {', '.join(columns)}"
            )
    return list(asked)


def _key(database: ForeignDatabase, table: str) -> str:
    """The column that identifies a row: its primary key if that is one column, or the rowid."""
    key = database.key(table)
    return key[0] if len(key) == 1 else "rowid"


def _is_text(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
