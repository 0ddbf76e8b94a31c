"""reStructuredText: sections, lists, code, tables and the visible text of roles and directives."""

from __future__ import annotations

import re

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import charset, decode
from mcpvectordb.records import Parsed, Source

CODE = frozenset(
    [
        "code",
        "code-block",
        "sourcecode",
        "literalinclude",
        "parsed-literal",
        "math",
        "csv-table",
        "prompt",
    ]
)
SILENT = frozenset(
    "toctree contents index include raw meta highlight default-role role currentmodule "
    "module image sectnum automodule autoclass autofunction autosummary tabularcolumns".split()
)
NAMED = frozenset(
    "note warning tip hint important caution danger error attention seealso versionadded "
    "versionchanged deprecated versionremoved".split()
)

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*\s*")
_DIRECTIVE = re.compile(r"\.\.\s+(?:\|[^|]*\|\s+)?([\w:.+-]+?)::(?:\s+(.*))?$")
_NOTE = re.compile(r"\.\.\s+\[([^\]]+)\]\s*(.*)$")
_ITEM = re.compile(r"(?:[-*+•]|\(?(?:\d{1,9}|[a-zA-Z#])[.)])\s+")
_FIELD = re.compile(r":([A-Za-z][^:\n]{0,40}):(?:\s+(.*))?$")
_INLINE = re.compile(
    r"``(?P<code>.+?)``|:(?P<role>[\w:.+-]+):`(?P<named>[^`]+)`|`(?P<link>[^`]+)`__?|`(?P<plain>[^`]+)`"
    r"|(?<=[\w\]])__?(?=[\s.,;:!?)]|$)"
)
_TARGET = re.compile(r"\s*<[^<>]*>$")


def parse(source: Source) -> Parsed:
    """Return the text of a document as Markdown."""
    text = markdown_writer.clean(
        decode(source.raw, declared=charset(source.media_type))
    ).expandtabs(8)
    reader = _RstReader(text.split("\n"))
    written = markdown_writer.blocks(reader.read())
    title = markdown_writer.title(source, markdown_writer.first_heading(written))
    return markdown_writer.finish(
        source, [written], title=title, metadata=reader.fields, paged=False
    )


