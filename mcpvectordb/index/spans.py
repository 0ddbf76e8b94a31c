"""The texts of documents and memories with the spans of their chunks.

They are read from the file here, and written as JSON: packed in the history, and as the lines of
an export.
"""

from __future__ import annotations

import base64
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import Damaged, InvalidInput, TooLarge
from mcpvectordb.history.versions import Version, VersionedShelf, pack, unpack
from mcpvectordb.index.chunks import covers_tile
from mcpvectordb.ingest.span import Span
from mcpvectordb.metadata import decode_list, from_base64, received, storable
from mcpvectordb.storage.dialect import Sql

_NUMBERS = ("tile_start", "start", "end", "first_line", "last_line", "page")
_LINE = ("start", "end", "tile_end", "first_line", "last_line")
_OPTIONAL = ("page", "headings", "header", "footer")


class StoredImage(NamedTuple):
    """An image of a memory; its metadata is JSON text, or None."""

    mime_type: str
    metadata: str | None
    data: bytes


class ItemText(NamedTuple):
    """A text, the spans of its chunks and, of a memory, its images (None of a document)."""

    text: str
    spans: list[Span]
    images: list[StoredImage] | None = None

    def packed(self) -> bytes:
        """The body that the history keeps."""
        places = [
            [*(getattr(each, name) for name in _NUMBERS), each.headings, each.header, each.footer]
            for each in self.spans
        ]
        if self.images is None:
            return pack([self.text, places])
        images = [[kind, said, base64.b64encode(data).decode()] for kind, said, data in self.images]
        return pack([self.text, places, images])


class ReceivedItem(NamedTuple):
    """An item of an export: a checked version with its content, and what a version does not have.

    Embeddings are by the position of their chunk.
    """

    version: Version
    content: Any
    embeddings: Mapping[int, bytes] = {}
    former_ids: Sequence[str] = ()


class TextItems(VersionedShelf, ABC):
    """Items with a text that is divided into chunks, in tables that begin with `table`."""

    table: ClassVar[str]

    @classmethod
    def stored(cls, sql: Sql, owner: int) -> ItemText:
        """What a present item has beside its fields: its text, and the spans of its chunks."""
        tiles: list[str] = []
        spans: list[Span] = []
        for tile, headings, header, footer, *numbers in sql.execute(
            'SELECT tile, headings, header, footer, tile_start, start, "end", first_line, '
            f"last_line, page FROM {cls.table}_chunks WHERE owner = ? ORDER BY position",
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
        return ItemText("".join(tiles), spans)

    @classmethod
    def body(cls, sql: Sql, version: Version) -> bytes:
        """The packed text of a present version."""
        return cls.stored(sql, cls.owner(version)).packed()

    @classmethod
    def content(cls, body: bytes) -> ItemText:
        """What `ItemText.packed` was called for; raises Damaged."""
        try:
            text, places, *images = unpack(body)
            spans = checked(text, places)
            if not images:
                return ItemText(text, spans)
            [found] = images
            return ItemText(text, spans, [_image(*each) for each in found])
        except (ValueError, TypeError):
            raise Damaged(f"a {cls.noun} in the history is not what was written") from None

    @classmethod
    def text(cls, body: bytes) -> str:
        """The text of a packed body."""
        return cls.content(body).text

    @classmethod
    def text_line(
        cls, sql: Sql, owner: int, content: ItemText, model: int | None
    ) -> dict[str, Any]:
        """A text as an export has it: its chunks without what is empty, with embeddings."""
        found = embeddings(sql, cls.table, model, owner) if model else {}
        chunks = [
            {name: getattr(span, name) for name in _LINE}
            | {name: value for name in _OPTIONAL if (value := getattr(span, name))}
            | ({"embedding": found[position]} if position in found else {})
            for position, span in enumerate(content.spans)
        ]
        return {"text": content.text, "chunks": chunks}

    @classmethod
    def of_text_line(
        cls, text: str, line: Mapping[str, Any], config: Config
    ) -> tuple[list[Span], dict[int, bytes]]:
        """The spans and embeddings of a text of such a line; raises InvalidInput or TooLarge."""
        if len(text.encode()) > config.max_source_bytes:
            raise TooLarge(f"its text is too large {how_to_allow('max_source_bytes')}")
        chunks = line.get("chunks", [])
        if not isinstance(chunks, list):
            raise InvalidInput("chunks is not a list")
        if len(chunks) > config.max_chunks:
            raise TooLarge(
                f"it has more than {config.max_chunks:,} chunks {how_to_allow('max_chunks')}"
            )
        places: list[list[Any]] = []
        found: dict[int, bytes] = {}
        tile_start: Any = 0
        for position, each in enumerate(chunks):
            if not isinstance(each, Mapping):
                raise InvalidInput("a chunk is not an object")
            if each.get("embedding") is not None:
                found[position] = from_base64(each["embedding"], "an embedding")
            numbers = [tile_start, *(each.get(name) for name in _NUMBERS[1:])]
            texts = [each.get("headings", []), each.get("header", ""), each.get("footer", "")]
            places.append([*numbers, *texts])
            tile_start = each.get("tile_end")
        if tile_start != len(text):
            raise InvalidInput("its chunks are not its whole text")
        return checked(text, places), found


def _image(mime_type: Any, metadata: Any, data: Any) -> StoredImage:
    if metadata is not None:
        received(metadata)
    return StoredImage(storable(mime_type, "mime_type"), metadata, from_base64(data, "an image"))


def checked(text: Any, places: Sequence[Sequence[Any]]) -> list[Span]:
    """The spans of a text from packed places; InvalidInput or TypeError if they do not fit it."""
    storable(text, "text")
    spans = []
    for *numbers, headings, header, footer in places:
        if None in numbers[:-1] or any(
            type(each) is not int or not 0 <= each < 2**53 for each in numbers if each is not None
        ):
            raise InvalidInput("the place of a chunk is no number")
        if not isinstance(headings, list):
            raise InvalidInput("headings is not a list")
        spans.append(
            Span(
                **dict(zip(_NUMBERS, numbers, strict=True)),
                tile_end=0,
                headings=tuple(storable(each, "headings") for each in headings),
                header=storable(header, "header"),
                footer=storable(footer, "footer"),
            )
        )
    ends = [*(each.tile_start for each in spans[1:]), len(text)][: len(spans)]
    spans = [replace(span, tile_end=end) for span, end in zip(spans, ends, strict=True)]
    first, before = 0, 0
    for span in spans:
        tile = text[span.tile_start : span.tile_end]
        if span.tile_start != first or not before <= span.start <= span.end <= span.tile_end:
            raise InvalidInput("a chunk is not where its part of the text is")
        if not covers_tile(tile, span.start - first, span.end - first):
            raise InvalidInput("a chunk leaves out a part of the text")
        first, before = span.tile_end, span.tile_start
    if first != len(text):
        raise InvalidInput("its chunks are not its whole text")
    return spans


def embeddings(sql: Sql, shelf: str, model: int, owner: int) -> dict[int, bytes]:
    """The embeddings of an owner's chunks by a model, by the chunks' positions."""
    return dict(
        sql.execute(
            f"SELECT c.position, e.embedding FROM {shelf}_chunks c JOIN {shelf}_embeddings e "
            "ON e.chunk = c.id AND e.model = ? WHERE c.owner = ? ORDER BY c.position",
            (model, owner),
        )
    )
