"""PDFs with known tables and headings: `python -m benchmarks reading --data DIR --make COUNT`.

Each page is made of prose, lists, formulas and tables, chosen by a seed. Beside `NAME.pdf` stand
`NAME.txt`, its text in reading order, and `NAME.json`, the rows of its tables and its headings.
pymupdf always sets the pages, LibreOffice and LaTeX do where they are installed: each places words
in its own way. Most tables have no ruled lines. Headings are larger, bold, numbered, in capitals or
in the text size, in one column or two, with an outline or without, among captions, labels, terms
and bold words that are none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from random import Random

import pymupdf

from benchmarks.store import say
from mcpvectordb.ingest.ocr import Picture

Block = "str | list[str] | tuple[str, str] | Table | Heading | Bold"
"""A paragraph, the items of a list, a formula with its number, a table, or a line by itself."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading as it is shown: its text, the size beyond that of the text, and its weight."""

    text: str
    level: int
    larger: float
    bold: bool
    space: float  # lines above it


@dataclass(frozen=True, slots=True)
class Bold:
    """A bold line that is no heading: a caption, a label or a term."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its rows, the first of which is the header, and how it looks."""

    rows: list[list[str]]
    aligned: str  # a letter for each column: l, c or r
    rules: str = ""  # "", "header", "book" or "all"
    wide: list[int] = field(default_factory=list)  # columns whose cells are wrapped
    spans: dict[int, int] = field(default_factory=dict)  # columns of the cells of the first row
    is_tall: bool = False  # names of columns are wrapped to the width of what is below


@dataclass(frozen=True, slots=True)
class Sheet:
    """The blocks of a page, and in how many columns they are set."""

    title: str
    blocks: list[Block]
    columns: int
    size: int
    serif: bool


