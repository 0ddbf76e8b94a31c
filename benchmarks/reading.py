"""How well files are read: `python -m benchmarks reading --data DIR`.

DIR holds files and, beside each, the text that is expected of it: `NAME.html` and `NAME.txt`,
`NAME.pdf` and `NAME.txt`, and perhaps its tables (their rows) and headings in `NAME.json`. `--make
COUNT` fills it with PDFs of this kind, `--make-pages COUNT` with web pages of seven kinds. This
library reads them beside the other readers that are installed. Words are compared without markup; a
file that cannot be read counts as empty.

`--scans COUNT` makes so many pictures of each kind instead, upright, turned, faint, and in scripts
that OCR was not asked for: their text is right, or nothing is stored.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import resource
import shutil
import subprocess
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from benchmarks import page_kinds, report
from benchmarks.pages import SCANS, make, scan
from benchmarks.store import say
from mcpvectordb import InvalidInput, MCPVectorDBError
from mcpvectordb.config import Config
from mcpvectordb.errors import NoText
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.ocr import SURE, Tesseract
from mcpvectordb.records import Source

T = TypeVar("T")
OURS = "mcpvectordb"
RUN = 4  # words in a row that are compared for the F1 of a text
RIGHT = 0.9  # of the expected words; with fewer, a scan is read wrongly
LOST = 0.5  # of the expected words; with fewer, the text is lost
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


Rows = Sequence[Sequence[str]]
"""The cells of a table."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A file, its expected text, its tables and headings if they are known, its pages."""

    path: Path
    expected: str
    tables: list[Rows]
    headings: list[str]
    pages: int


@dataclass(frozen=True, slots=True)
class Grade:
    """How well one text was read.

    - kept: share of the expected words that are there.
    - order: share of the words that occur once in both texts and follow each other in both.
    - f1: harmonic mean of precision and recall of runs of four words.
    - relations: the same of pairs of cells that are neighbours, with their direction (the measure
      of the table competition of ICDAR 2013), in all tables of the text; None without tables.
    - rows: share of the rows of these tables whose cells are on one line of the text.
    """

    kept: float
    order: float
    precision: float
    recall: float
    f1: float
    relations: float | None
    rows: float | None


@dataclass(frozen=True, slots=True)
class Reader:
    """A way to read files of some kinds; `installed` says whether it can be used here."""

    name: str
    kinds: frozenset[str]
    read: Callable[[Path], str]
    installed: Callable[[], bool]


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    if options.scans:
        report.show(measure_scans(options.scans, options.seed), [], as_json=options.json)
        return
    if options.make:
        make(options.data, options.make, options.seed)
    if options.make_pages:
        page_kinds.make(options.data, options.make_pages, options.seed)
    samples = load(options.data)
    readers = [each for each in READERS if each.installed()]
    if options.reader:
        readers = [each for each in readers if each.name in options.reader]
    rows = []
    for kind in sorted({kind_of(each.path) for each in samples}):
        some = [each for each in samples if kind_of(each.path) == kind]
        for reader in readers:
            if kind.split()[0] in reader.kinds or reader.name == OURS:
                say(f"{kind}: {reader.name}")
                rows.append(measure(kind, reader, some, verbose=options.each))
    missing = [each.name for each in READERS if not each.installed()]
    notes = [f"Not installed: {', '.join(missing)}."] if missing else []
    report.show(rows, notes, as_json=options.json)


def load(folder: Path) -> list[Sample]:
    """The files of a folder that have an expected text beside them."""
    samples = []
    for path in sorted(folder.iterdir()):
        expected = path.with_suffix(".txt")
        if path.suffix not in (".txt", ".json") and path.is_file() and expected.exists():
            cells = path.with_suffix(".json")
            known = json.loads(cells.read_text("utf-8")) if cells.exists() else {}
            marked = known.get("tables", []), known.get("headings", [])
            samples.append(Sample(path, expected.read_text("utf-8"), *marked, _pages(path)))
    if not samples:
        raise InvalidInput(f"{folder} has no file with an expected text (NAME.txt) beside it")
    return samples


def kind_of(path: Path) -> str:
    """The type of a file, and the kind of a web page that `page_kinds` made: `html forum`."""
    kind = path.stem.partition("-")[0]
    return f"{path.suffix[1:]} {kind}" if kind in page_kinds.KINDS else path.suffix[1:]


