"""The outline of a text: where it may be cut and how well a cut there fits, and which headings
stand over what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["markdown", "text", "code"]

# How well a cut before a line fits: HEADING and above, then what `_strength` says, then these.
HEADING = 100  # H6; one more for each level up
LINE = 3
CLOSER = 2  # a bracket or word that ends what was opened before
STACKED = 1  # a heading right under another one, which would be left behind without text
BODY = 0  # the first line under a heading

_LONGEST_HEADING = 200
_LINE = re.compile(r"\S[^\n]*")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])\s")
_CLOSING = re.compile(r"[)\]}]|</|```|~~~|(?:end|fi|done|esac|else|elif|except|finally|catch)\b")
_FENCE = re.compile(
    r"^\ufeff?+[^\S\n]*+((?:>[^\S\n]*+|(?:[-*+]|\d{1,9}[.)])[^\S\n]++)*+)(`{3,}+|~{3,}+)([^\n]*)",
    re.M,
)
_FRONT = re.compile(
    r"\ufeff?---[^\S\n]*+\n((?:[\w\"'][^\n:]*:[^\n]*\n(?:[^\n]*\n)*?)?)(?:---|\.\.\.)[^\S\n]*+(?=\n|\Z)"
)
_MARKED = re.compile(r"[\[<{*~`_\\]")
_MARKUP = (
    (re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])"), r"\1"),  # links and images
    (re.compile(r"</?[A-Za-z][^<>]*>|\s*\{[#.:][^{}]*\}$"), ""),  # tags and attributes
    (re.compile(r"(\*{1,3}|~~|`+)(?=\S)([^*~`]+)(?<=\S)\1"), r"\2"),  # emphasis and code
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)([^_]+)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),  # escapes
)


class Heading(NamedTuple):
    """A heading line, with the line under it that may mark it; `path` ends with its own text."""

    start: int
    end: int
    level: int
    path: tuple[str, ...]


class Block(NamedTuple):
    """Lines that are kept together where they fit: fenced code, front matter."""

    start: int
    end: int


@dataclass(slots=True)
class Outline:
    """`cuts` are the offsets of lines (of their first visible character) in order, each with its
    strength.
    """

    cuts: list[int] = field(default_factory=list)
    strengths: list[int] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    _levels: list[int] = field(default_factory=list)
    _under_heading: bool = False

    def add_line(self, at: int, strength: int) -> None:
        """A line that may begin a chunk."""
        self.cuts.append(at)
        self.strengths.append(BODY if self._under_heading else strength)
        self._under_heading = False

    def add_heading(self, at: int, end: int, level: int, text: str) -> None:
        """A heading line of level 1 to 6."""
        self.cuts.append(at)
        self.strengths.append(STACKED if self._under_heading else HEADING + 6 - level)
        self._under_heading = True
        while self._levels and self._levels[-1] >= level:
            self._levels.pop()
        above = self.headings[-1].path[: len(self._levels)] if self.headings else ()
        self._levels.append(level)
        self.headings.append(Heading(at, end, level, (*above, plain(text))))

    def make_heading(self, end: int, level: int, text: str) -> None:
        """The line added last turns out to be a heading."""
        self._under_heading = self.strengths.pop() == BODY
        self.add_heading(self.cuts.pop(), end, level, text)


def outline(
    text: str, kind: Kind, fits: Callable[[int, int], bool] = lambda start, end: True
) -> Outline:
    """Read the structure of a text. Lines inside of a block are only given as cuts where the block
    does not fit.
    """
    result = Outline()
    begin = 1 if text.startswith("\ufeff") else 0
    if kind == "code":
        _add_code(result, text, begin, len(text))
    elif kind == "text":
        _add_prose(result, text, begin, len(text))
    else:
        for block in _blocks(text):
            _add_markdown(result, text, begin, block.start)
            result.blocks.append(block)
            if fits(*block):
                result.add_line(block.start, _strength(0, after_blank=True))
            else:
                _add_code(result, text, *block)
            begin = block.end
        _add_markdown(result, text, begin, len(text))
    return result


def front_matter(text: str) -> tuple[str, int]:
    """The YAML between dashes at the top of a Markdown text, and where it ends; ("", 0) where there
    is none.
    """
    found = _FRONT.match(text)
    return (found[1], found.end()) if found else ("", 0)


def plain(heading: str) -> str:
    """A heading's text without inline markup, on one line, at most 200 characters."""
    heading = heading[: 4 * _LONGEST_HEADING]
    for expression, replacement in _MARKUP if _MARKED.search(heading) else ():
        heading = expression.sub(replacement, heading)
    return " ".join(heading.split())[:_LONGEST_HEADING].rstrip()


