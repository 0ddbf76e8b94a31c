"""The few lines of a text that show why it was found, with their line numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mcpvectordb.text.query import snippet_terms

LONGEST = 300  # characters of a snippet without its line numbers, so that many fit into a reply
BEFORE, AFTER = 1, 2  # lines that are shown around the one that has most words of the query
# Characters before the first such word if its line is too long to be shown from its beginning.
LEAD = 60


def snippet(
    text: str, query: str, first_line: int = 1, last_line: int | None = None, *, begins: int = 1
) -> str:
    """The line that has most words of a query and its neighbours, each as `number: line`.

    It is the first such line from `first_line` to `last_line`. If no line has any, these lines are
    shown from their beginning, or those of the whole text if they are blank. `begins` is the number
    of the first line of `text`, if that is a part of a longer one.
    """
    lines = [line.rstrip() for line in text.removesuffix("\n").split("\n")]
    first, last = (
        max(0, min(first_line - begins, len(lines) - 1)),
        len(lines) if last_line is None else last_line - begins + 1,
    )
    asked = snippet_terms(query)
    found = [_count(asked, line) for line in lines[first:last]]
    if not any(found):
        shown = next(
            (
                place
                for place in (*range(first, min(last, len(lines))), *range(len(lines)))
                if lines[place]
            ),
            0,
        )
        return numbered(_capped(lines[shown : shown + 1 + AFTER]), shown + begins)
    best = first + found.index(max(found))
    return _around(lines, best, asked, begins)


def numbered(text: str, first: int = 1) -> str:
    """The text with a line number before every line."""
    return "\n".join(f"{number}: {line}" for number, line in enumerate(text.split("\n"), first))


def _count(asked: Sequence[str], line: str) -> int:
    folded = line.casefold()
    return sum(word in folded for word in asked)


def _around(lines: Sequence[str], best: int, asked: Sequence[str], begins: int) -> str:
    """A line and its neighbours, cut so that the words that were found stay visible."""
    folded, line = lines[best].casefold(), lines[best]
    place = min(at for word in asked if (at := folded.find(word)) >= 0)
    if place > LONGEST - LEAD:
        line = "..." + line[max(0, place - LEAD) :]
        place = LEAD
    start = max(0, best - BEFORE)
    before = list(lines[start:best])
    if sum(len(each) + 1 for each in before) + place > LONGEST - LEAD:
        start, before = best, []
    return numbered(_capped([*before, line, *lines[best + 1 : best + 1 + AFTER]]), start + begins)


def _capped(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
