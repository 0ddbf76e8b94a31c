"""Plain text, unchanged."""

from __future__ import annotations

from mcpvectordb.ingest.formats.charset import charset, decode
from mcpvectordb.records import Parsed, Source


def parse(source: Source) -> Parsed:
    """Return the decoded text; the title is the file's name."""
    return Parsed(text=decode(source.raw, declared=charset(source.media_type)), title=source.name)
