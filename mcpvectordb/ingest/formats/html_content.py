"""Find the main content of a web page, and the boilerplate in it: menus, comments, teasers.

What counts is weight: the bytes of text outside of links, where blocks as short as labels count a
quarter. Each of three steps gives way where the page would lose too much (boilerplate removal):

1. Elements are boilerplate by tag, role, class and id. One with a third of the
   weight is never left out for its name; the elements in it are judged on their own.
2. The content is the element that is marked as such and has enough of the remaining weight: the
   body of an article, an article, the main element, a division with a telling name. Of the last two
   and of a page without marks, it is the smallest element with nearly all of the weight.
3. In the content, lists of links and boxes with a linked heading are left out if they are repeated,
   come last or are announced as related, and so are labels: bylines, dates, credits, buttons.

If less than a fifth of the weight is left in the end, only menus, headers and footers are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Set
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark "
    "nobr q rp rt ruby s samp small span strike strong sub sup time tt u var wbr br".split()
)
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SILENT = frozenset(
    "script style noscript template svg iframe object embed canvas audio video map head link meta "
    "button select textarea input datalist option progress meter".split()
)
# One of these holds the rest of the page if its end tag is missing.
UNCLOSED = frozenset("noscript object map button select".split())
BOILERPLATE = frozenset("nav aside footer form dialog menu".split())
ROLES = frozenset(
    "navigation search banner contentinfo complementary dialog alertdialog menu menubar toolbar "
    "tablist".split()
)
LISTS = frozenset("ul ol dl div table td section p".split())
_ENTRIES = frozenset("div li tr td article section dl a".split())
TEXTS = HEADINGS.keys() | frozenset("p pre blockquote ul ol dl li tbody tr".split())

KEPT_SHARE = 1 / 3
"""Share of a page's weight with which an element is no boilerplate, and may be the content."""
LEAST_SHARE = 0.2
"""Share of a page's weight that must be left, unless it was comments."""
NEARLY_ALL = 0.75
"""Share of the weight of the page, or of its main element, that the content in it has."""
ALL_ENTRIES = 0.9
"""The same of a listing, above which stands what its entries have in common."""
ENOUGH = 1000
"""Weight of a text from which comments are left out, however many they are."""
NOTICE = 300
"""Weight from which on an element with a notice for old browsers holds more than that."""
SHORT = 40
"""Weight below which a block is as likely a label as a sentence."""
TEASER = 400
"""Most weight of a box that only leads to another page."""
LONGEST_LABEL = 100
"""Characters of a block up to which it may be a label: a byline, a credit, an announcement."""
ANNOUNCED_SHARE = 0.25
"""Most of the weight of the content that follows an announcement such as "Related articles"."""
LEAST_POST = 200
"""Weight of a post from which on the comments below it are left out, if it is marked as one."""
MOST = 0.7
"""Share of the weight of several marked elements that makes one of them the content."""
HEADLINE = 25
"""Characters of a link from which on it is more likely a headline than a name."""
LONGEST_ENTRY = 1500
"""Most characters of an entry of a listing."""
FEWEST_ENTRIES = 4
LINKED_SHARE = 0.7
FEWEST_LINKS = 4


PageContent = tuple[list[Any], frozenset[Any]]
"""The elements to read, in order, and those to skip in them."""


def main_content(root: Any) -> PageContent:
    """Return the main content of a parsed page."""
    page = _WebPage(root)
    boilerplate = {each for each in page.elements if page.is_boilerplate(each)}
    page.find_entries(page.left_out | boilerplate)
    content = page.content(page.left_out | boilerplate)
    if page.weight_of(content) >= LEAST_SHARE * page.whole[page.body]:
        return content
    menus = {each for each in boilerplate if each.tag in ("nav", "header", "footer")}
    cautious = page.content(page.left_out | menus)
    return max(content, cautious, key=page.weight_of)


