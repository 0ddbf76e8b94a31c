"""The outline of a text: possible cuts with their strengths, headings, and unbreakable blocks."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["markdown", "text", "code"]

# Strengths of a cut before a line, the strongest first; `_strength` returns values between HEADING
# and LINE. HEADING is that of an H6, one more for each level up.
HEADING = 100
LINE = 3
# A bracket or keyword that closes a block.
CLOSER = 2
# A heading directly below another one: a cut would leave that one without text.
STACKED = 1
# The first line below a heading.
BODY = 0

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
    """A heading with its underline, if any; `path` has the headings above it and its own text."""

    start: int
    end: int
    level: int
    path: tuple[str, ...]


class Block(NamedTuple):
    """Lines that stay together if they fit into one chunk: fenced code, front matter."""

    start: int
    end: int


@dataclass(slots=True)
class Outline:
    """`cuts` has the sorted offsets of the first visible character of lines, with `strengths`."""

    cuts: array[int] = field(default_factory=lambda: array("q"))  # a list takes five times that
    strengths: list[int] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    _levels: list[int] = field(default_factory=list)
    _under_heading: bool = False

    def add_line(self, at: int, strength: int) -> None:
        """Add a line that may begin a chunk."""
        self.cuts.append(at)
        self.strengths.append(BODY if self._under_heading else strength)
        self._under_heading = False

    def add_heading(self, at: int, end: int, level: int, text: str) -> None:
        """Add a heading of level 1 to 6."""
        self.cuts.append(at)
        self.strengths.append(STACKED if self._under_heading else HEADING + 6 - level)
        self._under_heading = True
        while self._levels and self._levels[-1] >= level:
            self._levels.pop()
        above = self.headings[-1].path[: len(self._levels)] if self.headings else ()
        self._levels.append(level)
        self.headings.append(Heading(at, end, level, (*above, plain(text))))

    def make_heading(self, end: int, level: int, text: str) -> None:
        """Turn the line that was added last into a heading."""
        self._under_heading = self.strengths.pop() == BODY
        self.add_heading(self.cuts.pop(), end, level, text)


def outline(
    text: str, kind: Kind, fits: Callable[[int, int], bool] = lambda start, end: True
) -> Outline:
    """Return the structure of a text; lines of a block are cuts only if the block does not fit."""
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
    """Return the YAML front matter of a Markdown text and its end offset; ("", 0) for none."""
    found = _FRONT.match(text)
    return (found[1], found.end()) if found else ("", 0)


def plain(heading: str) -> str:
    """Return a heading's text without inline markup, on one line of at most 200 characters."""
    heading = heading[: 4 * _LONGEST_HEADING]
    for expression, replacement in _MARKUP if _MARKED.search(heading) else ():
        heading = expression.sub(replacement, heading)
    return " ".join(heading.split())[:_LONGEST_HEADING].rstrip()


def _strength(indent: int, *, after_blank: bool = False, marked: bool = False) -> int:
    """The strength of a cut: a blank line counts more than a mark, a mark more than indentation.

    A mark is the bullet or number of a list item, or a dedent in code.
    """
    return LINE + 20 * after_blank + 10 * marked + 9 - min(indent, 9)


class _Line(NamedTuple):
    at: int
    end: int
    indent: int
    after_blank: bool
    text: str


def _lines(text: str, begin: int, end: int) -> Iterator[_Line]:
    """The lines of a part that are not blank; the first one counts as preceded by a blank line."""
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
    """Add lines of code: blank lines, then dedents, then outer lines, as around definitions."""
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
    """Add paragraphs, list items and lines."""
    before = ""
    for line in _lines(text, begin, end):
        _add_prose_line(result, line, before)
        before = line.text


def _add_prose_line(result: Outline, line: _Line, before: str) -> None:
    """Add a line, unless it continues the sentence of the line before."""
    continues = before and line.text[0].islower() and before.rstrip()[-1] not in ".!?:;|。！？：；"
    if line.after_blank or not continues:
        marked = _ITEM.match(line.text) is not None
        result.add_line(
            line.at, _strength(line.indent, after_blank=line.after_blank, marked=marked)
        )


def _add_markdown(result: Outline, text: str, begin: int, end: int) -> None:
    """Add prose with headings, from a part without fenced code."""
    # The line before, and the same line if it is the only one of its paragraph.
    before, alone = "", ""
    for line in _lines(text, begin, end):
        opens = line.after_blank or not before
        if line.indent < 4 and (level := _atx_level(line.text)):
            result.add_heading(line.at, line.end, level, _atx_text(line.text))
            before = alone = ""
        elif alone and not opens and line.indent < 4 and (level := _setext_level(line.text)):
            result.make_heading(line.end, level, alone)
            before = alone = ""
        else:
            _add_prose_line(result, line, before)
            before = line.text
            alone = before if opens and before[0] not in ">|<" and not _ITEM.match(before) else ""


def _atx_level(line: str) -> int:
    """The level of a heading such as `## Two`; 0 for other lines, including `#tag`."""
    if line[0] != "#":
        return 0
    level = len(line) - len(line.lstrip("#"))
    return level if level <= 6 and (len(line) == level or line[level].isspace()) else 0


def _atx_text(line: str) -> str:
    inner = line.strip().lstrip("#").strip()
    bare = inner.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else inner


def _setext_level(line: str) -> int:
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
    # By character: fences of at least this length have no closing fence in the rest of the text.
    # Remembering this keeps many unclosed fences from taking quadratic time.
    unclosed = {"`": len(text), "~": len(text)}
    i = 0
    while i < len(markers):
        mark = markers[i][2]
        closing = None
        if len(mark) < unclosed[mark[0]]:
            closing = next(
                (markers[k] for k in range(i + 1, len(markers)) if _closes(markers[k], mark)), None
            )
        if closing is None:
            unclosed[mark[0]] = min(len(mark), unclosed[mark[0]])
        block = Block(
            markers[i].start(1), closing.end() if closing else _end_of_item(text, markers[i])
        )
        yield block
        while i < len(markers) and markers[i].start(1) < block.end:
            i += 1


def _closes(marker: re.Match[str], mark: str) -> bool:
    return marker[2].startswith(mark) and not marker[3].strip() and not marker[1].strip("> \t")


def _end_of_item(text: str, opener: re.Match[str]) -> int:
    """The end of code without a closing fence: that of its list item, or of the text."""
    column = opener.start(2) - opener.start()
    outside = (
        re.compile(rf"^[^\S\n]{{0,{column - 1}}}\S", re.M).search(text, opener.end())
        if column > 1
        else None
    )
    return outside.start() if outside else len(text)
