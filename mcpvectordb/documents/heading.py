"""The record of a heading: frozen and keyword-only, as in `records`."""

from __future__ import annotations

from mcpvectordb.records import Record


class DocumentHeading(Record):
    """A heading of a document: the number of its line, its level from 1, and its text."""

    line: int
    level: int
    title: str
