"""The outline of a text: possible cuts with their strengths, headings, code blocks and tables."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

Kind = Literal["markdown", "text", "code"]

# Strengths of a cut before a line, the strongest first; `_strength` returns values between HEADING
# and LINE. HEADING is that of an H6, one more for each level up.
HEADING = 100
# A line that is not inside of another one: a statement of code at top level, a row of a table.
OUTER = 12
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
_RULE = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*+\|?\s*")
_UNDERLINE = re.compile(r"(?:==+|--+)\s*")
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
    """Fenced code or a table, with no cut between `start` and `first_cut`.

    That is its end if it fits into one chunk with the headings above it. A part of it is read
    between `header` (the opening fence, the header of the table) and `footer` (the closing fence);
    the header ends at `header_end`.
    """

    start: int
    end: int
    header: str
    header_end: int
    footer: str
    first_cut: int = 0


Fits = Callable[[int, int], bool]
"""Whether the text between two offsets fits into one chunk."""


@dataclass(slots=True)
class Outline:
    """`cuts` has the sorted offsets of the first visible character of lines, with `strengths`."""

    cuts: array[int] = field(default_factory=lambda: array("q"))  # a list takes five times that
    strengths: list[int] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    _levels: list[int] = field(default_factory=list)
    _under_heading: bool = False
    _first_heading: int = 0  # of the headings that the next line stands under

    def add_line(self, at: int, strength: int) -> None:
        """Add a line that may begin a chunk."""
        self.cuts.append(at)
        self.strengths.append(BODY if self._under_heading else strength)
        self._under_heading = False

    def add_heading(self, at: int, end: int, level: int, text: str) -> None:
        """Add a heading of level 1 to 6."""
        self.cuts.append(at)
        self.strengths.append(STACKED if self._under_heading else HEADING + 6 - level)
        if not self._under_heading:
            self._first_heading = at
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

    def add_block(self, block: Block, cuts: Iterable[tuple[int, int]], fits: Fits) -> None:
        """Add a block with a cut before it, and with these cuts if it does not fit into a chunk."""
        whole = fits(self._first_heading if self._under_heading else block.start, block.end)
        self.add_line(block.start, _strength(0, after_blank=True))
        inside = [] if whole else list(cuts)
        self.blocks.append(block._replace(first_cut=inside[0][0] if inside else block.end))
        for at, strength in inside:
            self.add_line(at, strength)


def outline(text: str, kind: Kind, fits: Fits = lambda start, end: True) -> Outline:
    """Return the structure of a text; lines of a block are cuts only if it does not stay whole."""
    result = Outline()
    begin = body_start(text, kind)
    if kind == "code":
        for at, strength in _code(text, begin, len(text)):
            result.add_line(at, strength)
    elif kind == "text" or begin < front_matter(text)[1]:
        before = ""
        for line in _lines(text, begin, len(text)):
            _add_prose_line(result, line, before)
            before = line.text
    else:
        for start, end, mark in _fences(text, begin):
            _add_markdown(result, text, begin, start, fits)
            # A cut after its opening fence would leave that alone.
            inside = text.find("\n", start, end) + 1 or end
            block = Block(start, end, text[start:inside].rstrip(), inside, mark)
            result.add_block(block, islice(_code(text, inside, end), 1, None), fits)
            begin = end
        _add_markdown(result, text, begin, len(text), fits)
    return result


def opening_heading(text: str) -> str:
    """The text of the heading in the first line of a Markdown text; "" if that is something else.

    It is the first one of the outline, without the time that this takes.
    """
    found = _LINE.search(text, body_start(text, "markdown"))
    if found is None or "|" in found[0]:  # the header of a table is no heading
        return ""
    indent = found.start() - text.rfind("\n", 0, found.start()) - 1
    return plain(_atx(found[0])[1]) if indent < 4 else ""


def body_start(text: str, kind: Kind) -> int:
    """The offset after a byte order mark and front matter, unless there is nothing else."""
    _, end = front_matter(text) if kind == "markdown" else ("", 0)
    return end if end and text[end:].strip() else int(text.startswith("\ufeff"))


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
        after_blank = before == begin or text.find("\n", before, first - 1) >= 0
        yield _Line(at, found.end(), at - first, after_blank, found[0])
        before = found.end()


def _code(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Lines of code with strengths: first statements at top level, then blank lines, dedents."""
    lines = list(_lines(text, begin, end))
    top = min((line.indent for line in lines), default=0)
    indent, decorated = 0, False
    for line in lines:
        if decorated or (line.at > begin and _CLOSING.match(line.text)):
            strength = CLOSER
        else:
            dedent = line.indent < indent
            strength = _strength(line.indent - top, after_blank=line.after_blank, marked=dedent)
            if line.indent > top:
                strength = LINE + (strength - LINE) * (OUTER - LINE) // 40
        yield line.at, strength
        indent, decorated = line.indent, line.text.startswith("@")


