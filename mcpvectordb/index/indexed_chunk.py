"""A chunk as it is indexed: which of its text is embedded, and which is found by words. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple


class IndexedChunk(NamedTuple):
    """A chunk as it is indexed.

    `header` is that of the table or code block that it is a part of, `front` the front matter
    before it: found by words, but not embedded.
    """

    id: int
    title: str
    headings: tuple[str, ...]
    header: str
    text: str
    front: str = ""

    @property
    def embedding_text(self) -> str:
        """The text that is embedded."""
        return embedding_text(self.title, self.headings, self.header, self.text)

    @property
    def words(self) -> str:
        """What is found by words, apart from title and headings."""
        return "\n".join(part for part in (self.front, self.header, self.text) if part)

    @property
    def columns(self) -> tuple[str, str, str]:
        """Title, headings and words, as they are indexed for keyword search."""
        return self.title, "\n".join(self.headings), self.words

    @property
    def hash(self) -> bytes:
        """The hash of all of it; without front matter that of the text that is embedded."""
        return digest(self.front + self.embedding_text)


def embedding_text(title: str, headings: Sequence[str], header: str, text: str) -> str:
    """The text that is embedded for a chunk: title and headings, then header and text.

    Of a table's header this is the first line: the rule below it would only take tokens.
    """
    path = " > ".join(dict.fromkeys(part for part in (title, *headings) if part))
    above = [part for part in (path, header.partition("\n")[0]) if part]
    return "\n".join([*above, text])


def covers_tile(tile: str, start: int, end: int) -> bool:
    """Whether a chunk leaves out nothing of its tile but white space, a byte order mark or front
    matter.

    `start` and `end` are offsets in the tile.
    """
    from mcpvectordb.ingest.structure import front_matter

    before = tile[: max(start, 0)]
    _, front = front_matter(tile)
    before = before[front:] if 0 < front <= len(before) else before.removeprefix("\ufeff")
    return not (before + tile[max(end, 0) :]).strip()


def visible(front: str) -> str:
    """What a tile has before its chunk: front matter, or nothing to be seen."""
    return front if front.removeprefix("\ufeff").strip() else ""


def digest(text: str) -> bytes:
    """The hash by which equal texts are embedded once."""
    return hashlib.sha256(text.encode()).digest()[:16]
