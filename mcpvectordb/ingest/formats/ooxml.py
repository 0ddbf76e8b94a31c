"""Common to the Office formats: parts, the relations between them, and document properties."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats.archive import Archive

_PROPERTIES = {
    "title": "title",
    "creator": "author",
    "subject": "subject",
    "keywords": "keywords",
    "description": "description",
    "created": "created",
    "modified": "modified",
    "language": "language",
}


def local(element: Any) -> str:
    """Return an element's name without its namespace, which differs between editions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def children(element: Any, *names: str) -> Iterator[Any]:
    """Return the children with these names."""
    return (child for child in element if local(child) in names)


def find(element: Any, *path: str) -> Any:
    """Return the first descendant along a path of names, or None."""
    for name in path:
        element = next(children(element, name), None) if element is not None else None
    return element


def value(element: Any, name: str = "val") -> str:
    """Return an attribute of any namespace; "" if the element or the attribute is missing."""
    if element is None:
        return ""
    return next((text for key, text in element.items() if key.rpartition("}")[2] == name), "")


def relations(archive: Archive, part: str) -> dict[str, tuple[str, str]]:
    """Return the relations of a part by id: the last word of the type, and the target part."""
    folder, name = posixpath.split(part)
    root = archive.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
    found = {}
    for relation in root if root is not None else ():
        if relation.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, relation.get("Target") or ""))
            found[relation.get("Id")] = (
                (relation.get("Type") or "").rpartition("/")[2],
                target.lstrip("/"),
            )
    return found


def links(archive: Archive, part: str) -> dict[str, str]:
    """Return the targets of a part's hyperlinks by the id of their relation."""
    folder, name = posixpath.split(part)
    root = archive.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
    return {
        relation.get("Id"): relation.get("Target") or ""
        for relation in (root if root is not None else ())
        if relation.get("TargetMode") == "External"
        and (relation.get("Type") or "").endswith("/hyperlink")
    }


def relation_id(element: Any, name: str = "id") -> str:
    """Return the id of a relation that an element refers to (r:id); "" without one."""
    return next((text for key, text in element.items() if key.endswith(f"}}{name}")), "")


def main_part(archive: Archive, usual: str) -> str:
    """Return the name of the part with the document itself."""
    kinds = dict(relations(archive, "").values())
    part = kinds.get("officeDocument", usual)
    if part not in archive.members:
        raise ParseFailed(f"{archive.name} is damaged: its part {part} is missing")
    return part


def properties(archive: Archive) -> dict[str, str]:
    """Return the document properties: title, author, dates and the like."""
    part = dict(relations(archive, "").values()).get("core-properties", "docProps/core.xml")
    root = archive.xml(part)
    metadata = {
        _PROPERTIES.get(local(child), ""): child.text or ""
        for child in (root if root is not None else ())
    }
    metadata.pop("", None)
    return metadata
