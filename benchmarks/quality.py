"""How well searches find what people judged relevant: `python -m benchmarks quality --data DIR`.

Each entry of a collection is ingested as a document. A query ranks documents by their best chunk.
Modes: text, vector and hybrid; grouped and folded are hybrid with these options, varied with both;
desk is what that surface searches by, `Database.search`; rerank is hybrid with the cross-encoder's
second look, query is a hybrid search for documents with expansion and the cross-encoder. Beside
what is found stand how many different documents the first ten results have, and the share of
queries of which it is said that nothing relevant was found.
Questions for versions, codes and headings are in tests/benchmarks/codes.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks import metrics
from benchmarks.collection import Collection, load
from benchmarks.store import Filled, filled, say
from mcpvectordb import Chunk, Config, Database, InvalidInput, Results
from mcpvectordb.config import PRECISIONS

QUICK, SLOW = ("text", "vector", "hybrid"), ("rerank", "query")
VARIED = ("grouped", "folded", "varied")
SEED = 8
DEPTH = 100  # documents that are looked at
PAGE = 10  # results that a person asks for: the time per query is the time for these


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one mode on one collection; times in milliseconds, rates per second."""

    data: str
    model: str
    embeddings: str
    mode: str
    queries: int
    ndcg_10: float
    recall_10: float
    recall_100: float
    mrr_10: float
    documents_10: float
    false_verdicts: float
    p50: float
    p95: float
    chunks: int
    chunks_per_second: float
    bytes: int


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="quality-") as temporary:
        cache = options.cache or Path(temporary)
        outcomes = []
        for outcome in measure(
            options.data,
            options.model or [""],
            options.mode or list(QUICK),
            cache,
            options.queries,
            options.embeddings,
        ):
            outcomes.append(outcome)
            say(f"{outcome.data} {outcome.model} {outcome.mode}: nDCG@10 {outcome.ndcg_10:.4f}")
    print(
        json.dumps([asdict(each) for each in outcomes], indent=2)
        if options.json
        else table(outcomes)
    )


def measure(
    folders: list[Path],
    models: list[str],
    modes: list[str],
    cache: Path,
    queries: int | None = None,
    embeddings: str = "",
) -> Iterator[Outcome]:
    """Every mode on every collection with every model, on all queries or a sample of so many."""
    collections = [load(folder) for folder in folders]
    for model in models:
        for collection in collections:
            say(f"{collection.name}: {len(collection.corpus):,} documents")
            config = Config(model=model, embeddings=embeddings)
            file = filled(cache, collection.digest, collection.corpus, config)
            with Database(file.path, config=config) as db:
                for mode in modes:
                    yield grade(db, file, collection, mode, queries)


def grade(
    db: Database, file: Filled, collection: Collection, mode: str, queries: int | None = None
) -> Outcome:
    """Ask the collection's queries in one mode and compare the answers with the judgments."""
    ask = searches(db, mode)
    if mode in SLOW:
        # forgets what an earlier run asked the cross-encoder, which would make this one quick
        db.compact()
    first = ask("what is it", limit=1)  # a model loads once, not per query
    if mode == "rerank" and "rerank" not in first.legs:
        raise InvalidInput(f"nothing can be reranked: {first.reasons['rerank']}")
    asked = sample(collection.queries, queries)
    judged = [collection.judged[id] for id in asked]
    answers = [ranked(ask, text) for text in asked.values()]

    def mean(measure: metrics.Measure, depth: int) -> float:
        graded = zip(answers, judged, strict=True)
        return round(fmean(measure(each.documents, known, depth) for each, known in graded), 4)

    times = [1000 * each.seconds for each in answers]
    return Outcome(
        data=collection.name,
        model=file.model,
        embeddings=db.stats().embeddings,
        mode=mode,
        queries=len(asked),
        ndcg_10=mean(metrics.ndcg, 10),
        recall_10=mean(metrics.recall, 10),
        recall_100=mean(metrics.recall, DEPTH),
        mrr_10=mean(metrics.reciprocal_rank, 10),
        documents_10=round(fmean(each.first_page for each in answers), 2),
        false_verdicts=round(fmean(each.verdict for each in answers), 4),
        p50=round(metrics.percentile(times, 0.5), 1),
        p95=round(metrics.percentile(times, 0.95), 1),
        chunks=file.chunks,
        chunks_per_second=round(file.chunks / file.seconds, 1),
        bytes=file.bytes,
    )


