"""The place of a chunk in its text, for all that write or read chunks without cutting any."""

from __future__ import annotations

from mcpvectordb.records import Record

STANDARD_SIZE = 200
"""Tokens of a chunk unless another size was chosen: with title and headings it fits every model."""


class Span(Record):
    """The place of a chunk in a text.

    The text of the chunk is `text[start:end]`; its tile is `text[tile_start:tile_end]`. Tiles
    follow each other without gap or overlap, and together are the whole text. `start` may be in the
    previous tile (overlap), after white space or after front matter; `end` is before trailing white
    space. A part of a table or code block is read between `header` and `footer`.
    """

    start: int
    end: int
    tile_start: int
    tile_end: int
    first_line: int
    last_line: int
    page: int | None
    headings: tuple[str, ...]
    header: str = ""
    footer: str = ""