def _add_prose_line(result: Outline, line: _Line, before: str) -> None:
    """Add a line, unless it continues the sentence of the line before."""
    continues = before and line.text[0].islower() and before.rstrip()[-1] not in ".!?:;|。！？：；"
    if line.after_blank or not continues:
        marked = _ITEM.match(line.text) is not None
        strength = _strength(line.indent, after_blank=line.after_blank, marked=marked)
        result.add_line(line.at, strength)


def _add_markdown(result: Outline, text: str, begin: int, end: int, fits: Fits) -> None:
    """Add prose with headings and tables, from a part without fenced code."""
    lines = list(_lines(text, begin, end))
    # The line before, and the same line if it is the only one of its paragraph.
    before, alone = "", ""
    at = 0
    while at < len(lines):
        line = lines[at]
        opens = line.after_blank or not before
        rows = _table_lines(lines, at)
        if rows:
            # Its rows from the second on are cuts if it does not stay whole.
            header_end, end = lines[at + 1].end, lines[at + rows - 1].end
            header = text[line.at : header_end].rstrip()
            cuts = [(row.at, OUTER) for row in lines[at + 3 : at + rows]]
            result.add_block(Block(line.at, end, header, header_end, ""), cuts, fits)
            before, alone = lines[at + rows - 1].text, ""
        elif line.indent < 4 and (heading := _atx(line.text))[0]:
            result.add_heading(line.at, line.end, *heading)
            before = alone = ""
        elif alone and not opens and line.indent < 4 and _UNDERLINE.fullmatch(line.text):
            result.make_heading(line.end, 1 if line.text[0] == "=" else 2, alone)
            before = alone = ""
        else:
            _add_prose_line(result, line, before)
            before = line.text
            alone = before if opens and before[0] not in ">|<" and not _ITEM.match(before) else ""
        at += rows or 1


def _table_lines(lines: list[_Line], at: int) -> int:
    """How many lines the table has whose header is the line at this place; 0 for none."""
    if len(lines) < at + 2 or "|" not in lines[at].text:
        return 0
    rule = lines[at + 1]
    if rule.after_blank or "|" not in rule.text or not _RULE.fullmatch(rule.text):
        return 0
    end = at + 2
    while end < len(lines) and "|" in lines[end].text and not lines[end].after_blank:
        end += 1
    return end - at


def _atx(line: str) -> tuple[int, str]:
    """The level and the text of a heading such as `## Two`; (0, "") for others, such as `#tag`."""
    level = len(line) - len(line.lstrip("#"))
    if not 1 <= level <= 6 or (len(line) > level and not line[level].isspace()):
        return 0, ""
    inner = line[level:].strip()
    bare = inner.rstrip("#")
    return level, bare.rstrip() if not bare or bare[-1].isspace() else inner


def _fences(text: str, begin: int) -> Iterator[tuple[int, int, str]]:
    """The start, end and mark of fenced code, in order."""
    markers = [
        each for each in _FENCE.finditer(text, begin) if each[2][0] == "~" or "`" not in each[3]
    ]
    # By character: fences of at least this length have no closing fence in the rest of the text.
    # Remembering this keeps many unclosed fences from taking quadratic time.
    unclosed = {"`": len(text), "~": len(text)}
    i = 0
    while i < len(markers):
        mark = markers[i][2]
        following = range(i + 1, len(markers)) if len(mark) < unclosed[mark[0]] else ()
        candidates = (markers[k] for k in following if markers[k][2].startswith(mark))
        bare = (each for each in candidates if not each[3].strip() and not each[1].strip("> \t"))
        end = next((each.end() for each in bare), None)
        if end is None:
            unclosed[mark[0]] = min(len(mark), unclosed[mark[0]])
            end = _end_of_item(text, markers[i])
        yield markers[i].start(1), end, mark
        while i < len(markers) and markers[i].start(1) < end:
            i += 1


def _end_of_item(text: str, opener: re.Match[str]) -> int:
    """The end of code without a closing fence: that of its list item, or of the text."""
    column = opener.start(2) - opener.start()
    if column < 2:
        return len(text)
    outside = re.compile(rf"^[^\S\n]{{0,{column - 1}}}\S", re.M).search(text, opener.end())
    return outside.start() if outside else len(text)
