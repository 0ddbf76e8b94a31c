"""What a search found as one text under a budget, each passage below the line that cites it.

See `Database.context`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput
from mcpvectordb.memories.memory import Memory
from mcpvectordb.records import Chunk, Hit, Results
from mcpvectordb.search.records import Context

CHARACTERS_PER_TOKEN = 4
LEAST_BUDGET = 100
CUT, LEAD = " […]", "[…] "
# Characters that are kept for what is said about the passages.
REMARKS = 240
# Lengths to which long passages are cut before any is dropped.
_LENGTHS = (2_000, 1_200, 800, 500, 300)
_SHORTEST = 40
_BORDER = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*\s+|\n+")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LONGEST = 60  # characters of a title, thread or tags in a citation


def context(
    found: Results[Chunk | Memory], budget: int, *, offset: int = 0, reserved: int = 0
) -> Context:
    """As much of the hits as fits into a budget of tokens, `reserved` characters less."""
    if budget < LEAST_BUDGET:
        raise InvalidInput(f"budget must be {LEAST_BUDGET} tokens or more, not {budget:,}")
    passages = [_passage(hit, number) for number, hit in enumerate(found, offset + 1)]
    fit = fitted(passages, budget * CHARACTERS_PER_TOKEN - reserved)
    return Context(
        text=fit.text,
        found=found,
        shown=fit.kept,
        shortened=fit.shortened,
        needed=fit.needed // CHARACTERS_PER_TOKEN + 1,
    )


class CitedPassage(NamedTuple):
    """A passage with the line that cites it.

    `focus` is the offset of what answers the query best.
    """

    citation: str
    text: str
    focus: int = 0


class FittedPassages(NamedTuple):
    """The passages that fit as text, how many these are, how many of them were cut, and how many
    characters all of them need.
    """

    text: str
    kept: int
    shortened: int
    needed: int


def excerpt(text: str, most: int, focus: int = 0) -> str:
    """The beginning of a text: at most `most` characters, up to the end of a sentence or line.

    Where the first sentence is too long, up to the end of a word. If the focus would not be in it,
    the excerpt begins with the sentence or line of the focus.
    """
    text = text.strip()
    if len(text) <= most:
        return text
    if most // 2 < focus < len(text):
        begin = max((each.end() for each in _BORDER.finditer(text, 0, focus)), default=focus)
        return LEAD + excerpt(text[begin:], most - len(LEAD))
    room = max(1, most - len(CUT))
    ends = [each.start() for each in _BORDER.finditer(text, room // 3, room + 1)]
    if not ends:
        ends = [text.rfind(" ", room // 2, room + 1)]
    return text[: ends[-1] if ends[-1] > 0 else room].rstrip() + CUT


def fitted(passages: Sequence[CitedPassage], room: int) -> FittedPassages:
    """As much of the passages as `room` characters hold.

    All are cut to the same length before the last ones are dropped; one always stays.
    """
    if not passages:
        return FittedPassages("", 0, 0, REMARKS)
    room -= REMARKS
    longest = max(len(each.text) for each in passages)
    for length in (longest, *(each for each in _LENGTHS if each < longest)):
        cut = [each._replace(text=excerpt(each.text, length, each.focus)) for each in passages]
        if sum(map(_size, cut)) <= room:
            break
    kept = total = 0
    while kept < len(cut) and total + _size(cut[kept]) <= room:
        total += _size(cut[kept])
        kept += 1
    shown = cut[:kept]
    if not shown:
        first = passages[0]
        left = room - _size(first._replace(text=""))
        shown = [first._replace(text=excerpt(first.text, max(_SHORTEST, left), first.focus))]
    shortened = sum(
        each.text != whole.text.strip() for each, whole in zip(shown, passages, strict=False)
    )
    text = "\n\n".join(f"{each.citation}\n{each.text}" for each in shown)
    return FittedPassages(text, len(shown), shortened, REMARKS + sum(map(_size, passages)))


def _size(passage: CitedPassage) -> int:
    """The characters that a passage takes: its own and those that separate it."""
    return len(passage.citation) + len(passage.text) + 3


def _passage(hit: Hit[Chunk | Memory], number: int) -> CitedPassage:
    item = hit.item
    told = [item.place]
    if isinstance(item, Chunk):
        if item.page is not None:
            told.append(f"p. {item.page}")
        if item.document.extracted:
            told.append("lines of the extracted text")
        text, title = item.passage, item.document.title
        if title not in item.document.path and title not in text:
            told.append(_cut(title))
        if hit.more:
            told.append(f"{hit.more} more passages")
    else:
        told.append(f"{_cut(item.thread)}, {item.created_at[:10]}")
        if item.tags:
            told.append(f"tags {_cut(', '.join(item.tags))}")
        if item.validity:
            told.append(item.validity)
        text = item.text if len(item.text) <= 1000 else hit.passage or item.text
    if hit.confidence is not None:
        told.append(f"{hit.confidence} match")
    # Names from outside must not look like further lines.
    cited = _BREAKS.sub("\ufffd", " · ".join(told))
    return CitedPassage(f"[{number}] {cited}", text, _focus(hit))


def _focus(hit: Hit[Chunk | Memory]) -> int:
    """The offset in a passage of the line that has most words of the query."""
    if not isinstance(hit.item, Chunk) or hit.line <= hit.item.first_line:
        return 0
    before = hit.item.text.split("\n")[: hit.line - hit.item.first_line]
    header = len(hit.item.header) + 1 if hit.item.header else 0
    return header + sum(len(line) + 1 for line in before)


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} [… {len(text) - _LONGEST:,} more characters]"
