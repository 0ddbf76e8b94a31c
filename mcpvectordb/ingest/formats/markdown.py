"""Markdown: unchanged text; title and metadata come from the front matter or first heading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from mcpvectordb.ingest.formats import vault
from mcpvectordb.ingest.formats.charset import charset, decode
from mcpvectordb.ingest.structure import front_matter, opening_heading, outline, plain
from mcpvectordb.metadata import MAX_DEPTH, encode
from mcpvectordb.records import Parsed, Source

# The YAML parser takes up to a second for this many characters.
_LONGEST_FRONT_MATTER = 32_000
_HEADING_MARKS = ("#", "==", "--")


def parse(source: Source) -> Parsed:
    """Return the decoded text with title and metadata; invalid front matter is only text."""
    text = decode(source.raw, declared=charset(source.media_type))
    front, end = front_matter(text)
    metadata = _metadata(front)
    if source.vault:
        metadata = vault.metadata(text[end:], front, metadata)
    given = metadata.get("title")
    title = plain(str(given)) if isinstance(given, str | float) or type(given) is int else ""
    return Parsed(
        text=text,
        title=title or _first_heading(text) or source.name,
        kind="markdown",
        metadata=metadata,
    )


def _first_heading(text: str) -> str:
    """The first heading, or ""; after an uninformative "Notes" the next heading of level 2."""
    if not any(mark in text for mark in _HEADING_MARKS):  # then the slower outline has none
        return ""
    if (first := opening_heading(text)) and not _is_uninformative(first):
        return first
    headings = [each for each in outline(text, "markdown").headings if each.path[-1]]
    if headings and _is_uninformative(headings[0].path[-1]):
        headings = [each for each in headings[1:] if each.level == 2] or headings
    return headings[0].path[-1] if headings else ""


def _is_uninformative(heading: str) -> bool:
    return heading.removeprefix("📝").strip() == "Notes"


def _metadata(front: str) -> dict[str, Any]:
    if not front.strip() or len(front) > _LONGEST_FRONT_MATTER:
        return {}
    import yaml

    try:
        if not _harmless(yaml.parse(front, yaml.SafeLoader)):
            return {}
        metadata = _json(yaml.safe_load(front))
        encode(metadata)
    except Exception:  # the parser raises errors of many classes; `encode` refuses other values
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _harmless(events: Iterable[Any]) -> bool:
    """Whether there are no aliases (which can expand exponentially) and no deep nesting.

    The parser's time grows with the square of the depth.
    """
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH or kind == "AliasEvent":
            return False
    return True


def _json(value: Any) -> Any:
    """The value with what JSON does not have as text: dates, keys that are numbers."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
