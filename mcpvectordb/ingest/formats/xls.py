"""The binary Office formats of 1997 to 2003: workbooks are read, the others are told apart and
refused with a way out.
"""

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
    """The sheets of an old workbook."""
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
    """Whether the directory of the container names a stream."""
    return stream.encode("utf-16-le") in source.raw
