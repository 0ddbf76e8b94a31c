"""MSG, the messages of Outlook: read as the mail that they were, with what is attached to them.

Each property of a message is a stream in an OLE container, named by its tag and type; attachments
and recipients are storages with properties of their own ([MS-OXMSG] 2).
"""

from __future__ import annotations

import email.parser
import email.policy
import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime

from mcpvectordb.errors import IngestError
from mcpvectordb.ingest.formats import email as mail
from mcpvectordb.ingest.formats import markdown, rtf
from mcpvectordb.ingest.formats.charset import decode
from mcpvectordb.ingest.formats.ole import OleStreams
from mcpvectordb.records import Parsed, Source

# Tags of properties with text or bytes, as they stand in the names of streams, and of numbers.
SUBJECT, BODY, HTML, RTF, HEADERS, MESSAGE_ID = "0037", "1000", "1013", "1009", "007D", "1035"
SENDER, SENDER_ADDRESSES, DISPLAYED = "0C1A", ("5D01", "0C1F"), {"To": "0E04", "Cc": "0E03"}
RECIPIENT, ADDRESSES, RECIPIENT_KIND, KINDS = "3001", ("39FE", "3003"), 0x0C15, {"To": 1, "Cc": 2}
FILE, FILE_NAMES, MEDIA_TYPE = "3701", ("3707", "3704", "3001"), "370E"
TIMES, CODEPAGE = (0x0039, 0x0E06, 0x3007), 0x3FFD  # sent, delivered, created
UNICODE, STRING, BINARY, STORAGE = "001F", "001E", "0102", "000D"
TOP_HEADER, INNER_HEADER, PART_HEADER = 32, 24, 8
"""Bytes before the list of properties: of a message, of an attached one, of other storages."""
FIRST_TIME = datetime(1601, 1, 1, tzinfo=UTC)


def parse(source: Source) -> Parsed:
    """Return the text of a message with its headers and the text of what is attached."""
    streams = OleStreams(source)
    return mail.parsed_messages(source, [_mail(_Storage(streams, "", TOP_HEADER), 0)])


class _Storage:
    """The properties of a message, a recipient or an attachment."""

    def __init__(self, streams: OleStreams, path: str, header: int, codepage: int = 0) -> None:
        self.streams, self.path = streams, path
        self.numbers: dict[int, bytes] = {}
        entries = streams.read(f"{path}__properties_version1.0")[header:]
        for at in range(0, len(entries) - 15, 16):
            _, tag, _, value = struct.unpack_from("<HHI8s", entries, at)
            self.numbers[tag] = value
        self.codepage = self.number(CODEPAGE) & 0xFFFFFFFF or codepage

    def number(self, tag: int) -> int:
        """A number of 8 bytes, 0 if it is not there."""
        return int.from_bytes(self.numbers.get(tag, b""), "little")

    def raw(self, tag: str, kind: str) -> bytes:
        return self.streams.read(f"{self.path}__substg1.0_{tag}{kind}")

    def text(self, *tags: str) -> str:
        """The first of these texts that is there."""
        for tag in tags:
            text = self.raw(tag, UNICODE).decode("utf-16-le", "replace")
            text = text or decode(self.raw(tag, STRING), declared=f"cp{self.codepage or 1252}")
            if text.strip("\0 \r\n"):
                return text.rstrip("\0")
        return ""

    def inner(self, kind: str) -> list[_Storage]:
        """The recipients (`recip`) or attachments (`attach`) in it."""
        start = f"{self.path}__{kind}_version1.0_#"
        names = sorted({name for name in self.streams.storages() if name.startswith(start)})
        return [
            _Storage(self.streams, f"{name}/", PART_HEADER, self.codepage)
            for name in names
            if "/" not in name[len(start) :]
        ]


