"""Plain text, source code and Markdown: the text as it is, with a title.

The title and metadata of Markdown come from its front matter or first heading. What a note of an
Obsidian vault says of itself becomes the metadata `links`, `tags` and `aliases`, lists of texts, so
that backlinks can be asked for: notes whose `links` contain a name. A link has the note's name,
without heading, block, alias and extension; one that is written as a path is also found under the
last part of it. A nested tag (inbox/later) is also found under its beginnings (inbox).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any
from urllib.parse import unquote

from mcpvectordb.ingest.formats.charset import text_of
from mcpvectordb.ingest.structure import front_matter, opening_heading, outline, plain
from mcpvectordb.metadata import MAX_DEPTH, encode
from mcpvectordb.records import Parsed, Source

LONGEST_TITLE = 200

_HEADING = re.compile(r"^\ufeff?#+[^\S\r\n]*([^#\s][^\r\n]*)", re.MULTILINE)


def parse(source: Source) -> Parsed:
    """Return the decoded text; the title is its first line that begins with #, or the file's name.

    The hashes, and what is longer than LONGEST_TITLE, are not part of the title.
    """
    text = text_of(source)
    heading = _HEADING.search(text)
    title = heading[1][:LONGEST_TITLE].strip() if heading else ""
    return Parsed(text=text, title=title or source.name)


def parse_code(source: Source) -> Parsed:
    """Return the decoded text, to be split between definitions; the title is the file's name."""
    return replace(parse(source), title=source.name, kind="code")


# --- Markdown

# The YAML parser takes up to a second for this many characters.
_LONGEST_FRONT_MATTER = 32_000


def parse_markdown(source: Source) -> Parsed:
    """Return the decoded text with title and metadata; invalid front matter is only text."""
    text = text_of(source)
    front, end = front_matter(text)
    metadata = _metadata(front)
    if source.vault:
        metadata = _of_note(text[end:], front, metadata)
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
    if not any(mark in text for mark in ("#", "==", "--")):  # then the slower outline has none
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
        depth = 0
        for event in yaml.parse(front, yaml.SafeLoader):
            kind = type(event).__name__
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            # Aliases can expand exponentially; the time grows with the square of the depth.
            if depth > MAX_DEPTH or kind == "AliasEvent":
                return {}
        metadata = _json(yaml.safe_load(front))
        encode(metadata)
    except Exception:  # the parser raises errors of many classes; `encode` refuses other values
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _json(value: Any) -> Any:
    """The value with what JSON does not have as text: dates, keys that are numbers."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value


# --- notes of an Obsidian vault

MOST = 2_000  # links or tags of one note

_CODE = re.compile(r"^[ \t]{0,3}(```|~~~).*?(?:^[ \t]{0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(`+)(?!`)[^\n]{1,1000}?(?<!`)\1(?!`)")
_COMMENT = re.compile(r"%%.*?(?:%%|\Z)", re.DOTALL)
_WIKILINK = re.compile(r"\[\[([^\[\]|#^\n]{1,500})(?:[#^|][^\[\]\n]{0,500})?\]\]")
_MARKDOWN_LINK = re.compile(
    r"\]\(<?([^()<>\n]{1,500}?\.md)(?:#[^()<>\n]{0,500})?>?\)", re.IGNORECASE
)
_TAG = re.compile(r"(?<![^\s(])#([\w/-]{1,200})")
_SEPARATORS = re.compile(r"[\s,]+")


def _of_note(text: str, front: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata `own` of the front matter with links, tags and aliases, if there are any.

    `text` is what comes below the front matter, `front` the front matter as it is written.
    """
    prose = _COMMENT.sub(" ", _INLINE_CODE.sub(" ", _CODE.sub(" ", text)))
    found = {
        "links": _links(f"{front}\n{prose}"),
        "tags": _tags(own, prose),
        "aliases": _listed(own, "aliases", "alias"),
    }
    others = {key: value for key, value in own.items() if key not in ("tag", "alias", *found)}
    unique = {key: list(dict.fromkeys(each))[:MOST] for key, each in found.items()}
    return {**others, **{key: value for key, value in unique.items() if value}}


def _links(text: str) -> Iterator[str]:
    """The notes and files that a text links to or embeds."""
    for target in (*_WIKILINK.findall(text), *map(unquote, _MARKDOWN_LINK.findall(text))):
        if "://" in target:
            continue
        name = target.strip().removesuffix(".md").strip("/")
        if name:
            yield name
            yield name.rpartition("/")[2]


def _tags(own: Mapping[str, Any], prose: str) -> Iterator[str]:
    """The tags of a note, each with its beginnings; a number alone is none."""
    for tag in (*_listed(own, "tags", "tag"), *_TAG.findall(prose)):
        parts = [part for part in tag.removeprefix("#").split("/") if part]
        if not "".join(parts).isdigit():
            yield from ("/".join(parts[:length]) for length in range(len(parts), 0, -1))


def _listed(own: Mapping[str, Any], *names: str) -> Iterator[str]:
    """The texts of a property that is a list, or one text with commas."""
    for value in (own.get(name) for name in names):
        if isinstance(value, str):
            divide = _SEPARATORS if "tags" in names else re.compile(",")
            yield from (each.strip() for each in divide.split(value) if each.strip())
        elif isinstance(value, list):
            yield from (str(each).strip() for each in value if str(each or "").strip())
