"""RTF: paragraphs, headings by style or outline level, lists and tables."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.records import Parsed, Source

DEEPEST = 10_000
SILENT = frozenset(
    "colortbl pict object header headerl headerr headerf footer footerl footerr footerf "
    "generator listtable listoverridetable rsidtbl themedata datastore latentstyles "
    "xmlnstbl fldinst filetbl revtbl bkmkstart bkmkend nonshppict shpinst pntext listtext "
    "datafield objdata mmathPr userprops wgrffmtfilter private xe tc".split()
)
PROPERTIES = ("title", "author", "subject", "keywords")
RECORDED = frozenset(["fonttbl", "stylesheet", "info", *PROPERTIES])
"""Groups that are not text but have metadata, fonts or styles."""
SIGNS = {"par": "\n", "sect": "\n", "page": "\n", "\n": "\n", "\r": "\n", "line": "\v", "tab": "\t"}
SIGNS |= {"emdash": "—", "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’"}
SIGNS |= {"ldblquote": "“", "rdblquote": "”", "emspace": " ", "enspace": " ", "~": " ", "_": "-"}
SIGNS |= {"{": "{", "}": "}", "\\": "\\"}
CHARSETS = {0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gbk"}
CHARSETS |= {136: "big5", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255"}
CHARSETS |= {178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"}
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,9})? ?|\\'(?P<code>[0-9a-fA-F]{2})"
    rb"|\\(?P<sign>[^a-zA-Z'])|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n\\]"
)


class _RtfGroup(NamedTuple):
    """The state inside of one pair of braces."""

    kind: str = ""  # "" for visible text; "silent" or a word of RECORDED
    skip: int = 1  # how many characters after a Unicode character are its replacement
    font: int = -1
    hidden: bool = False


def parse(source: Source) -> Parsed:
    """Return the text of an RTF document."""
    if not source.raw.lstrip().startswith(b"{\\rtf"):
        raise markdown.damaged(source.name, "it does not begin as RTF does")
    reader, at = _RtfReader(source.name), 0
    while found := _TOKEN.match(source.raw, at):
        at = found.end() + reader.take(found)
    reader.end_paragraph()
    reader.end_table()
    metadata = {key: reader.recorded.get(key, "") for key in PROPERTIES}
    return markdown.finish(source, markdown.blocks(reader.blocks), metadata)


class _RtfReader:
    """The state while control words and text are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.above: list[_RtfGroup] = []
        self.group = _RtfGroup()
        self.codepage = "cp1252"
        self.fonts: dict[int, str] = {}
        self.styles: dict[int, int] = {}  # the level of each style that is one of headings
        self.recorded: dict[str, str] = {}
        self.style = 0  # of the entry of the style sheet that is being read
        self.level, self.is_item, self.in_table = 0, False, False  # of the paragraph
        self.words: list[str] = []
        self.pending = bytearray()
        self.to_skip = 0
        self.rows: list[list[str]] = []
        self.cells: list[str] = []
        self.blocks: list[str] = []

    def take(self, found: re.Match[bytes]) -> int:
        """Process a token; return how many of the following bytes belong to it."""
        if found["code"]:
            if self.to_skip:
                self.to_skip -= 1
            else:
                self.pending.append(int(found["code"], 16))
            return 0
        if self.pending:
            text, self.pending = self.pending.decode(self._encoding(), "replace"), bytearray()
            self._show(text)
        if found["word"]:
            word, number = found["word"].decode(), int(found["number"] or 0)
            if word == "bin":
                return max(number, 0)
            self._control(word, number, is_off=found["number"] == b"0")
        elif found["brace"] == b"{":
            if len(self.above) > DEEPEST:
                raise ParseFailed(f"{self.name} has groups nested more than {DEEPEST} deep")
            self.above.append(self.group)
        elif found["brace"]:
            kind, named = self.group.kind, self.recorded.get("stylesheet", "")
            heading = re.search(r"heading (\d)", named, re.IGNORECASE)
            if kind == "stylesheet" and heading:
                self.styles[self.style] = int(heading[1])
            if kind in ("stylesheet", "fonttbl"):
                self.recorded[kind], self.style = "", 0
            # What follows the last brace is not part of the document.
            is_last = len(self.above) < 2
            self.group = _RtfGroup(kind="silent") if is_last else self.above.pop()
        elif found["sign"] == b"*":
            self.group = self.group._replace(kind=self.group.kind or "silent")
        elif found["sign"]:
            self._show(SIGNS.get(found["sign"].decode("latin-1"), ""))
        elif found["text"]:
            text = found["text"].decode(self._encoding(), "replace")
            skip, self.to_skip = self.to_skip, max(self.to_skip - len(text), 0)
            self._show(text[skip:])
        return 0

    def _control(self, word: str, number: int, *, is_off: bool) -> None:
        group = self.group
        if word in SILENT:
            self.is_item = self.is_item or word in ("listtext", "pntext")
            self.group = group._replace(kind="silent")
        elif word in RECORDED and group.kind in ("", "info", "silent"):
            self.group = group._replace(kind=word)
        elif word == "u":
            self._show(chr(number % 65536))
            self.to_skip = group.skip
        elif word in SIGNS:
            self._show(SIGNS[word])
        elif word == "uc":
            self.group = group._replace(skip=min(max(number, 0), 8))
        elif word == "ansicpg":
            with suppress(LookupError):
                self.codepage = codecs.lookup(f"cp{number}").name
        elif word == "f":
            self.group = group._replace(font=number)
        elif word == "fcharset" and group.kind == "fonttbl":
            self.fonts[group.font] = CHARSETS.get(number, "")
        elif word in ("v", "deleted"):
            self.group = group._replace(hidden=not is_off)
        elif word == "s" and group.kind == "stylesheet":
            self.style = number
        elif group.kind:
            pass  # the others are about paragraphs and tables
        elif word == "pard":
            self.level, self.is_item, self.in_table = 0, False, False
        elif word == "s":
            self.level = self.styles.get(number, 0)
        elif word == "outlinelevel" and number < 9:
            self.level = number + 1
        elif word == "intbl":
            self.in_table = True
        elif word in ("cell", "nestcell"):
            self.cells.append(self._take_words())
        elif word in ("row", "nestrow"):
            self.rows.append(self.cells)
            self.cells = []

    def _encoding(self) -> str:
        return self.fonts.get(self.group.font) or self.codepage

    def _show(self, text: str) -> None:
        kind = self.group.kind
        if kind in RECORDED:
            self.recorded[kind] = (self.recorded.get(kind, "") + text)[-1000:]
        elif kind == "" and not self.group.hidden:
            if text == "\n":
                self.end_paragraph()
            else:
                self.words.append(text)

    def _take_words(self) -> str:
        """Return and clear the words so far, with surrogate pairs joined."""
        text = "".join(self.words).encode("utf-16-le", "surrogatepass")
        self.words = []
        lines = text.decode("utf-16-le", "replace").split("\v")
        return "\n".join(map(markdown.line, lines)).strip()

    def end_paragraph(self) -> None:
        """Add the paragraph to its cell or to the text."""
        if self.in_table:
            self.words.append(" ")
            return
        text = self._take_words()
        self.end_table()
        if text and self.level:
            self.blocks.append(markdown.heading(self.level, text))
        elif text:
            self.blocks.append(f"- {text}" if self.is_item else markdown.prose(text))
        self.is_item = False

    def end_table(self) -> None:
        """Add the rows so far as a table."""
        self.blocks.append(markdown.table(self.rows))
        self.rows = []