class _WebPage:
    """The elements of a page in document order, with the weight of each on its own.

    `left_out` has what is never read, and comments; `whole` has the weights without these.
    """

    def __init__(self, root: Any) -> None:
        self.elements = [each for each in root.iter() if isinstance(each.tag, str)]
        self.body = next((each for each in self.elements if each.tag == "body"), root)
        places = {each: place for place, each in enumerate(self.elements)}
        self.parents = [places.get(each.getparent(), -1) for each in self.elements]
        self.own = _own_weights(self.elements)
        silent = {each for each in self.elements if each.tag in SILENT - UNCLOSED}
        if unclosed := [each for each in self.elements if each.tag in UNCLOSED]:
            weights = self.weights(silent)
            most = min(NOTICE, KEPT_SHARE * weights[self.body])
            silent |= {each for each in unclosed if weights[each] < most}
        self.left_out = silent | self.comments(silent)
        self.whole = self.weights(self.left_out)
        self.teasers = _teasers(self.elements)
        self.entries, self.buttons = set[Any](), set[Any]()

    def weights(self, skip: Set[Any]) -> dict[Any, int]:
        """The weight of every element, without those to skip."""
        return self.sums([self.own[each] for each in self.elements], skip)

    def sums(self, values: list[int], skip: Set[Any]) -> dict[Any, int]:
        """For every element the sum of the values in it, without the elements to skip.

        This is what most of the time goes into, so it works with places instead of elements.
        """
        sums = values.copy()
        skipped = [each in skip for each in self.elements]
        for place in range(len(sums) - 1, -1, -1):
            if skipped[place]:
                sums[place] = 0
            elif (parent := self.parents[place]) >= 0:
                sums[parent] += sums[place]
        return dict(zip(self.elements, sums, strict=True))

    def weight_of(self, content: PageContent) -> int:
        """The weight of what is left."""
        roots, skip = content
        weights = self.weights(skip)
        return sum(weights[each] for each in roots)

    def inside(self, elements: Set[Any]) -> set[Any]:
        """These elements and all that are in them."""
        found: set[Any] = set()
        for each in self.elements if elements else ():
            if each in elements or each.getparent() in found:
                found.add(each)
        return found

    # Boilerplate

    def is_boilerplate(self, element: Any) -> bool:
        """Whether tag, role, class or id say so, and the element is not too large for it."""
        if element.tag in ("html", "body", "main", "article"):
            return False
        if self.whole[element] >= max(1, KEPT_SHARE * self.whole[self.body]):
            return False
        around, style = element.getparent(), (element.get("style") or "").replace(" ", "").lower()
        # The footer of a quotation names its author.
        is_author = element.tag == "footer" and around is not None and around.tag == "blockquote"
        return (
            (element.tag in BOILERPLATE and not is_author)
            or (element.tag == "header" and _is_outside(element, "article", "main", "section"))
            or (element.get("role") or "").lower() in ROLES
            or "hidden" in element.attrib
            or element.get("aria-hidden") == "true"
            or "display:none" in style
            or "visibility:hidden" in style
            or (element.tag not in HEADINGS and _is_named_boilerplate(element))
        )

    def comments(self, silent: set[Any]) -> set[Any]:
        """What readers wrote below the text, unless it is the text, as in a forum."""
        found = {
            each
            for each in self.elements
            if each.tag in _COMMENT_TAGS
            and any(not _COMMENTS.isdisjoint(_parts(name)) for name in _names(each))
        }
        if not found:
            return found
        kind = _declared_kind(self.elements)
        if kind == "forum":
            return set()
        left = self.weights(silent | found)[self.body]
        enough = min(ENOUGH, KEPT_SHARE * self.weights(silent)[self.body])
        if kind == "article":
            enough = min(enough, LEAST_POST)
        return found if left >= enough else set()

    def find_entries(self, skip: set[Any]) -> None:
        """Find the entries of a listing, and let their links count as text.

        They are alike, lead elsewhere and are more than that link; a page of them has more text in
        them than beside, or begins with them, and declares no article.
        """
        text, linked, _ = self.link_sums(skip)
        gone = self.inside(skip)
        groups: dict[tuple[str, Any], list[Any]] = {}
        for each in self.elements:
            if each.tag in _ENTRIES and each not in gone and 0 < linked[each] <= LONGEST_ENTRY:
                named = (each.get("class") or "").split()
                alike = (each.tag, named[0] if named else each.getparent())
                groups.setdefault(alike, []).append(each)
        many = [
            group
            for group in groups.values()
            if len(group) >= FEWEST_ENTRIES
            and max(text[each] for each in group) <= LONGEST_ENTRY
            and 2 * sum(text[each] > linked[each] or _has_image(each) for each in group)
            >= len(group)
        ]
        if not many or _declared_kind(self.elements) in ("article", "product"):
            return
        entries = max(many, key=lambda group: sum(text[each] for each in group))
        found = set(entries)
        entries = [each for each in entries if found.isdisjoint(each.iterancestors())]
        weights = self.weights(skip)
        beside = weights[self.body] - sum(weights[each] for each in entries)
        inside = sum(text[each] for each in entries)
        first = next(
            each
            for each in self.elements
            if each in found or (self.own[each] >= 2 * SHORT and each not in gone)
        )
        if inside >= (KEPT_SHARE * beside if first in found else beside):
            self.entries = set(entries)
            for each in entries:
                self.own[each] += linked[each]
            links = [each for entry in entries for each in entry.iter("a")]
            said = Counter(map(_text, links))
            # What most entries say is a button: `Read more`, `Add to cart`, `Reply`.
            self.buttons = {each for each in links if 2 * said[_text(each)] > len(entries)}

    # Content

    def content(self, skip: set[Any]) -> PageContent:
        """The content without the elements to skip and without groups of links."""
        weights = self.weights(skip)
        chosen = self.marked_content(weights)
        is_marked = chosen is not None
        if chosen is None or _is_named(chosen, _CONTENT) or chosen.tag == "main":
            text, _, _ = self.link_sums(skip)
            chosen = self.smallest(self.body if chosen is None else chosen, weights, text)
        chosen = self.with_text_beside(chosen, weights)
        roots = [*self.above(chosen, skip, weights), chosen]
        if not _is_documentation(chosen):
            skip = skip | self.pointers(chosen, skip, weights, is_marked)
            skip = skip | self.announced(chosen, skip) | self.labels(chosen, skip)
        empty = _empty_headings(chosen, skip) - self.inside(self.entries)
        return roots, frozenset(skip | empty | self.buttons)

    def marked_content(self, weights: dict[Any, int]) -> Any:
        """The element marked as content, by the most telling mark first; None without one."""
        left = [each for each in self.elements if weights[each] and each not in self.teasers]
        for marked in (
            [each for each in left if "articleBody" in (each.get("itemprop") or "")],
            [each for each in left if _is_documentation(each) or _is_named(each, _ARTICLE_BODY)],
            [each for each in left if each.tag == "article"],
            [each for each in left if each.tag == "main" or each.get("role") == "main"],
            [each for each in left if _is_named(each, _CONTENT)],
        ):
            chosen = _together(marked, weights)
            if chosen is not None and weights[chosen] >= KEPT_SHARE * weights[self.body]:
                return chosen
        return None

    def smallest(self, element: Any, weights: dict[Any, int], text: dict[Any, int]) -> Any:
        """The smallest element in this one with nearly all of its weight.

        It also has a third of its text, which in a list of links has no weight.
        """
        share = NEARLY_ALL if not self.entries else ALL_ENTRIES
        enough, least = share * weights[element], KEPT_SHARE * text[element]
        while True:
            inner = max(element, key=lambda each: weights[each], default=None)
            if inner is None or inner.tag in INLINE | TEXTS:
                return element
            if weights[inner] < max(1, enough) or text[inner] < least:
                return element
            element = inner

    def with_text_beside(self, element: Any, weights: dict[Any, int]) -> Any:
        """The element, or the one around it if paragraphs stand beside it there.

        This is so where a surplus end tag has closed the element within the text.
        """
        while element is not self.body and (around := element.getparent()) is not None:
            beside = self.own[around] + sum(
                weights[each] for each in around if each.tag in TEXTS and each is not element
            )
            if beside < KEPT_SHARE * weights[element]:
                return element
            element = around
        return element

    def above(self, chosen: Any, skip: set[Any], weights: dict[Any, int]) -> list[Any]:
        """The <h1> before the content, and the paragraphs between the two: a summary."""
        if any(True for _ in chosen.iter("h1")):
            return []
        before = self.elements[: self.elements.index(chosen)]
        headlines = [each for each in before if each.tag == "h1" and _has_text(each)]
        gone = self.inside(skip)
        kept = [each for each in headlines if each not in gone]
        if not kept:
            return headlines[-1:]
        return kept[-1:] + [
            each
            for each in before[before.index(kept[-1]) :]
            if each.tag in ("p", "h2") and weights[each] >= SHORT and each not in gone
        ]

    def pointers(
        self, root: Any, skip: set[Any], weights: dict[Any, int], is_marked: bool
    ) -> set[Any]:
        """What only leads elsewhere, unless the content consists of it: links and teasers."""
        sums, gone = self.link_sums(skip), self.inside(skip)
        content = [each for each in root.iter() if each not in gone]
        prose = [place for place, each in enumerate(content) if self.own[each] >= SHORT]
        end = prose[-1] if prose else 0
        found: set[Any] = set()
        listed = self.inside(self.entries)
        for place, element in enumerate(content[1:], 1):
            if weights[element] > KEPT_SHARE * weights[root] or element in listed:
                continue
            text, linked, links = (each[element] for each in sums)
            may_lead = element.tag in LISTS and links > 0
            if may_lead and links >= FEWEST_LINKS and linked > LINKED_SHARE * text:
                label, before = _announcement(element), element.getprevious()
                # Below a heading, names rather than headlines are not there to lead elsewhere.
                headed = before is not None and before.tag in HEADINGS
                is_text = is_marked and (place < end or (headed and linked < HEADLINE * links))
                leads = label is not None or not is_text
                found |= {label} - {None}
            elif element in self.teasers:
                leads = weights[element] <= TEASER
            elif may_lead and 2 * linked >= text:  # a line: `Read more: The last track`
                said, colon, _ = _text(element).partition(":")
                leads = bool(colon) and _announces(said)
            else:
                leads = False
            if leads:
                found.add(element)
        if not found:
            return found
        weight, left = self.weights(skip | found)[root], self.link_sums(skip | found)[0][root]
        enough = KEPT_SHARE * weights[root] <= weight and sums[0][root] <= 2 * left
        return found if enough else set()

    def announced(self, root: Any, skip: set[Any]) -> set[Any]:
        """The parts that a label such as "Related articles" announces, with the label."""
        weights, gone = self.weights(skip), self.inside(skip)
        most = ANNOUNCED_SHARE * weights[root]
        found: set[Any] = set()
        for element in root.iter():
            if element in gone or element is root or not isinstance(element.tag, str):
                continue
            if element.tag in INLINE or not _ANNOUNCEMENT.fullmatch(_text(element)):
                continue
            start = element
            while (around := start.getparent()) is not root and _text(around) == _text(element):
                start = around
            part = [start, *_section(start)]
            if (weight := sum(weights[each] for each in part)) <= most:
                found.update(part)
                most -= weight
        return found

    def labels(self, root: Any, skip: set[Any]) -> set[Any]:
        """Blocks that say who, when or what to press: bylines, dates, credits, buttons.

        Before the first paragraph, everything as short as a label is one of them.
        """
        gone = self.inside(skip)
        blocks = [
            each
            for each in root.iter()
            if isinstance(each.tag, str) and each not in gone and each.tag not in INLINE
        ]
        prose = sum(self.own[each] >= 2 * SHORT for each in blocks)
        leads, found = prose >= FEWEST_PARAGRAPHS and not self.entries, set[Any]()
        for block in blocks:
            leads = leads and self.own[block] < 2 * SHORT
            leads = leads and (block is root or block.tag not in _ENDS_LEAD)
            if block.tag in HEADINGS or block.tag in _TABLE or not _is_leaf(block):
                continue
            text = _text(block)
            if len(text) <= LONGEST_LABEL and (
                _LABEL.fullmatch(text) or (leads and block.tag != "li" and self.own[block] < SHORT)
            ):
                found.add(block)
        return found

    def link_sums(self, skip: Set[Any]) -> tuple[dict[Any, int], dict[Any, int], dict[Any, int]]:
        """Characters of text of every element, those in links, and the number of links."""
        text = [len((each.text or "").strip()) for each in self.elements]
        for each, parent in zip(self.elements, self.parents, strict=True):
            if each.tail and parent >= 0:
                text[parent] += len(each.tail.strip())
        sums = self.sums(text, skip)
        links = [each.tag == "a" for each in self.elements]
        linked = [
            sums[each] if is_link else 0 for each, is_link in zip(self.elements, links, strict=True)
        ]
        return sums, self.sums(linked, skip), self.sums([*map(int, links)], skip)


