"""OLE containers: the streams of binary Office files of 1997 to 2003, and their properties."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import olefile

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.records import Source


class OleStreams:
    """The streams of a container; ParseFailed for one that is damaged or encrypted."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        try:
            self._file: Any = olefile.OleFileIO(BytesIO(source.raw))
        except (OSError, ValueError, IndexError) as error:
            raise markdown_writer.damaged(self.name, error) from None
        if self._file.exists("EncryptedPackage") or self._file.exists("EncryptedSummary"):
            raise markdown_writer.encrypted(self.name)

    def read(self, stream: str) -> bytes:
        """Return a stream's bytes, b"" if it does not exist."""
        try:
            return bytes(self._file.openstream(stream).read()) if self._file.exists(stream) else b""
        except (OSError, ValueError, IndexError) as error:
            raise markdown_writer.damaged(self.name, error) from None

    def properties(self) -> dict[str, str]:
        """Return title, author and the like."""
        try:
            found = self._file.get_metadata()
        except Exception:  # properties are a convenience; their parser raises errors of any class
            return {}
        values = {key: getattr(found, key) for key in ("title", "author", "subject", "keywords")}
        return {key: _text(value) for key, value in values.items() if value}


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("cp1252", "replace")