def _mail(message: _Storage, depth: int) -> EmailMessage:
    """The mail of a message; its own header lines are taken where it came with them."""
    built = EmailMessage(policy=email.policy.default)
    parser = email.parser.HeaderParser(policy=email.policy.default)
    sent = parser.parsestr(message.text(HEADERS))
    recipients = message.inner("recip")
    known = {
        "From": _address(message.text(SENDER), message.text(*SENDER_ADDRESSES)),
        "Subject": message.text(SUBJECT),
        "Date": _date(message),
        "Message-ID": message.text(MESSAGE_ID),
    }
    for key, kind in KINDS.items():
        some = [each for each in recipients if each.number(RECIPIENT_KIND) & 0xF == kind]
        named = [_address(each.text(RECIPIENT), each.text(*ADDRESSES)) for each in some]
        known[key] = ", ".join(named) or message.text(DISPLAYED[key]).replace(";", ",")
    for key, value in known.items():
        with suppress(Exception):  # the header parser raises errors of many classes
            built[key] = markdown.line(str(sent.get(key, "")) or value)
    _set_body(built, message)
    for part in message.inner("attach"):
        _attach(built, part, depth + 1)
    return built


def _address(name: str, address: str) -> str:
    """A name with its address; one of the two if they are the same or one is missing."""
    if not name or not address or name == address:
        return name or address
    shown = f'"{name.replace(chr(34), "")}"' if set(name) & set(',;<>@"') else name
    return f"{shown} <{address}>"


def _date(message: _Storage) -> str:
    """The time at which it was sent, in a header's form; in tenths of microseconds since 1601."""
    since = next((moment for tag in TIMES if (moment := message.number(tag))), 0)
    with suppress(OverflowError):
        return format_datetime(FIRST_TIME + timedelta(microseconds=since // 10)) if since else ""
    return ""


def _set_body(built: EmailMessage, message: _Storage) -> None:
    """Set the body: plain text, else HTML, else RTF."""
    built.set_content("")
    html = message.text(HTML) or decode(message.raw(HTML, BINARY))
    if plain := message.text(BODY).strip():
        built.set_content(markdown.clean(plain))
    elif html.strip():
        built.set_content(markdown.clean(html), subtype="html")
    elif packed := message.raw(RTF, BINARY):
        raw = unpacked_rtf(packed)
        name = message.streams.name
        with suppress(IngestError):
            source = Source(source=name, name=name, raw=raw, file_type="rtf")
            built.set_content(rtf.parse(source).text)


def _attach(built: EmailMessage, part: _Storage, depth: int) -> None:
    """Attach a file or a message to a mail."""
    inner = f"{part.path}__substg1.0_{FILE}{STORAGE}"
    name = markdown.line(part.text(*FILE_NAMES))
    if inner in part.streams.storages():
        if depth <= mail.DEEPEST:
            storage = _Storage(part.streams, f"{inner}/", INNER_HEADER, part.codepage)
            built.add_attachment(_mail(storage, depth))
        return
    main, _, sub = part.text(MEDIA_TYPE).lower().partition("/")
    is_plain = main.isalpha() and sub.isascii() and sub and main not in ("multipart", "message")
    built.add_attachment(
        part.raw(FILE, BINARY),
        maintype=main if is_plain else "application",
        subtype="".join(sub.split()) if is_plain else "octet-stream",
        filename=name,
    )


# --- compressed RTF ([MS-OXRTFCP]): literals and references into a ring of 4096 bytes

_RING = 4096
_START = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript "
    rb"\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)


def unpacked_rtf(packed: bytes) -> bytes:
    """Return the RTF of its compressed form, as far as that goes."""
    if packed[8:12] == b"MELA":
        return packed[16:]
    ring, write = bytearray(_START.ljust(_RING, b"\0")), len(_START)
    unpacked, at = bytearray(), 16
    while at < len(packed):
        flags, at = packed[at], at + 1
        for bit in range(8):
            if not flags >> bit & 1:
                piece, at = packed[at : at + 1], at + 1
            elif at + 2 <= len(packed):
                place, length = packed[at] << 4 | packed[at + 1] >> 4, (packed[at + 1] & 0xF) + 2
                if place == write:
                    return bytes(unpacked)
                piece, at = b"", at + 2
                for step in range(length):  # it may repeat what it just wrote
                    ring[(write + step) % _RING] = ring[(place + step) % _RING]
                    piece += ring[(write + step) % _RING : (write + step) % _RING + 1]
            else:
                return bytes(unpacked)
            for byte in piece:
                ring[write] = byte
                write = (write + 1) % _RING
            unpacked += piece
    return bytes(unpacked)
