"""LaTeX: sections as headings, lists, tables, code and formulas; other commands keep their text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import charset, decode
from mcpvectordb.records import Parsed, Source

SECTIONS = (
    "part",
    "chapter",
    "section",
    "subsection",
    "subsubsection",
    "paragraph",
    "subparagraph",
)
# Commands without visible text, with the number of arguments that are dropped with them.
DROPPED = {
    "label": 1,
    "ref": 1,
    "pageref": 1,
    "eqref": 1,
    "autoref": 1,
    "cref": 1,
    "Cref": 1,
    "includegraphics": 1,
    "input": 1,
    "include": 1,
    "bibliography": 1,
    "bibliographystyle": 1,
    "vspace": 1,
    "hspace": 1,
    "index": 1,
    "usepackage": 1,
    "documentclass": 1,
    "newcommand": 2,
    "renewcommand": 2,
    "providecommand": 2,
    "newenvironment": 3,
    "def": 1,
    "setlength": 2,
    "setcounter": 2,
    "addtocounter": 2,
    "pagestyle": 1,
    "thispagestyle": 1,
    "graphicspath": 1,
    "hypersetup": 1,
    "definecolor": 3,
    "color": 1,
    "textcolor": 1,
    "colorbox": 1,
    "fontsize": 2,
    "multicolumn": 2,
    "multirow": 2,
    "cline": 1,
    "cmidrule": 1,
    "rule": 2,
    "title": 1,
    "author": 1,
    "date": 1,
    "thanks": 1,
    "nocite": 1,
    "newtheorem": 2,
    "pagenumbering": 1,
    "addcontentsline": 3,
    "raisebox": 1,
    "scalebox": 1,
    "resizebox": 2,
    "href": 1,
    "bibitem": 1,
    "vskip": 0,
    "affil": 0,
    "email": 0,
    "marginpar": 1,
    "hyphenation": 1,
    "PassOptionsToPackage": 2,
}
CITED = frozenset(
    [
        "cite",
        "citep",
        "citet",
        "parencite",
        "textcite",
        "autocite",
        "citeauthor",
        "citeyear",
        "footcite",
    ]
)
SIGNS = {
    "ldots": "…",
    "dots": "…",
    "textellipsis": "…",
    "textbackslash": "\\",
    "textasciitilde": "~",
    "textasciicircum": "^",
    "LaTeX": "LaTeX",
    "TeX": "TeX",
    "ss": "ß",
    "o": "ø",
    "O": "Ø",
    "ae": "æ",
    "AE": "Æ",
    "oe": "œ",
    "OE": "Œ",
    "aa": "å",
    "AA": "Å",
    "l": "ł",
    "L": "Ł",
    "i": "ı",
    "j": "ȷ",
    "S": "§",
    "P": "¶",
    "copyright": "©",
    "textregistered": "®",
    "texttrademark": "™",
    "pounds": "£",
    "euro": "€",
    "textdegree": "°",
    "textbullet": "•",
    "textendash": "–",
    "textemdash": "—",
    "textquotedblleft": "“",
    "textquotedblright": "”",
    "quad": " ",
    "qquad": " ",
    "newline": "\n",
    "textgreater": ">",
    "textless": "<",
    "textbar": "|",
    "dag": "†",
    "ddag": "‡",
    "par": "\n\n",
    "appendix": "",
}
ACCENTS = {
    "'": "\u0301",
    "`": "\u0300",
    "^": "\u0302",
    '"': "\u0308",
    "~": "\u0303",
    "=": "\u0304",
    ".": "\u0307",
    "u": "\u0306",
    "v": "\u030c",
    "H": "\u030b",
    "c": "\u0327",
    "k": "\u0328",
    "r": "\u030a",
    "d": "\u0323",
    "b": "\u0331",
}
CODE = ("verbatim", "Verbatim", "lstlisting", "minted", "alltt", "listing")
MATHS = (
    "equation",
    "align",
    "gather",
    "multline",
    "eqnarray",
    "displaymath",
    "math",
    "flalign",
    "alignat",
)
PICTURES = ("tikzpicture", "picture", "comment", "filecontents", "pgfpicture", "axis")
TABLES = ("tabular", "tabularx", "longtable", "array", "tabulary", "tabu")

_CODE = re.compile(
    rf"\\begin\{{(?P<env>(?:{'|'.join(CODE)})\*?)\}}.*?\\end\{{(?P=env)\}}|\\verb\*?(?P<mark>[^\w\s*]).*?(?P=mark)",
    re.DOTALL,
)
_MATHS = re.compile(
    rf"\\begin\{{(?P<env>(?:{'|'.join([*MATHS, *PICTURES])})\*?)\}}.*?\\end\{{(?P=env)\}}"
    r"|(?<!\\)\$\$.+?\$\$|(?<!\\)\$(?:[^$\\\n]|\\.|\n(?!\s*\n))+\$|\\\[.+?\\\]|\\\(.+?\\\)",
    re.DOTALL,
)
_COMMENT = re.compile(r"^[ \t]*%.*\n?|(?<!\\)((?:\\\\)*)%.*", re.MULTILINE)
_TOKEN = re.compile(
    r"\\(?P<edge>begin|end)\s*\{(?P<env>[^{}]*)\}|\\(?P<word>[a-zA-Z@]+)\*?[ "
    r"\t]*|\\(?P<sign>.)|(?P<brace>[{}])"
    r"|(?P<cell>&)|(?P<dashes>-{2,3})|(?P<quotes>``|'')|(?P<tie>~)|(?P<text>[^\\{}&~`'-]+|[`'-])",
    re.DOTALL,
)
_ACCENT = re.compile(
    r"\\(?:(['`^\"~=.])\s*|([uvHckrdb])(?:\s+|(?=\{)))(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_OPTION = re.compile(r"\s*\[[^\[\]]{0,500}\]")
_ARGUMENT = re.compile(r"\s*\{")


def parse(source: Source) -> Parsed:
    """Return the text of a LaTeX file without its preamble."""
    text = markdown_writer.clean(decode(source.raw, declared=charset(source.media_type)))
    raw: list[str] = []
    text = _COMMENT.sub(lambda found: found[1] or "", _CODE.sub(_placeholders(raw), text))
    text = _ACCENT.sub(_accented, _MATHS.sub(_placeholders(raw), text))
    metadata = {
        key: _plain(found)
        for key in ("title", "author", "date")
        if (found := _argument_of(text, key))
    }
    begin, end = text.find("\\begin{document}"), text.rfind("\\end{document}")
    reader = _LatexReader(
        text[begin + 16 if begin >= 0 else 0 : end if end > begin else len(text)], raw
    )
    written = reader.read()
    title = markdown_writer.title(
        source, metadata.pop("title", ""), markdown_writer.first_heading(written)
    )
    return markdown_writer.finish(source, [written], title=title, metadata=metadata, paged=False)


def _placeholders(raw: list[str]) -> Callable[[re.Match[str]], str]:
    """A replacement function that puts placeholders for code, formulas and pictures.

    Their content must not be read as LaTeX; private-use characters enclose its index in `raw`.
    """

    def keep(found: re.Match[str]) -> str:
        raw.append(_verbatim(found))
        return f"\ue000{len(raw) - 1}\ue001"

    return keep


def _verbatim(found: re.Match[str]) -> str:
    environment, text = (found["env"] or "").rstrip("*"), found[0]
    if text.startswith("\\verb"):
        mark = text[-1]
        return "`" + text[:-1].partition(mark)[2] + "`"
    if environment in PICTURES:
        return ""
    if environment in CODE:
        inner = re.sub(r"\A\\begin\{[^}]*\}(?:\[[^\]]*\])?(?:\{(\w+)\})?", "", text).rpartition(
            "\\end"
        )[0]
        return f"\n\n{markdown_writer.fence(inner)}\n\n"
    return f"\n\n$$\n{text}\n$$\n\n" if environment else text


def _accented(found: re.Match[str]) -> str:
    accent, letter = found[1] or found[2], found[3] or found[4]
    return unicodedata.normalize("NFC", letter + ACCENTS[accent])


def _balanced(text: str, at: int) -> int:
    """The end of the group whose brace opens at an offset."""
    depth = 0
    for found in _BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth <= 0 and found[0] == "}":
            return found.end()
    return len(text)


def _argument_of(text: str, command: str) -> str:
    found = re.search(rf"\\{command}\s*(?:\[[^\]]*\])?\s*\{{", text)
    return text[found.end() : _balanced(text, found.end() - 1) - 1] if found else ""


def _plain(text: str) -> str:
    return markdown_writer.line(
        _LatexReader(text.replace("\\\\", " ").replace("\\and", ", "), []).read()
    )


class _LatexReader:
    """Reads the source in one pass; a stack has the text to write when each brace closes."""

    def __init__(self, text: str, raw: list[str]) -> None:
        self.text, self.raw = text, raw
        self.out: list[str] = []
        self.braces: list[str] = []
        # Of each open list: whether it is numbered, and how many items it has.
        self.lists: list[tuple[bool, int]] = []
        self.rows: list[list[str]] = []
        self.tables = 0
        self.cell_start = 0
        self.top = next((at for at, name in enumerate(SECTIONS) if f"\\{name}" in text), 0)

    def read(self) -> str:
        """Return the Markdown of the text."""
        at = 0
        while found := _TOKEN.match(self.text, at):
            at = self._take(found)
        text = re.sub(
            "\ue000(\\d+)\ue001", lambda found: self.raw[int(found[1])], "".join(self.out)
        )
        lines = "\n".join(map(str.rstrip, _unwrapped(text).split("\n")))
        return re.sub(r"\n{3,}", "\n\n", lines).strip()

    def _take(self, found: re.Match[str]) -> int:
        at = found.end()
        if found["text"]:
            self.out.append(found["text"])
        elif found["word"]:
            return self._command(found["word"], at)
        elif found["edge"]:
            return self._environment(found["edge"], found["env"].rstrip("*"), at)
        elif found["brace"]:
            self._brace(found["brace"])
            self.out.append(" " if found[0] == "}" and self.text.startswith("{", at) else "")
        elif found["cell"]:
            self._end_cell() if self.tables else self.out.append("&")
        elif found["sign"]:
            return self._sign(found["sign"], at)
        else:
            self.out.append({"--": "–", "---": "—", "``": "“", "''": "”", "~": " "}[found[0]])
        return at

    def _sign(self, sign: str, at: int) -> int:
        if sign == "\\":
            self._end_row() if self.tables else self.out.append("\n")
            return found.end() if (found := _OPTION.match(self.text, at)) else at
        self.out.append(sign if sign in "&%$#_{}" else " " if sign in ",; \n" else "")
        return at

    def _brace(self, brace: str) -> None:
        if brace == "{":
            self.braces.append("")
        elif self.braces:
            self.out.append(self.braces.pop())

    def _command(self, word: str, at: int) -> int:
        if word == "item":
            return self._item(at)
        if word in SIGNS:
            self.out.append(SIGNS[word])
            return at
        while found := _OPTION.match(self.text, at):
            at = found.end()
        opens = _ARGUMENT.match(self.text, at)
        if word in CITED and opens:
            end = _balanced(self.text, opens.end() - 1)
            self.out.append(f"[{self.text[opens.end() : end - 1]}]")
            return end
        if word in DROPPED:
            return self._drop(DROPPED[word], at)
        if opens and (shape := self._shape(word)):
            self.out.append(shape[0])
            self.braces.append(shape[1])
            return opens.end()
        return at

    def _shape(self, word: str) -> tuple[str, str] | None:
        """The text before and after the argument of a command."""
        if word in SECTIONS:
            return f"\n\n{'#' * min(SECTIONS.index(word) - self.top + 1, 6)} ", "\n\n"
        if word == "footnote":
            return " (", ")"
        if word in ("texttt", "lstinline", "code", "url", "path"):
            return ("", "") if word in ("url", "path") else ("`", "`")
        return ("\n\n", "\n\n") if word in ("caption", "maketitle", "abstract") else ("", "")

    def _drop(self, count: int, at: int) -> int:
        for _ in range(count):
            while found := _OPTION.match(self.text, at):
                at = found.end()
            if not (opens := _ARGUMENT.match(self.text, at)):
                break
            at = _balanced(self.text, opens.end() - 1)
        return at

    def _item(self, at: int) -> int:
        counts, items = self.lists.pop() if self.lists else (False, 0)
        self.lists.append((counts, items + 1))
        label = _OPTION.match(self.text, at)
        self._trim()
        self.out += [
            "\n\n" if items == 0 and len(self.lists) == 1 else "\n",
            "  " * min(len(self.lists) - 1, 8),
        ]
        self.out += [f"{items + 1}. " if counts else "- ", label[0].strip()[1:-1] if label else ""]
        return label.end() if label else at

    def _trim(self) -> None:
        """Remove white space from the end of the output."""
        while self.out and not self.out[-1].strip():
            self.out.pop()
        self.out[-1:] = [last.rstrip() for last in self.out[-1:]]

    def _environment(self, edge: str, name: str, at: int) -> int:
        begins = edge == "begin"
        if name in TABLES:
            return self._table(begins, at)
        if name in ("itemize", "enumerate", "description"):
            if begins:
                self.lists.append((name == "enumerate", 0))
            elif self.lists:
                self.lists.pop()
        self.out.append("\n\n")
        while begins and (found := _OPTION.match(self.text, at)):
            at = found.end()
        return (
            self._drop(1, at)
            if begins and name in ("minipage", "thebibliography", "multicols", "wrapfigure")
            else at
        )

    def _table(self, begins: bool, at: int) -> int:
        self.tables += 1 if begins else -1
        if begins and self.tables == 1:
            self.rows, self.cell_start = [[]], len(self.out)
        elif self.tables == 0:
            self._end_cell()
            self.out.append(f"\n\n{markdown_writer.table(self.rows)}\n\n")
        self.tables = max(self.tables, 0)
        return self._drop(2, at) if begins else at

    def _end_cell(self) -> None:
        self.rows[-1].append("".join(self.out[self.cell_start :]))
        del self.out[self.cell_start :]

    def _end_row(self) -> None:
        self._end_cell()
        self.rows.append([])


def _unwrapped(text: str) -> str:
    """The text with the lines of paragraphs joined, except in code, formulas, lists and tables."""
    fenced = re.split(r"(^`{3,}.*?^`{3,}$|^\$\$$.*?^\$\$$)", text, flags=re.DOTALL | re.MULTILINE)
    joined = [
        re.sub(r"(?<=[^\n|])[ \t]*\n(?![\n|#]|[ \t]*(?:- |\d+\. ))[ \t]*(?=\S)", " ", part)
        for part in fenced[::2]
    ]
    return "".join(part for pair in zip(joined, [*fenced[1::2], ""], strict=True) for part in pair)
