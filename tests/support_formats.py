"""Parse bytes as an ingest would, and check what holds for the result of every format."""

from __future__ import annotations

import json
import re
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any

from mcpvectordb.ingest import formats
from mcpvectordb.ingest.process import START_SECONDS
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
    """The parsed source, after checks of what every format guarantees."""
    parsed = formats.parse(source(raw, name, media_type))
    if parsed.kind == "markdown":  # plain text comes as it is
        keeps_lines = name.endswith((".tex", ".rst", ".org"))
        assert parsed.text.endswith("\n")
        assert keeps_lines or not parsed.text.startswith("\n")
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


class StoppedClock:
    """A timer factory whose timers expire only inside `running`, after `seconds` of real time.

    Files outside of `running`, and every start of a process, may take as long as the machine needs,
    so the result of a test does not depend on its load. A file inside of `running` must be one that
    never ends by itself. The limit that an error reports is still the configured one.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._runs = seconds, False

    def __call__(self, seconds: float, function: Callable[[], None]) -> threading.Timer:
        expires = self._runs and seconds != START_SECONDS
        return threading.Timer(self._seconds if expires else threading.TIMEOUT_MAX, function)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the timers that are made in here expire."""
        self._runs = True
        try:
            yield
        finally:
            self._runs = False


def page(parsed: Parsed, number: int) -> str:
    """The text of a page, counted from 1."""
    ends = [*parsed.pages[1:], len(parsed.text)]
    return parsed.text[parsed.pages[number - 1] : ends[number - 1]].strip()


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive of these members; `mimetype` is stored, as EPUB and OpenDocument require."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return out.getvalue()


def with_member(raw: bytes, name: str, content: bytes) -> bytes:
    """The archive with one member replaced."""
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        return zipped({each: archive.read(each) for each in archive.namelist()} | {name: content})


def saved(document: Any) -> bytes:
    """The bytes of a document of python-docx, python-pptx, openpyxl or xlwt."""
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def epub(*chapters: str, title: str = "A Book") -> bytes:
    """A book of these chapters in HTML."""
    numbers = range(len(chapters))
    items = (
        f'<item id="c{n}" href="c{n}.xhtml" media-type="application/xhtml+xml"/>' for n in numbers
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in numbers)
    about = f"<dc:title>{title}</dc:title><dc:creator>Ann Author</dc:creator>"
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/">{about}</metadata><manifest>{"".join(items)}'
        f"</manifest><spine>{spine}</spine></package>"
    )
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{}</body></html>'
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "book.opf": package,
        }
        | {f"c{n}.xhtml": page.format(chapters[n]) for n in numbers}
    )


ODF_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "text", "table", "presentation", "manifest", "meta")
) + (
    ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"'
)


def odf(kind: str, body: str, *, meta: str = "", manifest: str = "") -> bytes:
    """An OpenDocument file of a kind: text, presentation, spreadsheet."""

    def part(name: str, content: str) -> str:
        return f"<{name} {ODF_SPACES}>{content}</{name}>"

    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": part("office:document-content", f"<office:body>{body}</office:body>"),
            "meta.xml": part("office:document-meta", f"<office:meta>{meta}</office:meta>"),
            "META-INF/manifest.xml": part("manifest:manifest", manifest),
        }
    )


@cache
def bomb() -> bytes:
    """An archive of a few hundred kilobytes that declares and has 300 MB of content."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(30):
            archive.writestr(f"zeros-{number}", b"\0" * 10_000_000)
    return out.getvalue()


def ole(streams: Mapping[str, bytes]) -> bytes:
    """An OLE container with these streams by path; each is filled up with zeros to 4096 bytes."""
    end, free, sector = 0xFFFFFFFE, 0xFFFFFFFF, 512
    paths = [""]
    for path in streams:
        parts = path.split("/")
        inner = ("/".join(parts[: at + 1]) for at in range(len(parts)))
        paths += [each for each in inner if each not in paths]
    chains: list[bytes] = []
    starts: dict[str, tuple[int, int]] = {}
    table: list[int] = []

    def store(content: bytes) -> int:
        content = content.ljust(max(4096, -(-len(content) // sector) * sector), b"\0")
        first, count = len(table), len(content) // sector
        table.extend([*range(first + 1, first + count), end])
        chains.append(content)
        return first

    for path, content in streams.items():
        starts[path] = (store(content), max(len(content), 4096))
    directory = b""
    for number, path in enumerate(paths):
        above = path.rpartition("/")[0]
        later = paths[number + 1 :]
        beside = next((each for each in later if each.rpartition("/")[0] == above and path), None)
        below = next((each for each in later if each.rpartition("/")[0] == path), None)
        name = (path.rpartition("/")[2] or "Root Entry").encode("utf-16-le")
        start, size = starts.get(path, (end if not path else 0, 0))
        directory += struct.pack(
            "<64sHBBIII36xIQ",
            name,
            len(name) + 2,
            5 if not path else 2 if path in starts else 1,
            1,
            free,
            paths.index(beside) if beside else free,
            paths.index(below) if below else free,
            start,
            size,
        )
    at = store(directory)
    count = -(-(len(table) + 8) // 128)  # the sectors of the table itself, below 109
    first = len(table)
    table += [0xFFFFFFFD] * count
    table += [free] * (-len(table) % 128)
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    header += struct.pack(
        "<HHHHH6xIIIIIIIII", 62, 3, 0xFFFE, 9, 6, 0, count, at, 0, 4096, end, 0, end, 0
    )
    header += struct.pack("<109I", *range(first, first + count), *[free] * (109 - count))
    return header + b"".join(chains) + struct.pack(f"<{len(table)}I", *table)
