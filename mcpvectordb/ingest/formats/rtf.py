"""RTF: paragraphs, headings by style or outline level, lists and tables."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, replace

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.records import Parsed, Source

DEEPEST = 10_000
SILENT = frozenset(
    "colortbl pict object header headerl headerr headerf footer footerl footerr footerf "
    "generator listtable listoverridetable rsidtbl themedata datastore latentstyles "
    "xmlnstbl fldinst filetbl revtbl bkmkstart bkmkend nonshppict shpinst pntext listtext "
    "datafield objdata mmathPr userprops wgrffmtfilter private xe tc".split()
)
RECORDED = frozenset(["fonttbl", "stylesheet", "title", "author", "subject", "keywords", "info"])
"""Groups that are not text but have metadata, fonts or styles."""
SIGNS = {
    "par": "\n",
    "sect": "\n",
    "page": "\n",
    "line": "\v",
    "tab": "\t",
    "emdash": "—",
    "endash": "–",
    "bullet": "•",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "emspace": " ",
    "enspace": " ",
    "~": " ",
    "_": "-",
    "{": "{",
    "}": "}",
    "\\": "\\",
    "\n": "\n",
    "\r": "\n",
}
CHARSETS = {
    0: "cp1252",
    77: "mac_roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gbk",
    136: "big5",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
}
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,9})? "
    rb"?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z'])|([{}])|([^\\{}\r\n]+)|[\r\n\\]"
)


@dataclass(slots=True)
class _RtfGroup:
    """The state inside of one pair of braces."""

    kind: str = ""  # "" for visible text; "silent" or a word of RECORDED
    skip: int = 1  # how many characters after a Unicode character are its replacement
    font: int = -1
    hidden: bool = False


@dataclass(slots=True)
class _RtfParagraph:
    """The properties of a paragraph."""

    level: int = 0
    item: bool = False
    in_table: bool = False


def parse(source: Source) -> Parsed:
    """Return the text of an RTF document."""
    reader = _RtfReader(source.name)
    at = 0
    while found := _TOKEN.match(source.raw, at):
        at = found.end() + reader.take(*found.groups())
    if not reader.groups:
        raise ParseFailed(f"{source.name} is damaged: it closes more groups than it opens")
    reader.end_paragraph()
    reader.end_table()
    metadata = {
        key: markdown_writer.line(reader.recorded.get(key, ""))
        for key in ("title", "author", "subject", "keywords")
    }
    return markdown_writer.finish(source, markdown_writer.blocks(reader.blocks), metadata)


@dataclass(slots=True)
class _RtfReader:
    """The state while control words and text are read."""

    name: str
    groups: list[_RtfGroup] = field(default_factory=lambda: [_RtfGroup()])
    codepage: str = "cp1252"
    fonts: dict[int, str] = field(default_factory=dict)
    styles: dict[int, int] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)
    style: int = 0
    paragraph: _RtfParagraph = field(default_factory=_RtfParagraph)
    words: list[str] = field(default_factory=list)
    pending: bytearray = field(default_factory=bytearray)
    to_skip: int = 0
    rows: list[list[str]] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)

    def take(
        self,
        word: bytes | None,
        number: bytes | None,
        code: bytes | None,
        sign: bytes | None,
        brace: bytes | None,
        text: bytes | None,
    ) -> int:
        """Process a token; return how many of the following bytes belong to it."""
        if code is not None:
            self._add_byte(int(code, 16))
            return 0
        self._flush_bytes()
        if word is not None:
            return self._control(word.decode(), int(number) if number else None)
        if brace == b"{":
            self._open()
        elif brace == b"}" and self.groups:
            self._close()
        elif sign == b"*":
            self.groups[-1].kind = self.groups[-1].kind or "silent"
        elif sign is not None:
            self._show(SIGNS.get(sign.decode("latin-1"), ""))
        elif text is not None:
            self._show(self._skipped(text.decode(self._encoding(), "replace")))
        return 0

    def _open(self) -> None:
        if len(self.groups) > DEEPEST:
            raise ParseFailed(f"{self.name} has groups nested more than {DEEPEST} deep")
        self.groups.append(replace(self.groups[-1]) if self.groups else _RtfGroup())

    def _close(self) -> None:
        group = self.groups.pop()
        if group.kind == "stylesheet" and (
            named := re.search(r"heading (\d)", self.recorded.get("stylesheet", ""), re.I)
        ):
            self.styles[self.style] = int(named[1])
        if group.kind in ("stylesheet", "fonttbl"):
            self.recorded[group.kind] = ""
            self.style = 0
        if not self.groups:
            # What follows the last brace is not part of the document.
            self.groups.append(_RtfGroup(kind="silent"))

    def _control(self, word: str, number: int | None) -> int:
        group = self.groups[-1]
        if word == "bin":
            return max(number or 0, 0)
        if word in SILENT:
            self.paragraph.item = self.paragraph.item or word in ("listtext", "pntext")
            group.kind = "silent"
        elif word in RECORDED and group.kind in ("", "info", "silent"):
            group.kind = word
        elif word == "u" and number is not None:
            self._show(chr(number % 65536))
            self.to_skip = group.skip
        elif word in SIGNS:
            self._show(SIGNS[word])
        else:
            self._set(word, number, group)
        return 0

    def _set(self, word: str, number: int | None, group: _RtfGroup) -> None:
        if word == "uc":
            group.skip = min(max(number or 0, 0), 8)
        elif word == "ansicpg" and _is_known(f"cp{number}"):
            self.codepage = f"cp{number}"
        elif word == "f" and number is not None:
            group.font = number
        elif word == "fcharset" and group.kind == "fonttbl":
            self.fonts[group.font] = CHARSETS.get(number or 0, "")
        elif word in ("v", "deleted"):
            group.hidden = number != 0
        elif word == "s" and group.kind == "stylesheet":
            self.style = number or 0
        elif group.kind == "":
            self._shape(word, number)

    def _shape(self, word: str, number: int | None) -> None:
        """Process a control word about paragraphs and tables."""
        if word == "pard":
            self.paragraph = _RtfParagraph()
        elif word == "s":
            self.paragraph.level = self.styles.get(number or 0, 0)
        elif word == "outlinelevel" and number is not None and number < 9:
            self.paragraph.level = number + 1
        elif word == "intbl":
            self.paragraph.in_table = True
        elif word in ("cell", "nestcell"):
            self.cells.append(self._take_words())
        elif word in ("row", "nestrow"):
            self.rows.append(self.cells)
            self.cells = []

    def _encoding(self) -> str:
        return self.fonts.get(self.groups[-1].font) or self.codepage

    def _add_byte(self, byte: int) -> None:
        if self.to_skip:
            self.to_skip -= 1
        else:
            self.pending.append(byte)

    def _flush_bytes(self) -> None:
        if self.pending:
            text, self.pending = self.pending.decode(self._encoding(), "replace"), bytearray()
            self._show(text)

    def _skipped(self, text: str) -> str:
        """The text without the replacement of a Unicode character before it."""
        skip, self.to_skip = min(self.to_skip, len(text)), max(self.to_skip - len(text), 0)
        return text[skip:]

    def _show(self, text: str) -> None:
        group = self.groups[-1]
        if group.kind in RECORDED:
            self.recorded[group.kind] = (self.recorded.get(group.kind, "") + text)[-1000:]
        elif group.kind == "" and not group.hidden:
            if text == "\n":
                self.end_paragraph()
            else:
                self.words.append(text)

    def _take_words(self) -> str:
        """Return and clear the words so far, with surrogate pairs joined."""
        text = (
            "".join(self.words).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        )
        self.words = []
        return "\n".join(map(markdown_writer.line, text.split("\v"))).strip()

    def end_paragraph(self) -> None:
        """Add the paragraph to its cell or to the text."""
        if self.paragraph.in_table:
            self.words.append(" ")
            return
        text = self._take_words()
        self.end_table()
        if text and self.paragraph.level:
            self.blocks.append(markdown_writer.heading(self.paragraph.level, text))
        elif text:
            self.blocks.append(f"- {text}" if self.paragraph.item else markdown_writer.prose(text))
        self.paragraph.item = False

    def end_table(self) -> None:
        """Add the rows so far as a table."""
        if self.rows and (table := markdown_writer.table(self.rows)):
            self.blocks.append(table)
        self.rows = []


def _is_known(encoding: str) -> bool:
    try:
        return bool(codecs.lookup(encoding))
    except LookupError:
        return False
