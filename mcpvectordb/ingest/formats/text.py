"""Plain text, unchanged."""

from __future__ import annotations

import re

from mcpvectordb.ingest.formats.charset import text_of
from mcpvectordb.records import Parsed, Source

LONGEST_TITLE = 200

_HEADING = re.compile(r"^\ufeff?#+[^\S\r\n]*([^#\s][^\r\n]*)", re.MULTILINE)


def parse(source: Source) -> Parsed:
    """Return the decoded text; the title is its first line that begins with #, or the file's name.

    The hashes, and what is longer than LONGEST_TITLE, are not part of the title.
    """
    text = text_of(source)
    heading = _HEADING.search(text)
    title = heading[1][:LONGEST_TITLE].strip() if heading else ""
    return Parsed(text=text, title=title or source.name)