def sample(queries: dict[str, str], wanted: int | None) -> dict[str, str]:
    """So many of the queries, always the same ones, in their order."""
    if wanted is None or wanted >= len(queries):
        return queries
    chosen = set(random.Random(SEED).sample(sorted(queries), wanted))
    return {id: text for id, text in queries.items() if id in chosen}


def searches(db: Database, mode: str) -> Callable[..., Results[Chunk]]:
    """The search that a mode means."""
    if mode == "desk":
        return partial(db.search, kind="documents")
    if mode == "query":
        return partial(db.documents.search, unit="document", fusion="rrf", expand=True, rerank=True)
    if mode in VARIED:
        return partial(db.documents.search, group=mode != "folded", fold=mode != "grouped")
    return partial(
        db.documents.search, mode="hybrid" if mode == "rerank" else mode, rerank=mode == "rerank"
    )


class Answer(NamedTuple):
    """The sources of the first documents for a query, and what its first page is like."""

    documents: list[str]
    first_page: int  # different documents
    verdict: bool
    seconds: float


def ranked(ask: Callable[..., Results[Chunk]], query: str) -> Answer:
    """The answer to a query."""
    begin = time.perf_counter()
    page = ask(query, limit=PAGE)
    seconds = time.perf_counter() - begin
    first = len({hit.item.document.source for hit in page})
    limit = 2 * DEPTH
    while True:
        hits = ask(query, limit=limit)
        documents = list(dict.fromkeys(_sources(hits)))
        if len(documents) >= DEPTH or len(hits) < limit:
            return Answer(documents[:DEPTH], first, bool(page.verdict), seconds)
        limit *= 2


def _sources(hits: Results[Chunk]) -> Iterator[str]:
    """The documents of hits, each followed by those of the passages that it stands for."""
    for hit in hits:
        yield hit.item.document.source
        yield from (each.document.source for each in hit.folded)


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = [
        "| collection | model | mode | queries | nDCG@10 | Recall@10 | Recall@100 | MRR@10 | "
        "documents@10 | false verdicts | ms p50 | ms p95 | chunks | chunks/s | MB |",
        "|---|---|---|" + "--:|" * 12,
    ]
    lines += [
        f"| {o.data} | {_model(o)} | {o.mode} | {o.queries} | {o.ndcg_10:.3f} | "
        f"{o.recall_10:.3f} | {o.recall_100:.3f} | {o.mrr_10:.3f} | {o.documents_10:.1f} | "
        f"{o.false_verdicts:.3f} | {o.p50:.1f} | {o.p95:.1f} | {o.chunks} | "
        f"{o.chunks_per_second:.0f} | {o.bytes / 1e6:.1f} |"
        for o in outcomes
    ]
    return "\n".join(lines)


def _model(outcome: Outcome) -> str:
    """The model, and how its embeddings were stored where that is not the usual way."""
    usual = outcome.embeddings == PRECISIONS[0]
    return outcome.model if usual else f"{outcome.model}, {outcome.embeddings}"


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        required=True,
        metavar="DIR",
        help="a folder in BEIR layout",
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="an embedding model [the best one installed]",
    )
    parser.add_argument(
        "--mode",
        action="append",
        choices=(*QUICK, *VARIED, "desk", *SLOW),
        help=f"how to search [{', '.join(QUICK)}]",
    )
    parser.add_argument(
        "--embeddings", choices=PRECISIONS, default="", help="how they are stored [float32]"
    )
    parser.add_argument("--queries", type=int, metavar="N", help="ask a sample of N queries [all]")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="keep the filled databases here for the next run"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
