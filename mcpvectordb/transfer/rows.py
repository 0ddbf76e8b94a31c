"""Rows with named fields: JSON Lines or a JSON array, CSV, Parquet, a table of a SQLite database;
and our own export.

The fields id, text, title, metadata and embedding are known by these names and by the usual other
ones, or named by the options. All other fields become metadata.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcpvectordb.errors import InvalidInput, ParseFailed, TooLarge
from mcpvectordb.storage.lazy import np
from mcpvectordb.transfer import values
from mcpvectordb.transfer.export import COLUMNS, JSONL_VERSION, parquet_modules
from mcpvectordb.transfer.items import (
    ImportedDocument,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    NotKept,
    OwnRecord,
    UnreadPart,
    document_or_vector,
)
from mcpvectordb.transfer.source import ForeignDatabase, ImportSource

NAMES = {
    "id": ("id", "_id", "uuid", "key"),
    "text": ("text", "content", "page_content", "document", "body"),
    "title": ("title",),
    "embedding": ("embedding", "vector", "values"),
}
"""The names by which a field is known, the most usual first."""

KEY = "\0key"
"""The field with the id of a row of a database, a name that no column has."""

ONLY_PASSAGES = (
    "the document or memory around a passage: our own tables have passages, each of which becomes "
    "a document; an export as JSONL brings everything back as it was"
)

Row = Mapping[str, Any]


def _has_known_fields(names: Iterable[str]) -> bool:
    """Whether fields have names by which texts or embeddings are known."""
    return bool({*NAMES["text"], *NAMES["embedding"]} & set(names))


def _items(
    rows: Iterable[Row | UnreadPart], options: ImportOptions, library: str
) -> Iterator[Item]:
    """An item for each row; the first one decides which fields there are."""
    fields: ImportOptions | None = None
    seen: set[bytes] = set()
    for row in rows:
        if isinstance(row, UnreadPart):
            yield row
            continue
        fields = fields or _found_fields(row, options)
        item = _item(row, fields, library)
        digest = hashlib.sha256(item.id.encode(errors="surrogatepass")).digest()[:16]
        if not isinstance(item, LeftOut) and digest in seen:
            yield LeftOut(id=item.id, reason="a row with this id came before it")
        else:
            seen.add(digest)
            yield item
            if isinstance(item, ImportedDocument) and not item.embeddings and _given(row, fields):
                yield NotKept(what="embeddings that are no lists of finite numbers")
            if isinstance(item, ImportedDocument) and row.keys() >= {*COLUMNS}:
                yield NotKept(what=ONLY_PASSAGES)


def _found_fields(row: Row, options: ImportOptions) -> ImportOptions:
    """The options with the fields that they, or the usual names, mean; "" and () for none.

    InvalidInput lists the fields that there are.
    """
    for name in (*options.text, options.id, options.title, options.embedding, *options.metadata):
        if name and name not in row:
            raise InvalidInput(f"there is no field {name!r}; there are {_listed(row)}")
    found: dict[str, Any] = {
        what: getattr(options, what) or next((name for name in names if name in row), "")
        for what, names in NAMES.items()
    }
    if isinstance(found["text"], str):
        found["text"] = (found["text"],) if found["text"] else ()
    if not found["text"] and not found["embedding"]:
        raise InvalidInput(
            "name the fields that have the text (--text) or the embedding (--embedding): "
            f"{_listed(row)}"
        )
    return replace(options, **found)


def _listed(row: Row) -> str:
    return ", ".join(name for name in row if name != KEY)[:500]


def _item(
    row: Row, fields: ImportOptions, library: str
) -> ImportedDocument | ImportedVector | LeftOut:
    cells = [row.get(name) for name in fields.text]
    text = "\n\n".join(
        str(each)
        for each in cells
        if isinstance(each, str | int | float) and not isinstance(each, bool) and str(each).strip()
    )
    # The named fields or all others; an object in `metadata` is spread out.
    used = {fields.id, *fields.text, fields.title, fields.embedding, "metadata"}
    named = fields.metadata or [name for name in row if name not in used]
    found = values.metadata({name: row[name] for name in named if row.get(name) not in (None, "")})
    metadata = found if fields.metadata else {**values.metadata(row.get("metadata")), **found}
    if _given(row, fields):
        why_not = "an embedding that is no list of finite numbers"
    else:
        why_not = "no embedding" if text.strip() else "neither text nor embedding"
    return document_or_vector(
        fields,
        fields.library or library,
        values.storable(text),
        _floats(_cell(row, fields.embedding)),
        id=_id(_cell(row, fields.id), text, metadata),
        title=values.storable(values.text(_cell(row, fields.title))),
        metadata=metadata,
        modified=values.time(row.get("modified")),
        created_at=values.time(row.get("created_at")),
        model=fields.model or str(row.get("model") or ""),
        why_not=why_not,
    )


def _cell(row: Row, field: str) -> Any:
    """What a row has in a field; None if there is no such field."""
    return row.get(field) if field else None


def _id(given: object, text: str, metadata: Mapping[str, Any]) -> str:
    """The id of a row, or one that its content makes: the same when it is imported again."""
    if isinstance(given, str | int) and str(given).strip():
        return str(values.storable(str(given)))
    content = text or repr(sorted(metadata.items(), key=repr))
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:32]


def _given(row: Row, fields: ImportOptions) -> bool:
    """Whether a row has something where its embedding should be."""
    return _cell(row, fields.embedding) not in (None, "", [])


def _floats(given: object) -> bytes:
    """An embedding as little-endian float32, which bytes are already; b"" if it is none."""
    if isinstance(given, str):
        given = values.json_value(given)
    if isinstance(given, bytes) and len(given) % 4 == 0:
        given = np.frombuffer(given, "<f4").tolist()
    if not isinstance(given, Sequence) or isinstance(given, bytes | str) or not len(given):
        return b""
    if not set(map(type, given)) <= {int, float}:
        return b""
    with np.errstate(over="ignore"):
        try:
            row = np.array(given, np.float64).astype("<f4")
        except OverflowError:
            return b""
    return row.tobytes() if np.isfinite(row).all() else b""


# --- JSON Lines, or a JSON array


def is_json(source: ImportSource) -> bool:
    """Whether the first line, or the first element of the array, has a text or an embedding."""
    head = values.head(source.path).lstrip(values.BLANK)
    if head.startswith(b"{"):
        first = values.json_value(head.partition(b"\n")[0])
    elif head.startswith(b"["):
        first = next(_array(source.path), None)
    else:
        return False
    return isinstance(first, dict) and _has_known_fields(first)


def read_json(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each object; our own export is read as what it is."""
    if is_own_export(source):
        return read_own_export(source, options)
    head = values.head(source.path).lstrip(values.BLANK)
    rows = _array(source.path) if head.startswith(b"[") else _lines(source.path)
    return _items(rows, options, source.path.name.partition(".")[0])