class Author:
    """Writes pages of made-up words, so that most words are on a page once."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def word(self) -> str:
        """A word of two to four syllables."""
        return "".join(
            self.random.choice("bdfgklmnprstvz") + self.random.choice("aeiou")
            for _ in range(self.random.randint(2, 4))
        )

    def words(self, least: int, most: int) -> str:
        """Some words, the first with a capital letter."""
        count = self.random.randint(least, most)
        return " ".join(self.word() for _ in range(count)).capitalize()

    def prose(self) -> str:
        """A paragraph."""
        return " ".join(f"{self.words(6, 16)}." for _ in range(self.random.randint(2, 5)))

    def sheet(self) -> Sheet:
        """A page."""
        pick, columns = self.random.choice, self.random.choice([1, 1, 2])
        blocks: list[Block] = [self.prose()]
        for _ in range(self.random.randint(1, 2)):
            blocks.append(f"Table {self.random.randint(1, 99)}: {self.words(3, 7)}")
            blocks.append(self.table(5 if columns == 1 else 2))
            if self.random.random() < 0.3:
                blocks.append(f"* {self.words(4, 8)}.")
            blocks.append(self.prose())
        blocks.insert(self.random.choice([0, len(blocks)]), self.list())
        if self.random.random() < 0.3:
            blocks += [self.formula() for _ in range(3)] + [self.prose()]
        return Sheet(self.words(2, 4), blocks, columns, pick([8, 9, 10, 11]), pick([True, False]))

    def chapter(self) -> Sheet:
        """Some pages of sections."""
        pick, chance = self.random.choice, self.random.random
        look = pick(["larger", "bold", "both", "numbered", "capitals"])
        numbered = look == "numbered" or chance() < 0.4
        space, blocks, numbers = pick([0.0, 0.5, 1.0]), [], [0, 0]
        for at in range(self.random.randint(8, 16)):
            level = 1 if at == 0 or chance() < 0.4 else 2
            numbers = [numbers[0] + 1, 0] if level == 1 else [numbers[0], numbers[1] + 1]
            text = self.words(1, 6)
            text = text.upper() if look == "capitals" and level == 1 else text
            if numbered:
                text = f"{'.'.join(map(str, numbers[:level]))} {text}"
            larger = {"larger": 5 - level, "both": 5 - 2 * level}.get(look, 0)
            blocks += [Heading(text, level, larger, look != "larger", space), self.prose()]
            other = self.random.randint(0, 7)
            if other == 0:
                blocks += [Bold(f"{pick(['Table', 'Figure'])} {at}: {self.words(2, 5)}")]
            elif other == 1:
                blocks += [Bold(pick(["Note", "Warning"])), self.prose()]
            elif other == 2:
                blocks += [self.list()]
            elif other == 3:
                blocks += [Bold(f"{self.words(3, 6)}.")]
            elif other == 4:
                blocks += [self.table(2)]
            blocks += [self.prose() for _ in range(self.random.randint(0, 2))]
        return Sheet(self.words(2, 4), blocks, pick([1, 1, 2]), pick([9, 10, 11]), chance() < 0.5)

    def list(self) -> list[str]:
        """Items, some longer than a line."""
        return [self.words(2, 14) for _ in range(self.random.randint(3, 5))]

    def formula(self) -> tuple[str, str]:
        """A formula and its number in the margin."""
        left, *right = (self.word()[:3] for _ in range(4))
        return f"{left} = {' + '.join(right)}", f"({self.random.randint(1, 99)})"

    def table(self, most_columns: int) -> Table:
        """A table of a name and some columns of numbers or text."""
        kinds: list[Callable[[], str]] = [
            lambda: f"{self.random.randint(1, 999_999):,}",
            lambda: f"{self.random.uniform(-9, 99):.2f}",
            lambda: f"{self.random.uniform(0, 100):.1f}%",
            lambda: f"{self.random.randint(1950, 2030)}-{self.random.randint(10, 12)}",
            lambda: self.words(1, 2),
            lambda: self.random.choice(["yes", "no"]),
            lambda: f"{self.random.randint(1, 99)} ({self.random.uniform(0, 9):.1f})",
        ]
        chosen = [self.random.choice(kinds) for _ in range(self.random.randint(1, most_columns))]
        rows = [[self.words(1, 2) for _ in range(len(chosen) + 1)]]
        for _ in range(self.random.randint(3, 14)):
            rows.append([self.words(1, 3), *(kind() for kind in chosen)])
        style, aligned = self.random.random(), "l"
        for kind in chosen:
            is_text = kind().replace(" ", "").isalpha()
            aligned += self.random.choice("llc" if is_text else "rrrcl")
        if style < 0.2:  # cells without a value
            for row in rows[1:]:
                for at in range(1, len(row)):
                    row[at] = "" if self.random.random() < 0.2 else row[at]
        elif style < 0.3:  # rows that head a group
            rows.insert(2, [self.words(2, 3), *[""] * len(chosen)])
        wide = []
        if style > 0.8 and len(chosen) > 1:
            wide = [len(chosen)]
            aligned = aligned[:-1] + "l"
            rows[1:] = [[*row[:-1], self.words(4, 14)] for row in rows[1:]]
        rules = self.random.choice(["", "", "", "header", "book", "all"])
        return Table(rows, aligned, rules, wide)

    def headed(self, sheet: Sheet) -> Sheet:
        """The page, its tables with names of columns in several lines, or of several columns."""
        return replace(
            sheet,
            blocks=[
                self._headed(each) if isinstance(each, Table) else each for each in sheet.blocks
            ],
        )

    def _headed(self, table: Table) -> Table:
        rows, spans, columns = table.rows, dict[int, int](), len(table.rows[0])
        is_tall = columns < 3 or self.random.random() < 0.6
        if is_tall:
            rows = [[rows[0][0], *(self.words(2, 4) for _ in rows[0][1:])], *rows[1:]]
        if columns > 2 and (not is_tall or self.random.random() < 0.4):
            at = self.random.choice([1, 1, columns - 2])
            while columns - at > 1:
                spans[at] = self.random.randint(2, min(3, columns - at))
                at += spans[at]
            names = [self.words(1, 3) if at in spans else "" for at in range(columns)]
            rows = [names, *rows]
        return replace(table, rows=rows, spans=spans, is_tall=is_tall)


def text_of(sheet: Sheet) -> str:
    """The text of a page in reading order."""
    parts = [sheet.title]
    for block in sheet.blocks:
        if isinstance(block, Table):
            parts.append("\n".join(" ".join(filter(None, row)) for row in block.rows))
        elif isinstance(block, Heading | Bold):
            parts.append(block.text)
        else:
            parts.append(block if isinstance(block, str) else "\n".join(block))
    return "\n\n".join(parts)


# --- pymupdf: every word is placed here

LEFT, TOP, RIGHT, BOTTOM, GUTTER = 60.0, 60.0, 535.0, 800.0, 20.0


class Typesetter:
    """Sets a page word by word; `pad` is the least white space between two columns of a table."""

    def __init__(self, sheet: Sheet, pad: float, by_column: bool) -> None:
        self.sheet, self.pad, self.by_column = sheet, pad, by_column
        self.document = pymupdf.open()
        self.page = self.document.new_page()
        self.font = "tiro" if sheet.serif else "helv"
        self.width = (RIGHT - LEFT - GUTTER * (sheet.columns - 1)) / sheet.columns
        self.column, self.y, self.top = 0, TOP, TOP
        self.outline: list[list[int | str]] = []

    def pdf(self) -> bytes:
        """The page."""
        self._line(LEFT, self.sheet.title, self.sheet.size + 6)
        self._advance(2)
        self.top = self.y
        for block in self.sheet.blocks:
            if isinstance(block, Table):
                self._table(block)
            elif isinstance(block, Heading):
                self._advance(block.space)
                size = self.sheet.size + block.larger
                self._room(4)
                for line in self._wrapped(block.text, 0.75 * self.width):
                    self._line(self.left, line, size, bold=block.bold)
                    self._advance(size / self.sheet.size)
                self._advance(block.space / 2 - 0.7)
                self.outline.append([block.level, block.text, len(self.document)])
            elif isinstance(block, Bold):
                self._room(2)
                for line in self._wrapped(block.text, 0.9 * self.width):
                    self._line(self.left, line, bold=True)
                    self._advance(1)
            elif isinstance(block, str):
                self._paragraph(block, self.left, self.width)
            elif isinstance(block, tuple):
                self._room(1)
                self._line(self.left + 40, block[0])
                self._line(self.left + self.width - self._wide(block[1]), block[1])
                self._advance(1)
            else:
                for item in block:
                    self._room(1)
                    self._line(self.left, "•")
                    self._paragraph(item, self.left + 12, self.width - 12)
            self._advance(0.7)
        return bytes(self.document.tobytes())

    @property
    def left(self) -> float:
        """Where the column begins."""
        return LEFT + self.column * (self.width + GUTTER)

    def _wide(self, text: str) -> float:
        return float(pymupdf.get_text_length(text, self.font, self.sheet.size))

    def _advance(self, lines: float) -> None:
        self.y += 1.25 * self.sheet.size * lines

    def _room(self, lines: int) -> None:
        """Go to the next column, or page, where there is no room for so many lines."""
        if self.y + 1.25 * self.sheet.size * lines > BOTTOM:
            self.column, self.y = self.column + 1, self.top
            if self.column == self.sheet.columns:
                self.page, self.column = self.document.new_page(), 0
                self.y = self.top = TOP

    def _line(self, x: float, text: str, size: float = 0, *, bold: bool = False) -> None:
        size, font = size or self.sheet.size, self.font
        if bold:
            font = "tibo" if self.sheet.serif else "hebo"
        self.page.insert_text((x, self.y + size), text, fontname=font, fontsize=size)

    def _paragraph(self, text: str, left: float, width: float) -> None:
        shift = left - self.left
        for line in self._wrapped(text, width):
            self._room(1)
            self._line(self.left + shift, line)
            self._advance(1)

    def _wrapped(self, text: str, width: float) -> list[str]:
        lines = [""]
        for word in text.split():
            if lines[-1] and self._wide(f"{lines[-1]} {word}") > width:
                lines.append("")
            lines[-1] = f"{lines[-1]} {word}".strip()
        return lines

    def _table(self, table: Table) -> None:
        names = 1 if table.spans else 0  # the row with the names of columns
        widths = [
            max(
                max(map(self._wide, cell.split()), default=0)
                if at in table.wide or (table.is_tall and down == names)
                else self._wide(cell)
                for down, cell in enumerate(column)
                if down >= names
            )
            for at, column in enumerate(zip(*table.rows, strict=True))
        ]
        room = self.width - sum(widths) - self.pad * (len(widths) - 1)
        if room < 0:  # cells that do not fit are wrapped
            widths[0] = max(40.0, widths[0] + room)
        for at in table.wide:
            widths[at] += max(0.0, room)
        if room > 0 and not table.wide:
            self_pad = self.pad + min(room / len(widths), 40)
        else:
            self_pad = self.pad
        cells = [
            [self._wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
            for row in table.rows
        ]
        for at in table.spans:
            cells[0][at] = [table.rows[0][at]]
        place = self.sheet.size % 3 / 2  # of the short names of columns: top, middle or bottom
        self._room(sum(max(map(len, row)) for row in cells) + 1)
        starts = [self.left + sum(widths[:at]) + self_pad * at for at in range(len(widths))]
        end, placed, lines = starts[-1] + widths[-1], [], [self.y]
        for number, row in enumerate(cells):
            for at, cell in enumerate(row):
                above = (max(map(len, row)) - len(cell)) * place if number == names else 0
                for down, line in enumerate(cell):
                    spare = widths[at] - self._wide(line)
                    x = starts[at] + {"l": 0, "c": spare / 2, "r": spare}[table.aligned[at]]
                    if table.spans and not number:
                        last = at + table.spans.get(at, 1) - 1
                        x = (starts[at] + starts[last] + widths[last] - self._wide(line)) / 2
                    placed.append((at, x, self.y + 1.25 * self.sheet.size * (down + above), line))
            self._advance(max(map(len, row)))
            lines.append(self.y)
        if self.by_column:
            placed.sort(key=lambda each: each[0])
        after = self.y
        for _, x, self.y, line in placed:
            self._line(x, line)
        self.y = after
        top = lines[1 + names]
        ruled = {"": [], "header": [top], "book": [lines[0], top, after], "all": lines}
        for y in ruled[table.rules]:
            self.page.draw_line((starts[0] - 2, y + 2), (end + 2, y + 2), width=0.5)
        for x in [*starts, end + 4] if table.rules == "all" else []:
            self.page.draw_line((x - 2, lines[names] + 2), (x - 2, after + 2), width=0.5)
        for at, span in table.spans.items() if table.rules == "book" else ():
            y, last = lines[1] + 2, at + span - 1
            self.page.draw_line((starts[at], y), (starts[last] + widths[last], y), width=0.5)


# --- other programs


def html_of(sheet: Sheet) -> str:
    """A page for LibreOffice."""
    parts = [f"<h1>{escape(sheet.title)}</h1>"]
    for block in sheet.blocks:
        if isinstance(block, str):
            parts.append(f"<p>{escape(block)}</p>")
        elif isinstance(block, tuple):
            parts.append(f"<p style='margin-left:40pt'>{escape(' '.join(block))}</p>")
        elif isinstance(block, Table):
            align = {"l": "left", "c": "center", "r": "right"}
            rows = [
                "<tr>"
                + "".join(
                    f"<td align={align[each]}>{escape(cell)}</td>"
                    for cell, each in zip(row, block.aligned, strict=True)
                )
                + "</tr>"
                for row in block.rows
            ]
            if block.spans:
                rows[0] = (
                    f"<tr>{''.join(_spanning(block, '<td align=center colspan={}>{}</td>'))}</tr>"
                )
            if block.is_tall:
                names = 1 if block.spans else 0
                rows[names] = "".join(
                    f"<td align={align[each]}>{'<br>'.join(map(escape, cell.split()))}</td>"
                    for cell, each in zip(block.rows[names], block.aligned, strict=True)
                )
                rows[names] = f"<tr valign={'bottom' if block.spans else 'top'}>{rows[names]}</tr>"
            border = "border=1 cellspacing=0" if block.rules == "all" else "border=0"
            parts.append(f"<table {border} cellpadding=4>{''.join(rows)}</table>")
        else:
            items = "".join(f"<li>{escape(item)}</li>" for item in block)
            parts.append(f"<ul>{items}</ul>")
    font = "Liberation Serif" if sheet.serif else "DejaVu Sans"
    style = f"body,td,li,p{{font-family:'{font}';font-size:{sheet.size}pt}}"
    return f"<html><head><style>{style}</style></head><body>{''.join(parts)}</body></html>"


def _spanning(table: Table, form: str) -> list[str]:
    """The cells of the first row, each in a form of its width and its text."""
    hidden = {at + more for at, span in table.spans.items() for more in range(1, span)}
    return [
        form.format(table.spans.get(at, 1), cell)
        for at, cell in enumerate(table.rows[0])
        if at not in hidden
    ]


def latex_of(sheet: Sheet) -> str:
    """A page for LaTeX."""
    parts = []
    for block in sheet.blocks:
        if isinstance(block, str):
            parts.append(_tex(block))
        elif isinstance(block, tuple):
            parts.append(rf"\begin{{equation}}{block[0]}\tag{{{block[1][1:-1]}}}\end{{equation}}")
        elif isinstance(block, Table):
            parts.append(_tabular(block, sheet.columns))
        else:
            items = "".join(rf"\item {_tex(item)} " for item in block)
            parts.append(rf"\begin{{itemize}}{items}\end{{itemize}}")
    body = "\n\n".join(parts)
    columns = "twocolumn" if sheet.columns == 2 else "onecolumn"
    font = "" if sheet.serif else r"\renewcommand{\familydefault}{\sfdefault}"
    return (
        rf"\documentclass[{max(sheet.size, 10)}pt,a4paper,{columns}]{{article}}"
        r"\usepackage{amsmath,booktabs}\usepackage[T1]{fontenc}\usepackage{lmodern}"
        rf"{font}\begin{{document}}\section*{{{sheet.title}}}{body}\end{{document}}"
    )


def _tex(text: str) -> str:
    return text.replace("%", r"\%").replace("&", r"\&").replace("$", r"\$").replace("*", r"$^*$")


def _tabular(table: Table, columns: int) -> str:
    width = 5 if columns == 1 else 2.2
    aligned = [
        f"p{{{width}cm}}" if at in table.wide else each for at, each in enumerate(table.aligned)
    ]
    rows = [" & ".join(map(_tex, row)) + r" \\" for row in table.rows]
    names = 1 if table.spans else 0
    if table.is_tall:
        stacked = (r" \\ ".join(cell.split()) for cell in table.rows[names])
        rows[names] = " & ".join(rf"\shortstack{{{each}}}" for each in stacked) + r" \\"
    if table.spans:
        rows[0] = " & ".join(_spanning(table, r"\multicolumn{{{}}}{{c}}{{{}}}")) + r" \\"
        if table.rules == "book":
            ends = (rf"\cmidrule(lr){{{at + 1}-{at + span}}}" for at, span in table.spans.items())
            rows[0] += "".join(ends)
    bar = "|" if table.rules == "all" else ""
    if table.rules == "all":
        rows = [r"\hline", *(f"{row} \\hline" for row in rows)]
    elif table.rules:
        rows.insert(1 + names, r"\midrule")
    if table.rules == "book":
        rows = [r"\toprule", *rows, r"\bottomrule"]
    text = rf"\begin{{tabular}}{{{bar}{bar.join(aligned)}{bar}}}" + "\n".join(rows)
    return rf"\noindent {text}\end{{tabular}}"


# --- pictures of pages

SCANS: dict[str, str] = {
    "print": "river mountain office cover winter summer nation paper report narrow between people",
    "turned by 90": "",
    "turned by 180": "",
    "turned by 270": "",
    "faint and noisy": "",
    "Russian": "река гора работа зима лето народ бумага время человек система город вопрос",
    "Greek": "ποταμός βουνό γραφείο χειμώνας καλοκαίρι έθνος χαρτί χρόνος άνθρωπος σύστημα πόλη",
    "Chinese": "河流 山脉 办公室 冬天 夏天 国家 纸张 报告 时间 人民 系统 城市 问题",
    "Arabic": "نهر جبل مكتب شتاء صيف أمة ورق تقرير وقت شعب نظام مدينة سؤال",
}
"""Kinds of pictures and their words; those without any have the words of print."""


def scan(kind: str, seed: int) -> tuple[Picture, str]:
    """A picture of a page of this kind, and its text."""
    random = Random(seed)
    known = (SCANS[kind] or SCANS["print"]).split()
    text = ". ".join(" ".join(random.choices(known, k=9)) for _ in range(12))
    document = pymupdf.open()
    page = document.new_page(width=420, height=300)
    style = "font-size:12pt;font-family:serif"
    page.insert_htmlbox((30, 30, 390, 280), f"<p style='{style}'>{text}</p>")
    turn = int(kind.rpartition(" ")[2]) if kind.startswith("turned") else 0
    page.set_rotation(turn)
    drawn = page.get_pixmap(dpi=300, colorspace="gray", alpha=False)
    grey = bytes(drawn.samples)
    if kind == "faint and noisy":
        noise = random.randbytes(4096)
        faint = bytes(110 + each * 145 // 255 for each in range(256))
        grey = bytes(
            max(0, each - noise[at * 31 % 4096] // 4)
            for at, each in enumerate(grey.translate(faint))
        )
    return Picture(drawn.width, drawn.height, grey), text


def make(folder: Path, count: int, seed: int) -> None:
    """Write so many pages from each program that is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(count):
        author = Author(seed + at)
        sheet = author.sheet()
        setter = Typesetter(sheet, author.random.choice([8, 12, 20]), author.random.random() < 0.4)
        _keep(folder / f"mupdf-{at:03}.pdf", sheet, setter.pdf())
    for at in range(count):
        author = Author(seed + 2000 + at)
        sheet = author.chapter()
        setter = Typesetter(sheet, 12, False)
        setter.pdf()
        if author.random.random() < 0.4:
            setter.document.set_toc(setter.outline)
        _keep(folder / f"headings-{at:03}.pdf", sheet, bytes(setter.document.tobytes()))
    for at in range(count):
        author = Author(seed + 4000 + at)
        sheet = author.headed(author.sheet())
        setter = Typesetter(sheet, author.random.choice([8, 12, 20]), author.random.random() < 0.4)
        _keep(folder / f"names-{at:03}.pdf", sheet, setter.pdf())
    for name, program, ending, write in (
        ("office", "soffice", "html", html_of),
        ("latex", "pdflatex", "tex", latex_of),
    ):
        if not shutil.which(program):
            say(f"{program} is not installed: no pages of it")
            continue
        sheets = {f"{name}-{at:03}": Author(seed + 1000 + at).sheet() for at in range(count)}
        for at in range(count):
            author = Author(seed + 5000 + at)
            sheets[f"{name}-names-{at:03}"] = author.headed(author.sheet())
        for stem, sheet in sheets.items():
            if name == "office":
                sheet = Sheet(sheet.title, sheet.blocks, 1, sheet.size, sheet.serif)
            (folder / f"{stem}.{ending}").write_text(write(sheet), "utf-8")
        _run(program, folder, [folder / f"{stem}.{ending}" for stem in sheets])
        for stem, sheet in sheets.items():
            (folder / f"{stem}.{ending}").unlink()
            if (folder / f"{stem}.pdf").exists():
                _keep(folder / f"{stem}.pdf", sheet, b"")


def _run(program: str, folder: Path, sources: Sequence[Path]) -> None:
    commands = [["soffice", "--headless", "--convert-to", "pdf:writer_web_pdf_Export"]]
    if program == "soffice":
        commands = [[*commands[0], "--outdir", str(folder), *map(str, sources)]]
    else:
        options = ["-interaction=batchmode", f"-output-directory={folder}"]
        commands = [["pdflatex", *options, str(source)] for source in sources]
    for command in commands:
        subprocess.run(command, capture_output=True, check=False)
    for each in [*folder.glob("*.aux"), *folder.glob("*.log")]:
        each.unlink()


def _keep(path: Path, sheet: Sheet, pdf: bytes) -> None:
    """Write what is expected of a page, and the page if it is not there yet."""
    if pdf:
        path.write_bytes(pdf)
    path.with_suffix(".txt").write_text(text_of(sheet), "utf-8")
    tables = [block.rows for block in sheet.blocks if isinstance(block, Table)]
    headings = [block.text for block in sheet.blocks if isinstance(block, Heading)]
    known = {"tables": tables, "headings": [sheet.title, *headings] if headings else []}
    path.with_suffix(".json").write_text(json.dumps(known), "utf-8")
