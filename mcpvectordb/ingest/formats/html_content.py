"""Find the main content of a web page, and the boilerplate in it: menus, banners, footers.

The idea (boilerplate removal): elements are recognised by tag, role, class and id. Such an element
is removed only if it has less than half of the page's text, because names can be misleading. Then
the largest element that is marked as content is taken, if it has a quarter of the text. Without
such a mark, lists that consist mostly of links are removed as well (link density).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

SILENT = frozenset(
    "script style noscript template svg iframe object embed canvas audio video map head link meta "
    "button select textarea input datalist option progress meter".split()
)
BOILERPLATE = frozenset("nav aside footer form dialog menu".split())
ROLES = frozenset(
    "navigation search banner contentinfo complementary dialog alertdialog menu menubar toolbar "
    "tablist".split()
)
MARKED = re.compile(
    r"(?:^|[\s_-])(?:cookies?|consent|gdpr|nav|navbar|navigation|breadcrumbs?|sidebar|side-bar|menu|footer|masthead|"
    r"social|share|sharing|share-buttons|newsletter|subscribe|signup|related|recommended|promo|advert|advertisement|ads?|"
    r"popup|modal|skip-link|skiplink|skip-to-content|headerlink|anchor-link|linenos?|linenodiv|toc|pagination|pager|"
    r"sr-only|visually-hidden|screen-reader-text|noprint|mw-editsection|sphinxsidebar|navbox|catlinks)"
    r"(?:$|[\s_-])",
    re.IGNORECASE,
)
HEADING = re.compile("h[1-6]")
CONTENT = re.compile(
    r"^(?:content|main|main-content|maincontent|post-content|entry-content|article-body|articlebody|post-body|"
    r"page-content|markdown-body|mw-parser-output|mw-content-text|story-body|docs-content|documentwrapper)$",
    re.IGNORECASE,
)
BOILERPLATE_SHARE = 0.5
"""Share of a page's text above which an element is never taken for boilerplate."""
CONTENT_SHARE = 0.25
"""Share of a page's text that an element marked as its content must have."""
LINKED_SHARE = 0.7
FEWEST_LINKS = 4


class PageContent(NamedTuple):
    """The element to read, the elements to skip, and the <h1> if it is outside, else None."""

    root: Any
    skip: frozenset[Any]
    headline: Any


def main_content(root: Any) -> PageContent:
    """Return the main content of a parsed page."""
    elements = [element for element in root.iter() if isinstance(element.tag, str)]
    body = next((element for element in elements if element.tag == "body"), root)
    sizes = _sizes(elements)
    skip = {
        element for element in elements if _is_boilerplate(element, sizes[element], sizes[body])
    }
    kept = _sizes(elements, skip)
    chosen = _marked_content(elements, kept, body)
    if chosen is None:
        linked = set(_link_lists(elements, kept, body))
        skip |= (
            linked
            if sum(kept[element] for element in linked) < BOILERPLATE_SHARE * kept[body]
            else set()
        )
    content = body if chosen is None else chosen
    return PageContent(content, frozenset(skip), _headline_outside(elements, content))


def _headline_outside(elements: list[Any], content: Any) -> Any:
    if any(True for _ in content.iter("h1")):
        return None
    return next((element for element in elements if element.tag == "h1"), None)


def _sizes(elements: list[Any], skip: frozenset[Any] | set[Any] = frozenset()) -> Counter[Any]:
    """Characters of text in each element, without skipped ones; elements in document order."""
    sizes: Counter[Any] = Counter()
    for element in reversed(elements):
        if element.tag in SILENT or element in skip:
            sizes[element] = 0
        else:
            sizes[element] += len((element.text or "").strip())
        if (parent := element.getparent()) is not None:
            sizes[parent] += sizes[element] + len((element.tail or "").strip())
    return sizes


def _is_boilerplate(element: Any, size: int, whole: int) -> bool:
    if element.tag in SILENT:
        return True
    if element.tag in ("html", "body", "main", "article") or size > BOILERPLATE_SHARE * whole:
        return False
    return (
        (element.tag in BOILERPLATE and not _quoted(element))
        or (element.tag == "header" and _of_page(element))
        or (element.get("role") or "").lower() in ROLES
        or _is_hidden(element)
        or _is_marked(element)
    )


def _is_marked(element: Any) -> bool:
    """Whether class or id name boilerplate; the id of a section may just repeat its heading."""
    if HEADING.fullmatch(element.tag):
        return False
    names = element.get("class") or ""
    if MARKED.search(names):
        return True
    return (
        element.tag in ("div", "ul", "ol", "table")
        and "section" not in names.split()
        and MARKED.search(element.get("id") or "") is not None
        and not any(
            each.tag in ("main", "article") or each.get("role") == "main"
            for each in element.iterancestors()
        )
    )


def _quoted(element: Any) -> bool:
    """Whether this is the footer of a quotation, which names its author."""
    parent = element.getparent()
    return element.tag == "footer" and parent is not None and parent.tag == "blockquote"


def _of_page(header: Any) -> bool:
    """Whether a header belongs to the page rather than to an article or a section."""
    return not any(
        element.tag in ("article", "main", "section") for element in header.iterancestors()
    )


def _is_hidden(element: Any) -> bool:
    style = (element.get("style") or "").replace(" ", "").lower()
    return (
        "hidden" in element.attrib
        or element.get("aria-hidden") == "true"
        or "display:none" in style
        or "visibility:hidden" in style
    )


def _marked_content(elements: list[Any], sizes: Counter[Any], body: Any) -> Any:
    """The largest element marked as content, by tag and role first, then by name; or None."""
    articles = [element for element in elements if element.tag == "article"]
    for marked in (
        [each for each in elements if each.tag == "main" or each.get("role") == "main"],
        articles if len(articles) == 1 else [],
        [each for each in elements if each.get("itemprop") == "articleBody"],
        [each for each in elements if _is_named_content(each)],
    ):
        largest = max(marked, key=lambda each: sizes[each], default=None)
        if largest is not None and sizes[largest] > CONTENT_SHARE * sizes[body]:
            return largest
    return None


def _is_named_content(element: Any) -> bool:
    return any(
        CONTENT.match(name)
        for name in f"{element.get('class') or ''} {element.get('id') or ''}".split()
    )


def _link_lists(elements: list[Any], sizes: Counter[Any], body: Any) -> Iterator[Any]:
    """Lists, tables and divisions that consist mostly of links: menus not marked as such."""
    links: Counter[Any] = Counter()
    linked: Counter[Any] = Counter()
    for element in reversed(elements):
        if element.tag == "a":
            links[element], linked[element] = 1, sizes[element]
        if (parent := element.getparent()) is not None:
            links[parent] += links[element]
            linked[parent] += linked[element]
    for element in elements:
        listing = (
            element.tag in ("ul", "ol", "div", "table", "td", "section", "p")
            and links[element] >= FEWEST_LINKS
        )
        if (
            listing
            and linked[element] > LINKED_SHARE * sizes[element]
            and sizes[element] < BOILERPLATE_SHARE * sizes[body]
        ):
            yield element