def _lines(path: Path) -> Iterator[Row | UnreadPart]:
    for number, value, error in values.json_lines(path):
        if isinstance(value, dict):
            yield value
        else:
            yield UnreadPart(what=f"line {number}: {error or 'it is no object'}")


def _array(path: Path) -> Iterator[Row | UnreadPart]:
    try:
        with values.opened(path) as file:
            for element in values.elements(file):
                if isinstance(element, dict):
                    yield element
                else:
                    yield UnreadPart(what="an element that is no object")
    except ParseFailed as error:
        yield UnreadPart(what=str(error))


# --- a table of a SQLite database


def read_table(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row of a table, known by the table and the row's key."""
    database = source.sqlite()
    table = _table(database, options)
    columns = database.columns[table]
    if options.id and options.id not in columns:
        raise InvalidInput(f"there is no field {options.id!r}; there are {', '.join(columns)}")
    own_key = database.key(table)
    key = options.id or (own_key[0] if len(own_key) == 1 else "rowid")
    # The key is no metadata as well, unless that is asked for.
    named = {*options.text, options.title, *options.metadata}
    kept = [each for each in columns if each != key or each in named]
    rows = (
        {**{each: row[each] for each in kept}, KEY: f"{table}/{row[key]}"}
        for row in database.rows(table)
    )
    return _items(rows, replace(options, id=KEY), source.path.stem)


def _table(database: ForeignDatabase, options: ImportOptions) -> str:
    """The table that is asked for; InvalidInput lists those that there are."""
    names = [name for name in database.columns if not name.startswith("sqlite_")]
    if options.table in names:
        return options.table
    listed = "; ".join(f"{name} ({', '.join(database.columns[name])})" for name in names[:20])
    if options.table:
        raise InvalidInput(f"there is no table {options.table!r}; there are {listed or 'none'}")
    damage = "".join(f" ({each})" for each in database.unread)
    raise InvalidInput(f"name the table (--table): {listed or 'none'}{damage}")


# --- our own export


def _header(source: ImportSource) -> Mapping[str, Any] | None:
    """The header of our export; None if the source is something else."""
    head = values.head(source.path)
    found = values.json_value(head.partition(b"\n")[0]) if b'"mcpvectordb"' in head else None
    return found if type(values.item(found, "mcpvectordb")) is int else None


def is_own_export(source: ImportSource) -> bool:
    """Whether the first line is the header of our export."""
    return _header(source) is not None


def read_own_export(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """Every line as it is, in their order; ParseFailed for the export of a newer version."""
    header = _header(source)
    if header is None:
        raise ParseFailed(f"{source.path} is not an export of mcpvectordb: it has no header")
    if header["mcpvectordb"] > JSONL_VERSION:
        raise ParseFailed(
            f"{source.path} was exported by a newer mcpvectordb (format {header['mcpvectordb']}, "
            f"known is {JSONL_VERSION}): upgrade this one"
        )
    yield OwnRecord(fields={**header, "kind": "header"})
    items, end = 0, None
    for number, value, error in values.json_lines(source.path):
        kind = values.item(value, "kind")
        if not isinstance(value, dict):
            yield UnreadPart(what=f"line {number}: {error or 'it is no object'}")
        elif kind == "end":
            end = value.get("items")
        elif number > 1:
            items += kind in ("document", "context", "vector")
            yield OwnRecord(fields=value)
    if end is None:
        yield UnreadPart(what="the end of the export: its last line is missing")
    elif end != items:
        yield UnreadPart(what=f"{end} items were exported, but {items} are in the file")


# --- CSV with a header; metadata and embeddings are JSON

LONGEST_FIELD = 100_000_000
_DELIMITERS = ",;\t|"


def is_csv(source: ImportSource) -> bool:
    """Whether it has the name of a CSV file and a header with a text or an embedding."""
    name = source.path.name.lower().removesuffix(".gz")
    if source.is_folder or not name.endswith((".csv", ".tsv")):
        return False
    encoding, delimiter, head = _form(source.path)
    text = head.decode(encoding, errors="replace")
    return _has_known_fields(next(csv.reader(io.StringIO(text), delimiter=delimiter), []))


def read_csv(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row."""
    return _items(_cells(source.path), options, source.path.name.partition(".")[0])


def _cells(path: Path) -> Iterator[Row | UnreadPart]:
    csv.field_size_limit(LONGEST_FIELD)
    encoding, delimiter, _ = _form(path)
    table: csv.DictReader[str] | None = None
    try:
        raw = values.opened(path)
        with io.TextIOWrapper(raw, encoding, errors="replace", newline="") as file:
            table = csv.DictReader(file, delimiter=delimiter, restkey="")
            for row in table:
                row.pop("", None)  # cells beyond the header, and those of a column without name
                yield row
    except (csv.Error, *values.DAMAGE) as error:
        yield UnreadPart(what=f"from line {table.line_num if table else 1} on: {error}")


def _form(path: Path) -> tuple[str, str, bytes]:
    """The encoding of a file, its delimiter, and its beginning.

    It is in UTF-8 if the beginning is that, otherwise in the encoding of spreadsheets on Windows.
    Of the usual delimiters, it has the one that is most often in the first line.
    """
    head, encoding = values.head(path), "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    else:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            encoding = "cp1252"
    first = head.decode(encoding, errors="replace").partition("\n")[0]
    return encoding, max(_DELIMITERS, key=first.count), head


# --- Parquet
#
# A few bytes can stand for a billion rows, or for one long text in each of them. What a file says
# of itself is refused if it is absurd; for the rest there is the memory limit of the process.

PARQUET_BEGINNING = b"PAR1"
PARQUET_ROWS = 256  # that are read at once
SMALL_ROWS, ROWS_PER_BYTE = 100_000, 10


def is_parquet(source: ImportSource) -> bool:
    """Whether it begins as Parquet does."""
    return source.head.startswith(PARQUET_BEGINNING)


def read_parquet(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """An item for each row."""
    arrow, parquet = parquet_modules()
    try:
        file = parquet.ParquetFile(source.path, pre_buffer=False)
    except MemoryError:  # also one of pyarrow's own errors, but no damage
        raise
    except (arrow.ArrowException, OSError) as error:
        raise ParseFailed(f"{source.path.name} is no sound Parquet: {error}"[:300]) from None
    with file:
        size, said = source.path.stat().st_size, file.metadata
        unpacked = sum(said.row_group(n).total_byte_size for n in range(said.num_row_groups))
        most_rows = SMALL_ROWS + ROWS_PER_BYTE * size
        if said.num_rows > most_rows or unpacked > values.most_unpacked(source.path):
            raise TooLarge(
                f"{source.path.name} has {size:,} bytes and says that it has {said.num_rows:,} "
                f"rows of {unpacked:,} bytes: it is made to fill the memory; nothing was imported"
            )
        yield from _items(_parquet_rows(file, arrow), options, source.path.stem)


def _parquet_rows(file: Any, arrow: Any) -> Iterator[Row | UnreadPart]:
    try:
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, use_threads=False):
            yield from batch.to_pylist()
    except MemoryError:
        raise
    except (arrow.ArrowException, OSError) as error:
        yield UnreadPart(what=f"the rest of the rows: {error}"[:300])
