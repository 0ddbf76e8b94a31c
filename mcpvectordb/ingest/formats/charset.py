"""Decode bytes to text without loss: invalid bytes are an error, never a replacement character."""

from __future__ import annotations

import codecs
import re

from mcpvectordb.errors import ParseFailed

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


def bom(raw: bytes) -> tuple[bytes, str]:
    """Return the byte order mark at the start and its encoding; (b"", "") without one."""
    return next(((mark, encoding) for mark, encoding in _BOMS if raw.startswith(mark)), (b"", ""))


def charset(media_type: str) -> str:
    """Return the charset of a Content-Type such as `text/html; charset=latin-1`, or ""."""
    found = re.search(r"""charset\s*=\s*["']?([^\s"';]+)""", media_type, re.IGNORECASE)
    return found[1] if found else ""


def decode(raw: bytes, *, declared: str = "") -> str:
    """Return the text: by byte order mark, as UTF-8, by the declared charset, else detected.

    Encoding the text again gives the same bytes: line ends stay, and a byte order mark stays as
    U+FEFF. Raises ParseFailed if no encoding fits.
    """
    _, marked = bom(raw)
    for encoding in (marked or "utf-8", "" if marked else declared):
        text = _decoded(raw, encoding)
        if text is not None:
            return text
    detected = "" if marked else _detected_charset(raw)
    text = _decoded(raw, detected)
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


def _detected_charset(raw: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(raw).best()
    return best.encoding if best else ""
