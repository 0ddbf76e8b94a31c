"""XLS workbooks; other binary Office files of 1997 to 2003 are refused with advice."""

from __future__ import annotations

from mcpvectordb.errors import ParseFailed, UnsupportedFormat
from mcpvectordb.ingest.formats.xlsx import workbook
from mcpvectordb.records import Parsed, Source

_OLD = {
    "WordDocument": ("Word", "DOCX"),
    "PowerPoint Document": ("PowerPoint", "PPTX"),
    "__properties_version1.0": ("Outlook", "EML"),
}


def parse(source: Source) -> Parsed:
    """Return the sheets of a workbook; UnsupportedFormat for other Office files."""
    if _has(source, "EncryptedPackage"):
        raise ParseFailed(
            f"{source.name} is encrypted; save a copy without its password and add that"
        )
    for stream, (program, better) in _OLD.items():
        if _has(source, stream):
            raise UnsupportedFormat(
                f"Unsupported format of {source.name}: the old binary format of {program}; "
                f"save it as {better} and add that"
            )
    return workbook(source)


def _has(source: Source, stream: str) -> bool:
    """Whether the container's directory lists a stream."""
    return stream.encode("utf-16-le") in source.raw
