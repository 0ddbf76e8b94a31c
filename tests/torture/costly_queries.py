"""Queries that cost as much as possible, and a large file for them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mcpvectordb import Config, Database, Entry
from mcpvectordb.filters import MAX_CONDITIONS, MAX_MEMBERS
from tests.support import Letters

COMMON = (
    "time people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name"
).split()
PARAGRAPHS, PARAGRAPH = 40, 120  # of a document, and words of one
ENTRY = 5  # paragraphs of a memory

_64 = " ".join(COMMON[:64])
_LETTERS = " ".join(string.ascii_lowercase)

QUERIES = {
    "64 common words": _64,
    "common words again and again": " ".join(COMMON * 4)[:2_000],
    "one word 400 times": "time " * 400,
    "a long phrase": f'"{" ".join(COMMON[:60])}"',
    "many phrases": " ".join(f'"{one} {other}"' for one, other in pairwise(COMMON)),
    "many exclusions": "time " + " ".join(f"-{word}" for word in COMMON[1:64]),
    "all letters": _LETTERS,
    "one letter": "t",
    "a question": f"what is the {COMMON[3]} of {COMMON[8]} and {COMMON[9]}?",
    "many numbers": " ".join(map(str, range(400))),
    "stems": "timeing peopleing waying " * 40,
    "hyphens": "a-b-c-d-" * 250,
    "camels": "aB" * 1_000,
    "Chinese": "数" * 1_000,
    "stars": "*" * 2_000,
    "quotes": '"' * 2_000,
    "parentheses": "(" * 900 + "time" + ")" * 900,
    "100,000 characters": "time " * 20_000,
    "one long word": "x" * 100_000,
    "ORs": " OR ".join(COMMON[:64]),
    "ANDs": " AND ".join(COMMON[:64]),
    "NOTs": " NOT ".join(COMMON[:64]),
    "nested": "".join(
        f"({one} OR {other} AND " for one, other in zip(COMMON[:9], COMMON[9:18], strict=True)
    )
    + "day"
    + ")" * 9,
    "prefixes": " OR ".join(f"{letter}*" for letter in string.ascii_lowercase),
    "two-letter prefixes": " ".join(dict.fromkeys(word[:2] for word in COMMON)),
    "5,000 words": " ".join(f"{word}{number}" for number in range(70) for word in COMMON),
}
PATTERNS = {
    "stars": "*" * 1_000,
    "stars and letters": "*a" * 500,
    "crossing": "**/" * 300 + "x",
    "sets": "[a-z]" * 300,
    "questions": "?" * 500,
    "all": "**/*",
    "braces": "**/" + "{d,e}" * 5,
    "braces with stars": "**/{" + ",".join(f"*{each}*d*" for each in range(32)) + "}",
    "too many braces": "{a,b}" * 30,
    "braces of one": "{a}" * 30_000,
    "braces and a long text": "{a,b}" * 9 + "x" * 99_000,
    "nested braces": "{" * 20_000 + "}" * 20_000,
    "many choices": "{" + ",".join("a" * each for each in range(400)) + "}",
    "negations": "[!a]*" * 200 + "x",
    "many stars with commas": "d*," * 500,
    "many missing names": ",".join(f"zz{each}.md" for each in range(5_000)),
    "200 missing names": ",".join(f"zz{each}/nothing{each}.md" for each in range(200)),
    "200 missing names, encoded": ",".join(f"zz{each}%252Fa{each}.md" for each in range(200)),
    "200 similar names": ",".join(f"default/d{each}x" for each in range(200)),
    "many names": ",".join(f"d{each}" for each in range(1_500)),
}
FILTERS: dict[str, list[dict[str, Any]]] = {
    "nothing of many keys": [
        {"key": f"k{each}", "operator": "not_exists"} for each in range(MAX_CONDITIONS)
    ],
    "contains": [
        {"key": "text", "operator": "contains", "value": letter}
        for letter in "eao " * (MAX_CONDITIONS // 4)
    ],
    "not many texts": [
        {"key": "text", "operator": "ne", "value": "é" * each} for each in range(MAX_CONDITIONS)
    ],
    "not in many lists": [
        {
            "key": "text",
            "operator": "not_in",
            "value": [f"{each} {one}" for one in range(MAX_MEMBERS)],
        }
        for each in range(MAX_CONDITIONS)
    ],
    "arrays": [{"key": "tags", "operator": "array_contains", "value": "a"}] * MAX_CONDITIONS,
    "deep paths": [{"key": ".".join("a" * 30), "operator": "not_exists"}] * MAX_CONDITIONS,
    "too many": [{"key": "text", "operator": "exists"}] * 1_000,
}
VECTOR_FILTERS: dict[str, dict[str, Any]] = {
    "one number": {"n": 5},
    "an absent text": {"text": "x"},
    "many nulls": {f"k{each}": None for each in range(MAX_CONDITIONS)},
    "an array": {"tags": ["a", "b"]},
    "a deep value": {"n": {"a": [[[[[[1]]]]]]}},
    "too many keys": {f"k{number}": number for number in range(1_000)},
}

Burner = tuple[str, str, str, dict[str, Any]]


def _costly_calls() -> Iterator[Burner]:
    """(surface, tool, description, arguments) of every costly call."""
    for what, query in QUERIES.items():
        yield "mcpvectordb", "search", what, {"query": query, "top_k": 100}
        yield (
            "openrag",
            "query_documents",
            what,
            {"query": query[:1_000], "max_results": 100, "min_similarity": 0},
        )
        for tool in ("search", "vsearch", "query"):
            yield "qmd", tool, what, {"query": query, "limit": 100, "minScore": 0}
        for mode in ("match", "prefix", "phrase", "boolean"):
            yield (
                "context_server",
                "fts_search_context",
                f"{what} ({mode})",
                {"query": query, "mode": mode, "limit": 100, "highlight": True},
            )
        for tool in ("semantic_search_context", "hybrid_search_context"):
            yield "context_server", tool, what, {"query": query, "limit": 100}
    for what, filters in FILTERS.items():
        yield "context_server", "search_context", what, {"metadata_filters": filters, "limit": 100}
        for tool in ("fts_search_context", "semantic_search_context", "hybrid_search_context"):
            yield (
                "context_server",
                tool,
                what,
                {"query": "time people", "metadata_filters": filters, "limit": 100},
            )
    yield "context_server", "search_context", "many tags", {"tags": COMMON * 10, "limit": 100}
    for what, offset in (("a far page", 19_000), ("a huge offset", 2**62)):
        yield "context_server", "search_context", what, {"offset": offset, "limit": 100}
    yield (
        "context_server",
        "get_context_by_ids",
        "everything",
        {"context_ids": list(range(1, 20_001))},
    )
    yield "context_server", "get_context_by_ids", "one many times", {"context_ids": [1] * 500_000}
    yield "context_server", "list_threads", "all", {}
    yield "context_server", "get_statistics", "all", {}
    for what, filter in VECTOR_FILTERS.items():
        yield (
            "vector_store",
            "vector_search",
            what,
            {"query": [1.0] * 32, "k": 100, "metadata_filter": filter},
        )
    for what, dimension, k in (
        ("everything", 32, 10**9),
        ("1,000", 32, 1_000),
        ("everything of another dimension", 31, 10**9),
        ("a dimension of 16,384", 16_384, 10),
        ("a dimension of 1,000,000", 1_000_000, 10),
    ):
        yield "vector_store", "vector_search", what, {"query": [1.0] * dimension, "k": k}
    chosen = {
        "a text": {"content": "x"},
        "metadata": {"metadata": {"g": 7}},
        "several": {"title": "x", "page": 0},
    }
    for what, filter in chosen.items():
        yield (
            "mcpvectordb",
            "search",
            f"filtered by {what}",
            {"query": _64, "filter": filter, "top_k": 100},
        )
    for what, pattern in PATTERNS.items():
        yield "qmd", "multi_get", what, {"pattern": pattern}
    for what, file in (
        ("a long name", "x" * 100_000),
        ("many slashes", "d" + "/x" * 49_000),
        ("percents", "%25" * 30_000),
    ):
        yield "qmd", "get", what, {"file": file}
    for tool in ("search", "vsearch", "query"):
        for limit in (1_000, 5_000):
            yield (
                "qmd",
                tool,
                f"{limit:,} results",
                {"query": "time people", "limit": limit, "minScore": 0},
            )
    for tool in ("fts_search_context", "semantic_search_context", "hybrid_search_context"):
        yield (
            "context_server",
            tool,
            "a far page",
            {"query": "time", "limit": 100, "offset": 4_900, "explain_query": True},
        )
    yield "qmd", "status", "all", {}
    yield "mcpvectordb", "list_documents", "1,000", {"limit": 1_000}
    yield "openrag", "list_documents", "all", {}
    yield "openrag", "get_stats", "all", {}


COSTLY_CALLS: tuple[Burner, ...] = tuple(_costly_calls())


@contextmanager
def large_file(path: Path, chunks: int) -> Iterator[Database]:
    """A file with `chunks` chunks of documents, as many of memories, and as many vectors.

    The frequencies of its words follow Zipf's law; the most common ones are in nearly every chunk.
    """
    rng, spread = random.Random("a large file"), np.random.default_rng(0)
    rare = [
        "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9)))
        for _ in range(30_000 - len(COMMON))
    ]
    words = np.array(COMMON + rare)
    shares = np.cumsum(1 / np.arange(1, len(words) + 1) ** 1.05)

    def paragraph() -> str:
        return " ".join(words[np.searchsorted(shares, spread.random(PARAGRAPH) * shares[-1])]) + "."

    with Database(
        path, embedder=Letters(), config=Config(rerank_memories=False, models_dir=str(path.parent))
    ) as db:
        while (found := db.stats()).chunks < chunks:
            db.documents.ingest_text(
                "\n\n".join(paragraph() for _ in range(PARAGRAPHS)),
                source=f"d{found.documents}",
                embed=False,
                metadata={"g": found.documents % 100},
            )
        for start in range(0, chunks // ENTRY, 100):
            db.memories.add_many(
                [
                    Entry(
                        thread=f"t{(start + each) % 50}",
                        source="user",
                        text="\n\n".join(paragraph() for _ in range(ENTRY)),
                        tags=[rng.choice(COMMON)],
                        metadata={
                            "n": each,
                            "tags": ["a", "b"],
                            "text": " ".join(rng.choices(COMMON, k=8)),
                        },
                    )
                    for each in range(min(100, chunks // ENTRY - start))
                ]
            )
        db.vectors.add_many(
            map(str, range(chunks)),
            spread.normal(size=(chunks, 32)).astype(np.float32),
            metadata=[
                {"n": each, "tags": ["a", "b"], "text": " ".join(rng.choices(COMMON, k=8))}
                for each in range(chunks)
            ],
        )
        db.embed_pending()
        yield db
