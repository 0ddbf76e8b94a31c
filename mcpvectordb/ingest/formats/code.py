"""Source code and configuration files: text whose structure is its indentation."""

from __future__ import annotations

from dataclasses import replace

from mcpvectordb.ingest.formats import text
from mcpvectordb.records import Parsed, Source


def parse(source: Source) -> Parsed:
    """The decoded text, titled by the file's name, to be split between definitions."""
    return replace(text.parse(source), kind="code")
