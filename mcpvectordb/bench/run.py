"""How well the passages of a file are found again, measured on the file itself: nobody has to
judge, nothing is written.

Known-item queries (see `known_items`) are asked in every mode. The same queries then try other
vector weights and, on a sample of the documents in memory, other chunk sizes. What cannot be told
from chance is not advised.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from mcpvectordb.bench import known_items
from mcpvectordb.bench.advice import FEWEST_QUERIES, Comparison, comparison
from mcpvectordb.bench.known_items import KINDS, Item
from mcpvectordb.config import Config
from mcpvectordb.database import Database
from mcpvectordb.documents import rows
from mcpvectordb.documents.search import DocumentQuery
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT
from mcpvectordb.records import Chunk, Progress, ProgressCallback, Results
from mcpvectordb.text.tokens import is_non_latin

PAGE = 10  # results that are looked at
FEWEST_PASSAGES = 3 * PAGE  # with fewer, everything is among the first ten
RERANKED = 24  # queries that a cross-encoder reads: it needs a second for each
WEIGHTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SAMPLED_TOKENS = 60_000  # of text that is embedded again for each chunk size: some 300 chunks
SPANS = 50  # queries of either kind that try chunk sizes
BUDGET = 4_000  # characters of results that are read, whatever the chunks' size
ENOUGH = 200  # chunks that exceed the budget

LIMITS = (
    "The queries are made of the passages' own words, which favours words over meaning: questions "
    "in other words than the text's may rank the modes otherwise."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """One mode on the queries of one kind ("all" for all of them); times in milliseconds."""

    mode: str
    kind: str
    queries: int
    recall_1: float
    recall_10: float
    mrr_10: float
    p50: float
    p95: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What `bench` found out; `queries` counts those of each kind, `notes` say what to know about
    the figures.
    """

    path: str
    library: str | None
    documents: int
    passages: int
    model: str
    chunk_size: int
    chunk_overlap: int
    seed: int
    queries: Mapping[str, int]
    figures: tuple[Figures, ...]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query's answer: the rank of what it should find (None below the tenth), and how long it
    took.
    """

    item: Item
    rank: int | None
    milliseconds: float

    @property
    def reciprocal(self) -> float:
        """1 / rank, or 0."""
        return 1 / self.rank if self.rank else 0.0


def bench(
    path: str | os.PathLike[str],
    *,
    config: Config | None = None,
    embedder: Embedder | None = None,
    library: str | None = None,
    queries: int = 100,
    seed: int = 0,
    chunking: bool = True,
    progress: ProgressCallback | None = None,
) -> Report:
    """Measure searches on a file, with about so many queries made from a sample of its passages.

    The file is opened for reading only. `library` keeps to one library. With `chunking`, some
    documents are embedded again in memory in chunks of half and of twice the size, which takes most
    of the time. The same seed asks the same queries.
    """
    if queries < len(KINDS):
        raise InvalidInput(f"queries must be {len(KINDS)} or more, not {queries}")
    with Database(
        path, config=replace(config or Config(), read_only=True), embedder=embedder
    ) as db:
        return _Bench(db, embedder, library, seed, progress).report(queries, chunking)


class _Bench:
    """A file being measured."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder | None,
        library: str | None,
        seed: int,
        progress: ProgressCallback | None,
    ) -> None:
        self._db, self._embedder, self._library, self._seed = db, embedder, library, seed
        self._progress = progress or (lambda _: None)
        self._notes = [LIMITS]

    def report(self, queries: int, chunking: bool) -> Report:
        documents, passages = self._extent()
        items = self._items(queries, passages)
        by_mode = self._by_mode(items, self._modes())
        comparisons = []
        if "hybrid" in by_mode:
            comparisons += self._weights(items)
            comparisons += self._reranker(by_mode)
            comparisons += self._chunk_sizes(items) if chunking else []
        stats = self._db.stats()
        return Report(
            path=stats.path,
            library=self._library,
            documents=documents,
            passages=passages,
            model=stats.model,
            chunk_size=stats.chunk_size,
            chunk_overlap=stats.chunk_overlap,
            seed=self._seed,
            queries={kind: sum(item.kind == kind for item in items) for kind in KINDS},
            figures=tuple(
                figures(mode, kind, some)
                for mode, asked in by_mode.items()
                for kind, some in _kinds(asked)
            ),
            comparisons=tuple(comparisons),
            notes=tuple(self._notes),
        )

    def _extent(self) -> tuple[int, int]:
        """How many documents and passages there are to be found."""
        libraries = [
            each for each in self._db.documents.libraries() if self._library in (None, each.name)
        ]
        documents, passages = (
            sum(each.documents for each in libraries),
            sum(each.chunks for each in libraries),
        )
        where = str(self._db.path) if self._library is None else f"the library {self._library!r}"
        if not documents:
            raise InvalidInput(f"there are no documents in {where}: ingest some first")
        if passages < FEWEST_PASSAGES:
            raise InvalidInput(
                f"there are {passages} passages in {where}, too few to measure searches: with less "
                f"than {FEWEST_PASSAGES} nearly everything is among the first ten"
            )
        return documents, passages

    def _items(self, queries: int, passages: int) -> list[Item]:
        with self._db._file.reading() as sql:
            items = known_items.sample(
                sql,
                self._db._indexes[0],
                max(1, queries // len(KINDS)),
                seed=self._seed,
                library=self._library,
            )
        if not items:
            raise InvalidInput(
                f"none of the {passages} passages has a title, heading or words of its own to ask "
                f"for"
            )
        if len(items) < FEWEST_QUERIES:
            self._notes.append(
                f"Only {len(items)} queries could be asked: their figures are a matter of luck."
            )
        return items

    def _modes(self) -> list[str]:
        """The modes that the file can be searched in; what is lacking for others is noted."""
        coverage = self._db.documents.coverage()
        lacking = self._db.documents.search("what is it", mode="vector", limit=1).reasons.get(
            "vector", ""
        )
        if not coverage.embedded:
            lacking = lacking or "no document is wholly embedded yet: run `mcpvectordb embed`"
        if lacking:
            self._notes.append(f"Searched by words only: {lacking}")
            return ["text"]
        if coverage.waiting:
            self._notes.append(
                f"{coverage.waiting} documents wait for embeddings and are found by words only "
                "until `mcpvectordb embed` has run."
            )
        if not_reranked := self._db._reranker.missing_reason():
            self._notes.append(f"Not reranked: {not_reranked}")
            return ["text", "vector", "hybrid"]
        return ["text", "vector", "hybrid", "rerank"]

    def _by_mode(self, items: Sequence[Item], modes: Sequence[str]) -> dict[str, list[Asked]]:
        by_mode: dict[str, list[Asked]] = {}
        for mode in modes:
            some = items if mode != "rerank" else spaced(items, RERANKED)
            self._search(some[0], mode)  # what is loaded first is not timed
            by_mode[mode] = []
            for number, item in enumerate(some, 1):
                begin = time.perf_counter()
                results = self._search(item, mode)
                by_mode[mode].append(
                    Asked(item, _rank(item, results), 1000 * (time.perf_counter() - begin))
                )
                self._say(f"searching ({mode})", number, len(some))
        return by_mode

    def _search(self, item: Item, mode: str) -> Results[Chunk]:
        return self._db.documents.search(
            item.query,
            mode="hybrid" if mode == "rerank" else mode,
            library=self._library,
            limit=PAGE,
            rerank=mode == "rerank",
        )

    def _weights(self, items: Sequence[Item]) -> list[Comparison]:
        """Other weights on the same embeddings of the queries; the weight says nothing where a
        model cannot read a query.
        """
        scores: dict[float, list[float]] = {}
        current = 0.0
        for number, item in enumerate(items, 1):
            query_embedding = self._db._encoder.query_embedding(item.query, wait=True)
            if not isinstance(query_embedding, str) and not (
                query_embedding.weight == BLIND_VECTOR_WEIGHT and is_non_latin(item.query)
            ):
                current = query_embedding.weight
                for weight in {*WEIGHTS, current}:
                    results = self._db.documents._search.chunks(
                        DocumentQuery(
                            text=item.query,
                            mode="hybrid",
                            query_embedding=replace(query_embedding, weight=weight),
                            filter=rows.document_filter(self._library, None, chunks=True),
                            limit=PAGE,
                        )
                    )
                    scores.setdefault(weight, []).append(
                        Asked(item, _rank(item, results), 0).reciprocal
                    )
            self._say("trying weights", number, len(items))
        return [comparison("vector_weight", "MRR@10", current, scores)] if scores else []

    def _reranker(self, by_mode: Mapping[str, Sequence[Asked]]) -> list[Comparison]:
        """Whether a second look puts the right passage higher."""
        again = {asked.item: asked.reciprocal for asked in by_mode.get("rerank", [])}
        if not again:
            return []
        first = [asked.reciprocal for asked in by_mode["hybrid"] if asked.item in again]
        return [comparison("rerank", "MRR@10", 0, {0: first, 1: list(again.values())})]

    def _chunk_sizes(self, items: Sequence[Item]) -> list[Comparison]:
        """Half and twice the size, on documents that are chunked and embedded anew in memory."""
        size = self._db.stats().chunk_size
        pool = self._pool(items, size)
        with self._chunked(pool, size) as db:
            asked = self._spans(db)
            shares: dict[float, list[float]] = {size: self._shares(db, asked)}
        if len(asked) < FEWEST_QUERIES:
            self._notes.append(
                "Chunk sizes are not compared: there is too little text with words of its own."
            )
            return []
        for other in sorted({max(16, size // 2), min(2000, size * 2)} - {size}):
            with self._chunked(pool, other) as db:
                shares[other] = self._shares(db, asked)
        return [
            comparison(
                "chunk_size",
                f"share of a passage in the first {BUDGET:,} characters found",
                size,
                shares,
            )
        ]

    def _pool(self, items: Sequence[Item], size: int) -> list[tuple[str, str, str]]:
        """(source, title, text) of documents, not too long together; the sources are numbered to be
        different.
        """
        pool = []
        room = SAMPLED_TOKENS
        ids = list(dict.fromkeys(item.document for item in items))
        for number, id in enumerate(Random(self._seed).sample(ids, len(ids))):  # noqa: S311 - no secret
            document, text = self._db.documents.get(id), self._db.documents.text(id)
            tokens = size * document.chunks
            pool.append(
                (
                    f"{number}/{document.source}",
                    document.title,
                    text[: len(text) * room // max(room, tokens)],
                )
            )
            room -= tokens
            if room <= 0:
                break
        return [each for each in pool if each[2].strip()]

    @contextlib.contextmanager
    def _chunked(self, pool: Sequence[tuple[str, str, str]], size: int) -> Iterator[Database]:
        stats = self._db.stats()
        config = replace(
            self._db.config,
            read_only=False,
            model="" if self._embedder else stats.model,
            chunk_size=size,
            chunk_overlap=min(stats.chunk_overlap, size // 2),
        )
        with Database(":memory:", config=config, embedder=self._embedder) as db:
            for source, title, text in pool:
                db.documents.ingest_text(text, source=source, title=title, embed=False)
            db.embed_pending(
                progress=lambda step: self._say(
                    f"embedding chunks of {size} tokens", step.done, step.total
                )
            )
            yield db

    def _spans(self, db: Database) -> list[Item]:
        """Items with a place in the text that is not bound to chunks, by the sources of their
        documents.
        """
        with db._file.reading() as sql:
            items = known_items.sample(
                sql, db._indexes[0], SPANS, kinds=("terms", "sentence"), seed=self._seed
            )
        return [replace(item, document=db.documents.get(item.document).source) for item in items]

    def _shares(self, db: Database, items: Sequence[Item]) -> list[float]:
        return [share(item, db.documents.search(item.query, limit=ENOUGH)) for item in items]

    def _say(self, step: str, done: int, total: int | None) -> None:
        self._progress(Progress(step=step, done=done, total=total))


# Pure arithmetic.


def figures(mode: str, kind: str, asked: Sequence[Asked]) -> Figures:
    """The figures of some answers."""
    times = sorted(each.milliseconds for each in asked)
    return Figures(
        mode=mode,
        kind=kind,
        queries=len(asked),
        recall_1=fmean(each.rank == 1 for each in asked),
        recall_10=fmean(each.rank is not None for each in asked),
        mrr_10=fmean(each.reciprocal for each in asked),
        p50=percentile(times, 0.5),
        p95=percentile(times, 0.95),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the values that is at least as large as this share of them."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spaced(items: Sequence[Item], wanted: int) -> list[Item]:
    """So many of the items, evenly from all of them."""
    return (
        [items[i * len(items) // wanted] for i in range(wanted)]
        if wanted < len(items)
        else list(items)
    )


def share(item: Item, results: Results[Chunk]) -> float:
    """How much of a passage is in the first characters of the results; its document is known by its
    source.
    """
    room = BUDGET
    covered: set[int] = set()
    for chunk in (hit.item for hit in results):
        end = min(chunk.end, chunk.start + room)
        if chunk.document.source == item.document:
            covered.update(range(max(chunk.start, item.start), min(end, item.end)))
        room -= end - chunk.start
    return len(covered) / (item.end - item.start)


def _rank(item: Item, results: Results[Chunk]) -> int | None:
    return next((rank for rank, hit in enumerate(results, 1) if item.found_in(hit.item)), None)


def _kinds(asked: Sequence[Asked]) -> list[tuple[str, list[Asked]]]:
    kinds = [(kind, [each for each in asked if each.item.kind == kind]) for kind in KINDS]
    return [*((kind, some) for kind, some in kinds if some), ("all", list(asked))]
