"""Whether a folder of mixed files keeps all processors busy: `python -m benchmarks mixed`.

Files of eight kinds are made (texts, web pages, tables, sheets, Word, PDF, scans, and a long text
that comes last) and brought in by the shell. Every fifth of a second the threads of all its
processes are counted that run or could run, at most as many as there are processors: so the share
does not depend on what else the machine does. Of these, threads of the shell's own process that
embed, its main thread, the parser and OCR are told apart; a stage that is rarely there waits for
others.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks import report, texts
from benchmarks.processes import ROOT
from benchmarks.store import say
from mcpvectordb import InvalidInput
from mcpvectordb.embedding.embedder import processors

STEP = 0.2  # seconds
PARTS = 10
SCAN_SHARE, PDF_PAGES = 20, 4  # one file of so many is a scan


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    if not Path("/proc/self/task").exists():
        raise InvalidInput("the threads of other processes are counted on Linux only")
    with tempfile.TemporaryDirectory(prefix="mixed-") as temporary:
        folder = Path(temporary)
        say(f"making {options.files} files")
        kinds = plant(folder / "files", options.files)
        seen, seconds, cpu = watched(folder, options.model)
    parts = [
        seen[part * len(seen) // PARTS : (part + 1) * len(seen) // PARTS] for part in range(PARTS)
    ]
    rows = [line(part, some) for part, some in enumerate(parts) if some]
    wanted = fmean(_busy(each) for each in seen)
    report.show(
        rows,
        [
            ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) + ".",
            f"{seconds:.1f} s, {cpu:.1f} CPU s. On average {wanted:.0%} of {processors()} "
            "processors were wanted.",
        ],
        as_json=options.json,
    )


def plant(folder: Path, count: int) -> Counter[str]:
    """Write so many files; how many of each extension."""
    import docx
    import openpyxl
    import pymupdf

    folder.mkdir()
    bodies, choice = texts.passages(12 * count), random.Random(1)
    for number in range(count - 1):
        body = "\n\n".join(choice.sample(bodies, 6))
        rows = [[str(number), *line.split()[:4]] for line in body.splitlines() if line.strip()]
        path = folder / f"{number:04}"
        if number % SCAN_SHARE == 7 or number % 10 == 3:
            scan, document = number % SCAN_SHARE == 7, pymupdf.open()
            for _ in range(1 if scan else PDF_PAGES):
                page, text = document.new_page(), "\n\n".join(choice.sample(bodies, 3))
                page.insert_textbox((60, 60, 540, 780), text[:1_800], fontsize=10)
            if scan:
                document[0].get_pixmap(dpi=250).save(f"{path}.png")
            else:
                document.save(f"{path}.pdf")
        elif number % 10 == 1:
            kept = docx.Document()
            kept.add_heading(f"Document {number}")
            for paragraph in body.split("\n\n"):
                kept.add_paragraph("".join(each for each in paragraph if each.isprintable()))
            kept.save(f"{path}.docx")
        elif number % 20 == 5:
            book = openpyxl.Workbook(write_only=True)
            sheet = book.create_sheet("Values")
            for row in rows:
                sheet.append([each for each in row if each.isprintable()])
            book.save(f"{path}.xlsx")
        elif number % 20 == 15:
            table = io.StringIO()
            csv.writer(table).writerows(rows)
            path.with_suffix(".csv").write_text(table.getvalue())
        elif number % 5 == 4:
            paragraphs = "".join(f"<p>{_escaped(each)}</p>" for each in body.split("\n\n"))
            path.with_suffix(".html").write_text(f"<main><h1>{number}</h1>{paragraphs}</main>")
        else:
            path.with_suffix(".md" if number % 2 else ".txt").write_text(body)
    (folder / "last.txt").write_text("\n\n".join(choice.sample(bodies, min(300, 6 * count))))
    return Counter(path.suffix[1:] for path in folder.iterdir())


def watched(folder: Path, model: str) -> tuple[list[Counter[str]], float, float]:
    """At each look the threads that want a processor, by stage; seconds; CPU seconds."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("MCPVECTORDB_")}
    own = {"MCPVECTORDB_MODEL": model} if model else {}
    # Without pages that OCR has read before.
    own |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "mcpvectordb", "--db", str(folder / "mixed.db"), "ingest"]
    began, seen = time.perf_counter(), []
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen(
            [*command, str(folder / "files")], stdout=printed, stderr=printed, env=clean | own
        )
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            seen.append(Counter(_wanting(process.pid)))
            time.sleep(STEP)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InvalidInput((folder / "printed").read_text()[-800:])
    say((folder / "printed").read_text().splitlines()[-1])
    return seen, time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def line(part: int, some: list[Counter[str]]) -> report.Row:
    """The figures of one of ten parts of the time."""
    stages = {
        stage: fmean(each[stage] for each in some)
        for stage in ("main thread", "embedding", "parser", "OCR")
    }
    return {
        "of the time": f"{100 * part // PARTS} to {100 * (part + 1) // PARTS} %",
        "processors wanted": f"{fmean(map(_busy, some)):.0%}",
        **stages,
    }


def _busy(wanting: Counter[str]) -> float:
    return min(sum(wanting.values()), processors()) / processors()


def _wanting(root: int) -> Iterator[str]:
    """The stage of each thread that runs or could run, of a process and those that it started."""
    for pid in [root, *_below(root)]:
        for task in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                name, _, rest = task.read_text().partition("(")[2].rpartition(")")
            except OSError:  # it ended
                continue
            if rest.split()[0] == "R":
                main = task.parent.name == str(pid)
                own = "main thread" if main else "embedding"
                yield own if pid == root else "OCR" if "tesseract" in name else "parser"


def _below(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in Path(f"/proc/{pid}/task").iterdir():
            if task.name != str(pid):
                children += (task / "children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *_below(child))]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixed", description=__doc__)
    parser.add_argument("--files", type=int, default=300, metavar="N", help="[300]")
    parser.add_argument("--model", default="", help="[the best one installed]")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)
