"""Split a text into chunks of at most so many model tokens, along the structure of the text.

The method is greedy and needs one pass. A chunk takes everything up to the end of its page or
section, if that fits into the token budget. Otherwise it ends at the strongest boundary within the
budget: before a heading, a paragraph, a list item, a line, a sentence, a word. Boundaries weaker
than a heading count only in the second half of the budget, so that chunks do not become tiny. The
next chunk may repeat the end of this one (overlap), from the start of a line, sentence or word, but
never across a heading, a block or a page.

Headings belong to the text that they head: a chunk does not end between the two, and headings at
the end of a page go with the text before them. Tables and code blocks that fit into one chunk are
not cut; a part of a longer one carries the table's header or the fences of the code. Front matter
describes the text: it is in the tile of the first chunk, but not in the chunk.

Lengths are counted by binary search in the sorted offsets of all tokens. The general term is
structure-aware (or recursive) chunking; `structure` finds the boundaries.
"""

from __future__ import annotations

import operator
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput
from mcpvectordb.ingest import structure
from mcpvectordb.ingest.span import STANDARD_SIZE, Span
from mcpvectordb.ingest.structure import Block, Kind, outline

WHOLE_TEXT = 256
"""A text of so many tokens is not cut into chunks of the standard size: as a whole it is found
better (nDCG@10 of abstracts .832, cut .808)."""

# A longer token counts as several: some tokenizers make one token of any unknown word, even of a
# megabyte of base64.
LONGEST_TOKEN = 32

_SENTENCE = re.compile(r"(?<!\b\w)[.!?…]['\"’”)\]]*+\s++|[。！？][’”」』）]*+\s*+")
_VISIBLE = re.compile(r"\S")
_WORD = re.compile(r"(?<=\s)\S")


def split(
    text: str,
    *,
    starts: Sequence[int],
    size: int,
    overlap: int,
    kind: Kind = "text",
    pages: Sequence[int] = (),
    most: int | None = None,
) -> list[Span]:
    """Return the spans of chunks of at most `size` tokens, cut at the best structural boundaries.

    - starts: sorted offsets at which tokens start; a chunk has as many tokens as starts lie in it.
    - overlap: how many tokens of the previous chunk a chunk may repeat, within one passage.
    - kind: the markup that gives the text its structure.
    - pages: sorted offsets at which pages begin; no chunk crosses a page.
    - most: stop after so many spans; the rest of the text is then in none.

    With the standard size, a text of at most `WHOLE_TEXT` tokens is not cut, except between pages.
    The tiles of all spans always join to the text. Text without any visible character gives one
    empty span, empty text gives none.
    """
    if size < 1 or overlap < 0:
        raise InvalidInput(
            f"a chunk needs a size of at least 1 and an overlap of at least 0, not {size} and "
            f"{overlap}"
        )
    return _Splitter(text, starts, size, kind, pages).spans(min(overlap, size - 1), most)


class _Section(NamedTuple):
    """Headings with the text below them, which begins at `text`; without any, where a page begins.

    `outer` is the highest level of these headings, `inner` that of the last one.
    """

    start: int
    outer: int
    inner: int
    text: int


