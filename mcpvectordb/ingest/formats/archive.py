"""ZIP archives as containers of documents; sizes are checked before anything is decompressed."""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO
from typing import Any

from lxml import etree

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.records import Source

MOST_UNPACKED = 256_000_000
MOST_MEMBERS = 20_000


class Archive:
    """The members of a ZIP archive; ParseFailed for one that is damaged, encrypted or too large."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        try:
            self._zip = zipfile.ZipFile(BytesIO(source.raw))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError):
            why = "it is truncated or not a ZIP archive, which its type requires"
            raise markdown_writer.damaged(source.name, why) from None
        members = self._zip.infolist()
        if (
            len(members) > MOST_MEMBERS
            or sum(member.file_size for member in members) > MOST_UNPACKED
        ):
            raise ParseFailed(
                f"{source.name} would unpack to more than {MOST_UNPACKED // 10**6} MB"
            )
        if any(member.flag_bits & 1 for member in members):
            raise markdown_writer.encrypted(source.name)
        self.members = frozenset(member.filename for member in members)

    def read(self, member: str) -> bytes:
        """Return a member's bytes, b"" if it does not exist."""
        if member not in self.members:
            return b""
        try:
            return self._zip.read(member)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError) as error:
            why = f"{member} cannot be unpacked ({error})"
            raise markdown_writer.damaged(self.name, why) from None

    def xml(self, member: str) -> Any:
        """Return a member's root element, an empty one without it; entities are not resolved."""
        raw = self.read(member)
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
        )
        try:
            return etree.fromstring(raw, parser) if raw.strip() else etree.Element("missing")
        except etree.XMLSyntaxError as error:
            raise markdown_writer.damaged(self.name, f"{member}: {error.msg}") from None
