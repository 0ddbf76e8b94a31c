"""What questions to PostgreSQL find and cost: `python -m benchmarks published`.

With --data, collections in BEIR layout are ingested, published, and asked in the file and in the
engine: nDCG@10 of both, and of how many questions the first ten passages are the same ones in the
same order. With --sizes, passages of texts on this machine are published, and questions are asked
of so many: words of one passage, or common words, by words, by meaning (by --model, or else by
embeddings that are sums of random vectors of their words) and by both. CPU time is that of the
process that asks and of the server's processes; recall is that of the ten nearest against all
embeddings compared; --plans adds the plan of each statement. Without --url a server is started from
the wheel that tests use.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import metrics, report, texts
from benchmarks.collection import Collection, load
from benchmarks.memories import Sums
from benchmarks.postgres import Server, started
from benchmarks.store import filled, say
from mcpvectordb import Chunk, Config, Database, Results
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.text.tokens import ENGLISH

MODES = ("text", "vector", "hybrid", "document")
FIRST = 10
QUESTIONS = 40  # of each kind, for times
COMMON = 6  # of the commonest words that are no stop words, in one question
SEED = 24


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    compared: list[report.Row] = []
    grown: list[report.Row] = []
    plans: list[str] = []
    with started(options.url) as engine, tempfile.TemporaryDirectory(prefix="pub-") as temporary:
        for folder in options.data:
            cache = options.cache or Path(temporary)
            compared += _compared(engine, load(folder), cache, options.model)
        for size in options.sizes:
            grown += _grown(
                engine, size, Path(temporary), options.model, plans if options.plans else None
            )
    for rows, notes in ((compared, []), (grown, plans)):
        if rows:
            report.show(rows, notes, as_json=options.json)


# The same answers.


def _compared(engine: Server, data: Collection, cache: Path, model: str) -> Iterator[report.Row]:
    config = Config(model=model)
    file = filled(cache, data.digest, data.corpus, config)
    with Database(file.path, config=config) as db, engine.database() as url:
        say(f"publishing {data.name}")
        db.publish(url, origin=data.name)
        with Database(url, config=config) as published:
            for mode in MODES:
                say(f"{data.name}: {mode}")
                yield _row(data, mode, db, published)


def _row(data: Collection, mode: str, db: Database, published: Database) -> report.Row:
    answers = [
        ([ask(each, mode, text) for text in data.queries.values()]) for each in (db, published)
    ]
    of_file, of_engine = ([_ids(found) for found in each] for each in answers)
    gaps = [
        abs(one.score - other.score)
        for found, its in zip(*answers, strict=True)
        for one, other in zip(found, its, strict=False)
    ]
    return {
        "collection": data.name,
        "search": mode,
        "questions": len(data.queries),
        "nDCG@10 of the file": _ndcg(data, answers[0]),
        "of the engine": _ndcg(data, answers[1]),
        "same first ten": sum(a == b for a, b in zip(of_file, of_engine, strict=True)),
        "largest difference of a score": f"{max(gaps, default=0.0):.1e}",
    }


def ask(db: Database, mode: str, text: str) -> Results[Chunk]:
    """The first ten passages, or the first ten documents with an expanded query."""
    if mode == "document":
        return db.documents.search(text, unit="document", fusion="rrf", expand=True, limit=FIRST)
    kind: Any = mode
    return db.documents.search(text, mode=kind, limit=FIRST)


def _ids(found: Results[Chunk]) -> list[int]:
    return [hit.item.id for hit in found]


def _ndcg(data: Collection, answers: Sequence[Results[Chunk]]) -> float:
    return fmean(
        metrics.ndcg(
            list(dict.fromkeys(hit.item.document.source for hit in found)),
            data.judged[query],
            FIRST,
        )
        for query, found in zip(data.queries, answers, strict=True)
    )


# The cost of a question.


def _grown(
    engine: Server, size: int, folder: Path, model: str, plans: list[str] | None
) -> Iterator[report.Row]:
    bodies, numbers = texts.passages(size), range(size)
    opened: dict[str, Any] = {"config": Config(model=model)} if model else {"embedder": Sums()}
    with Database(folder / f"{size}.db", **opened) as db, engine.database() as url:
        say(f"writing a file of {size:,} passages")
        db.documents.ingest_many(
            bodies,
            sources=list(map(str, numbers)),
            titles=[f"Text {number}" for number in numbers],
            metadata=[{"tenth": each % 10, "thousandth": each % 1000} for each in numbers],
        )
        say(f"publishing {size:,} passages")
        db.publish(url)
        every = Tuning(engine_rows=10**9)
        with Database(url, **opened) as published, Database(url, tuning=every, **opened) as exact:
            yield from _costs(engine, published, bodies, db, exact, plans)


def _costs(
    engine: Server,
    db: Database,
    bodies: Sequence[str],
    file: Database,
    exact: Database,
    plans: list[str] | None,
) -> Iterator[report.Row]:
    rng = random.Random(SEED)
    own = [_words_of(rng, rng.choice(bodies)) for _ in range(QUESTIONS)]
    frequent = _commonest(bodies)
    common = [" ".join(rng.sample(frequent, COMMON)) for _ in own]
    tenth, thousandth = {"metadata.tenth": 3}, {"metadata.thousandth": 3}
    for name, asked, options in (
        ("words of a passage", own, {"mode": "text"}),
        ("common words", common, {"mode": "text"}),
        ("meaning", own, {"mode": "vector"}),
        ("meaning, filter of a tenth", own, {"mode": "vector", "where": tenth}),
        ("meaning, filter of a thousandth", own, {"mode": "vector", "where": thousandth}),
        ("both", own, {"mode": "hybrid"}),
        ("both, filter of a tenth", own, {"mode": "hybrid", "where": tenth}),
    ):
        say(f"{len(bodies):,} passages: {name}")
        search = partial(db.documents.search, limit=FIRST, **options)  # type: ignore[arg-type]
        search(asked[0])
        began, spent, theirs = time.perf_counter(), time.process_time(), engine.cpu()
        found = [search(text) for text in asked]
        its = partial(file.documents.search, limit=FIRST, **options)  # type: ignore[arg-type]
        count = len(asked)
        row = {
            "passages": len(bodies),
            "question": name,
            "ms": 1000 * (time.perf_counter() - began) / count,
            "CPU ms of the process": 1000 * (time.process_time() - spent) / count,
            "of the server": 1000 * (engine.cpu() - theirs) / count,
            "same first ten as the file": sum(
                _ids(each) == _ids(its(text)) for text, each in zip(asked, found, strict=True)
            )
            / count,
            "recall of the first ten": _recall(exact, asked, found, options),
        }
        yield row
        if plans is not None:
            plans += _plans(db, f"{len(bodies):,} passages: {name}", partial(search, asked[0]))


def _recall(
    exact: Database,
    asked: Sequence[str],
    found: Sequence[Results[Chunk]],
    options: Mapping[str, Any],
) -> float | None:
    """The share of the nearest ten, of all that are compared, that were found."""
    if options["mode"] != "vector":
        return None
    where = options.get("where", {"metadata.tenth": {"gte": 0}})  # a filter that all fulfil
    shares = []
    for text, each in zip(asked, found, strict=True):
        nearest = _ids(exact.documents.search(text, mode="vector", where=where, limit=FIRST))
        shares.append(len(set(nearest) & set(_ids(each))) / len(nearest) if nearest else 1.0)
    return fmean(shares)


def _commonest(bodies: Sequence[str]) -> list[str]:
    """The twenty words that most passages have, without stop words, which searches leave out."""
    having = Counter(
        word
        for body in bodies
        for word in set(body.casefold().split())
        if word.isalpha() and word not in ENGLISH
    )
    return [word for word, _ in having.most_common(20)]


def _words_of(rng: random.Random, text: str) -> str:
    words = [each for each in text.split() if each.isalpha() and len(each) > 3] or text.split()
    return " ".join(rng.sample(words, min(5, len(words))))


def _plans(db: Database, name: str, search: Callable[[], object]) -> Iterator[str]:
    """The plans of the statements of a question that take longer than a millisecond."""
    statements: list[tuple[str, Any]] = []
    with db._file.reading() as sql:
        session: Any = sql
        session.exec_trace = lambda _, statement, bindings: statements.append((statement, bindings))
        try:
            search()
        finally:
            session.exec_trace = None
        for statement, bindings in statements:
            if statement.lstrip().startswith(("SELECT", "WITH")):
                lines = [
                    line
                    for (line,) in sql.execute(
                        f"EXPLAIN (ANALYZE, COSTS OFF, BUFFERS OFF) {statement}", bindings
                    )
                ]
                if float(lines[-1].split()[2]) >= 1.0:
                    yield "\n".join([f"--- {name}", " ".join(statement.split())[:300], *lines, ""])


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks published", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--sizes", type=int, nargs="+", default=[], metavar="N")
    parser.add_argument("--model", default="", help="an embedding model [the best one installed]")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep the filled files here")
    parser.add_argument("--url", help="the URL of a server's administrator")
    parser.add_argument("--plans", action="store_true", help="print the plans of the statements")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)
