"""Pages of text whose reading order is known, set in columns and drawn in any order."""

from __future__ import annotations

import random
from functools import cache
from itertools import count
from typing import Literal, NamedTuple

import pymupdf

WIDTH, HEIGHT, EDGE = 595, 842, 60
FONT = pymupdf.Font("tiro")
WORDS = (
    "river mountain office cover flow first effort winter summer nation paper report narrow wide "
    "between under after before people work time year number result method value change system"
).split()
Drawn = Literal["columns", "lines", "any"]


@cache
def _character_width(character: str) -> float:
    return float(FONT.text_length(character, 1))


def width_of(text: str) -> float:
    """The width of a text of one point."""
    return sum(map(_character_width, text))


class Line(NamedTuple):
    x: float
    y: float
    width: float
    words: list[str]
    last: bool


def columns_pdf(
    rng: random.Random,
    *,
    columns: int,
    gutter: float,
    drawn: Drawn = "columns",
    justified: bool = False,
    shift: float = 0.0,
    size: float = 9,
    title: str = "A title that runs across all of the columns of this page",
) -> tuple[bytes, list[str]]:
    """A PDF of one page, and its words in reading order; every third word occurs once.

    `drawn` is the order of the file: column by column, line by line across the columns, or any.
    `shift` is by how much each column begins lower than the one before it.
    """
    width = (WIDTH - 2 * EDGE - gutter * (columns - 1)) / columns
    numbers = count()
    lines = [
        line
        for column in range(columns)
        for line in _column(
            rng, numbers, EDGE + column * (width + gutter), 100 + column * shift, width, size
        )
    ]
    words = title.split() + [word for line in lines for word in line.words]
    if drawn == "lines":
        lines.sort(key=lambda line: (line.y, line.x))
    elif drawn == "any":
        rng.shuffle(lines)
    document = pymupdf.open()
    page = document.new_page(width=WIDTH, height=HEIGHT)
    writer = pymupdf.TextWriter(page.rect)
    writer.append((EDGE, 70), title, font=FONT, fontsize=18)
    for line in lines:
        _write(writer, line, size, justified and not line.last)
    writer.write_text(page)
    return bytes(document.tobytes()), words


def _column(
    rng: random.Random, numbers: count[int], x: float, y: float, width: float, size: float
) -> list[Line]:
    lines: list[Line] = []
    while y < 380:
        words: list[str] = []
        used = 0.0
        for at in range(rng.randint(15, 60)):
            word = rng.choice(WORDS) + (f"x{next(numbers)}" if at % 3 == 0 else "")
            length = size * width_of(word)
            if words and used + length > width:
                lines.append(Line(x, y, width, words, False))
                words, used, y = [], 0.0, y + 1.2 * size
            words.append(word)
            used += length + size * width_of(" ")
        lines.append(Line(x, y, width, words, True))
        y += 1.2 * size + rng.choice((0, 0.6)) * size
    return lines


def _write(writer: pymupdf.TextWriter, line: Line, size: float, justified: bool) -> None:
    widths = [size * width_of(word) for word in line.words]
    space = size * width_of(" ")
    if justified and len(widths) > 1:
        space = (line.width - sum(widths)) / (len(widths) - 1)
    x = line.x
    for word, width in zip(line.words, widths, strict=True):
        writer.append((x, line.y), word, font=FONT, fontsize=size)
        x += width + space