def _own_weights(elements: Iterable[Any]) -> Counter[Any]:
    """The weight of the text of each block outside of links, without the blocks in it."""
    weights: Counter[Any] = Counter()
    blocks: dict[Any, Any] = {}
    linked: set[Any] = set()
    for element in elements:
        parent = element.getparent()
        blocks[element] = blocks.get(parent, element) if element.tag in INLINE else element
        if element.tag == "a" or parent in linked:
            linked.add(element)
        elif element.text:
            weights[blocks[element]] += len(element.text.strip().encode())
        if element.tail and parent is not None and parent not in linked:
            weights[blocks[parent]] += len(element.tail.strip().encode())
    for block, weight in weights.items():
        if weight < SHORT and block.tag not in ("pre", "td", "th", "dd", "dt"):
            weights[block] = weight // 4
    return weights


def _together(marked: list[Any], weights: dict[Any, int]) -> Any:
    """The one marked element with most of their weight, or the element that holds them all."""
    found = set(marked)
    outer = [each for each in marked if found.isdisjoint(each.iterancestors())]
    # One article may be there several times, for screens of different sizes.
    outer = list({(weights[each], _text(each)): each for each in reversed(outer)}.values())
    largest = max(outer, key=lambda each: weights[each], default=None)
    if largest is None or weights[largest] >= MOST * sum(weights[each] for each in outer):
        return largest
    holders = set(largest.iterancestors()).intersection(*(each.iterancestors() for each in outer))
    holder = next(each for each in largest.iterancestors() if each in holders)
    return None if holder.tag in ("html", "body") else holder


