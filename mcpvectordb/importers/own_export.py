"""Our own export as JSONL (`mcpvectordb.export.jsonl`): an empty file gets equal to the exported.

What is in a file already stays as it is; what it does not have is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.export.jsonl import FORMAT
from mcpvectordb.importers import json_files as lines
from mcpvectordb.importers.items import ImportOptions, Item, OwnRecord, UnreadPart
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.importers.values import json_value

_COUNTED = ("document", "context", "vector")


def recognises(source: ImportSource) -> bool:
    """Whether the first line is the header of our export."""
    if source.is_folder:
        return False
    return header(lines.head(source.path)) is not None


def header(head: bytes) -> Mapping[str, Any] | None:
    """The header of our export at the beginning of a file; None if it is something else."""
    found = json_value(head.partition(b"\n")[0].strip()) if b'"mcpvectordb"' in head else None
    return found if isinstance(found, dict) and type(found.get("mcpvectordb")) is int else None


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """Every line as it is, in their order; ParseFailed for the export of a newer version."""
    first = header(lines.head(source.path))
    if first is None:
        raise ParseFailed(f"{source.path} is not an export of mcpvectordb: it has no header")
    if first["mcpvectordb"] > FORMAT:
        raise ParseFailed(
            f"{source.path} was exported by a newer mcpvectordb (format {first['mcpvectordb']}, "
            f"known is {FORMAT}): upgrade this one"
        )
    yield OwnRecord(kind="header", fields=first)
    items, end = 0, None
    for number, value, error in lines.json_lines(source.path):
        if error or not isinstance(value, dict):
            yield UnreadPart(what=f"line {number}: {error or 'it is no object'}")
        elif value.get("kind") == "end":
            end = value.get("items")
        elif number > 1:
            items += value.get("kind") in _COUNTED
            text = value.get("text")
            yield OwnRecord(
                kind=str(value.get("kind")),
                fields=value,
                text=text if isinstance(text, str) else "",
            )
    if end is None:
        yield UnreadPart(what="the end of the export: its last line is missing")
    elif end != items:
        yield UnreadPart(what=f"{end} items were exported, but {items} are in the file")
