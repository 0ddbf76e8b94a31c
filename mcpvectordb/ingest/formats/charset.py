"""Decode bytes to text without loss: invalid bytes are an error, never a replacement character."""

from __future__ import annotations

import codecs
import re

from mcpvectordb.errors import ParseFailed
from mcpvectordb.records import Source

# The UTF-32 mark begins with the UTF-16 mark, so it comes first.
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Python codecs that are escape notations rather than charsets, and slow or lossy.
_NO_CHARSETS = {"idna", "punycode", "raw-unicode-escape", "unicode-escape"}

SAMPLE = 65_536
"""How many bytes at the start show what an encoding is."""
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")


def bom(raw: bytes) -> tuple[bytes, str]:
    """Return the byte order mark at the start and its encoding; (b"", "") without one."""
    return next(((mark, encoding) for mark, encoding in _BOMS if raw.startswith(mark)), (b"", ""))


def unicode_encoding(raw: bytes) -> str:
    """Return the encoding that a byte order mark names, or UTF-16 without one; "" for others.

    Text in UTF-16 has many bytes 0, and in the right byte order many more ASCII characters than in
    the wrong one: at least its spaces, digits and line ends.
    """
    _, marked = bom(raw)
    sample = raw[: min(SAMPLE, len(raw)) // 2 * 2]
    zeros = sample.count(0)
    # Few bytes 0 among ASCII are ASCII with a byte 0 here and there, as in many binary files.
    if marked or not zeros or len(raw) % 2 or (sample.isascii() and 4 * zeros < len(sample)):
        return marked
    ascii = {
        encoding: sum("\t" <= character <= "~" for character in text)
        for encoding in ("utf-16-le", "utf-16-be")
        if (text := _decoded(sample, encoding)) is not None and not _CONTROLS.search(text)
    }
    best = max(ascii, key=lambda each: ascii[each], default="")
    return best if best and ascii[best] else ""


def is_text(raw: bytes) -> bool:
    """Whether bytes are text in some encoding: they have hardly any control characters."""
    if unicode_encoding(raw):
        return True
    sample = raw[:SAMPLE]
    controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES))
    if b"\0" in raw or controls > 0.002 * len(sample) + 1:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # cut anywhere
    except UnicodeDecodeError:  # other charsets have ASCII or spaces
        others = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
        spaces = 1 + sample.count(b" ") + sample.count(b"\n")
        return others < 0.3 * len(sample) or 100 * spaces >= len(sample)
    return True


def charset(media_type: str) -> str:
    """Return the charset of a Content-Type such as `text/html; charset=latin-1`, or ""."""
    found = re.search(r"""charset\s*=\s*["']?([^\s"';]+)""", media_type, re.IGNORECASE)
    return found[1] if found else ""


def text_of(source: Source) -> str:
    """Return the text of a source, whose media type may declare a charset."""
    return decode(source.raw, declared=charset(source.media_type))


def decode(raw: bytes, *, declared: str = "") -> str:
    """Return the text: by byte order mark, as UTF-8, by the declared charset, else detected.

    UTF-16 without a mark is recognised only where no charset is declared.
    Encoding the text again gives the same bytes: line ends stay, and a byte order mark stays as
    U+FEFF. Raises ParseFailed if no encoding fits.
    """
    marked = bom(raw)[1] if declared else unicode_encoding(raw)
    for encoding in (marked or "utf-8", "" if marked else declared):
        text = _decoded(raw, encoding)
        if text is not None:
            return text
    if not marked:
        from charset_normalizer import from_bytes

        best = from_bytes(raw).best()
        text = _decoded(raw, best.encoding if best else "")
    if text is None:
        tried = marked or declared or "utf-8"
        raise ParseFailed(
            f"the text is not valid {tried}, and no other encoding fits; save it as UTF-8"
        )
    return text


def _decoded(raw: bytes, encoding: str) -> str | None:
    """The text; None if the bytes are invalid in this encoding or it does not exist."""
    try:
        return None if codecs.lookup(encoding).name in _NO_CHARSETS else raw.decode(encoding)
    except (LookupError, ValueError):
        return None
