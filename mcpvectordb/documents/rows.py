"""Documents and chunks from rows: by conditions in SQL, by key or id, and by name.

A document is named by a path in listings or the end of one, a file, an id, or a hash. An id, or a
path with its library, means one document. Whatever else it can be named by may be that of several.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpvectordb import filters, metadata
from mcpvectordb.documents import libraries
from mcpvectordb.errors import Damaged, NotFound, quoted
from mcpvectordb.filters import Where
from mcpvectordb.index.chunks import ACTIVE_KEY, ChunkIndex, beginning
from mcpvectordb.index.resident import EVERYTHING, Allowed, ColumnSource
from mcpvectordb.ingest.globs import compile_glob
from mcpvectordb.metadata import library_name, storable
from mcpvectordb.ranking.why_empty import FilteredItems
from mcpvectordb.records import Chunk, Condition, Document, Place
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import SQLITE, Sql, SqlDialect
from mcpvectordb.store import ItemFilter
from mcpvectordb.text import fuzzy

if TYPE_CHECKING:
    from mcpvectordb.ranking.ranker import Recency

COLUMNS = "id library source title hash file_type size modified created_at metadata".split()
_COLUMNS = ", ".join(f"d.{name}" for name in COLUMNS)
# Ties are broken by the key, so that pages of a list neither repeat nor leave out a document.
SORTS = {
    "newest": "d.created_at DESC, d.key DESC",
    "oldest": "d.created_at, d.key",
    "title": "d.title, d.key",
    "path": "d.library, d.source, d.key",
    "size": "d.size DESC, d.key DESC",
    "modified": "d.modified DESC, d.key DESC",
}
# How much before and after a chunk its `surroundings` have: of a long document only this is read.
AROUND_CHUNKS, AROUND_CHARACTERS = 100, 10_000
PENDING = (
    # CROSS keeps the order: from all that waits down, a file that waits would take quadratic time.
    "(SELECT count(*) FROM document_chunks c CROSS JOIN document_pending p "
    f"WHERE p.chunk = c.id AND c.owner = d.key AND p.model = {ACTIVE_KEY})"
)
# `path` in SQL, in a file.
_FOLDER = (
    f"(SELECT rtrim(root, '{os.sep}') || '{os.sep}' AS folder "
    f"FROM (SELECT {SQLITE.root} AS root) WHERE root <> '')"
)
PATH = (
    "coalesce((SELECT d.library || '/' || "
    f"replace(substr(d.source, length(folder) + 1), '{os.sep}', '/') "
    f"FROM {_FOLDER} WHERE substr(d.source, 1, length(folder)) = folder), "
    "iif(substr(d.source, 1, length(d.library) + 1) = d.library || '/', '', d.library || '/') "
    "|| ltrim(d.source, '/'))"
)
_CHUNKS = (
    'SELECT c.id, c.owner, c.position, c.start, c."end", c.first_line, c.last_line, c.page, '
    "c.headings, c.header, c.footer, c.tile, c.tile_start, p.tile "
    f"FROM document_chunks c {beginning('document_chunks')}"
)
PUBLISHED = "d.key NOT IN (SELECT document FROM unpublished_documents)"

# Of a pattern for documents: every path of the file is compared with each of them.
MOST_ALTERNATIVES = 32
_LINES = re.compile(r"(.+)(?::|, text lines? )(\d{1,9})(?:-(\d{1,9}))?", re.DOTALL)
_HASH = re.compile(r"#?([0-9a-f]{6,64})", re.IGNORECASE)


@cache
def fields(dialect: SqlDialect = SQLITE, *, chunks: bool = False) -> Mapping[str, str]:
    """SQL of the fields of documents `d`, and of their chunks `c`, that a filter may name."""
    path = dialect.path or PATH
    found = {
        **{name: f"d.{name}" for name in COLUMNS},
        "modified": "nullif(d.modified, '')",
        "date": f"coalesce({dialect.own_date}, nullif(d.modified, ''), d.created_at)",
        "pending": PENDING,
        "path": path,
        "folder": f"rtrim(rtrim({path}, replace({path}, '/', '')), '/')",
    }
    if dialect.origins:
        found["origin"] = dialect.origins["document"]
    if not chunks:
        return found
    text = ChunkIndex.text("document")
    return {**found, "page": "c.page", "position": "c.position", "text": text}


CHUNK_FIELDS = fields(chunks=True)
KINDS: filters.Kinds = {
    **dict.fromkeys(("id", "library", "source", "title", "hash", "file_type", "text"), "text"),
    **dict.fromkeys(("path", "folder", "origin"), "text"),
    **dict.fromkeys(("size", "pending", "page", "position"), "number"),
    **dict.fromkeys(("modified", "created_at", "date"), "time"),
}
# Without source, path and time of modification, whose changes are not logged.
FILTERED = ColumnSource(
    # Also of unpublished documents, whose codes are in memory when they are published.
    rows="document_chunks c JOIN documents d ON d.key = c.owner",
    of_group="1",
    id="c.id",
    metadata="d.metadata",
    fields={
        name: CHUNK_FIELDS[name]
        for name in ("library", "title", "file_type", "size", "created_at", "page", "position")
    },
)


@cache
def items(dialect: SqlDialect) -> FilteredItems:
    """The documents that a filter chooses from."""
    origins = {"origin": "SELECT name FROM origins"} if dialect.origins else {}
    return FilteredItems(
        noun="document",
        rows="published_documents d WHERE TRUE",
        newest="d.key DESC",
        fields=fields(dialect),
        metadata=f"d.{dialect.metadata}",
        names={"library": libraries.NAMES, **origins},
        exact=("source", "title"),
    )


class DocumentFilter(ItemFilter):
    """A condition on documents `d`."""

    @property
    def documents(self) -> Allowed:
        """The keys of the documents that fulfil the condition."""
        return self.allowed("SELECT d.key FROM published_documents d WHERE")

    @property
    def chunks(self) -> Allowed:
        """The ids of their chunks; a condition on chunk fields chooses among these."""
        if self.condition == filters.EVERYTHING:
            return EVERYTHING
        return self.allowed(
            "SELECT c.id FROM document_chunks c JOIN published_documents d ON d.key = c.owner "
            "WHERE",
            self.conditions,
        )

    def published(self, sql: Sql) -> DocumentFilter:
        """The filter for the indexes, which have chunks of unpublished documents, if there are any.

        Without conditions, so that what is in memory is filtered by the published ids as well.
        """
        if not sql.execute("SELECT EXISTS (SELECT 1 FROM unpublished_documents)").get:
            return self
        return DocumentFilter(f"({self.condition}) AND {PUBLISHED}", self.bindings)


ALL_DOCUMENTS = DocumentFilter(filters.EVERYTHING, ())


def document_filter(
    library: str | None, where: Where | None, *, chunks: bool = False, dialect: SqlDialect = SQLITE
) -> DocumentFilter:
    """Documents of a library that fulfil all conditions, or (`chunks`) such chunks of them."""
    if library is None and where is None:
        return ALL_DOCUMENTS
    conditions = filters.conditions(where, KINDS)
    if library is not None:
        conditions.insert(0, Condition("library", "eq", library_name(library)))
    condition, bindings = filters.compile(
        conditions, fields(dialect, chunks=chunks), f"d.{dialect.metadata}", dialect.filters
    )
    return DocumentFilter(condition, tuple(bindings), tuple(conditions))


def selected(sql: Sql, condition: str, *bindings: Any) -> dict[int, Document]:
    """The documents `d` that fulfil a condition, by key, in its order."""
    rows = sql.execute(
        f"SELECT d.key, {_COLUMNS}, {sql.dialect.root}, "
        "(SELECT count(*) FROM document_chunks WHERE owner = d.key) "
        f"FROM published_documents d WHERE {condition}",
        bindings,
    )
    found = {}
    for key, *values, stored, root, chunks in rows:
        found[key] = Document(
            **dict(zip(COLUMNS, values, strict=False)),
            metadata={} if stored == "{}" else metadata.decode(stored),
            chunks=chunks,
            path=path(values[1], values[2], root or ""),
        )
    return found


def row(sql: Sql, id: str) -> tuple[int, Document]:
    """The key of the document with this id, and the document; raises NotFound."""
    for found in selected(sql, "d.id = ? ORDER BY d.key", storable(id, "id")).items():
        return found
    raise NotFound(f"no document has the id {quoted(id)}")


def by_keys(sql: Sql, keys: Sequence[int]) -> dict[int, Document]:
    """The documents that have these keys, by key."""
    return selected(sql, "d.key IN (SELECT value FROM json_each(?))", json.dumps(list(keys)))


def by_key(sql: Sql, key: int) -> Document:
    """The document with this key; raises NotFound if it was deleted meanwhile."""
    for found in by_keys(sql, [key]).values():
        return found
    raise NotFound("the document was deleted meanwhile")


def path(library: str, source: str, root: str) -> str:
    """A document's path in listings: its library, then its place in the library's folder.

    Without such a folder it is the library, then the source, unless that names the library itself:
    plans/q4.md in the library plans is no plans/plans/q4.md.
    """
    folder = os.path.join(root, "") if root else ""  # noqa: PTH118 - the slash at the end is wanted
    if folder and source.startswith(folder):
        return f"{library}/{source[len(folder) :].replace(os.sep, '/')}"
    if source.startswith(f"{library}/"):
        return source
    return f"{library}/{source.lstrip('/')}"


def surroundings(sql: Sql, chunk: Chunk) -> tuple[str, int]:
    """The text around a chunk, which is all of a short document, and the number of its first line.

    Raises NotFound if the document was changed or deleted meanwhile.
    """
    found: list[Any] = sql.execute(
        "SELECT c.tile, c.start - c.tile_start, c.first_line, c.position FROM document_chunks c "
        "JOIN published_documents d ON d.key = c.owner "
        'WHERE d.id = ? AND c.position BETWEEN ? AND ? AND c."end" > ? AND c.start < ? '
        "ORDER BY c.position",
        (
            chunk.document.id,
            chunk.position - AROUND_CHUNKS,
            chunk.position + AROUND_CHUNKS,
            chunk.start - AROUND_CHARACTERS,
            chunk.end + AROUND_CHARACTERS,
        ),
    ).fetchall()
    tiles = [tile for tile, *_ in found]
    if found and found[0][-1] == 0:
        return "".join(tiles), 1
    if len(found) < 2:
        raise NotFound("the document was changed or deleted meanwhile")
    # The first tile is left out, because it may have to tell where the second one begins: a chunk
    # begins inside of its tile or, where chunks overlap, inside of the one before it.
    (before, *_), (tile, skipped, first_line, _), *_ = found
    first_line += before[skipped:].count("\n") if skipped < 0 else -tile[:skipped].count("\n")
    return "".join(tiles[1:]), first_line


def recency(sql: Sql, ids: Sequence[int], recency: Recency) -> dict[int, float]:
    """How much chunks count by the age of their documents, as far as that is known."""
    moments = sql.execute(
        f"SELECT c.id, {fields(sql.dialect)['date']} FROM document_chunks c "
        "JOIN published_documents d ON d.key = c.owner "
        "WHERE c.id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {**dict.fromkeys(ids, 1.0), **{id: recency.weight(when) for id, when in moments}}


def chunks(sql: Sql, ids: Sequence[int]) -> dict[int, Chunk]:
    """The chunks with these ids."""
    some = f"{_CHUNKS} WHERE c.id IN (SELECT value FROM json_each(?))"
    read = sql.execute(some, (json.dumps(list(ids)),)).fetchall()
    documents = by_keys(sql, list({owner for _, owner, *_ in read}))
    found = {}
    for id, owner, position, start, end, first, last, page, *block, tile, at, before in read:
        if before is not None:
            tile, at = before + tile, at - len(before)
        headings, header, footer = block
        if owner in documents:
            found[id] = Chunk(
                id=id,
                document=documents[owner],
                position=position,
                text=tile[start - at : end - at],
                start=start,
                end=end,
                first_line=first,
                last_line=last,
                page=page,
                headings=() if headings == "[]" else metadata.decode_list(headings),
                header=header,
                footer=footer,
            )
    if missing := set(ids) - found.keys():
        raise Damaged(
            f"the index names passage {min(missing)}, which is not there: run `mcpvectordb check`, "
            f"then `rebuild`"
        )
    return found


def found(sql: Sql, names: Sequence[str]) -> list[Place | None]:
    """The document that each name means first, or the one that replaced the one with this id."""
    return [
        next(iter(places), None) or _replacement(sql, name)
        for name, places in zip(names, candidates(sql, names, best=True), strict=True)
    ]


def candidates(
    sql: Sql,
    names: Sequence[str],
    *,
    best: bool = False,
    document: Callable[[Sql, int], Document] | None = None,
) -> list[list[Place]]:
    """For each name all documents that it may mean, or only the best of them.

    `document` makes one of its key, where `sql` shows others than the present ones. The first
    reading of a name that fits any document counts. A name with few readings costs a few look-ups
    in indexes. Only the end of a path takes a scan over all documents, which therefore looks for
    the ends of all names at once.
    """
    readings = {name: _readings(name) for name in names}
    finder = _Finder(sql, {each for name in names for each, *_ in readings[name]})
    places: dict[str, list[Place]] = {}
    for name, meant in readings.items():
        places[name] = []
        for each, line, lines in meant:
            steps = finder.steps(each)
            if best:
                keys = next((keys[:1] for keys in steps if keys), [])
            else:  # all that are found, unless the first two steps, which are exact, find any
                keys = next(steps) or next(steps)
                keys = keys or list(dict.fromkeys(key for some in steps for key in some))
            if keys:
                places[name] = [
                    Place(document=(document or by_key)(sql, key), line=line, lines=lines)
                    for key in keys
                ]
                break
    return [places[name] for name in names]


def nearest(sql: Sql, name: str) -> list[str]:
    """The paths of up to five documents that are spelt like a name, best first; none for a hash."""
    bare = _unquoted(storable(name, "name"))
    if bare.startswith("#"):
        return []
    return fuzzy.nearest(re.sub(r"(:\d+){1,2}$", "", bare), (shown for shown, *_ in _paths(sql)))


def matching(sql: Sql, pattern: str) -> list[int]:
    """The keys of the documents whose path, with or without its library, matches; by path."""
    matches = compile_glob(storable(pattern, "pattern", blank=False), MOST_ALTERNATIVES).fullmatch
    return [
        key
        for _, key in sorted(
            (shown, key)
            for shown, library, _, key in _paths(sql)
            if matches(shown) or matches(shown[len(library) + 1 :])
        )
    ]


_Reading = tuple[str, int | None, int | None]
"""A name of a document, and the line and the number of lines that stood behind it."""


def _readings(name: str) -> list[_Reading]:
    """What a name may mean, best first: as it is, without quotes, with a line, with two numbers.

    A place as `Document.place` writes it is read, too.
    """
    given = storable(name, "name")
    bare = _unquoted(given)
    readings: list[_Reading] = [(each, None, None) for each in dict.fromkeys((given, bare))]
    if match := _LINES.fullmatch(bare):
        first, last = int(match[2]), int(match[3] or 0)
        readings.append((match[1], first, max(1, last + 1 - first) if last else None))
    if match := re.fullmatch(r"(.+):(\d{1,9}):(\d{1,9})", bare, re.DOTALL):
        readings.append((match[1], int(match[2]), int(match[3])))
    return readings


def _replacement(sql: Sql, name: str) -> Place | None:
    """The document that replaced one with this id, if any did."""
    for id, line, lines in _readings(name):
        former = "d.key IN (SELECT document FROM former_ids WHERE id = ?)"
        for document in selected(sql, former, id).values():
            return Place(document=document, line=line, lines=lines, former=True)
    return None


class _Finder:
    """Finds the keys of documents that a name may mean; `names` are all that will be asked for."""

    def __init__(self, sql: Sql, names: Collection[str]) -> None:
        self._sql = sql
        self._names = names
        dialect = sql.dialect
        columns = f"d.library, {dialect.root}, {dialect.folders}"
        self._libraries: list[tuple[str, list[str]]] = [
            (library, libraries.folders(root, others))
            for library, root, others in sql.execute(
                f"SELECT DISTINCT {columns} "
                f"FROM (SELECT DISTINCT {dialect.of_root} FROM published_documents) d ORDER BY 1"
            )
        ]

    def steps(self, name: str) -> Iterator[list[int]]:
        """The keys of documents that a name may mean, step by step from exact to vague.

        The first two are an id, and a path with its library. Only the last one, the end of a path,
        reads all paths; the caller mostly stops before it.
        """
        sql = self._sql
        yield _column(sql, "SELECT key FROM published_documents WHERE id = ?", name)
        yield [
            key
            for library, folders in self._libraries
            if name.startswith(f"{library}/")
            for key in _at(sql, library, _sources(library, folders, name))
        ]
        yield [
            key
            for library, folders in self._libraries
            for key in _at(sql, library, _below(folders, name))
        ]
        if hash := _HASH.fullmatch(name):
            yield _column(
                sql,
                "SELECT key FROM published_documents "
                "WHERE hash >= ?1 AND hash < ?1 || 'g' ORDER BY key",
                hash[1].lower(),
            )
        yield [-key for *_, key in sorted(self._by_end.get(name, ()))]

    @cached_property
    def _by_end(self) -> dict[str, list[tuple[bool, int, str, int]]]:
        """For each name the documents whose path ends with it; the best, a short one, is least."""
        wanted: dict[str, list[str]] = {}
        for name in self._names:
            if name.strip("/"):
                wanted.setdefault(name.lstrip("/"), []).append(name)
        found: dict[str, list[tuple[bool, int, str, int]]] = {}
        last_parts = {each.rpartition("/")[2] for each in wanted}
        for shown, _, source, key in _paths(self._sql, last_parts):
            whole = source.replace(os.sep, "/").lstrip("/")
            for end in {*_ends(shown), *_ends(whole)}:
                for name in wanted.get(end, ()):
                    if end != shown or name == shown:
                        rank = (shown != name, len(shown), shown, -key)
                        found.setdefault(name, []).append(rank)
        return found


def _ends(path: str) -> Iterator[str]:
    """A path, and what follows each of its slashes."""
    yield path
    at = path.find("/")
    while at >= 0:
        yield path[at + 1 :]
        at = path.find("/", at + 1)


def named_sources(sql: Sql, name: str) -> list[tuple[str, str]]:
    """The libraries and sources that a path with its library is of, stored or not any more."""
    given = storable(name, "name")
    return [
        (library, source)
        for library in (given[:at] for at, letter in enumerate(given) if letter == "/" and at)
        for source in _sources(library, libraries.folders_of(sql, library), given)
    ]


def _sources(library: str, folders: Sequence[str], name: str) -> list[str]:
    """The sources of a library that a path with its name may mean, the likeliest first."""
    return [*_below(folders, name[len(library) + 1 :]), name]


def _below(folders: Sequence[str], inside: str) -> list[str]:
    """The sources that a path may mean: as it is, or in one of these folders."""
    # Not Path.expanduser, which raises where there is no home folder.
    sources = [inside, f"/{inside}", os.path.expanduser(inside)]  # noqa: PTH111
    if not os.path.isabs(inside):  # noqa: PTH117
        parts = inside.split("/")
        sources += [os.path.normpath(str(Path(folder, *parts))) for folder in folders]
    return sources


def _at(sql: Sql, library: str, sources: Sequence[str]) -> Iterator[int]:
    """The keys of a library's documents that have one of these sources."""
    for source in dict.fromkeys(sources):
        yield from _column(
            sql,
            "SELECT key FROM published_documents "
            "WHERE library = ? AND source = ? ORDER BY key DESC",
            library,
            source,
        )


def _paths(
    sql: Sql, last_parts: Collection[str] | None = None
) -> Iterator[tuple[str, str, str, int]]:
    """(path, library, source, key) of all documents, or of those whose source ends with such."""
    # One ending is left to SQLite, which is faster; a set of them is not.
    ending = next(iter(last_parts)) if last_parts is not None and len(last_parts) == 1 else ""
    narrowed = " WHERE substr(d.source, length(d.source) - ?) = ?" if ending else ""
    for key, library, source, root in sql.execute(
        f"SELECT d.key, d.library, d.source, {sql.dialect.root} FROM published_documents d"
        f"{narrowed}",
        (len(ending) - 1, ending) if ending else (),
    ):
        deadline.check("comparing the names of documents")
        last = source.replace(os.sep, "/").rpartition("/")[2]
        if last_parts is None or last in last_parts:
            yield path(library, source, root or ""), library, source, key


def _unquoted(name: str) -> str:
    return name.strip().strip("\"'").strip()


def _column(sql: Sql, statement: str, *bindings: str) -> list[int]:
    return [key for (key,) in sql.execute(statement, bindings)]
