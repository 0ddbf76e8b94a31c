"""EPUB: the chapters of a book in the order of its spine, each a page, read like HTML."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.entities import html5
from typing import Any
from urllib.parse import unquote

from lxml import etree

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import html, markdown
from mcpvectordb.ingest.formats.archive import Archive, local, value
from mcpvectordb.ingest.formats.charset import decode
from mcpvectordb.records import Parsed, Source

_PACKAGE = "{*}rootfiles/{*}rootfile"
_PAGES = frozenset(["application/xhtml+xml", "text/html", "application/x-dtbook+xml"])
_ENTITY = re.compile(r"&(\w+;)")
_KEPT = frozenset(["amp;", "lt;", "gt;", "quot;", "apos;"])
_ENCODING = re.compile(r"^\s*<\?xml[^>]*\?>")


def parse(source: Source) -> Parsed:
    """Return the chapters of a book; its table of contents names those without a heading."""
    archive = Archive(source)
    encrypted = b"xmlenc#aes" in archive.read("META-INF/encryption.xml")
    if encrypted or "META-INF/rights.xml" in archive.members:
        raise ParseFailed(f"{source.name} is encrypted (DRM) and cannot be read")
    package = value(archive.xml("META-INF/container.xml").find(_PACKAGE), "full-path")
    if package not in archive.members:
        raise markdown.damaged(source.name, "its list of chapters (OPF) is missing")
    book = archive.xml(package)
    items = {value(each, "id"): each for each in book.iterfind("{*}manifest/{*}item")}
    spine = [items.get(value(each, "idref")) for each in book.iterfind("{*}spine/{*}itemref")]
    titles = dict(_contents(archive, package, list(items.values())))
    chapters = []
    for item in spine:
        is_page = item is not None and value(item, "media-type") in _PAGES
        if not is_page or "nav" in value(item, "properties").split():
            continue
        part = _target(package, value(item, "href"))
        text = html.written(_tree(archive, part))
        has_heading = re.search(r"^#", text, re.MULTILINE)
        title = "" if has_heading or not text else markdown.heading(1, titles.get(part, ""))
        chapters.append(markdown.blocks([title, text]))
    metadata = archive.properties(package)
    return markdown.finish(source, chapters[0] if len(chapters) == 1 else chapters, metadata)


def _tree(archive: Archive, part: str) -> Any:
    """The root of a chapter, with names as in HTML; read leniently if it is not well-formed."""
    text = decode(archive.read(part))
    known = _ENTITY.sub(lambda it: it[0] if it[1] in _KEPT else html5.get(it[1], it[0]), text)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True
    )
    try:
        root = etree.fromstring(_ENCODING.sub("", markdown.clean(known)).encode(), parser)
    except etree.XMLSyntaxError:
        return html.tree(text, archive.name) if text.strip() else etree.Element("html")
    for element in root.iter():
        if isinstance(element.tag, str):
            element.tag = local(element)
    return root


def _contents(archive: Archive, package: str, items: list[Any]) -> Iterator[tuple[str, str]]:
    """The files of the table of contents with their titles, the outermost one of each last."""
    for item in items:
        part = _target(package, value(item, "href"))
        is_list = value(item, "media-type") == "application/x-dtbncx+xml"
        if not is_list and "nav" not in value(item, "properties").split():
            continue
        found = []
        for entry in _tree(archive, part).iter("navPoint", "a"):
            link = next(entry.iter("content"), None) if is_list else entry
            label = next(entry.iter("text"), None) if is_list else entry
            if link is not None and label is not None:
                target = value(link, "src") or value(link, "href")
                found.append((_target(part, target), markdown.line("".join(label.itertext()))))
        yield from reversed(found)


def _target(part: str, href: str) -> str:
    """The file that a link in a part leads to."""
    path = posixpath.join("/", posixpath.dirname(part), unquote(href.partition("#")[0]))
    return posixpath.normpath(path).lstrip("/")
