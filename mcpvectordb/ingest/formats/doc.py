"""DOC (Word 97 to 2003): paragraphs and the rows of tables, without their styles.

The text lies in pieces of two encodings anywhere in the main stream; the piece table in the table
stream lists them ([MS-DOC] 2.4.1). Some characters are marks: of paragraphs, cells, fields.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.ole import OleStreams
from mcpvectordb.records import Parsed, Source

ENCRYPTED, SECOND_TABLE = 0x0100, 0x0200
FLAGS_AT, PIECES_AT = 0x0A, 0x01A2
COMPRESSED = 0x40000000

_FIELD_CODE = re.compile(r"\x13[^\x13\x14\x15]*(\x14|(?=\x15))")


def parse(source: Source) -> Parsed:
    """Return the text of a document with its notes, comments and text boxes."""
    streams = OleStreams(source)
    main = streams.read("WordDocument")
    try:
        (flags,) = struct.unpack_from("<H", main, FLAGS_AT)
        if flags & ENCRYPTED:
            raise markdown_writer.encrypted(source.name)
        table = streams.read("1Table" if flags & SECOND_TABLE else "0Table")
        start, length = struct.unpack_from("<II", main, PIECES_AT)
        text = "".join(_pieces(main, table[start : start + length]))
    except struct.error as error:
        raise markdown_writer.damaged(source.name, error) from None
    written = markdown_writer.blocks(map(markdown_writer.prose, _paragraphs(text)))
    return markdown_writer.finish(source, written, streams.properties())


def _pieces(main: bytes, table: bytes) -> Iterator[str]:
    """The pieces of text in their order; property modifiers (1) before the piece table (2)."""
    at = 0
    while table[at : at + 1] == b"\x01":
        at += 3 + int(struct.unpack_from("<H", table, at + 1)[0])
    (length,) = struct.unpack_from("<I", table, at + 1)
    pieces = table[at + 5 : at + 5 + length]
    count = (len(pieces) - 4) // 12
    bounds = struct.unpack_from(f"<{count + 1}I", pieces)
    for number in range(count):
        (place,) = struct.unpack_from("<I", pieces, 4 * (count + 1) + 8 * number + 2)
        size = max(bounds[number + 1] - bounds[number], 0)
        if place & COMPRESSED:
            place = (place & ~COMPRESSED) // 2
            yield main[place : place + size].decode("cp1252", "replace")
        else:
            yield main[place : place + 2 * size].decode("utf-16-le", "replace")


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs, and rows of tables as lines with their cells between bars."""
    while (shorter := _FIELD_CODE.sub("", text)) != text:  # fields inside of fields
        text = shorter
    for part in re.split(r"[\r\x0c]", text):
        cells = part.replace("\x0b", "\n").replace("\x1e", "-").replace("\x07\x07", "\n")
        lines = (markdown_writer.line(line.replace("\x07", " | ")) for line in cells.split("\n"))
        yield "\n".join(filter(None, lines))