def _teasers(elements: Iterable[Any]) -> set[Any]:
    """Boxes that begin with a heading that leads elsewhere.

    Several stand side by side, or it is an article in an article.
    """
    headed, lone = set[Any](), set[Any]()
    boxes: dict[tuple[Any, str], list[Any]] = {}
    for heading in elements:
        if heading.tag not in HEADINGS:
            continue
        around = [each for each in heading.iterancestors() if each.tag == "a"]
        targets = [each.get("href") or "#" for each in (*heading.iter("a"), *around)]
        beside = (heading.text or "").strip() and not around  # text that is no link
        leads = not beside and not all(each.startswith("#") for each in targets)
        for box in heading.iterancestors():
            if box in headed:
                break
            headed.add(box)
            if leads and box.tag == "article" and not _is_outside(box, "article"):
                lone.add(box)
            elif leads and box.tag in ("article", "div", "li", "section", "a"):
                boxes.setdefault((box.getparent(), box.tag), []).append(box)
    return lone | {box for group in boxes.values() if len(group) > 1 for box in group}


def _empty_headings(root: Any, skip: set[Any]) -> set[Any]:
    """The headings below which everything was skipped, up to the next heading."""
    empty: set[Any] = set()
    for heading in root.iter(*(HEADINGS.keys() - {"h1"})):
        below = list(takewhile(lambda each: each.tag not in HEADINGS, heading.itersiblings()))
        gone = [each in skip for each in below if _has_text(each)]
        if gone and all(gone) and not any((each.tail or "").strip() for each in below):
            empty.add(heading)
    return empty


