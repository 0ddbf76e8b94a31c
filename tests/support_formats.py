"""Reading a file's bytes as an ingest would, with what holds for every format checked on the
way.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO

from mcpvectordb.ingest import formats
from mcpvectordb.records import Parsed, Source

NOT_ALLOWED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def source(raw: bytes | str, name: str, media_type: str = "") -> Source:
    """A source as the file system or a server would give it."""
    raw = raw.encode() if isinstance(raw, str) else raw
    return Source(
        source=f"/somewhere/{name}",
        name=name,
        raw=raw,
        file_type=name.rpartition(".")[2],
        media_type=media_type,
    )


def read(raw: bytes | str, name: str, media_type: str = "") -> Parsed:
    """The parsed source: of the format that is found in it, sound in what every format promises."""
    parsed = formats.parse(source(raw, name, media_type))
    if parsed.kind == "markdown":  # plain text comes as it is
        assert parsed.text.endswith("\n") and not parsed.text.startswith("\n")
        assert not NOT_ALLOWED.search(parsed.text)
    assert (
        0 < len(parsed.title) <= 200
        and not NOT_ALLOWED.search(parsed.title)
        and "\n" not in parsed.title
    )
    assert list(parsed.pages) == sorted(parsed.pages)
    assert all(0 <= page <= len(parsed.text) for page in parsed.pages)
    assert len(json.dumps(dict(parsed.metadata))) < 100_000
    return parsed


def page(parsed: Parsed, number: int) -> str:
    """The text of a page, counted from 1."""
    ends = [*parsed.pages[1:], len(parsed.text)]
    return parsed.text[parsed.pages[number - 1] : ends[number - 1]].strip()


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive of these members; one that tells the type is not compressed, as books and
    OpenDocument demand.
    """
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return out.getvalue()


def with_member(raw: bytes, name: str, content: bytes) -> bytes:
    """The archive with one member put in the place of what it was."""
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        return zipped({each: archive.read(each) for each in archive.namelist()} | {name: content})


@cache
def bomb() -> bytes:
    """An archive of a few hundred kilobytes that says it unpacks to 300 MB, and does."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(30):
            archive.writestr(f"zeros-{number}", b"\0" * 10_000_000)
    return out.getvalue()
