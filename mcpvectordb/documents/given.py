"""What people say of a document: its title and metadata, kept apart from what its source says.

A source says something of itself (the front matter of a note, the properties of a DOCX), which
follows the source when it changes. What a person said stays until a person says otherwise, and wins
over the source. The column `metadata` has both together; the column `given` has what people said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from mcpvectordb import metadata
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.versions import DocumentVersions
from mcpvectordb.errors import Damaged, InvalidInput, quoted
from mcpvectordb.index.chunks import ChunkIndex

NOTHING: Mapping[str, Any] = {}


class Given(NamedTuple):
    """What people said of one document.

    `title` is "" if they gave none; `metadata` has [value] for each key, [] for one taken out.
    """

    title: str = ""
    metadata: Mapping[str, Sequence[Any]] = NOTHING

    def over(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a document of which the source says `own`."""
        together = {**own, **{key: said[0] for key, said in self.metadata.items() if said}}
        return {key: together[key] for key in together if self.metadata.get(key) != []}

    def then(self, later: Given) -> Given:
        """What was said first, with what was said later in its place."""
        return Given(later.title or self.title, {**self.metadata, **later.metadata})

    def encode(self) -> str:
        """The text of the column `given`."""
        return encoded(self._asdict())


def of_keys(keys: Iterable[str], values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What is said of these keys by `values`, in the form of `Given.metadata`."""
    return {key: [values[key]] if key in values else [] for key in keys}


def encoded(value: Mapping[str, Any]) -> str:
    """JSON text of values that were checked before, each by itself."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)


def stored(sql: apsw.Connection, key: int, own: Mapping[str, Any] = NOTHING) -> Given:
    """What people said of the document with this key.

    Where that is not known, all of its metadata that the source does not say itself (`own`) counts.
    """
    given, together = sql.execute(
        "SELECT given, metadata FROM published_documents WHERE key = ?", (key,)
    ).fetchone() or (None, "{}")
    if given is None:
        values = metadata.decode(together)
        return Given(metadata=of_keys(values.keys() - own.keys(), values))
    return decode(metadata.decode(given))


def decode(value: Mapping[str, Any]) -> Given:
    """What people said, from the JSON of the column `given`; raises Damaged."""
    match value:
        case {"title": str(title), "metadata": dict(said)} if all(
            isinstance(each, list) and len(each) < 2 for each in said.values()
        ):
            return Given(title, said)
    raise Damaged("what is stored as given is not what was written: run `mcpvectordb check`")


class DocumentChange(NamedTuple):
    """A change of what people say of a document; None leaves a field as it is.

    `metadata` replaces all, `patch` is merged into it (RFC 7396), `keys` are set.
    """

    metadata: Mapping[str, Any] | None = None
    patch: Mapping[str, Any] | None = None
    keys: Mapping[str, Any] | None = None
    title: str | None = None
    library: str | None = None


def checked_change(
    values: Mapping[str, Any] | None,
    patch: Mapping[str, Any] | None,
    title: str | None,
    library: str | None,
) -> DocumentChange:
    """The change that an update asks for; raises InvalidInput."""
    if values is not None and patch is not None:
        raise InvalidInput("give metadata or metadata_patch, not both")
    if (values, patch, title, library) == (None,) * 4:
        raise InvalidInput("nothing to change: give metadata, metadata_patch, title or library")
    metadata.encode(values), metadata.encode(patch, "metadata_patch")
    return DocumentChange(
        metadata=values,
        patch=patch,
        title=None if title is None else metadata.storable(title, "title", blank=False),
        library=None if library is None else checked_name(library),
    )


def update(
    sql: apsw.Connection,
    index: ChunkIndex,
    versions: DocumentVersions,
    key: int,
    change: DocumentChange,
) -> tuple[bool, str]:
    """Change a document's row; whether that changed anything, and the title to write it under.

    That is "" if it has this title, and if the document was deleted meanwhile. Raises InvalidInput
    if a document with its source is in the other library.
    """
    row = sql.execute(
        "SELECT library, source, title, metadata FROM published_documents WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        return False, ""
    library, source, title, before = row
    given = stored(sql, key)
    now, said = _changed(metadata.decode(before), given, change)
    after = (change.library or library, metadata.encode(now))
    then = given.then(Given(change.title or "", said))
    changed = after != (library, before)
    if after[0] != library:
        _refuse_second(sql, after[0], source)
    if changed or then != given:
        with versions.changing(sql, key) as stamp:
            sql.execute(
                "UPDATE documents SET library = ?, metadata = ?, given = ?, stamp = ? "
                "WHERE key = ?",
                (*after, then.encode(), stamp, key),
            )
    if changed:
        index.touch(sql, key)
    return changed, change.title if change.title and change.title != title else ""


def _changed(
    values: dict[str, Any], given: Given, change: DocumentChange
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The metadata after a change, and what the change says of keys."""
    keys: Iterable[str]
    if change.metadata is not None:
        now, keys = dict(change.metadata), {**values, **given.metadata, **change.metadata}
    elif change.patch is not None:
        now, keys = metadata.merge(values, change.patch), change.patch
    else:
        now, keys = {**values, **(change.keys or {})}, change.keys or ()
    return now, of_keys(keys, now)


def _refuse_second(sql: apsw.Connection, library: str, source: str) -> None:
    other = sql.execute(
        "SELECT id FROM published_documents WHERE library = ? AND source = ?", (library, source)
    ).fetchone()
    if other:
        raise InvalidInput(
            f"the library {quoted(library)} already has a document of {quoted(source)} "
            f"({other[0]}); delete one of the two first"
        )
