"""What classes and ids say about an element of a web page: boilerplate, comments or content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# A name says what an element is by its first or its last word: `cookie-banner`, `left-sidebar`.
_BOILERPLATE = frozenset(
    "cookie cookies consent gdpr nav navbar navigation breadcrumb breadcrumbs sidebar menu footer "
    "masthead social share sharing sharebar sharedaddy newsletter subscribe signup related "
    "recommended recommendations promo promotion promoted sponsored advert advertisement "
    "advertising ad ads adslot popup modal lightbox skiplink headerlink linenos lineno "
    "linenodiv toc pagination pager noprint sphinxsidebar navbox catlinks ticker outbrain taboola "
    "addtoany trending tagcloud tags blogroll avatar login topbar toolbar subnav sidenav offcanvas "
    "megamenu bookmark bookmarks follow feedback donate donation paywall copyright sponsor "
    "sponsors".split()
)
_BOILERPLATE_NAMES = frozenset(
    "hidden d-none side-bar skip-link skip-to-content sr-only visually-hidden anchor-link "
    "screen-reader-text "
    "mw-editsection mw-jump-link more-stories more-news more-articles most-read most-popular "
    "also-read read-also you-may-like author-bio author-box about-author post-tags entry-tags "
    "article-tags tag-list tags-links post-meta entry-meta up-next latest-news".split()
)
# The same without a border between the words: `relatedposts`.
_BOILERPLATE_STEMS = tuple(
    "breadcrumb newsletter sidebar advert adsby sharebutton sharethis relatedpost relatedarticle "
    "relatednews".split()
)
_COMMENTS = frozenset(
    "comment comments commentlist disqus respond livefyre kommentare commentaires "
    "comentarios".split()
)
_COMMENT_TAGS = frozenset("div section ol ul li aside article form table details".split())
# With one of these a name is that of a state or a layout: `has-ads`, `no-share`, `modal-enabled`,
# `content-with-sidebar-wrp`, `pagination-first`.
_STATES = frozenset("has no not non with without is".split())
_LAST_STATES = frozenset(
    "enabled disabled active inactive open opened closed on off ready loaded visible first last "
    "layout page template theme support".split()
)
_ARTICLE_BODY = re.compile(
    r"(?:td-)?(?:article|post|entry|story|recipe|news)-?(?:body|content|text)|field-name-body",
    re.IGNORECASE,
)
_DOCUMENTATION = frozenset("mw-parser-output markdown-body rst-content theme-doc-markdown".split())
_CONTENT = re.compile(
    r"content|main|(?:main|page|docs)-?content|mw-content-text|documentwrapper|"
    r"post|story|article|entry|hentry",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_A-Za-z]+")
_RELATED = re.compile(
    r"\W*(?:(?:read|watch|more|also|related|recommended|latest|popular|most|you may|trending|"
    r"share|follow|tags?|topics|filed under|advertisement|sponsored|mehr|lesen|auch|weitere|lire|"
    r"voir|à lire|leer|más|leggi|leia|veja)\b|verwandt|relacionad|читайте|ещё|также|相关|推荐|更多|"
    r"延伸|関連|あわせて)",
    re.IGNORECASE,
)
_LONGEST_LABEL = 60


def is_boilerplate(element: Any) -> bool:
    """Whether class or id name boilerplate; the id of a section may just repeat its heading."""
    names = element.get("class") or ""
    if any(map(_names_boilerplate, names.split())):
        return True
    return (
        element.tag in ("div", "ul", "ol", "table")
        and "section" not in names.split()
        and any(map(_names_boilerplate, (element.get("id") or "").split()))
        and not any(
            each.tag in ("main", "article") or each.get("role") == "main"
            for each in element.iterancestors()
        )
    )


def is_comments(element: Any) -> bool:
    """Whether class or id say that this is what readers wrote."""
    return element.tag in _COMMENT_TAGS and any(map(_names_comments, _names(element)))


def is_article_body(element: Any) -> bool:
    """Whether class or id name the text of an article, without its headline and what is around."""
    return is_documentation(element) or any(map(_ARTICLE_BODY.fullmatch, _names(element)))


def is_documentation(element: Any) -> bool:
    """Whether a class is that of a wiki or of documentation, whose lists of links are text."""
    return not _DOCUMENTATION.isdisjoint((element.get("class") or "").split())


def is_content(element: Any) -> bool:
    """Whether class or id name the content of the page."""
    return any(map(_CONTENT.fullmatch, _names(element)))


def announcement(element: Any) -> Any:
    """The element before this one if it says that this one leads elsewhere: `Read more`."""
    before = element.getprevious()
    if before is None:
        before = element.getparent().getprevious()
    label = "" if before is None else _text(before)
    return before if len(label) <= _LONGEST_LABEL and _RELATED.match(label) else None


def announces(element: Any) -> bool:
    """Whether an element itself is such a line with its link: `Read more: The last track`."""
    label, colon, _ = _text(element).partition(":")
    return bool(colon) and len(label) <= _LONGEST_LABEL and _RELATED.match(label) is not None


def _text(element: Any) -> str:
    """The first characters of an element's text."""
    text = ""
    for part in element.itertext():
        text += part
        if len(text) > 2 * _LONGEST_LABEL:
            break
    return text.strip()


def _names(element: Any) -> Iterator[str]:
    yield from (element.get("class") or "").split()
    yield from (element.get("id") or "").split()


@lru_cache(maxsize=4096)
def _names_boilerplate(name: str) -> bool:
    return name.lower() in _BOILERPLATE_NAMES or _begins_or_ends_with(
        name, _BOILERPLATE, _BOILERPLATE_STEMS
    )


@lru_cache(maxsize=4096)
def _names_comments(name: str) -> bool:
    return _begins_or_ends_with(name, _COMMENTS)


def _begins_or_ends_with(name: str, words: frozenset[str], stems: tuple[str, ...] = ()) -> bool:
    parts = [each.lower() for each in _WORD.findall(name[:100])]
    if not parts or not _STATES.isdisjoint(parts) or parts[-1] in _LAST_STATES:
        return False
    return parts[0] in words or parts[-1] in words or parts[0].startswith(stems)
