"""What a note of an Obsidian vault says of itself: links to other notes, tags and aliases.

They become the metadata `links`, `tags` and `aliases`, lists of texts, so that backlinks can be
asked for: notes whose `links` contain a name. A link has the note's name, without heading, block,
alias and extension; one that is written as a path is also found under the last part of it. A nested
tag (inbox/later) is also found under its beginnings (inbox).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

FOLDER = ".obsidian"
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


def is_in_vault(path: Path) -> bool:
    """Whether a file lies in a vault, at any depth."""
    return any((folder / FOLDER).is_dir() for folder in path.parents)


def metadata(text: str, front: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata `own` of the front matter with links, tags and aliases, if there are any.

    `text` is what comes below the front matter, `front` the front matter as it is written.
    """
    prose = _COMMENT.sub(" ", _INLINE_CODE.sub(" ", _CODE.sub(" ", text)))
    found = {
        "links": _unique(_links(f"{front}\n{prose}")),
        "tags": _unique(_tags(own, prose)),
        "aliases": _unique(_listed(own, "aliases", "alias")),
    }
    others = {key: value for key, value in own.items() if key not in ("tag", "alias", *found)}
    return {**others, **{key: value for key, value in found.items() if value}}


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


def _unique(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))[:MOST]