def _section(heading: Any) -> list[Any]:
    """The elements after this one up to the next heading of its rank, or to the end."""
    rank = HEADINGS.get(heading.tag, 6)
    return list(takewhile(lambda each: HEADINGS.get(each.tag, 7) > rank, heading.itersiblings()))


def _is_leaf(block: Any) -> bool:
    """Whether a block has no blocks in it."""
    return all(each.tag in INLINE for each in block.iterdescendants() if isinstance(each.tag, str))


def _declared_kind(elements: Iterable[Any]) -> str:
    """The kind of page that its metadata declare: "forum", "article", "product" or ""."""
    said: list[str] = []
    for element in elements:
        if element.tag == "meta":
            said.append(element.get("content") or "" if _is_about(element) else "")
        elif element.tag == "script" and element.get("type") == "application/ld+json":
            said += _SCHEMA_TYPE.findall(element.text or "")
        said += [element.get("itemtype") or ""]
        if element.tag in ("html", "body"):
            said += _names(element)
    text = " ".join(filter(None, said))
    if _FORUM.search(text):
        return "forum"
    if _ARTICLE.search(text):
        return "article"
    # A listing may declare every entry as a product.
    return "product" if len(_PRODUCT.findall(text)) == 1 else ""


def _is_about(meta: Any) -> bool:
    return (meta.get("property") or meta.get("name") or "").lower() in ("og:type", "generator")


