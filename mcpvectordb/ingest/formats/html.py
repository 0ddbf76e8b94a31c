"""HTML: the main content as Markdown, and metadata from <title>, <meta>, <link> and JSON-LD."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lxml import etree

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import bom, charset, decode
from mcpvectordb.ingest.formats.html_content import SILENT, main_content
from mcpvectordb.ingest.formats.html_markdown import markdown
from mcpvectordb.records import Parsed, Source

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]+)""", re.IGNORECASE)
_END_OF_PAGE = re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
_WEB_CHARSETS = {
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
_META = {
    "description": ("description", "og:description", "twitter:description", "dc.description"),
    "language": ("content-language", "og:locale", "dc.language"),
    "author": ("author", "article:author", "dc.creator", "citation_author"),
    "published": (
        "article:published_time",
        "date",
        "dc.date",
        "dcterms.date",
        "datepublished",
        "citation_date",
        "pubdate",
    ),
    "modified": (
        "article:modified_time",
        "last-modified",
        "og:updated_time",
        "dcterms.modified",
        "datemodified",
    ),
}
_TITLES = ("og:title", "twitter:title", "dc.title", "citation_title")
_LINKED_DATA = {
    "datePublished": "published",
    "dateModified": "modified",
    "description": "description",
    "inLanguage": "language",
}


def parse(source: Source) -> Parsed:
    """Return the main content of a page, or the whole page without menus if it is not marked."""
    root = tree(_decoded(source), source.name)
    metadata = _metadata(root)
    content = main_content(root)
    text = markdown_writer.blocks(
        [markdown(element, skip=content.skip) for element in content.roots]
    )
    return markdown_writer.finish(source, text, metadata)


def to_markdown(html: str, name: str) -> str:
    """Return all text as Markdown, also menus and the like: for the body of a mail."""
    root = tree(html, name)
    return markdown(root, skip={element for element in root.iter() if element.tag in SILENT})


def tree(html: str, name: str) -> Any:
    """Return the root element; ParseFailed if elements are nested too deeply for libxml2."""
    parser = etree.HTMLParser(
        encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True
    )
    try:
        # libxml2 drops what follows these, wherever they stand.
        html = _END_OF_PAGE.sub("", markdown_writer.clean(html))
        root = etree.fromstring(html.encode(), parser)
    except etree.XMLSyntaxError:
        root = None
    if any(
        entry.type_name == "ERR_RESOURCE_LIMIT" or "xcessive depth" in entry.message
        for entry in parser.error_log
    ):
        raise ParseFailed(f"{name} has elements nested more than two thousand deep")
    if root is None:
        raise markdown_writer.no_text(name)
    return root


def _decoded(source: Source) -> str:
    """The page's text; in declared UTF-8, invalid bytes become replacement characters."""
    in_page = _CHARSET.search(source.raw[:4096])
    declared = charset(source.media_type) or (
        in_page[1].decode("ascii", "replace") if in_page else ""
    )
    if declared.lower() in ("utf-8", "utf8") and not bom(source.raw)[0]:
        return source.raw.decode("utf-8", "replace")
    return decode(source.raw, declared=_WEB_CHARSETS.get(declared.lower(), declared))


def _metadata(root: Any) -> dict[str, str]:
    """The metadata from <html lang>, <title>, <meta>, <link> and JSON-LD."""
    meta = _meta(root)
    metadata = {
        key: value
        for key, names in _META.items()
        if (value := _first(meta.get(name) for name in names))
    }
    for key, value in _linked_data(root):
        metadata.setdefault(key, value)
    metadata["title"] = _first(
        ["".join(root.xpath("(//title)[1]//text()")), *(meta.get(name) for name in _TITLES)]
    )
    metadata["language"] = _first(
        [
            root.get("lang"),
            root.get("{http://www.w3.org/XML/1998/namespace}lang"),
            metadata.get("language"),
        ]
    )
    links = (
        link.get("href")
        for link in root.iter("link")
        if (link.get("rel") or "").lower() == "canonical"
    )
    metadata["canonical_url"] = _first([*links, meta.get("og:url")])
    if "published" not in metadata:
        metadata["published"] = _first(time.get("datetime") for time in root.iter("time"))
    return metadata


def _meta(root: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for element in root.iter("meta"):
        name = (
            element.get("name")
            or element.get("property")
            or element.get("itemprop")
            or element.get("http-equiv")
        )
        if name and element.get("content"):
            found.setdefault(name.lower(), element.get("content"))
    return found


def _linked_data(root: Any) -> Iterator[tuple[str, str]]:
    for script in root.iter("script"):
        if script.get("type") != "application/ld+json":
            continue
        try:
            data = json.loads(script.text or "")
        except (ValueError, RecursionError):
            continue
        for item in data if isinstance(data, list) else [data]:
            if isinstance(item, Mapping):
                yield from (
                    (key, item[name])
                    for name, key in _LINKED_DATA.items()
                    if isinstance(item.get(name), str)
                )


def _first(values: Iterable[str | None]) -> str:
    return next((value.strip() for value in values if value and value.strip()), "")
