"""The spans of stored chunks: read from the file, and as JSON in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apsw

from mcpvectordb.index.indexed_chunk import covers_tile
from mcpvectordb.ingest.span import Span
from mcpvectordb.metadata import decode_list, storable

_NUMBERS = ("tile_start", "start", "end", "first_line", "last_line", "page")


def stored(sql: apsw.Connection, chunks: str, owner: int) -> tuple[str, list[Span]]:
    """The text of an owner and the spans of its chunks in the table `chunks`, as written."""
    tiles: list[str] = []
    spans: list[Span] = []
    for tile, headings, header, footer, *numbers in sql.execute(
        'SELECT tile, headings, header, footer, tile_start, start, "end", first_line, last_line, '
        f"page FROM {chunks} WHERE owner = ? ORDER BY position",
        (owner,),
    ):
        tiles.append(tile)
        values = dict(zip(_NUMBERS, numbers, strict=True))
        spans.append(
            Span(
                **values,
                tile_end=values["tile_start"] + len(tile),
                headings=decode_list(headings),
                header=header,
                footer=footer,
            )
        )
    return "".join(tiles), spans


def places(spans: Sequence[Span]) -> list[list[Any]]:
    """Spans as lists that JSON can hold."""
    return [
        [*(getattr(each, name) for name in _NUMBERS), each.headings, each.header, each.footer]
        for each in spans
    ]


def checked(text: Any, places: Sequence[Sequence[Any]]) -> list[Span]:
    """The spans of a text from such lists; ValueError or TypeError if they do not fit it."""
    storable(text, "text")
    spans = [_span(place) for place in places]
    ends = [*(each.tile_start for each in spans[1:]), len(text)][: len(spans)]
    spans = [replace(span, tile_end=end) for span, end in zip(spans, ends, strict=True)]
    first, before = 0, 0
    for span in spans:
        tile = text[span.tile_start : span.tile_end]
        if span.tile_start != first or not before <= span.start <= span.end <= span.tile_end:
            raise ValueError("a chunk is not where its tile is")
        if not covers_tile(tile, span.start - first, span.end - first):
            raise ValueError("a chunk leaves out text of its tile")
        first, before = span.tile_end, span.tile_start
    if first != len(text):
        raise ValueError("the tiles are not the whole text")
    return spans


def _span(place: Sequence[Any]) -> Span:
    *numbers, headings, header, footer = place
    if any(type(each) is not int or not 0 <= each < 2**53 for each in numbers if each is not None):
        raise ValueError("a place is no number")
    values = dict(zip(_NUMBERS, numbers, strict=True))
    if None in numbers[:-1]:
        raise ValueError("a place is missing")
    texts = tuple(storable(each, "headings") for each in headings)
    return Span(
        **values,
        tile_end=0,
        headings=texts,
        header=storable(header, "header"),
        footer=storable(footer, "footer"),
    )