def _has_image(element: Any) -> bool:
    return next(element.iter("img"), None) is not None


def _has_text(element: Any) -> bool:
    return any(text.strip() for text in element.itertext())


def _is_outside(element: Any, *tags: str) -> bool:
    """Whether no element around this one has such a tag."""
    return not any(each.tag in tags for each in element.iterancestors())


# --- what classes and ids say about an element: boilerplate, comments or content

_LINES = Path(__file__).with_name("page_names.txt").read_text("utf-8").splitlines()
_WORDS = {kind: words.split() for kind, _, words in (line.partition(": ") for line in _LINES)}
# A name says what an element is by its first or its last word: `cookie-banner`, `left-sidebar`.
_BOILERPLATE = frozenset(_WORDS["boilerplate"])
_BOILERPLATE_NAMES = frozenset(_WORDS["whole names of boilerplate"])
# The same without a border between the words: `relatedposts`.
_BOILERPLATE_STEMS = tuple(_WORDS["stems of boilerplate"])
_COMMENTS = frozenset(_WORDS["comments"])
_COMMENT_TAGS = frozenset("div section ol ul li aside article form table details".split())
# With one of these a name is that of a state or a layout: `has-ads`, `no-share`, `modal-enabled`,
# `content-with-sidebar-wrp`, `pagination-first`.
_STATES = frozenset(_WORDS["states"])
_LAST_STATES = frozenset(_WORDS["last states"])
_ARTICLE_BODY = re.compile(
    r"(?:td-)?(?:article|post|entry|story|recipe|news)-?(?:body|content|text)|field-name-body",
    re.IGNORECASE,
)
_DOCUMENTATION = frozenset("mw-parser-output markdown-body rst-content theme-doc-markdown".split())
_CONTENT = re.compile(
    r"content|main|(?:main|page|docs|primary)[-_]?contents?|contents?[-_]?main|"
    r"main[-_]?(?:column|area|body)|mw-content-text|documentwrapper|"
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
_SCHEMA_TYPE = re.compile(r'"@type"\s*:\s*"(\w+)"')
_FORUM = re.compile(
    r"DiscussionForumPosting|QAPage|phpbb|vbulletin|xenforo|discourse|mybb|smf|invision|flarum|"
    r"nodebb|vanilla|\bbbpress\b|\bforum\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"(?:^|\b|news|blog|tech)(?:article|posting|recipe)\b", re.IGNORECASE)
_PRODUCT = re.compile(r"\bproduct(?:group)?\b", re.IGNORECASE)
FEWEST_PARAGRAPHS = 3
_ENDS_LEAD = HEADINGS.keys() - {"h1"} | frozenset("ul ol dl table pre blockquote figure".split())
_TABLE = frozenset("td th dd dt pre".split())


def _one_of(kind: str) -> re.Pattern[str]:
    """One expression for all lines of a kind; a label may have punctuation around it."""
    lines = Path(__file__).with_name("page_labels.txt").read_text("utf-8").splitlines()
    known = [text for line in lines for each, _, text in [line.partition(": ")] if each == kind]
    return re.compile(rf"\W*(?:{'|'.join(known)})\W*", re.IGNORECASE)


_LABEL, _ANNOUNCEMENT = _one_of("label"), _one_of("announcement")


def _is_named_boilerplate(element: Any) -> bool:
    """Whether class or id name boilerplate; the id of a section may just repeat its heading."""
    names = element.get("class") or ""
    if any(map(_names_boilerplate, names.split())):
        return True
    return (
        element.tag in ("div", "ul", "ol", "table")
        and "section" not in names.split()
        and any(map(_names_boilerplate, (element.get("id") or "").split()))
        and _is_outside(element, "main", "article")
        and not any(each.get("role") == "main" for each in element.iterancestors())
    )


def _is_documentation(element: Any) -> bool:
    """Whether a class is that of a wiki or of documentation, whose lists of links are text."""
    return not _DOCUMENTATION.isdisjoint((element.get("class") or "").split())


def _announcement(element: Any) -> Any:
    """The element before this one if it says that this one leads elsewhere: `Read more`."""
    before = element.getprevious()
    if before is None:
        before = element.getparent().getprevious()
    return before if before is not None and _announces(_text(before)) else None


def _announces(label: str) -> bool:
    return len(label) <= _LONGEST_LABEL and _RELATED.match(label) is not None


def _text(element: Any) -> str:
    """The first characters of an element's text."""
    text = ""
    for part in element.itertext():
        text += part[: 3 * _LONGEST_LABEL]
        if len(text) > 2 * _LONGEST_LABEL:
            break
    return text.strip()


def _names(element: Any) -> list[str]:
    return f"{element.get('class') or ''} {element.get('id') or ''}".split()


def _is_named(element: Any, expression: re.Pattern[str]) -> bool:
    return any(map(expression.fullmatch, _names(element)))


def _names_boilerplate(name: str) -> bool:
    first, last = _ends(name)
    return (
        name.lower() in _BOILERPLATE_NAMES
        or not _BOILERPLATE.isdisjoint((first, last))
        or first.startswith(_BOILERPLATE_STEMS)
    )


def _ends(name: str) -> tuple[str, str]:
    """The first and the last word of a name."""
    parts = _parts(name)
    return (parts[0], parts[-1]) if parts else ("", "")


@lru_cache(maxsize=8192)
def _parts(name: str) -> list[str]:
    """The words of a name; none of that of a state or a layout."""
    parts = [each.lower() for each in _WORD.findall(name[:100])]
    is_state = parts and (not _STATES.isdisjoint(parts) or parts[-1] in _LAST_STATES)
    return [] if is_state else parts
