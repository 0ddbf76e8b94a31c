"""Look documents up by name: a path in listings or the end of one, a file, an id, or a hash."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import apsw

from mcpvectordb.documents.rows import SELECT, document, path
from mcpvectordb.errors import NotFound, quoted
from mcpvectordb.ingest.globs import compile_glob
from mcpvectordb.metadata import storable
from mcpvectordb.records import Document, Place
from mcpvectordb.text import fuzzy

_LINES = (
    re.compile(r"(.+):(\d{1,9})", re.DOTALL),
    re.compile(r"(.+):(\d{1,9}):(\d{1,9})", re.DOTALL),
)
_HASH = re.compile(r"#?([0-9a-f]{6,64})", re.IGNORECASE)


def lookup(sql: apsw.Connection, name: str) -> Place:
    """The document with this name, and the lines that `name:LINE:COUNT` selects; raises NotFound.

    A document whose own name ends like `:LINE` is found first.
    """
    given = storable(name, "name")
    bare = _unquoted(given)
    for each in dict.fromkeys((given, bare)):
        for key in _keys(sql, each):
            return Place(document=_document(sql, key))
    for match in filter(None, (expression.fullmatch(bare) for expression in _LINES)):
        for key in _keys(sql, match[1]):
            line, *count = map(int, match.groups()[1:])
            return Place(document=_document(sql, key), line=line, lines=count[0] if count else None)
    raise NotFound(f"there is no document {quoted(name)}")


def similar(sql: apsw.Connection, name: str) -> list[str]:
    """The paths of documents that are similar to an unknown name, best first; none for a hash."""
    bare = _unquoted(storable(name, "name"))
    if bare.startswith("#"):
        return []
    return fuzzy.nearest(re.sub(r"(:\d+){1,2}$", "", bare), (shown for shown, _, _ in _paths(sql)))


def matching(sql: apsw.Connection, pattern: str) -> list[Document]:
    """The documents whose path, with or without its library, matches a pattern; sorted by path."""
    matches = compile_glob(storable(pattern, "pattern", blank=False)).fullmatch
    found = sorted(
        (shown, key)
        for shown, library, key in _paths(sql)
        if matches(shown) or matches(shown[len(library) + 1 :])
    )
    return [_document(sql, key) for _, key in found]


def _keys(sql: apsw.Connection, name: str) -> Iterator[int]:
    """The keys of documents that a name may mean, best first.

    Only the last step, the end of a path, reads all paths; the caller mostly stops before it.
    """
    yield from _column(sql, "SELECT key FROM documents WHERE id = ?", name)
    libraries = list(
        sql.execute(
            "SELECT n.library, l.root FROM (SELECT DISTINCT library FROM documents) n "
            "LEFT JOIN libraries l ON l.name = n.library ORDER BY n.library"
        )
    )
    for library, root in libraries:
        if name.startswith(f"{library}/"):
            yield from _at(sql, library, root, name[len(library) + 1 :])
    for library, root in libraries:
        yield from _at(sql, library, root, name)
    if hash := _HASH.fullmatch(name):
        yield from _column(
            sql,
            "SELECT key FROM documents WHERE hash >= ?1 AND hash < ?1 || 'g' ORDER BY key",
            hash[1].lower(),
        )
    if name.strip("/"):
        ends = [
            (shown != name, len(shown), shown, -key)
            for shown, _, key in _paths(sql, ending=name.rpartition("/")[2])
            if shown == name or shown.endswith(f"/{name.lstrip('/')}")
        ]
        yield from (-key for _, _, _, key in sorted(ends))


def _at(sql: apsw.Connection, library: str, root: str | None, inside: str) -> Iterator[int]:
    """The keys of a library's documents whose source is this path, in its folder or elsewhere."""
    # Not Path.expanduser, which raises where there is no home folder.
    sources = [inside, f"/{inside}", os.path.expanduser(inside)]  # noqa: PTH111
    if root and not os.path.isabs(inside):  # noqa: PTH117
        sources.append(os.path.normpath(str(Path(root, *inside.split("/")))))
    for source in dict.fromkeys(sources):
        yield from _column(
            sql,
            "SELECT key FROM documents WHERE library = ? AND source = ? ORDER BY key DESC",
            library,
            source,
        )


def _paths(sql: apsw.Connection, ending: str = "") -> Iterator[tuple[str, str, int]]:
    """(path, library, key) of all documents, or of those whose source has this ending."""
    narrowed = " WHERE substr(d.source, ?) = ?" if ending else ""
    for key, library, source, root in sql.execute(
        f"SELECT d.key, d.library, d.source, l.root FROM documents d LEFT JOIN libraries l ON "
        f"l.name = d.library{narrowed}",
        (-len(ending), ending) if ending else (),
    ):
        yield path(library, source, root or ""), library, key


def _unquoted(name: str) -> str:
    return name.strip().strip("\"'").strip()


def _column(sql: apsw.Connection, statement: str, *bindings: str) -> list[int]:
    return [key for (key,) in sql.execute(statement, bindings)]


def _document(sql: apsw.Connection, key: int) -> Document:
    return document(sql.execute(f"{SELECT} WHERE d.key = ?", (key,)).fetchall()[0])
