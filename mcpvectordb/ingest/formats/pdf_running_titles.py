"""Remove what a PDF repeats on its pages: running titles, page numbers, watermarks, stamps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from mcpvectordb.ingest.formats.pdf_text import PageText, TextRow

MARGIN = 0.12
"""Share of a page's height, at top and bottom, in which running titles and page numbers are."""
REPEATED = 3
"""Pages that must have a row in common for it to be a running title."""
SLOT = 4.0
"""Height in points within which rows are at one place."""

Slot = tuple[bool, int]
"""A place in a margin: whether it is the upper one, and how far from the edge in steps of SLOT."""


def without_running_titles(pages: Sequence[PageText]) -> list[PageText]:
    """Return the pages without page numbers and running titles.

    A running title is a row that three or more pages have at the same height of a margin, apart
    from its digits, or two if others have another one there: titles of short chapters. It stays
    where it first occurs, unless all of its words are elsewhere in the document: no word is lost
    but numbers of pages. The same goes for text in another direction, at any place.
    """
    keyed = [
        [(row, _key(row), slot) for row in page.rows if (slot := _slot(row, page))]
        for page in pages
    ]
    times = Counter((key, slot) for rows in keyed for key, slot in {each[1:] for each in rows})
    places = {slot for (_, slot), count in times.items() if count >= REPEATED}
    stamps = Counter(key for page in pages for key in set(map(_key, page.aside)))
    titles = {
        id(row)
        for rows in keyed
        for row, key, slot in rows
        if times[key, slot] >= (REPEATED - 1 if slot in places else REPEATED)
    } | {id(row) for page in pages for row in page.aside if stamps[_key(row)] >= REPEATED}
    seen = {
        word for page in pages for row in page.rows if id(row) not in titles for word in _words(row)
    }
    kept = []
    for page in pages:
        for row in page.rows + page.aside:
            if id(row) in titles and not _is_number(row) and not seen.issuperset(_words(row)):
                titles.remove(id(row))
                seen.update(_words(row))
        kept.append(
            page._replace(
                rows=[row for row in page.rows if id(row) not in titles],
                aside=[row for row in page.aside if id(row) not in titles],
            )
        )
    return kept


def _slot(row: TextRow, page: PageText) -> Slot | None:
    if row.table:
        return None
    if row.box.y1 < MARGIN * page.height:
        return True, round(row.box.y0 / SLOT)
    if row.box.y0 > (1 - MARGIN) * page.height:
        return False, round((page.height - row.box.y1) / SLOT)
    return None


def _key(row: TextRow) -> str:
    """The row's text and size without what changes from page to page."""
    return f"{row.size} {re.sub(r'[0-9]+', '#', row.text.lower())}"


def _is_number(row: TextRow) -> bool:
    return not row.text.lower().strip("0123456789ivxlcdm-–—/|. ")


def _words(row: TextRow) -> list[str]:
    """The words of a row, without numbers."""
    return re.findall(r"[^\W\d_]+", row.text.lower())
