"""Measures how well searches find the passages of a file; the file is not changed.

Known-item queries (see `known_items`) are asked in every mode, so nobody has to judge the results.
The same queries then try other vector weights and, on a sample of the documents in memory, other
chunk sizes. A value is advised only if chance does not explain the difference (see `advice`).
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
from mcpvectordb.bench.known_items import KINDS, KnownItem
from mcpvectordb.config import Config
from mcpvectordb.database import Database
from mcpvectordb.documents import rows
from mcpvectordb.documents.search import DocumentQuestion
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.errors import InvalidInput
from mcpvectordb.index.encoder import BLIND_VECTOR_WEIGHT
from mcpvectordb.records import Chunk, Progress, ProgressCallback, Results
from mcpvectordb.search.ranker import checked_mode
from mcpvectordb.text.tokens import is_non_latin

PAGE = 10  # results of a query that count
FEWEST_PASSAGES = 3 * PAGE  # with fewer, nearly everything is among the first ten results
WEIGHTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
# Chunk sizes are compared by the first so many characters of the results, which is what an agent
# reads of them; so many chunks of any size have more.
BUDGET, BUDGET_CHUNKS = 4_000, 200

LIMITS = (
    "The queries are made of words of the passages, which favours keyword search over vector "
    "search: with questions in other words, the modes may rank differently."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchSizes:
    """How much is measured.

    reranked_queries  queries for the cross-encoder, which takes about a second for each
    sampled_tokens    text that is embedded again for each chunk size; the default is about 300
                      chunks
    span_queries      queries of either kind that compare chunk sizes
    """

    reranked_queries: int = 24
    sampled_tokens: int = 60_000
    span_queries: int = 50


DEFAULT_SIZES = BenchSizes()


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
    """The result of `bench`; `queries` counts those of each kind, `notes` qualify the figures."""

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
class ItemRank:
    """The rank at which a query found its item (None below the tenth), and how long it took."""

    item: KnownItem
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
    sizes: BenchSizes = DEFAULT_SIZES,
) -> Report:
    """Measure searches of a file by about so many queries, made from a sample of its passages.

    The file is opened for reading only. `library` restricts queries and searches to one library.
    With `chunking`, some documents are embedded again in memory, in chunks of half and of twice the
    size, which takes most of the time. The same seed gives the same queries.
    """
    if queries < len(KINDS):
        raise InvalidInput(f"queries must be {len(KINDS)} or more, not {queries}")
    with Database(
        path, config=replace(config or Config(), read_only=True), embedder=embedder
    ) as db:
        return _Bench(db, embedder, library, seed, progress, sizes).report(queries, chunking)


class _Bench:
    """A file being measured."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder | None,
        library: str | None,
        seed: int,
        progress: ProgressCallback | None,
        sizes: BenchSizes,
    ) -> None:
        self._db, self._embedder, self._library, self._seed = db, embedder, library, seed
        self._progress = progress or (lambda _: None)
        self._sizes = sizes
        self._notes = [LIMITS]

    def report(self, queries: int, chunking: bool) -> Report:
        documents, passages = self._extent()
        items = self._items(queries, passages)
        by_mode = self._by_mode(items, self._modes())
        comparisons = []
        if "hybrid" in by_mode:
            comparisons += self._weights(items)
            comparisons += self._reranking(by_mode)
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
                for mode, ranks in by_mode.items()
                for kind, some in _by_kind(ranks)
            ),
            comparisons=tuple(comparisons),
            notes=tuple(self._notes),
        )

    def _extent(self) -> tuple[int, int]:
        """The number of documents and passages that are searched; raises if they are too few."""
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

    def _items(self, queries: int, passages: int) -> list[KnownItem]:
        count = max(1, queries // len(KINDS))
        items = _sample(self._db, count, KINDS, seed=self._seed, library=self._library)
        if not items:
            raise InvalidInput(
                f"none of the {passages} passages has a title, a heading or words that no other "
                "passage has, so there is nothing to ask for"
            )
        if len(items) < FEWEST_QUERIES:
            self._notes.append(
                f"Only {len(items)} queries could be made: too few for figures to rely on."
            )
        return items

    def _modes(self) -> list[str]:
        """The modes in which the file can be searched; notes say why others are missing."""
        coverage = self._db.documents.coverage()
        trial = self._db.documents.search("what is it", mode="vector", limit=1)
        reason = trial.reasons.get("vector", "")
        if not coverage.embedded:
            reason = reason or "no document is completely embedded yet: run `mcpvectordb embed`"
        if reason:
            self._notes.append(f"Keyword search only: {reason}")
            return ["text"]
        if waiting := coverage.partly + coverage.waiting:
            self._notes.append(
                f"{waiting} documents are not completely embedded yet: vector search does not find "
                "all of them until `mcpvectordb embed` has run."
            )
        if reason := self._db._store.reranker.missing_reason():
            self._notes.append(f"Not reranked: {reason}")
            return ["text", "vector", "hybrid"]
        return ["text", "vector", "hybrid", "rerank"]

    def _by_mode(
        self, items: Sequence[KnownItem], modes: Sequence[str]
    ) -> dict[str, list[ItemRank]]:
        by_mode: dict[str, list[ItemRank]] = {}
        for mode in modes:
            some = items if mode != "rerank" else spaced(items, self._sizes.reranked_queries)
            # The first search of a mode also loads models and indexes, and is not timed.
            self._search(some[0], mode)
            by_mode[mode] = []
            for number, item in enumerate(some, 1):
                begin = time.perf_counter()
                results = self._search(item, mode)
                milliseconds = 1000 * (time.perf_counter() - begin)
                by_mode[mode].append(ItemRank(item, _rank(item, results), milliseconds))
                self._report_progress(f"searching ({mode})", number, len(some))
        return by_mode

    def _search(self, item: KnownItem, mode: str) -> Results[Chunk]:
        return self._db.documents.search(
            item.query,
            mode="hybrid" if mode == "rerank" else checked_mode(mode),
            library=self._library,
            limit=PAGE,
            rerank=mode == "rerank",
        )

    def _weights(self, items: Sequence[KnownItem]) -> list[Comparison]:
        """Other vector weights on the same queries, each of which is embedded once.

        Queries that the model cannot read are left out, because their weight is fixed.
        """
        scores: dict[float, list[float]] = {}
        current = 0.0
        for number, item in enumerate(items, 1):
            embedding = self._db._encoder.query_embedding(item.query, wait=True)
            if not isinstance(embedding, str) and not (
                embedding.weight == BLIND_VECTOR_WEIGHT and is_non_latin(item.query)
            ):
                current = embedding.weight
                for weight in {*WEIGHTS, current}:
                    question = DocumentQuestion(
                        text=item.query,
                        mode="hybrid",
                        query_embedding=replace(embedding, weight=weight),
                        filter=rows.document_filter(self._library, None, chunks=True),
                        limit=PAGE,
                    )
                    rank = _rank(item, self._db.documents._search.chunks(question))
                    scores.setdefault(weight, []).append(ItemRank(item, rank, 0).reciprocal)
            self._report_progress("trying weights", number, len(items))
        return [comparison("vector_weight", "MRR@10", current, scores)] if scores else []

    def _reranking(self, by_mode: Mapping[str, Sequence[ItemRank]]) -> list[Comparison]:
        """Whether the cross-encoder ranks the right passage higher."""
        reranked = {each.item: each.reciprocal for each in by_mode.get("rerank", [])}
        if not reranked:
            return []
        before = [each.reciprocal for each in by_mode["hybrid"] if each.item in reranked]
        return [comparison("rerank", "MRR@10", 0, {0: before, 1: list(reranked.values())})]

    def _chunk_sizes(self, items: Sequence[KnownItem]) -> list[Comparison]:
        """Half and twice the size, on documents that are chunked and embedded again in memory."""
        size = self._db.stats().chunk_size
        documents = self._sample_documents(items, size)
        with self._chunked(documents, size) as db:
            spans = self._spans(db)
            shares: dict[float, list[float]] = {size: _shares(db, spans)}
        if len(spans) < FEWEST_QUERIES:
            self._notes.append(
                "Chunk sizes are not compared: too few passages have words that no other has."
            )
            return []
        for other in sorted({max(16, size // 2), min(2000, size * 2)} - {size}):
            with self._chunked(documents, other) as db:
                shares[other] = _shares(db, spans)
        return [
            comparison(
                "chunk_size",
                f"share of a passage in the first {BUDGET:,} characters of the results",
                size,
                shares,
            )
        ]

    def _sample_documents(
        self, items: Sequence[KnownItem], size: int
    ) -> list[tuple[str, str, str]]:
        """(source, title, text) of some documents, up to `sampled_tokens`; sources get a number.

        The number makes them different where two libraries have the same source.
        """
        sampled = []
        room = self._sizes.sampled_tokens
        ids = list(dict.fromkeys(item.document for item in items))
        for number, id in enumerate(Random(self._seed).sample(ids, len(ids))):  # noqa: S311 - no secret
            document, text = self._db.documents.get(id), self._db.documents.text(id)
            tokens = size * document.chunks
            part = text[: len(text) * room // max(room, tokens)]
            sampled.append((f"{number}/{document.source}", document.title, part))
            room -= tokens
            if room <= 0:
                break
        return [each for each in sampled if each[2].strip()]

    @contextlib.contextmanager
    def _chunked(self, documents: Sequence[tuple[str, str, str]], size: int) -> Iterator[Database]:
        """A database in memory with these documents in chunks of another size."""
        stats = self._db.stats()
        config = replace(
            self._db.config,
            read_only=False,
            model="" if self._embedder else stats.model,
            chunk_size=size,
            chunk_overlap=min(stats.chunk_overlap, size // 2),
        )
        with Database(":memory:", config=config, embedder=self._embedder) as db:
            for source, title, text in documents:
                db.documents.ingest_text(text, source=source, title=title, embed=False)
            db.embed_pending(
                progress=lambda step: self._report_progress(
                    f"embedding chunks of {size} tokens", step.done, step.total
                )
            )
            yield db

    def _spans(self, db: Database) -> list[KnownItem]:
        """Items that do not depend on how a text is chunked; `document` is a source, not an id."""
        kinds = ("terms", "sentence")
        items = _sample(db, self._sizes.span_queries, kinds, seed=self._seed)
        return [replace(item, document=db.documents.get(item.document).source) for item in items]

    def _report_progress(self, step: str, done: int, total: int | None) -> None:
        self._progress(Progress(step=step, done=done, total=total))


def _sample(
    db: Database, count: int, kinds: Sequence[str], *, seed: int, library: str | None = None
) -> list[KnownItem]:
    with db._file.reading(limited=False) as sql:
        return known_items.sample(
            sql, db._indexes[0], count, kinds=kinds, seed=seed, library=library
        )


def _shares(db: Database, items: Sequence[KnownItem]) -> list[float]:
    return [share(item, db.documents.search(item.query, limit=BUDGET_CHUNKS)) for item in items]


def figures(mode: str, kind: str, ranks: Sequence[ItemRank]) -> Figures:
    """The figures of some queries."""
    times = sorted(each.milliseconds for each in ranks)
    return Figures(
        mode=mode,
        kind=kind,
        queries=len(ranks),
        recall_1=fmean(each.rank == 1 for each in ranks),
        recall_10=fmean(each.rank is not None for each in ranks),
        mrr_10=fmean(each.reciprocal for each in ranks),
        p50=percentile(times, 0.5),
        p95=percentile(times, 0.95),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as this share of the values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spaced(items: Sequence[KnownItem], wanted: int) -> list[KnownItem]:
    """`wanted` of the items, evenly spaced; all of them if they are fewer."""
    return (
        [items[i * len(items) // wanted] for i in range(wanted)]
        if wanted < len(items)
        else list(items)
    )


def share(item: KnownItem, results: Results[Chunk]) -> float:
    """How much of a passage is in the first BUDGET characters of the results, from 0 to 1.

    `item.document` is the source of its document.
    """
    room = BUDGET
    covered: set[int] = set()
    for chunk in (hit.item for hit in results):
        end = min(chunk.end, chunk.start + room)
        if chunk.document.source == item.document:
            covered.update(range(max(chunk.start, item.start), min(end, item.end)))
        room -= end - chunk.start
    return len(covered) / (item.end - item.start)


def _rank(item: KnownItem, results: Results[Chunk]) -> int | None:
    return next((rank for rank, hit in enumerate(results, 1) if item.found_in(hit.item)), None)


def _by_kind(ranks: Sequence[ItemRank]) -> list[tuple[str, list[ItemRank]]]:
    kinds = [(kind, [each for each in ranks if each.item.kind == kind]) for kind in KINDS]
    return [*((kind, some) for kind, some in kinds if some), ("all", list(ranks))]
