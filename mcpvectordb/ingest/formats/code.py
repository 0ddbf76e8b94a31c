"""Source code and configuration files: text that is structured by indentation."""

from __future__ import annotations

from dataclasses import replace

from mcpvectordb.ingest.formats import text
from mcpvectordb.records import Parsed, Source


def parse(source: Source) -> Parsed:
    """Return the decoded text, to be split between definitions; the title is the file's name."""
    return replace(text.parse(source), title=source.name, kind="code")
