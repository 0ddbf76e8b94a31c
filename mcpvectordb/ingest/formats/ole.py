"""DOC and PPT, the binary files of Office 95 to 2003: streams in an OLE container."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import olefile

from mcpvectordb.ingest.formats import markdown
from mcpvectordb.records import Parsed, Source

INCOMPLETE = "parts of it are missing"


class OleStreams:
    """The streams of a container; ParseFailed for one that is damaged or encrypted."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self._storages: frozenset[str] | None = None
        try:
            self._file: Any = olefile.OleFileIO(BytesIO(source.raw))
        except (OSError, ValueError, IndexError, struct.error):
            raise markdown.damaged(self.name, INCOMPLETE) from None
        if self._file.exists("EncryptedPackage") or self._file.exists("EncryptedSummary"):
            raise markdown.encrypted(self.name)

    def read(self, stream: str) -> bytes:
        """Return a stream's bytes, b"" if it does not exist."""
        try:
            return bytes(self._file.openstream(stream).read()) if self._file.exists(stream) else b""
        except (OSError, ValueError, IndexError, struct.error):
            raise markdown.damaged(self.name, INCOMPLETE) from None

    def storages(self) -> frozenset[str]:
        """Return the paths of the storages, which hold streams and other storages."""
        if self._storages is None:
            paths = self._file.listdir(streams=False, storages=True)
            self._storages = frozenset("/".join(path) for path in paths)
        return self._storages

    def properties(self) -> dict[str, str]:
        """Return title, author and the like."""
        try:
            found = self._file.get_metadata()
        except Exception:  # properties are a convenience; their parser raises errors of any class
            return {}
        values = {key: getattr(found, key) for key in ("title", "author", "subject", "keywords")}
        for key, value in values.items():
            if isinstance(value, bytes):
                try:
                    values[key] = value.decode()
                except UnicodeDecodeError:
                    values[key] = value.decode("cp1252", "replace")
        return {key: str(value) for key, value in values.items() if value}


# --- DOC: paragraphs and the rows of tables, without their styles
#
# The text lies in pieces of two encodings anywhere in the main stream; the piece table in the table
# stream lists them ([MS-DOC] 2.4.1). Some characters are marks: of paragraphs, cells, fields.

COMPLEX, ENCRYPTED_DOC, SECOND_TABLE = 0x0004, 0x0100, 0x0200
VERSION_AT, LANGUAGE_AT, FLAGS_AT, PIECES_AT = 0x02, 0x06, 0x0A, 0x01A2
COMPRESSED = 0x40000000
WORD_97 = 0xC0
"""Least version with Unicode; before it, text is in the charset of its language ([MS-DOC] 1.7)."""
TEXT_95_AT, PIECES_95_AT = 0x18, 0x160
CHARSETS_95 = {0x01: "cp1256", 0x04: "gbk", 0x05: "cp1250", 0x08: "cp1253", 0x0D: "cp1255"}
CHARSETS_95 |= {0x0E: "cp1250", 0x11: "cp932", 0x12: "cp949", 0x15: "cp1250", 0x19: "cp1251"}
CHARSETS_95 |= {0x1F: "cp1254", 0x22: "cp1251", 0x25: "cp1257", 0x26: "cp1257", 0x27: "cp1257"}

_FIELD_CODE = re.compile(r"\x13[^\x13\x14\x15]*(\x14|(?=\x15))")


def parse_doc(source: Source) -> Parsed:
    """Return the text of a document with its notes, comments and text boxes."""
    streams = OleStreams(source)
    main = streams.read("WordDocument")
    try:
        (flags,) = struct.unpack_from("<H", main, FLAGS_AT)
        if flags & ENCRYPTED_DOC:
            raise markdown.encrypted(source.name)
        version, _, language = struct.unpack_from("<HHH", main, VERSION_AT)
        if version < WORD_97:
            text = _text_95(main, flags, CHARSETS_95.get(language & 0xFF, "cp1252"))
        else:
            table = streams.read("1Table" if flags & SECOND_TABLE else "0Table")
            start, length = struct.unpack_from("<II", main, PIECES_AT)
            text = "".join(_pieces(main, table[start : start + length]))
    except struct.error:
        raise markdown.damaged(source.name, INCOMPLETE) from None
    written = markdown.blocks(map(markdown.prose, _paragraphs(text)))
    return markdown.finish(source, written, streams.properties())


def _text_95(main: bytes, flags: int, charset: str) -> str:
    """The text of Word 6 and 95: in one piece, or in several after a quick save."""
    if flags & COMPLEX:
        start, length = struct.unpack_from("<II", main, PIECES_95_AT)
        return "".join(_pieces(main, main[start : start + length], charset))
    start, end = struct.unpack_from("<II", main, TEXT_95_AT)
    return main[start:end].decode(charset, "replace")


def _pieces(main: bytes, table: bytes, charset: str = "") -> Iterator[str]:
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
        if charset:
            yield main[place : place + size].decode(charset, "replace")
        elif place & COMPRESSED:
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
        lines = (markdown.line(line.replace("\x07", " | ")) for line in cells.split("\n"))
        yield "\n".join(filter(None, lines))