def measure(kind: str, reader: Reader, samples: Sequence[Sample], *, verbose: bool) -> report.Row:
    """The means of a reader over files of one kind."""
    with contextlib.suppress(Exception):
        reader.read(samples[0].path)  # imports are not what is measured
    grades, before = [], _cpu()
    wanted, right, extra = 0, 0, 0
    for sample in samples:
        try:
            text = reader.read(sample.path)
        except Exception as error:
            say(f"{reader.name} cannot read {sample.path.name}: {error}")
            text = ""
        grades.append(grade(text, sample.expected, sample.tables))
        if sample.headings:
            found = Counter(markdown_headings(text))
            known = Counter(" ".join(words(each)) for each in sample.headings)
            wanted, right = wanted + known.total(), right + (found & known).total()
            extra += (found - known).total()
        if verbose:
            last = grades[-1]
            figures = (last.f1, last.kept, last.order, last.relations, last.rows)
            shown = " ".join("   – " if each is None else f"{each:.3f}" for each in figures)
            say(f"{sample.path.name:32} {reader.name:12} {shown}")
    pages = sum(each.pages for each in samples)
    return {
        "kind": kind,
        "reader": reader.name,
        "files": len(samples),
        "words kept": fmean(each.kept for each in grades),
        "order": fmean(each.order for each in grades),
        "precision": fmean(each.precision for each in grades),
        "recall": fmean(each.recall for each in grades),
        "F1": fmean(each.f1 for each in grades),
        "lost": sum(each.kept < LOST for each in grades),
        "cell relations": _mean(each.relations for each in grades),
        "rows on a line": _mean(each.rows for each in grades),
        "headings (extra)": f"{right} of {wanted} ({extra})" if wanted else "–",
        "CPU ms/page": 1000 * (_cpu() - before) / pages,
    }


def _mean(figures: Iterable[float | None]) -> float | str:
    known = [each for each in figures if each is not None]
    return fmean(known) if known else "–"


def grade(text: str, expected: str, tables: Sequence[Rows] = ()) -> Grade:
    """Compare a text with the expected one, and its tables with those expected."""
    found, wanted = words(text), words(expected)
    kept = (Counter(found) & Counter(wanted)).total() / len(wanted) if wanted else 1.0
    runs, wanted_runs = _runs(found), _runs(wanted)
    precision, recall, f1 = _overlap(runs, wanted_runs)
    relations = rows = None
    if tables:
        *_, relations = _overlap(_relations(markdown_tables(text)), _relations(tables))
        rows = _on_a_line(text, tables)
    return Grade(kept, order(found, wanted), precision, recall, f1, relations, rows)


def _overlap(found: Counter[T], wanted: Counter[T]) -> tuple[float, float, float]:
    """Precision, recall and F1."""
    common = (found & wanted).total()
    precision = common / found.total() if found else 0.0
    recall = common / wanted.total() if wanted else 1.0
    return precision, recall, 2 * precision * recall / (precision + recall) if common else 0.0


def markdown_tables(text: str) -> list[Rows]:
    """The tables of a Markdown text."""
    tables: list[Rows] = []
    for is_table, lines in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if is_table:
            rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines]
            tables.append([row for row in rows if not set("".join(row)) <= set("-: ")])
    return tables


def markdown_headings(text: str) -> list[str]:
    """The words of each heading of a Markdown text."""
    plain = re.sub(r"(?ms)^(`{3,}).*?^\1", "", text)
    return [" ".join(words(each)) for each in re.findall(r"(?m)^#+ +(.+)$", plain)]


def _relations(tables: Sequence[Rows]) -> Counter[tuple[str, str, str]]:
    """Each cell with the next one that has text, to the right and below."""
    found: Counter[tuple[str, str, str]] = Counter()
    for table in tables:
        cells = [[" ".join(words(cell)) for cell in row] for row in table]
        lines = [("right", row) for row in cells]
        lines += [("below", column) for column in zip_longest(*cells, fillvalue="")]
        for direction, line in lines:
            found.update((*pair, direction) for pair in pairwise(filter(None, line)))
    return found


def _on_a_line(text: str, tables: Sequence[Rows]) -> float:
    """The share of rows of two cells or more whose words are on one line, in this order."""
    lines = [f" {' '.join(words(line))} " for line in text.splitlines()]
    rows = [
        f" {' '.join(words(' '.join(row)))} "
        for table in tables
        for row in table
        if sum(map(bool, row)) > 1
    ]
    return sum(any(row in line for line in lines) for row in rows) / len(rows) if rows else 1.0


def words(text: str) -> list[str]:
    """The words of a text in lower case; each Chinese, Japanese or Korean character is one."""
    return _WORD.findall(text.lower())


def order(found: Sequence[str], wanted: Sequence[str]) -> float:
    """How many of the words that occur once in both can be read in the same order, as a share."""
    places = {word: place for place, word in enumerate(wanted)}
    once = {word for word, times in Counter(wanted).items() if times == 1}
    once &= {word for word, times in Counter(found).items() if times == 1}
    tails: list[int] = []  # tails[i]: the least place at which an increasing run of i + 1 ends
    for word in found:
        if word in once:
            at = bisect_left(tails, places[word])
            tails[at : at + 1] = [places[word]]
    return len(tails) / len(once) if once else float([*found] == [*wanted])


