"""XLS workbooks; of other OLE containers, the error says what they are."""

from __future__ import annotations

from mcpvectordb.errors import ParseFailed, UnsupportedFormat
from mcpvectordb.ingest.formats.xlsx import workbook
from mcpvectordb.records import Parsed, Source


def parse(source: Source) -> Parsed:
    """Return the sheets of a workbook; UnsupportedFormat for a message of Outlook."""
    if _has(source, "EncryptedPackage"):
        raise ParseFailed(
            f"{source.name} is encrypted; save a copy without its password and add that"
        )
    if _has(source, "__properties_version1.0"):
        raise UnsupportedFormat(
            f"Unsupported format of {source.name}: a message of Outlook; save it as EML and add "
            "that"
        )
    if not _has(source, "Book") and not _has(source, "Workbook"):
        for stream in ("WordDocument", "PowerPoint Document"):  # it was not found in the container
            if _has(source, stream):
                raise ParseFailed(f"{source.name} is damaged: its {stream} cannot be found")
    return workbook(source)


def _has(source: Source, stream: str) -> bool:
    """Whether the container's directory lists a stream."""
    return stream.encode("utf-16-le") in source.raw
