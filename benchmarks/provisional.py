"""What provisional embeddings are worth: `python -m benchmarks provisional`.

With `--data DIR` (BEIR layout, may be repeated): nDCG@10 while 0, 50 and 100 % of a collection are
embedded by the file's model, with the static model's embeddings for the rest and without. Which
documents are embedded is drawn at random, the same ones every time. Without it: the CPU time until
so many small files can be asked by meaning, with provisional embeddings and by the model alone.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from benchmarks import metrics, texts
from benchmarks.collection import Collection, Entry, load
from benchmarks.quality import sample, searches
from benchmarks.store import say
from mcpvectordb import Chunk, Config, Database, Results

Figures = dict[str, float]
SEED = 5
SHARES = (0, 50, 100)
MODES = ("vector", "hybrid")
DEPTH = 50  # passages that are asked for: the best ten documents are among them
QUESTION = "how do I read a file line by line"


@dataclass(frozen=True, slots=True)
class Quality:
    """nDCG@10 of one mode while so many per cent of a collection are embedded."""

    data: str
    model: str
    mode: str
    share: int
    without: float
    provisional: float


@dataclass(frozen=True, slots=True)
class Delay:
    """CPU seconds until small files can be asked by meaning, and milliseconds of one question."""

    files: int
    way: str
    ingest: float
    question: float
    passages: int
    by_meaning: int


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="provisional-") as temporary:
        folder = Path(temporary)
        found: list[Quality] | list[Delay]
        if options.data:
            collections = [load(each) for each in options.data]
            found = list(qualities(collections, options.model, options.queries, folder))
        else:
            found = [each for count in options.files for each in delays(count, options, folder)]
    if options.json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        print(table(found))


def qualities(
    collections: Sequence[Collection], models: Sequence[str], queries: int | None, folder: Path
) -> Iterator[Quality]:
    """The figures of every collection, model, share and mode."""
    for model in models or [""]:
        for collection in collections:
            asked = sample(collection.queries, queries)
            for share in SHARES:
                path = folder / f"{collection.name}-{model}-{share}.db"
                name = _fill(path, collection.corpus, model, share)
                found = {
                    provisional: _ndcg(path, collection, asked, Config(provisional=provisional))
                    for provisional in (False, True)
                }
                for mode in MODES:
                    figures = found[False][mode], found[True][mode]
                    say(f"{collection.name} {name} {mode} {share} %: {figures}")
                    yield Quality(collection.name, name, mode, share, *figures)


def _fill(path: Path, corpus: Sequence[Entry], model: str, share: int) -> str:
    """Make a file of which this share of the documents is embedded; the name of its model."""
    entries = [each for each in corpus if (each.text or each.title).strip()]
    random.Random(SEED).shuffle(entries)
    border = len(entries) * share // 100
    with Database(path, config=Config(model=model, provisional=True)) as db:
        for some, embed in ((entries[:border], True), (entries[border:], False)):
            db.documents.ingest_many(
                [each.text if each.text.strip() else each.title for each in some],
                sources=[each.id for each in some],
                titles=[each.title.strip() or None for each in some],
                embed=embed,
            )
        return db.stats().model


def _ndcg(path: Path, collection: Collection, asked: dict[str, str], config: Config) -> Figures:
    """nDCG@10 by mode, 0 where the mode cannot search anything."""
    with Database(path, config=config) as db:
        figures = {}
        for mode in MODES:
            ask = searches(db, mode)
            graded = (
                metrics.ndcg(_documents(ask(text, limit=DEPTH)), collection.judged[id], 10)
                for id, text in asked.items()
            )
            figures[mode] = round(fmean(graded), 4)
        return figures


def _documents(found: Results[Chunk]) -> list[str]:
    return list(dict.fromkeys(hit.item.document.source for hit in found))


def delays(count: int, options: argparse.Namespace, folder: Path) -> Iterator[Delay]:
    """The figures of so many small files, with provisional embeddings and without."""
    files = folder / f"{count} files"
    files.mkdir()
    for number, text in enumerate(texts.passages(count)):
        (files / f"{number}.txt").write_text(text, encoding="utf-8")
    for way in ("words only", "provisional", "embedded"):
        if way == "embedded" and count > options.embed_up_to:
            continue
        config = Config(model=(options.model or [""])[0], provisional=way == "provisional")
        with Database(folder / f"{count} {way}.db", config=config) as db:
            began = time.process_time()
            db.documents.ingest_folder(files, embed=way == "embedded")
            spent = time.process_time() - began
            say(f"{count:,} files, {way}: {spent:.1f} s")
            db.documents.search(QUESTION)
            began = time.process_time()
            found = db.documents.search(QUESTION)
            question = 1000 * (time.process_time() - began)
            passages, waiting = db.stats().chunks, found.backlog.pending
            known = passages - waiting + found.backlog.provisional
            yield Delay(count, way, round(spent, 2), round(question, 1), passages, known)


def table(found: Sequence[Quality] | Sequence[Delay]) -> str:
    """The figures as a Markdown table."""
    if not found:
        return ""
    names = list(asdict(found[0]))
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(str(each) for each in asdict(row).values())} |" for row in found]
    return "\n".join(lines)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks provisional", description=__doc__)
    parser.add_argument(
        "--data", type=Path, action="append", metavar="DIR", help="a folder in BEIR layout"
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="an embedding model [the best one installed]",
    )
    parser.add_argument("--queries", type=int, metavar="N", help="ask a sample of N queries [all]")
    parser.add_argument(
        "--files", type=int, nargs="+", default=[1_000, 10_000], metavar="N", help="how many files"
    )
    parser.add_argument(
        "--embed-up-to",
        type=int,
        default=1_000,
        metavar="N",
        help="embed by the model for comparison if there are no more files than this [1000]",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
