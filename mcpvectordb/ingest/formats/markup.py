r"""LaTeX, reStructuredText and Org: the text as it is written, with headings and code as Markdown.

What a search needs is done and no more: sections become headings, code becomes fences, comments and
preambles go, and markup that would divide a word is resolved (M\"uller). Formulas, tables, links
and other markup stay: a reader of these formats reads it, and so does a model. Everything stays on
its line, so that a line of the text is that of the file: what goes leaves blank lines.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mcpvectordb.ingest import formats
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.charset import text_of
from mcpvectordb.records import Parsed, Source

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""An expression, and what is written instead of it."""


class Markup(NamedTuple):
    """How a markup writes what matters.

    - parts: an expression with the groups `kept` (never read as markup), `dropped`, `body` (code,
      with its `language` and the text before it, `intro`), or `heading` and its `style` (`over` for
      an overline).
    - level: sorts the styles of headings, the highest first; equal ones as they first occur.
    - metadata: a property with its `name` and `value`, in the first part of the text.
    - document: the part of the text that is shown, as a group; all of it if there is no such part.
    - inline: rules for the text between the parts, and for headings and metadata.
    """

    parts: re.Pattern[str]
    level: Callable[[str], int]
    metadata: re.Pattern[str]
    document: re.Pattern[str] = re.compile(r"\A(.*)", re.DOTALL)
    inline: Sequence[Rule] = ()


