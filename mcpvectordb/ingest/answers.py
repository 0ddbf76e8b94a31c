"""Check what the parser process answers: a hostile file may have taken it over.

Each function raises ValueError, TypeError or LookupError for an answer that is not valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcpvectordb.errors import IngestError, NoText, ParseFailed
from mcpvectordb.ingest.ocr import Picture
from mcpvectordb.records import Parsed

LONGEST_MESSAGE = 2_000
MOST_PAGES = 1_000_000
MOST_PIXELS = 32_767
"""The greatest width or height of a picture that Tesseract takes."""

_ERROR_BY_CODE = {each.code: each for each in IngestError.__subclasses__()}


def parsed_of(head: dict[str, Any], text: bytes) -> Parsed | IngestError:
    """Return the text of a source, or the error that its parser raised."""
    if "error" in head:
        return _error_of(head)
    parsed = Parsed(
        text=text.decode(),
        title=head["title"],
        kind=head["kind"],
        pages=tuple(head["pages"]),
        metadata=head["metadata"],
        note=head.get("note", ""),
        images=_numbers(head.get("images", ()), len(head["pages"])),
    )
    if not (
        isinstance(parsed.title, str)
        and isinstance(parsed.note, str)
        and parsed.kind in ("markdown", "text", "code")
        and all(type(page) is int and 0 <= page <= len(parsed.text) for page in parsed.pages)
        and list(parsed.pages) == sorted(parsed.pages)
        and isinstance(parsed.metadata, dict)
    ):
        raise ValueError("title, kind, pages, metadata or note have the wrong type or range")
    return parsed


def picture_of(head: dict[str, Any], grey: bytes) -> Picture | IngestError:
    """Return a page that was drawn, or the error."""
    if "error" in head:
        return _error_of(head)
    width, height = _numbers([head["width"], head["height"]], MOST_PIXELS)
    if width * height != len(grey):
        raise ValueError(f"{len(grey)} bytes for a picture of {width} by {height}")
    return Picture(width, height, grey)


def _error_of(head: dict[str, Any]) -> IngestError:
    error = _ERROR_BY_CODE.get(str(head["error"]), ParseFailed)(
        str(head.get("message"))[:LONGEST_MESSAGE]
    )
    if isinstance(error, NoText) and head.get("images"):
        (error.pages,) = _numbers([head["pages"]], MOST_PAGES)
        error.images = _numbers(head["images"], error.pages)
    return error


def _numbers(given: Sequence[int], most: int) -> tuple[int, ...]:
    """Numbers of pages or pixels, each between 1 and `most`; raises ValueError for others."""
    if not all(type(each) is int and 1 <= each <= most for each in given):
        raise ValueError("numbers of pages or pixels are out of range")
    return tuple(given)
