"""Look documents up by name: a path in listings or the end of one, a file, an id, or a hash.

An id, or a path with its library, means one document. Whatever else a document can be named by, a
source, a hash or the end of a path, may be that of several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import apsw

from mcpvectordb.documents.rows import by_key, path
from mcpvectordb.ingest.globs import compile_glob
from mcpvectordb.metadata import storable
from mcpvectordb.records import Place
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import dialect_of
from mcpvectordb.text import fuzzy

# Of a pattern for documents: every path of the file is compared with each of them.
MOST_ALTERNATIVES = 32

_LINES = (
    re.compile(r"(.+):(\d{1,9})", re.DOTALL),
    re.compile(r"(.+):(\d{1,9}):(\d{1,9})", re.DOTALL),
)
_HASH = re.compile(r"#?([0-9a-f]{6,64})", re.IGNORECASE)


def found(sql: apsw.Connection, names: Sequence[str]) -> list[Place | None]:
    """The document that each name means first, or the one that replaced the one with this id."""
    return [
        next(iter(places), None) or _replacement(sql, name)
        for name, places in zip(names, _places(sql, names, _first), strict=True)
    ]


def candidates(sql: apsw.Connection, names: Sequence[str]) -> list[list[Place]]:
    """For each name all documents that it may mean."""
    return _places(sql, names, _every)


def nearest(sql: apsw.Connection, name: str) -> list[str]:
    """The paths of up to five documents that are spelt like a name, best first; none for a hash."""
    bare = _unquoted(storable(name, "name"))
    if bare.startswith("#"):
        return []
    return fuzzy.nearest(re.sub(r"(:\d+){1,2}$", "", bare), (shown for shown, _, _ in _paths(sql)))


def matching(sql: apsw.Connection, pattern: str) -> list[int]:
    """The keys of the documents whose path, with or without its library, matches; by path."""
    matches = compile_glob(storable(pattern, "pattern", blank=False), MOST_ALTERNATIVES).fullmatch
    return [
        key
        for _, key in sorted(
            (shown, key)
            for shown, library, key in _paths(sql)
            if matches(shown) or matches(shown[len(library) + 1 :])
        )
    ]


class _Reading(NamedTuple):
    """A name of a document, and the lines that stood behind it."""

    name: str
    line: int | None = None
    lines: int | None = None


def _readings(name: str) -> list[_Reading]:
    """What a name may mean, best first: as it is, without quotes, with a line, with two numbers."""
    given = storable(name, "name")
    bare = _unquoted(given)
    readings = [_Reading(each) for each in dict.fromkeys((given, bare))]
    for match in filter(None, (expression.fullmatch(bare) for expression in _LINES)):
        readings.append(_Reading(match[1], *map(int, match.groups()[1:])))
    return readings


def _places(
    sql: apsw.Connection, names: Sequence[str], choose: Callable[[Iterator[list[int]]], list[int]]
) -> list[list[Place]]:
    """The places that `choose` takes from the steps in which a `_Finder` finds each name.

    The first reading of a name that fits any document counts. A name with few readings costs a few
    look-ups in indexes. Only the end of a path takes a scan over all documents, which therefore
    looks for the ends of all names at once.
    """
    readings = {name: _readings(name) for name in names}
    finder = _Finder(sql, {each.name for name in names for each in readings[name]})
    places: dict[str, list[Place]] = {}
    for name, meant in readings.items():
        found = ((each, choose(finder.steps(each.name))) for each in meant)
        each, keys = next(((each, keys) for each, keys in found if keys), (meant[0], []))
        places[name] = [
            Place(document=by_key(sql, key), line=each.line, lines=each.lines) for key in keys
        ]
    return [places[name] for name in names]


def _replacement(sql: apsw.Connection, name: str) -> Place | None:
    """The document that replaced one with this id, if any did."""
    for each in _readings(name):
        for key in _column(
            sql,
            "SELECT f.document FROM former_ids f "
            "JOIN published_documents d ON d.key = f.document WHERE f.id = ?",
            each.name,
        ):
            return Place(document=by_key(sql, key), line=each.line, lines=each.lines, former=True)
    return None


def _first(steps: Iterator[list[int]]) -> list[int]:
    """The best document of the first step that finds any."""
    return next((keys[:1] for keys in steps if keys), [])


def _every(steps: Iterator[list[int]]) -> list[int]:
    """All documents that are found, unless the first two steps, which are exact, find any."""
    exact = next(steps) or next(steps)
    return exact or list(dict.fromkeys(key for keys in steps for key in keys))


class _Finder:
    """Finds the keys of documents that a name may mean; `names` are all that will be asked for."""

    def __init__(self, sql: apsw.Connection, names: Collection[str]) -> None:
        self._sql = sql
        self._names = names
        self._libraries: list[tuple[str, str | None]] = list(
            sql.execute(
                f"SELECT DISTINCT d.library, {dialect_of(sql).root} FROM published_documents d "
                "ORDER BY d.library"
            )
        )

    def steps(self, name: str) -> Iterator[list[int]]:
        """The keys of documents that a name may mean, step by step from exact to vague.

        The first two are an id, and a path with its library. Only the last one, the end of a path,
        reads all paths; the caller mostly stops before it.
        """
        sql = self._sql
        yield _column(sql, "SELECT key FROM published_documents WHERE id = ?", name)
        yield [
            key
            for library, root in self._libraries
            if name.startswith(f"{library}/")
            for key in _at(sql, library, root, name[len(library) + 1 :])
        ]
        yield [key for library, root in self._libraries for key in _at(sql, library, root, name)]
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
        for shown, _, key in _paths(self._sql, {each.rpartition("/")[2] for each in wanted}):
            for end in _ends(shown):
                for name in wanted.get(end, ()):
                    if end != shown or name == shown:
                        rank = (shown != name, len(shown), shown, -key)
                        found.setdefault(name, []).append(rank)
        return found


def _ends(shown: str) -> Iterator[str]:
    """A path, and what follows each of its slashes."""
    yield shown
    at = shown.find("/")
    while at >= 0:
        yield shown[at + 1 :]
        at = shown.find("/", at + 1)


def _at(sql: apsw.Connection, library: str, root: str | None, inside: str) -> Iterator[int]:
    """The keys of a library's documents whose source is this path, in its folder or elsewhere."""
    # Not Path.expanduser, which raises where there is no home folder.
    sources = [inside, f"/{inside}", os.path.expanduser(inside)]  # noqa: PTH111
    if root and not os.path.isabs(inside):  # noqa: PTH117
        sources.append(os.path.normpath(str(Path(root, *inside.split("/")))))
    for source in dict.fromkeys(sources):
        yield from _column(
            sql,
            "SELECT key FROM published_documents "
            "WHERE library = ? AND source = ? ORDER BY key DESC",
            library,
            source,
        )


def _paths(
    sql: apsw.Connection, last_parts: Collection[str] | None = None
) -> Iterator[tuple[str, str, int]]:
    """(path, library, key) of all documents, or of those whose source has such a last part."""
    # One ending is left to SQLite, which is faster; a set of them is not.
    ending = next(iter(last_parts)) if last_parts is not None and len(last_parts) == 1 else ""
    narrowed = " WHERE substr(d.source, length(d.source) - ?) = ?" if ending else ""
    for key, library, source, root in sql.execute(
        f"SELECT d.key, d.library, d.source, {dialect_of(sql).root} FROM published_documents d"
        f"{narrowed}",
        (len(ending) - 1, ending) if ending else (),
    ):
        deadline.check("comparing the names of documents")
        if last_parts is None or _last_part(source) in last_parts:
            yield path(library, source, root or ""), library, key


def _last_part(source: str) -> str:
    return source.replace(os.sep, "/").rpartition("/")[2]


def _unquoted(name: str) -> str:
    return name.strip().strip("\"'").strip()


def _column(sql: apsw.Connection, statement: str, *bindings: str) -> list[int]:
    return [key for (key,) in sql.execute(statement, bindings)]