# --- PPT: each slide is a page with its title as heading, text and notes
#
# The stream is a tree of records ([MS-PPT] 2.3). The document lists its slides by number, and a
# directory has the place of each number; an edited file has one for each edit, the newest first.

CONTAINER, DEEPEST, MOST_EDITS = 0xF, 20, 10_000
SLIDE_LIST, LISTED_SLIDE, NOTES = 4080, 1011, 1009
HEADER, CHARACTERS, BYTES = 3999, 4000, 4008
SLIDES_LIST, NOTES_LIST = 0, 2
TITLES = (0, 6)
ENCRYPTED_PPT = 0xF3D1C4DF


class PptRecord(NamedTuple):
    """A record: whether it contains others, its instance, its type and its content."""

    container: bool
    instance: int
    kind: int
    content: bytes


class ListedSlide(NamedTuple):
    """An entry of the list of slides or notes: its number in the directory, its id, its text."""

    number: int
    id: int
    texts: list[tuple[bool, str]]


def parse_ppt(source: Source) -> Parsed:
    """Return the text of a presentation, slide by slide."""
    streams = OleStreams(source)
    stream, user = streams.read("PowerPoint Document"), streams.read("Current User")
    notes: dict[int, str] = {}
    pages: list[str] = []
    try:
        if struct.unpack_from("<I", user, 12)[0] == ENCRYPTED_PPT:
            raise markdown.encrypted(source.name)
        document, places = _directory(stream, struct.unpack_from("<I", user, 16)[0])
        top = list(_records(_record(stream, places[document]).content))
        for number, _, _ in _listed(top, NOTES_LIST):
            record = _record(stream, places[number])
            said = " ".join(text for _, text in _texts(record))
            kinds = (child for child in _records(record.content) if child.kind == NOTES)
            notes |= {struct.unpack_from("<I", child.content)[0]: said for child in kinds}
        for number, id, listed in _listed(top, SLIDES_LIST):
            blocks = [
                markdown.heading(1, text) if title else markdown.prose(text)
                for title, text in (*listed, *_texts(_record(stream, places[number])))
            ]
            note = notes.get(id)
            pages.append(markdown.blocks([*blocks, f"Notes: {note}" if note else ""]))
    except (struct.error, KeyError):
        raise markdown.damaged(source.name, INCOMPLETE) from None
    nothing = "its slides hold pictures only; supply the text directly"
    metadata = {**streams.properties(), "slides": len(pages)}
    return markdown.finish(source, pages, metadata, headings=1, nothing=nothing)


def _directory(stream: bytes, edit: int) -> tuple[int, dict[int, int]]:
    """The number of the document, and the place of each number, from the newest edit on."""
    places: dict[int, int] = {}
    document = -1
    for _ in range(MOST_EDITS):
        before, at, number = struct.unpack_from("<III", _record(stream, edit).content, 8)
        document = number if document < 0 else document
        entries, start = _record(stream, at).content, 0
        while start < len(entries):
            (head,) = struct.unpack_from("<I", entries, start)
            first, count = head & 0xFFFFF, head >> 20
            for offset, place in enumerate(struct.unpack_from(f"<{count}I", entries, start + 4)):
                places.setdefault(first + offset, place)
            start += 4 + 4 * count
        if not before or before == edit:
            break
        edit = before
    return document, places


def _listed(document: list[PptRecord], which: int) -> list[ListedSlide]:
    listed: list[ListedSlide] = []
    for slides in (each for each in document if each.kind == SLIDE_LIST and each.instance == which):
        title = False
        for record in _records(slides.content):
            if record.kind == LISTED_SLIDE:
                number, id = struct.unpack_from("<I8xI", record.content)
                listed.append(ListedSlide(number, id, []))
            elif record.kind == HEADER:
                title = _is_title(record)
            elif listed and (text := _record_text(record)):
                listed[-1].texts.append((title, text))
    return listed


def _texts(record: PptRecord, depth: int = 0) -> Iterator[tuple[bool, str]]:
    """The texts in a record, and whether each is a title."""
    title = False
    for child in _records(record.content):
        if child.kind == HEADER:
            title = _is_title(child)
        elif text := _record_text(child):
            yield title, text
        elif child.container and depth < DEEPEST:
            yield from _texts(child, depth + 1)


def _is_title(record: PptRecord) -> bool:
    return bool(struct.unpack_from("<I", record.content)[0] in TITLES)


def _record_text(record: PptRecord) -> str:
    """The lines of a text record; "" for others, and for fields such as the page number ("*")."""
    if record.kind == CHARACTERS:
        text = record.content.decode("utf-16-le", "replace")
    elif record.kind == BYTES:
        text = record.content.decode("cp1252", "replace")
    else:
        return ""
    lines = map(markdown.line, text.replace("\r", "\n").replace("\x0b", "\n").split("\n"))
    joined = "\n".join(filter(None, lines))
    return "" if joined == "*" else joined


def _records(content: bytes) -> Iterator[PptRecord]:
    at = 0
    while at + 8 <= len(content):
        record = _record(content, at)
        yield record
        at += 8 + len(record.content)


def _record(stream: bytes, at: int) -> PptRecord:
    head, kind, length = struct.unpack_from("<HHI", stream, at)
    content = stream[at + 8 : at + 8 + length]
    return PptRecord(head & 0xF == CONTAINER, head >> 4, kind, content)
