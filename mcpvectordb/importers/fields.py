"""Rows with named fields (JSON Lines, CSV, Parquet) as documents or vectors.

The fields id, text, title, metadata and embedding are known by these names and by the usual other
ones, or named by the options. All other fields become metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mcpvectordb.errors import InvalidInput
from mcpvectordb.importers import values
from mcpvectordb.importers.items import (
    ImportedDocument,
    ImportedVector,
    ImportOptions,
    Item,
    LeftOut,
    NotKept,
    UnreadPart,
)

NAMES = {
    "id": ("id", "_id", "uuid", "key"),
    "text": ("text", "content", "page_content", "document", "body"),
    "title": ("title",),
    "embedding": ("embedding", "vector", "values"),
}
"""The names by which a field is known, the most usual first."""

Row = Mapping[str, Any]


class RowColumns(NamedTuple):
    """Which fields of a row are what; () and "" where there are none."""

    id: str
    text: tuple[str, ...]
    title: str
    embedding: str
    metadata: tuple[str, ...]


def has_known_fields(names: Iterable[str]) -> bool:
    """Whether fields have names by which texts or embeddings are known."""
    return bool({*NAMES["text"], *NAMES["embedding"]} & set(names))


def items(rows: Iterable[Row | UnreadPart], options: ImportOptions, library: str) -> Iterator[Item]:
    """An item for each row; the first one decides which fields there are."""
    columns: RowColumns | None = None
    seen: set[bytes] = set()
    for row in rows:
        if isinstance(row, UnreadPart):
            yield row
            continue
        columns = columns or _columns(row, options)
        item = _item(row, columns, options, library)
        name = getattr(item, "id", "")
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:16]
        if not isinstance(item, LeftOut) and digest in seen:
            yield LeftOut(id=name, reason="a row with this id came before it")
        else:
            seen.add(digest)
            yield item
            if isinstance(item, ImportedDocument) and not item.embeddings and _given(row, columns):
                yield NotKept(what="embeddings that are no lists of finite numbers")


def _columns(row: Row, options: ImportOptions) -> RowColumns:
    """The fields that the options or the usual names mean; InvalidInput lists those there are."""
    for name in (*options.text, options.id, options.title, options.embedding, *options.metadata):
        if name and name not in row:
            raise InvalidInput(f"there is no field {name!r}; there are {', '.join(row)[:500]}")
    found = {
        what: next((name for name in names if name in row), "") for what, names in NAMES.items()
    }
    text = tuple(options.text) or ((found["text"],) if found["text"] else ())
    embedding = options.embedding or found["embedding"]
    if not text and not embedding:
        raise InvalidInput(
            "name the fields that have the text (--text) or the embedding (--embedding): "
            f"{', '.join(row)[:500]}"
        )
    return RowColumns(
        options.id or found["id"],
        text,
        options.title or found["title"],
        embedding,
        tuple(options.metadata),
    )


def _item(row: Row, columns: RowColumns, options: ImportOptions, library: str) -> Item:
    text = "\n\n".join(_texts(row.get(name) for name in columns.text))
    vector = _floats(row.get(columns.embedding)) if columns.embedding else b""
    metadata = _metadata(row, columns)
    id = _id(row.get(columns.id) if columns.id else None, text, metadata)
    if options.into == "vectors" or not text.strip():
        if not vector:
            return LeftOut(id=id, reason=_why_nothing(row, columns, text))
        kept = {**metadata, **({"text": text} if text.strip() else {})}
        return ImportedVector(id=id, values=vector, store=options.library or library, metadata=kept)
    title = row.get(columns.title) if columns.title else None
    return ImportedDocument(
        id=id,
        text=values.storable(text),
        library=options.library or library,
        title=values.storable(title) if isinstance(title, str) else "",
        metadata=metadata,
        modified=values.time(row.get("modified")),
        created_at=values.time(row.get("created_at")),
        embeddings={text: vector} if vector else {},
        model=options.model or str(row.get("model") or ""),
    )


def _texts(found: Iterable[object]) -> Iterator[str]:
    for each in found:
        if isinstance(each, str) and each.strip():
            yield each
        elif isinstance(each, int | float) and not isinstance(each, bool):
            yield str(each)


def _metadata(row: Row, columns: RowColumns) -> dict[str, Any]:
    """The named fields or all others; an object in `metadata` is spread out."""
    used = {columns.id, *columns.text, columns.title, columns.embedding, "metadata"}
    named = columns.metadata or [name for name in row if name not in used]
    found = values.metadata({name: row[name] for name in named if row.get(name) not in (None, "")})
    inner = values.metadata(row.get("metadata")) if not columns.metadata else {}
    return {**inner, **found}


def _id(given: object, text: str, metadata: Mapping[str, Any]) -> str:
    """The id of a row, or one that its content makes: the same when it is imported again."""
    if isinstance(given, str | int) and str(given).strip():
        return str(values.storable(str(given)))
    content = text or repr(sorted(metadata.items(), key=repr))
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:32]


def _given(row: Row, columns: RowColumns) -> bool:
    """Whether a row has something where its embedding should be."""
    return bool(columns.embedding) and row.get(columns.embedding) not in (None, "", [])


def _floats(given: object) -> bytes:
    """An embedding as little-endian float32; b"" if it is none."""
    import numpy as np

    if isinstance(given, str):
        given = values.json_value(given)
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


def _why_nothing(row: Row, columns: RowColumns, text: str) -> str:
    if _given(row, columns):
        return "an embedding that is no list of finite numbers"
    return "no embedding" if text.strip() else "neither text nor embedding"