def _strength(indent: int, *, after_blank: bool = False, marked: bool = False) -> int:
    """A blank line says more than a list item's mark or a dedent, and any of them more than less
    indentation.
    """
    return LINE + 20 * after_blank + 10 * marked + 9 - min(indent, 9)


class _Line(NamedTuple):
    at: int
    end: int
    indent: int
    after_blank: bool
    text: str


def _lines(text: str, begin: int, end: int) -> Iterator[_Line]:
    """The lines of a part that are not blank; the first one counts as standing after a blank
    line.
    """
    before = begin
    for found in _LINE.finditer(text, begin, end):
        at = found.start()
        first = text.rfind("\n", before, at) + 1 or before
        yield _Line(
            at,
            found.end(),
            at - first,
            before == begin or text.find("\n", before, first - 1) >= 0,
            found[0],
        )
        before = found.end()


def _add_code(result: Outline, text: str, begin: int, end: int) -> None:
    """Blank lines, then dedents, then outer lines: together they lie around definitions in any
    language.
    """
    indent = 0
    for line in _lines(text, begin, end):
        if line.at > begin and _CLOSING.match(line.text):
            result.add_line(line.at, CLOSER)
        else:
            dedent = line.indent < indent
            result.add_line(
                line.at, _strength(line.indent, after_blank=line.after_blank, marked=dedent)
            )
        indent = line.indent


def _add_prose(result: Outline, text: str, begin: int, end: int) -> None:
    """Paragraphs, list items and lines."""
    before = ""
    for line in _lines(text, begin, end):
        _add_prose_line(result, line, before)
        before = line.text


def _add_prose_line(result: Outline, line: _Line, before: str) -> None:
    """A line that goes on with the sentence of the line before is no place to cut."""
    goes_on = before and line.text[0].islower() and before.rstrip()[-1] not in ".!?:;|。！？：；"
    if line.after_blank or not goes_on:
        marked = _ITEM.match(line.text) is not None
        result.add_line(
            line.at, _strength(line.indent, after_blank=line.after_blank, marked=marked)
        )


def _add_markdown(result: Outline, text: str, begin: int, end: int) -> None:
    """Prose with headings, in a part without fenced code."""
    before, alone = "", ""  # the line before; the same, if it is all there is of its paragraph
    for line in _lines(text, begin, end):
        opens = line.after_blank or not before
        if line.indent < 4 and (level := _hashes(line.text)):
            result.add_heading(line.at, line.end, level, _between_hashes(line.text))
            before = alone = ""
        elif alone and not opens and line.indent < 4 and (level := _underline(line.text)):
            result.make_heading(line.end, level, alone)
            before = alone = ""
        else:
            _add_prose_line(result, line, before)
            before = line.text
            alone = before if opens and before[0] not in ">|<" and not _ITEM.match(before) else ""


def _hashes(line: str) -> int:
    """The level of a heading such as `## Two`; 0 for any other line (also for `#tag`)."""
    if line[0] != "#":
        return 0
    level = len(line) - len(line.lstrip("#"))
    return level if level <= 6 and (len(line) == level or line[level].isspace()) else 0


def _between_hashes(line: str) -> str:
    inner = line.strip().lstrip("#").strip()
    bare = inner.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else inner


def _underline(line: str) -> int:
    line = line.rstrip()
    return 0 if len(line) < 2 else 1 if not line.strip("=") else 2 if not line.strip("-") else 0


def _blocks(text: str) -> Iterator[Block]:
    """Front matter and fenced code, in order."""
    _, end = front_matter(text)
    if end:
        yield Block(text.index("-"), end)
    markers = [
        each for each in _FENCE.finditer(text, end) if each[2][0] == "~" or "`" not in each[3]
    ]
    hopeless = {"`": len(text), "~": len(text)}  # marks of this length are not closed any more
    i = 0
    while i < len(markers):
        mark = markers[i][2]
        closing = None
        if len(mark) < hopeless[mark[0]]:
            closing = next(
                (markers[k] for k in range(i + 1, len(markers)) if _closes(markers[k], mark)), None
            )
        if closing is None:
            hopeless[mark[0]] = min(len(mark), hopeless[mark[0]])
        block = Block(
            markers[i].start(1), closing.end() if closing else _end_of_item(text, markers[i])
        )
        yield block
        while i < len(markers) and markers[i].start(1) < block.end:
            i += 1


def _closes(marker: re.Match[str], mark: str) -> bool:
    return marker[2].startswith(mark) and not marker[3].strip() and not marker[1].strip("> \t")


def _end_of_item(text: str, opener: re.Match[str]) -> int:
    """Where code that nobody closed ends: with the list item that it stands in, or with the
    text.
    """
    column = opener.start(2) - opener.start()
    outside = (
        re.compile(rf"^[^\S\n]{{0,{column - 1}}}\S", re.M).search(text, opener.end())
        if column > 1
        else None
    )
    return outside.start() if outside else len(text)
