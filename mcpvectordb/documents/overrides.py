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
from mcpvectordb.errors import Damaged, InvalidInput

NOTHING: Mapping[str, Any] = {}


class Overrides(NamedTuple):
    """What people said of one document.

    `title` is "" if they gave none; `metadata` has [value] for each key, [] for one taken out.
    """

    title: str = ""
    metadata: Mapping[str, Sequence[Any]] = NOTHING

    def over(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a document of which the source says `own`."""
        together = {**own, **{key: said[0] for key, said in self.metadata.items() if said}}
        return {key: together[key] for key in together if self.metadata.get(key) != []}

    def then(self, later: Overrides) -> Overrides:
        """What was said first, with what was said later in its place."""
        return Overrides(later.title or self.title, {**self.metadata, **later.metadata})

    def encode(self) -> str:
        """The text of the column `given`."""
        return encoded(self._asdict())


def of_keys(keys: Iterable[str], values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What is said of these keys by `values`, in the form of `Overrides.metadata`."""
    return {key: [values[key]] if key in values else [] for key in keys}


def encoded(value: Mapping[str, Any]) -> str:
    """JSON text of values that were checked before, each by itself."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)


def stored(sql: apsw.Connection, key: int, own: Mapping[str, Any] = NOTHING) -> Overrides:
    """What people said of the document with this key.

    Where that is not known, all of its metadata that the source does not say itself (`own`) counts.
    """
    given, together = sql.execute(
        "SELECT given, metadata FROM published_documents WHERE key = ?", (key,)
    ).fetchone() or (None, "{}")
    if given is None:
        values = metadata.decode(together)
        return Overrides(metadata=of_keys(values.keys() - own.keys(), values))
    return decode(metadata.decode(given))


def decode(value: Mapping[str, Any]) -> Overrides:
    """What people said, from the JSON of the column `given`; raises Damaged."""
    match value:
        case {"title": str(title), "metadata": dict(said)} if all(
            isinstance(each, list) and len(each) < 2 for each in said.values()
        ):
            return Overrides(title, said)
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