class _RstReader:
    """Reads the lines from the top; the body of a directive is put back and read as text."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines[::-1]  # a stack: the next line is the last
        self.blocks: list[str] = []
        self.levels: list[str] = []
        self.fields: dict[str, str] = {}

    def read(self) -> list[str]:
        """Return all blocks."""
        while self.lines:
            if not self._next().strip():
                self.lines.pop()
            elif not (
                self._section()
                or self._markup()
                or self._table()
                or self._doctest()
                or self._field()
            ):
                self._paragraph()
        return self.blocks

    def _next(self, ahead: int = 0) -> str:
        return self.lines[-1 - ahead] if ahead < len(self.lines) else ""

    def _take(self, count: int) -> list[str]:
        return [self.lines.pop() for _ in range(min(count, len(self.lines)))]

    def _section(self) -> bool:
        """Read a title with an underline or overline, or a transition (such a line alone)."""
        above, title = self._next(), self._next(1)
        if (
            _is_adornment(above)
            and title.strip()
            and self._next(2).strip() == above.strip()
            and not _is_columns(above)
        ):
            self._add_title(self._take(3)[1], above[0] * 2)
        elif above[:1].strip() and _underlines(title, above):
            self._add_title(self._take(2)[0], title[0])
        elif (
            _is_adornment(above)
            and len(above.strip()) > 3
            and not title.strip()
            and not _is_columns(above)
        ):
            self.lines.pop()
        else:
            return False
        return True

    def _add_title(self, title: str, style: str) -> None:
        if style not in self.levels:
            self.levels.append(style)
        self.blocks.append(markdown_writer.heading(self.levels.index(style) + 1, _inline(title)))

    def _markup(self) -> bool:
        """Read a directive, footnote, target or comment, which all begin with two dots."""
        line = self._next()
        indent = len(line) - len(line.lstrip())
        line = line.strip()
        if line != ".." and not line.startswith(".. "):
            return False
        self.lines.pop()
        body = self._indented(indent)
        if directive := _DIRECTIVE.match(line):
            self._directive(directive[1].lower().rpartition(":")[2], directive[2] or "", body)
        elif note := _NOTE.match(line):
            self.blocks.append(_inline(f"[{note[1]}] {' '.join([note[2], *body])}"))
        return True

    def _indented(self, indent: int) -> list[str]:
        """Consume and return the lines that are indented more than this, without indentation."""
        body: list[str] = []
        while self.lines and (
            not self._next().strip() or len(self._next()) - len(self._next().lstrip()) > indent
        ):
            body.append(self.lines.pop())
        left = min((len(line) - len(line.lstrip()) for line in body if line.strip()), default=0)
        return [line[left:].rstrip() for line in body]

    def _directive(self, name: str, argument: str, body: list[str]) -> None:
        options = next((at for at, line in enumerate(body) if not _FIELD.match(line)), len(body))
        body = body[options:]
        if name in CODE:
            language = argument if name in ("code", "code-block", "sourcecode") else ""
            self.blocks.append(markdown_writer.fence("\n".join(body), language.strip()))
        elif name not in SILENT:
            shown = (
                ""
                if name in ("figure", "list-table", "replace", "container", "class", "only")
                else argument
            )
            label = f"{name.capitalize()}: " if name in NAMED else ""
            self.lines += [*body[::-1], *([] if label and not shown else [""]), label + shown]

    def _table(self) -> bool:
        """Read a grid table, or a simple table with columns of equals signs."""
        line = self._next().strip()
        if re.fullmatch(r"\+(?:[-=]+\+)+", line):
            self._grid()
        elif _is_columns(line):
            self._columns()
        else:
            return False
        return True

    def _grid(self) -> None:
        rows: list[list[str]] = []
        while self._next().strip()[:1] in ("+", "|") and self._next().strip():
            line = self.lines.pop().strip()
            if line[0] == "+":
                rows.append([])
            elif rows:
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                rows[-1] = (
                    [" ".join(filter(None, pair)) for pair in zip(rows[-1], cells, strict=False)]
                    if rows[-1]
                    else cells
                )
        self.blocks.append(markdown_writer.table([[_inline(cell) for cell in row] for row in rows]))

    def _columns(self) -> None:
        ruler = self.lines.pop()
        spans = [found.span() for found in re.finditer("=+", ruler)]
        spans[-1] = (spans[-1][0], 10_000)
        rows: list[list[str]] = []
        rulers = 1
        while self.lines and rulers < 3:
            line = self.lines.pop()
            if _is_columns(line.strip()):
                rulers += 1
                if not self._next().strip():
                    break
            elif line.strip() and not re.fullmatch(r"[-\s]+", line):
                rows.append([_inline(line[start:end].strip()) for start, end in spans])
        self.blocks.append(markdown_writer.table(rows))

    def _doctest(self) -> bool:
        if not self._next().lstrip().startswith(">>> "):
            return False
        code = []
        while self._next().strip():
            code.append(self.lines.pop().strip())
        self.blocks.append(markdown_writer.fence("\n".join(code), "python"))
        return True

    def _field(self) -> bool:
        """Read a field such as ":Author: Ann"; directly after the title it becomes metadata."""
        field = _FIELD.match(self._next().strip())
        if not field:
            return False
        indent = len(self._next()) - len(self._next().lstrip())
        self.lines.pop()
        text = _inline(" ".join([field[2] or "", *self._indented(indent)]))
        if len(self.blocks) <= 1 + len(self.fields) and len(self.fields) < 20:
            self.fields[field[1].lower()] = text
        self.blocks.append(f"{field[1]}: {text}")
        return True

    def _paragraph(self) -> None:
        """Read lines up to a blank one, splitting at list items; a final "::" introduces code."""
        parts: list[str] = []
        indent = len(self._next()) - len(self._next().lstrip())
        while (line := self._next()).strip():
            if parts and (line.strip().startswith(".. ") or _underlines(self._next(1), line)):
                break
            self.lines.pop()
            if not parts or _ITEM.match(line.strip()):
                parts.append(re.sub(r"^[*+•]\s+", "- ", line.strip()))
            else:
                parts[-1] += " " + line.strip()
        literal = parts[-1].endswith("::")
        parts[-1] = (
            re.sub(r"(?:^|(?<=\s))::$", "", parts[-1])
            if re.search(r"(?:^|\s)::$", parts[-1])
            else (parts[-1][:-1] if literal else parts[-1])
        )
        self.blocks.append(markdown_writer.prose("\n".join(filter(None, map(_inline, parts)))))
        if literal and (body := self._indented(indent)):
            self.blocks.append(markdown_writer.fence("\n".join(body)))


def _is_adornment(line: str) -> bool:
    return _ADORNMENT.fullmatch(line) is not None and len(line.strip()) > 1


def _is_columns(line: str) -> bool:
    return re.fullmatch(r"=+(?:\s+=+)+\s*", line) is not None


def _underlines(line: str, title: str) -> bool:
    return (
        _is_adornment(line)
        and bool(title[:1].strip())
        and not _is_adornment(title)
        and len(line.strip()) >= min(len(title.strip()), 4)
    )


def _inline(text: str) -> str:
    """Text on one line without the markup of roles and links."""
    return " ".join(_INLINE.sub(_visible, text).split())


def _visible(found: re.Match[str]) -> str:
    """The visible text of a piece of inline markup."""
    if role := found["role"]:
        text = _TARGET.sub("", found["named"].lstrip("~!"))
        if role in ("pep", "rfc"):
            return f"{role.upper()} {text}"
        return (
            text
            if role in ("ref", "doc", "term", "sub", "sup") or text != found["named"].lstrip("~!")
            else f"`{text}`"
        )
    if found["code"]:
        return f"`{found['code']}`"
    return _TARGET.sub("", found["link"] or found["plain"] or "")
