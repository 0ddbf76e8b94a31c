"""How well files are read: `python -m benchmarks reading --data DIR`.

DIR holds files and, beside each, the text that is expected of it: `NAME.html` and `NAME.txt`,
`NAME.pdf` and `NAME.txt`. This library reads them beside the other readers that are installed.
Words are compared without markup; a file that cannot be read counts as empty.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import resource
import shutil
import subprocess
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from benchmarks import report
from benchmarks.store import say
from mcpvectordb import InvalidInput, MCPVectorDBError
from mcpvectordb.ingest import formats
from mcpvectordb.records import Source

OURS = "mcpvectordb"
RUN = 4  # words in a row that are compared for the F1 of a text
LOST = 0.5  # of the expected words; with fewer, the text is lost
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Sample:
    """A file, its expected text, and its number of pages."""

    path: Path
    expected: str
    pages: int


@dataclass(frozen=True, slots=True)
class Grade:
    """How well one text was read.

    - kept: share of the expected words that are there.
    - order: share of the words that occur once in both texts and follow each other in both.
    - f1: harmonic mean of precision and recall of runs of four words.
    """

    kept: float
    order: float
    precision: float
    recall: float
    f1: float


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
    samples = load(options.data)
    readers = [each for each in READERS if each.installed()]
    if options.reader:
        readers = [each for each in readers if each.name in options.reader]
    rows = []
    for kind in sorted({each.path.suffix[1:] for each in samples}):
        some = [each for each in samples if each.path.suffix[1:] == kind]
        for reader in readers:
            if kind in reader.kinds or reader.name == OURS:
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
        if path.suffix != ".txt" and path.is_file() and expected.exists():
            samples.append(Sample(path, expected.read_text("utf-8"), _pages(path)))
    if not samples:
        raise InvalidInput(f"{folder} has no file with an expected text (NAME.txt) beside it")
    return samples


def measure(kind: str, reader: Reader, samples: Sequence[Sample], *, verbose: bool) -> report.Row:
    """The means of a reader over files of one kind."""
    with contextlib.suppress(Exception):
        reader.read(samples[0].path)  # imports are not what is measured
    grades, before = [], _cpu()
    for sample in samples:
        try:
            text = reader.read(sample.path)
        except Exception as error:
            say(f"{reader.name} cannot read {sample.path.name}: {error}")
            text = ""
        grades.append(grade(text, sample.expected))
        if verbose:
            say(f"{sample.path.name:32} {reader.name:12} {grades[-1].f1:.3f} {grades[-1].kept:.3f}")
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
        "CPU ms/page": 1000 * (_cpu() - before) / pages,
    }


def grade(text: str, expected: str) -> Grade:
    """Compare a text with the expected one."""
    found, wanted = words(text), words(expected)
    kept = (Counter(found) & Counter(wanted)).total() / len(wanted) if wanted else 1.0
    runs, wanted_runs = _runs(found), _runs(wanted)
    common = (runs & wanted_runs).total()
    precision = common / runs.total() if runs else 0.0
    recall = common / wanted_runs.total() if wanted_runs else 1.0
    f1 = 2 * precision * recall / (precision + recall) if common else 0.0
    return Grade(kept, order(found, wanted), precision, recall, f1)


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
        required=True,
        metavar="DIR",
        help="a folder of files, each with its expected text as NAME.txt",
    )
    parser.add_argument(
        "--reader",
        action="append",
        choices=[each.name for each in READERS],
        help="only this reader [all that are installed]",
    )
    parser.add_argument("--each", action="store_true", help="also the figures of every file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