class _Splitter:
    """Splits one text. Every cut is before a visible character or at the end of the text."""

    def __init__(
        self, text: str, starts: Sequence[int], size: int, kind: Kind, pages: Sequence[int]
    ) -> None:
        self.text, self.pages = text, pages
        self.starts = _with_long_tokens_divided(text, starts)
        self.first = self.visible(structure.body_start(text, kind))
        is_short = self.count(self.first, len(text)) <= WHOLE_TEXT
        self.size = WHOLE_TEXT if is_short and size == STANDARD_SIZE else size
        self.outline = outline(text, kind, lambda start, end: self.count(start, end) <= self.size)
        self.heading_starts = [each.start for each in self.outline.headings]
        self.block_starts = [each.start for each in self.outline.blocks]
        self.barriers = sorted({self.visible(each) for each in pages})
        runs = self.runs_of_headings()
        ends = {*self.barriers, len(text)}
        self.tails = [each.start for each in runs if each.text in ends]
        self.sections = [each for each in runs if each.text not in ends]
        self.section_starts = [each.start for each in self.sections]
        self.no_overlap_at = {*self.heading_starts, *self.block_starts, *self.barriers}
        self.newlines = array("q", (each.start() for each in re.finditer("\n", text)))

    def spans(self, overlap: int, most: int | None) -> list[Span]:
        spans: list[Span] = []
        tile, start = 0, self.first
        first = start
        while tile < len(self.text) and len(spans) != most:
            room = self.size - self.count(start, first)
            block = self.block_around(start)
            if block and self.is_carried(block):  # its header gets at most half of the tokens
                room -= min(self.count(block.start, block.header_end), self.size // 2)
            cut = self.cut(first, max(1, room))
            spans.append(self.span(start, tile, cut))
            start = self.overlap_start(first, cut, overlap)
            tile = first = cut
        return spans

    def span(self, start: int, tile: int, cut: int) -> Span:
        end = max(start, tile + len(self.text[tile:cut].rstrip()))
        heading = bisect_right(self.heading_starts, start) - 1
        begun, open_ = self.block_around(start), self.block_around(end)
        return Span(
            start=start,
            end=end,
            tile_start=tile,
            tile_end=cut,
            first_line=bisect_left(self.newlines, start) + 1,
            last_line=bisect_left(self.newlines, max(start, end - 1)) + 1,
            page=max(1, bisect_right(self.pages, start)) if self.pages else None,
            headings=self.outline.headings[heading].path if heading >= 0 else (),
            header=begun.header if begun and self.is_carried(begun) else "",
            footer=open_.footer if open_ and self.is_carried(open_) else "",
        )

    # Headings and the text that they head

    def runs_of_headings(self) -> list[_Section]:
        """Headings that follow each other on one page without text between them."""
        cuts = dict(pairwise([*self.outline.cuts, len(self.text)]))
        barriers, runs = set(self.barriers), list[_Section]()
        for at, _, level, _ in self.outline.headings:
            start, outer = at, level
            if runs and at == runs[-1].text and at not in barriers:
                start, outer = runs[-1].start, min(runs.pop().outer, level)
            runs.append(_Section(start, outer, level, cuts[at]))
        return runs

    # Measures

    def count(self, start: int, end: int) -> int:
        """The number of tokens that start between two offsets."""
        return bisect_left(self.starts, end) - bisect_left(self.starts, start)

    def after(self, first: int, tokens: int) -> int:
        """The offset after so many tokens, and after at least one character."""
        i = bisect_left(self.starts, first) + tokens
        if i < len(self.starts) and self.starts[i] <= first:
            i = bisect_right(self.starts, first)
        return self.visible(self.starts[i]) if i < len(self.starts) else len(self.text)

    def visible(self, offset: int) -> int:
        """The offset of the next visible character, or of the end of the text."""
        found = _VISIBLE.search(self.text, offset)
        return found.start() if found else len(self.text)

    def block_around(self, offset: int) -> Block | None:
        """The block that a cut at this offset divides."""
        i = bisect_left(self.block_starts, offset) - 1
        block = self.outline.blocks[i] if i >= 0 else None
        return block if block and offset < block.end else None

    def is_carried(self, block: Block) -> bool:
        """Whether the parts of a block repeat its header, which is shorter than a chunk."""
        return self.count(block.start, block.header_end) <= self.size

    # Where a chunk ends

    def cut(self, first: int, room: int) -> int:
        """The end of the chunk that begins at `first` and has room for so many tokens."""
        limit = self.after(first, room)
        if (stop := self.stop(first, limit)) is not None:
            return stop
        i = bisect_right(self.tails, first)
        if i < len(self.tails) and self.tails[i] <= limit:  # leave headings without text some text
            last = self.starts[bisect_left(self.starts, self.tails[i]) - 1]
            limit = last if last > first else limit
        i = bisect_left(self.block_starts, limit) - 1
        block = self.outline.blocks[i] if i >= 0 else None
        # A cut at the limit would split this block where none is possible.
        is_split = block is not None and first < block.start and limit < block.first_cut
        if block and is_split and self.end_of_headings(first, limit) != block.start:
            limit = block.start
        else:
            block = None
        if (section := self.strongest(first, limit, structure.HEADING)) is not None:
            return section
        text = self.end_of_headings(first, limit)
        half, quarter = (max(self.after(first, room // part) - 1, text) for part in (2, 4))
        best = self.strongest(half, limit, structure.STACKED)
        if best is not None and self.strongest(half, limit, structure.OUTER) is None:
            # Rather than inside of a statement.
            best = self.strongest(quarter, limit, structure.OUTER) or best
        if best is None and block is None:
            sentences = [each.end() for each in _SENTENCE.finditer(self.text, half, limit)]
            words = self.text[half:limit].rsplit(None, 1)
            if sentences:
                best = sentences[-1]
            elif len(words) == 2 and not self.text[limit - 1].isspace():
                best = limit - len(words[1])
        return limit if best is None else best

    def stop(self, first: int, limit: int) -> int | None:
        """Where the page, section or text ends; None if beyond the limit."""
        i = bisect_right(self.section_starts, first)
        at = self.sections[i - 1] if i else _Section(first, 1, 1, first)
        inner = at.outer if at.start == first else at.inner + 1
        within = self.sections[i : bisect_right(self.section_starts, limit)]
        section = next((each.start for each in within if each.outer < inner), limit + 1)
        page = bisect_right(self.barriers, first)
        stop = min(section, *self.barriers[page : page + 1], len(self.text))
        return stop if stop <= limit else None

    def strongest(self, least: int, limit: int, minimum: int) -> int | None:
        """The strongest boundary after `least` and up to `limit`; of equal ones the last."""
        cuts, strengths = self.outline.cuts, self.outline.strengths
        lines = range(bisect_right(cuts, least), bisect_right(cuts, limit))
        best = max(lines, key=lambda i: (strengths[i], i), default=None)
        return cuts[best] if best is not None and strengths[best] >= minimum else None

    def end_of_headings(self, first: int, limit: int) -> int:
        """Where the text below the headings at `first` begins; `first` without headings or text."""
        cuts, strengths = self.outline.cuts, self.outline.strengths
        for i in range(bisect_right(cuts, first), bisect_right(cuts, limit)):
            if strengths[i] != structure.STACKED:
                return cuts[i] if strengths[i] == structure.BODY else first
        return first

    # Where the next chunk begins

    def overlap_start(self, first: int, cut: int, overlap: int) -> int:
        """The start of the chunk after `cut`: that of a line, sentence or word before it."""
        if not overlap or cut in self.no_overlap_at:
            return cut
        least = first  # the first offset from which text may be repeated
        i = bisect_left(self.starts, cut) - overlap
        if i > 0:
            least = max(least, self.starts[i] + (self.starts[i - 1] == self.starts[i]))
        heading = bisect_left(self.heading_starts, cut) - 1
        if heading >= 0:
            least = max(least, self.outline.headings[heading].end)
        block = bisect_left(self.block_starts, cut) - 1
        if block >= 0:
            start, end, *_ = self.outline.blocks[block]
            least = max(least, end if end <= cut else start)
        least = min(least, cut)
        cuts, begins = self.outline.cuts, [first]
        begins += cuts[(i := bisect_left(cuts, least)) : i + 1]
        begins += [each.end() for each in _SENTENCE.finditer(self.text, max(first, least - 8), cut)]
        begin = min((each for each in begins if least <= each < cut), default=None)
        if begin is not None:
            return begin
        word = _WORD.search(self.text, least, cut)
        return word.start() if word else cut


def _with_long_tokens_divided(text: str, starts: Sequence[int]) -> Sequence[int]:
    """The starts, with additional ones inside of overlong tokens (but not in white space)."""
    gaps = map(operator.sub, chain(starts, (len(text),)), chain((0,), starts))
    if max(gaps) <= LONGEST_TOKEN:
        return starts
    divided: list[int] = []
    done = 0
    for i, (a, b) in enumerate(pairwise(chain((0,), starts, (len(text),)))):
        if b - a > LONGEST_TOKEN:
            divided += starts[done:i]
            divided += [
                each
                for each in range(a + LONGEST_TOKEN, b, LONGEST_TOKEN)
                if not text[each].isspace()
            ]
            done = i
    return [*divided, *starts[done:]] if divided else starts