def _runs(some: Sequence[str]) -> Counter[tuple[str, ...]]:
    length = min(RUN, len(some))
    return Counter(
        tuple(some[i : i + length]) for i in range(len(some) - length + 1 if some else 0)
    )


# Scans


def measure_scans(count: int, seed: int) -> list[report.Row]:
    """How OCR of English treats pictures of each kind: right, refused, or wrong and stored."""
    program = Tesseract.found(replace(Config.from_env(), ocr_languages="eng"))
    if not program:
        raise InvalidInput("OCR needs the extra mcpvectordb[ocr]")
    rows = []
    for kind in SCANS:
        outcomes, before = Counter[str](), _cpu()
        for at in range(count):
            picture, expected = scan(kind, seed + at)
            try:
                read = program.read_upright(picture)
            except NoText:
                outcomes["refused"] += 1
                continue
            kept = grade(read.text, expected).kept
            noted = read.confidence < SURE
            outcomes["right" if kept >= RIGHT else "wrong, noted" if noted else "wrong"] += 1
        shown = {each: outcomes[each] for each in ("right", "refused", "wrong, noted", "wrong")}
        milliseconds = 1000 * (_cpu() - before) / count
        rows.append({"picture": kind, "pages": count, **shown, "CPU ms/page": milliseconds})
    return rows


# Readers


def _ours(path: Path) -> str:
    return formats.parse(_source(path)).text


def _trafilatura(path: Path) -> str:
    import trafilatura  # type: ignore[import-not-found, unused-ignore]

    return trafilatura.extract(path.read_bytes(), include_comments=False) or ""


def _readability(path: Path) -> str:
    from lxml import html
    from readability import Document  # type: ignore[import-not-found, unused-ignore]

    return str(html.fromstring(Document(path.read_bytes()).summary()).text_content())


def _markitdown(path: Path) -> str:
    from markitdown import MarkItDown  # type: ignore[import-not-found, unused-ignore]

    return str(MarkItDown().convert(str(path)).text_content)


def _pymupdf4llm(path: Path) -> str:
    import pymupdf4llm  # type: ignore[import-not-found, unused-ignore]

    return str(pymupdf4llm.to_markdown(str(path)))


def _pypdf(path: Path) -> str:
    import pypdf  # type: ignore[import-not-found, unused-ignore]

    return "\n\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)


def _pdfplumber(path: Path) -> str:
    import pdfplumber  # type: ignore[import-not-found, unused-ignore]

    with pdfplumber.open(path) as document:
        return "\n\n".join(page.extract_text() for page in document.pages)


def _pdftotext(path: Path) -> str:
    done = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def _has(module: str) -> Callable[[], bool]:
    return lambda: find_spec(module) is not None


_HTML, _PDF = frozenset(["html", "htm"]), frozenset(["pdf"])
READERS = (
    Reader(OURS, _HTML | _PDF, _ours, lambda: True),
    Reader("trafilatura", _HTML, _trafilatura, _has("trafilatura")),
    Reader("readability", _HTML, _readability, _has("readability")),
    Reader(
        "markitdown",
        _HTML | _PDF | {"docx", "pptx", "xlsx", "epub", "msg"},
        _markitdown,
        _has("markitdown"),
    ),
    Reader("pypdf", _PDF, _pypdf, _has("pypdf")),
    Reader("pdfplumber", _PDF, _pdfplumber, _has("pdfplumber")),
    Reader("pymupdf4llm", _PDF, _pymupdf4llm, _has("pymupdf4llm")),
    Reader("pdftotext", _PDF, _pdftotext, lambda: shutil.which("pdftotext") is not None),
)


def _source(path: Path) -> Source:
    return Source(
        source=str(path), name=path.name, raw=path.read_bytes(), file_type=path.suffix[1:]
    )


def _pages(path: Path) -> int:
    try:
        return max(1, len(formats.parse(_source(path)).pages))
    except MCPVectorDBError:
        return 1


def _cpu() -> float:
    """CPU seconds of this process and of the programs that it ran."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reading", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="a folder of files, each with its expected text as NAME.txt",
    )
    parser.add_argument(
        "--make", type=int, default=0, metavar="COUNT", help="first fill DIR with so many PDFs"
    )
    parser.add_argument(
        "--make-pages",
        type=int,
        default=0,
        metavar="COUNT",
        help="first fill DIR with so many web pages of each kind",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the files that are made [1]")
    parser.add_argument(
        "--reader",
        action="append",
        choices=[each.name for each in READERS],
        help="only this reader [all that are installed]",
    )
    parser.add_argument("--each", action="store_true", help="also the figures of every file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--scans", type=int, default=0, metavar="COUNT", help="measure OCR instead")
    options = parser.parse_args(arguments)
    if not options.data and not options.scans:
        parser.error("--data or --scans is needed")
    return options