_SECTIONS = "part chapter section subsection subsubsection paragraph subparagraph".split()
_ARGUMENT = r"\s*+\{((?:[^{}]|\{[^{}]*\})*+)\}"
_SIGNS = (
    "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a\u0323\u0331"
)
_ACCENTS = dict(zip("'`^\"~=.uvHckrdb", _SIGNS, strict=True))
_LETTERS = {"ss": "ß", "o": "ø", "O": "Ø", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ"}
_LETTERS |= {"aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "j": "ȷ", "dh": "ð", "DH": "Ð"}
_LETTERS |= {"th": "þ", "TH": "Þ", "dj": "đ", "DJ": "Đ", "ng": "ŋ", "NG": "Ŋ"}


def _accented(found: re.Match[str]) -> str:
    accent, letter = found[1] or found[2], found[3] or found[4]
    return unicodedata.normalize("NFC", letter + _ACCENTS[accent])


_LATEX = Markup(
    parts=re.compile(
        r"\\begin\{(?P<env>(?:[vV]erbatim|lstlisting|minted|alltt)\*?)\}(?:\[[^\]\n]*\])?"
        r"(?:\{(?P<language>\w+)\})?(?P<body>.*?)(?:\\end\{(?P=env)\}|\Z)"
        r"|(?P<kept>\\verb\*?(?P<mark>[^\w\s*])[^\n]*?(?P=mark))"
        r"|(?P<dropped>^[ \t]*%[^\n]*\n?|(?<!\\)%[^\n]*"
        r"|\\(?:label|index|vspace|hspace|includegraphics|bibliography|bibliographystyle)\*?"
        r"(?:\[[^\]\n]*\])?\{[^{}]*\}"
        r"|\\(?:maketitle|centering|noindent|tableofcontents)\b"
        r"|^[ \t]*\\(?:begin|end)\{(?:itemize|enumerate|description|abstract|center)\}"
        r"(?:\[[^\]\n]*\])?)"
        rf"|\\(?P<style>{'|'.join(_SECTIONS)})\*?(?:\[[^\]\n]*\])?"
        rf"{_ARGUMENT.replace('(', '(?P<heading>', 1)}",
        re.DOTALL | re.MULTILINE,
    ),
    level=_SECTIONS.index,
    metadata=re.compile(
        r"\\(?P<name>title|author|date)(?:\[[^\]\n]*\])?" + _ARGUMENT.replace("(", "(?P<value>", 1)
    ),
    document=re.compile(r"\\begin\{document\}(.*?)(?:\\end\{document\}|\Z)", re.DOTALL),
    inline=(
        (
            re.compile(
                r"\\(?:(['`^\"~=.])[ ]*|([uvHckrdb])(?:[ ]+|(?=\{)))"
                r"(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))"
            ),
            _accented,
        ),
        (
            re.compile(rf"\\({'|'.join(_LETTERS)})(?![A-Za-z])(?:\{{\}}|[ ]?)"),
            lambda it: _LETTERS[it[1]],
        ),
        (re.compile(r"\{([^\W\d_A-Za-z])\}"), r"\1"),  # stra{\ss}e, caf{\'e}
        (re.compile(r"(?<!\\)\\(?=[ ])"), ""),
        (re.compile(r"\\thanks\{[^{}]*\}|\\-"), lambda it: "\n" * it[0].count("\n")),
        (re.compile(r"\\(?:emph|text(?:bf|it|sc|sf|sl|rm|tt|up))\{([^{}]*)\}"), r"\1"),
        (re.compile(r"\\and\b"), ","),
        (re.compile(r"^([ \t]*)\\item\b[ \t]*", re.MULTILINE), r"\1- "),
        (re.compile(r"(?<!\\)\\([%$#_])"), r"\1"),
        (re.compile(r"(?<!\\)~"), " "),
    ),
)

_LINE_OF = r"[!-/:-@\[-`{-~]"
_RST = Markup(
    parts=re.compile(
        r"^(?P<indent>[ ]*+)(?:\.\.[ ]+(?:code|code-block|sourcecode|parsed-literal|prompt)::"
        r"[ ]*(?P<language>\S*)[ ]*\n(?:[ ]+:[\w-]+:.*\n)*+"
        r"|(?!\.\.[ ])(?P<intro>.*[^\s:]:(?=:[ ]*\n)|(?:.*[ ])?(?=::)):+[ ]*\n)"
        r"(?:[ ]*\n)*+(?P<body>(?P<inner>(?P=indent)[ ]++)\S.*(?:\n|\Z)"
        r"(?:(?P=inner).*(?:\n|\Z)|[ ]*\n)*)"
        r"|(?P<dropped>^\.\.[ ]+_.*:[ ]*$)"
        rf"|^(?:(?P<over>{_LINE_OF})(?P=over){{2,}}[ ]*\n)?"
        rf"(?!(?P<again>{_LINE_OF})(?P=again)*[ ]*$)(?P<heading>[ ]*\S.*)\n"
        rf"(?P<style>{_LINE_OF})(?:(?P=style){{3,}}|(?<=\n[^.])(?P=style){{2}})[ ]*$",
        re.MULTILINE,
    ),
    level=lambda style: 0,
    metadata=re.compile(
        r"^:(?P<name>author|authors|date|version|organization|contact|copyright):"
        r"[ ]+(?P<value>.+)$",
        re.MULTILINE | re.IGNORECASE,
    ),
)

_ORG = Markup(
    parts=re.compile(
        r"^[ \t]*\#\+begin_(?P<block>src|example|export|verse)\b[ \t]*(?P<language>\S*).*\n"
        r"(?P<body>(?s:.*?))(?:^[ \t]*\#\+end_(?P=block)\b.*$|\Z)"
        r"|(?P<dropped>^[ \t]*:[\w-]+:[ \t]*\n(?:[ \t]*:.*\n){0,50}?[ \t]*:end:[ \t]*$"
        r"|^[ \t]*\#(?:[ \t].*|\+(?!caption)\w+:.*)?$)"
        r"|^(?P<style>\*+)[ \t]+(?P<heading>.*?)(?:[ \t]+:[\w@\#%:]+:)?[ \t]*$",
        re.MULTILINE | re.IGNORECASE,
    ),
    level=len,
    metadata=re.compile(
        r"^[ \t]*#\+(?P<name>title|author|date|description|language|filetags):[ \t]*(?P<value>.+)$",
        re.MULTILINE | re.IGNORECASE,
    ),
    inline=(
        (re.compile(r"\[\[([^\[\]]*)\]\[([^\[\]]*)\]\]"), r"[\2](\1)"),
        # With its header apart, a table is one of Markdown.
        (re.compile(r"^[ \t]*\|-[-+]*\|[ \t]*$", re.MULTILINE), lambda it: it[0].replace("+", "|")),
    ),
)

_MARKUPS = {"LaTeX": _LATEX, "reStructuredText": _RST, "Org": _ORG}
_NAMES = {"authors": "author", "filetags": "tags"}
_LINE_END = re.compile(r"(?<![ \t])[ \t]++$", re.MULTILINE)
_NO_LINE_ENDS = re.compile(r"[\x0b\x0c\x85\u2028\u2029]")
# Around a heading and before a line of code while others are escaped; no cleaned text has them.
_BEGIN, _END, _CODE = "\x00\x01\x02"
_HEAD = 20_000
"""Characters at the start in which a document says what it is."""


def parse(source: Source) -> Parsed:
    """Return the text with its title; its author, date and the like are metadata."""
    markup = _MARKUPS[formats.detect(source).name]
    # Only line ends that editors count, so that line N of the text is line N of the file.
    text = markdown.clean(_NO_LINE_ENDS.sub(" ", text_of(source)))
    text = text.expandtabs(8)
    metadata: dict[str, Any] = {
        _NAMES.get(name := found["name"].lower(), name): _written(found["value"], markup)
        for found in markup.metadata.finditer(text, 0, _HEAD)
    }
    shown = markup.document.search(text)
    above = "\n" * text.count("\n", 0, shown.start(1)) if shown else ""
    written = above + _rewritten(shown[1] if shown else text, markup)
    return markdown.finish(source, written, metadata, keep_lines=True)


def _rewritten(text: str, markup: Markup) -> str:
    """The text with headings and code as Markdown, each on its own line of the source."""
    parts = list(markup.parts.finditer(text))
    groups = [found.groupdict("") for found in parts]
    styles = [each.get("over", "") + each["style"] for each in groups]
    levels = sorted(dict.fromkeys(filter(None, styles)), key=markup.level)
    words, at = list[str](), 0
    for found, group, style in zip(parts, groups, styles, strict=True):
        words.append(_written(text[at : found.start()], markup))
        at, lines = found.end(), found[0].count("\n")
        if style:
            above = text.count("\n", found.start(), found.start("heading"))
            title = _written(group["heading"], markup)
            heading = markdown.heading(levels.index(style) + 1, title)
            words += ["\n" * above, f"{_BEGIN}{heading}{_END}", "\n" * (lines - above)]
        elif group["body"]:
            words.append(_code(text, found, _written(group.get("intro", ""), markup)) or found[0])
        else:
            words.append(group.get("kept") or "\n" * lines)
    words.append(_written(text[at:], markup))
    rewritten = _LINE_END.sub("", markdown.prose("".join(words))).replace(_CODE, "")
    return "\n".join(_with_headings_alone(rewritten.split("\n")))


def _code(text: str, found: re.Match[str], intro: str) -> str:
    """A fenced block on the lines of code; "" if there is no line for one of its fences."""
    start, end = found.span()
    body = found["body"]
    fenced = markdown.fence(textwrap.dedent(body), found["language"] or "")
    if not fenced:
        return intro + "\n" * found[0].count("\n")
    blank = body[: len(body) - len(body.lstrip())].count("\n")
    above = text.count("\n", start, found.start("body")) + blank - 1
    below = found[0].count("\n") - above - fenced.count("\n")
    line_before = text[text.rfind("\n", 0, start) + 1 : start] + intro
    next_line = text.find("\n", end)
    rest = text[end:next_line] if next_line >= 0 else text[end:]
    has_first = above > 0 or (above == 0 and not line_before.strip())
    has_last = end == len(text) or below > 0 or (below == 0 and not rest.strip())
    if not has_first or not has_last:
        return ""
    lines = "\n".join(_CODE + line for line in fenced.split("\n"))
    return intro.rstrip(" ") + "\n" * above + lines + "\n" * below


def _with_headings_alone(lines: list[str]) -> list[str]:
    """The lines, of which a heading has one alone; before other text it takes a blank line above.

    Without such a line it is only text.
    """
    for at, line in enumerate(lines):
        if _BEGIN not in line:
            continue
        before, heading, rest = re.split(f"[{_BEGIN}{_END}]", line, maxsplit=2)
        after = re.sub(f"{_BEGIN}#* ?|{_END}", "", rest)
        if not before.strip() and not after.strip():
            lines[at] = heading
        elif not before.strip() and at and not lines[at - 1].strip():
            lines[at - 1 : at + 1] = [heading, after.strip()]
        else:
            lines[at] = before + heading.lstrip("# ") + after
    return lines


def _written(text: str, markup: Markup) -> str:
    for expression, replacement in markup.inline:
        text = expression.sub(replacement, text)
    return text
