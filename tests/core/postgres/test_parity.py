"""The same random content, questions, filters and pages: a file and PostgreSQL answer alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters, scaled
from tests.support_parity import differences
from tests.support_postgres import LocalPostgres

WORDS = (
    "tea teas green greenish brew brewed brewing water the of and not pump start error E-4021 4021 "
    "v1.0.21 1.0.21 parseHTMLDocument html_document don't Straße STRASSE naïve naive 東京都 京都 東 "
    "한국어 हिन्दी İstanbul running run runs x a 7 2024 tea-time c++ meeting meetings"
).split()
SHORT = Config(chunk_size=32, chunk_overlap=8)
SMALL = Config(chunk_size=32, chunk_overlap=8, embeddings="float16")
LIBRARIES = ["default", "notes", "naïve"]


def text_of(rng: random.Random, words: int) -> str:
    """Random words, some of them in lines, below headings and often repeated."""
    lines = []
    while words > 0:
        count = min(words, rng.randint(1, 9))
        line = " ".join(rng.choice(WORDS) for _ in range(count))
        lines.append(f"## {line}" if rng.random() < 0.15 else line + rng.choice(["", ".", "?"]))
        words -= count
    return "\n\n".join(lines)


def fill(db: Database, rng: random.Random) -> None:
    """Put random documents, memories and vectors into a file."""
    known = [text_of(rng, rng.choice([1, 3, 8, 30, 90])) for _ in range(rng.randint(1, 12))]
    for number in range(rng.randint(0, 14)):
        db.documents.ingest_text(
            rng.choice(known),
            title=rng.choice(["", text_of(rng, 3)]) or "untitled",
            source=f"folder/{rng.choice(WORDS)}/n{number}.{rng.choice(['md', 'txt'])}",
            library=rng.choice(LIBRARIES),
            metadata=rng.choice([{}, {"year": rng.randint(2019, 2022), "tags": ["a", "b"]}]),
        )
    for _ in range(rng.randint(0, 8)):
        db.memories.add(
            rng.choice(["t1", "t2"]),
            rng.choice(["user", "agent"]),
            rng.choice([*known, text_of(rng, 5)]),
            tags=rng.choice([None, ["tea"], ["pump", "tea"]]),
            metadata=rng.choice([None, {"status": rng.choice(["Open", "done"])}]),
        )
    for number in range(rng.randint(0, 9)):
        store = rng.choice(["default", "dots", "far"])
        metric: Any = {"default": "cosine", "dots": "dot", "far": "euclidean"}[store]
        numbers = [
            rng.choice([0.0, 1.0, -2.5, 0.1, 1e-7, 3e8]) for _ in range(rng.choice([3, 3, 4]))
        ]
        db.vectors.add(
            f"v{number}",
            numbers,
            store=store,
            namespace=rng.choice(["", "n"]),
            metadata={"n": number},
            metric=metric,
        )


def query(rng: random.Random) -> str:
    """Words, quoted phrases and exclusions."""
    parts = []
    for _ in range(rng.randint(1, 6)):
        word = rng.choice(WORDS)
        parts.append(
            rng.choice([word] * 6 + [f'"{word} {rng.choice(WORDS)}"', f"-{word}", word[:2]])
        )
    return " ".join(parts)


def boolean(rng: random.Random, depth: int = 2) -> str:
    if not depth or rng.random() < 0.3:
        word = rng.choice(WORDS)
        return rng.choice([word, word, f'"{word} {rng.choice(WORDS)}"', f"{word[:3]}*"])
    sign = rng.choice(["AND", "OR", "NOT", ""])
    return f"({boolean(rng, depth - 1)} {sign} {boolean(rng, depth - 1)})"


def where(rng: random.Random) -> Any:
    return rng.choice(
        [
            None,
            None,
            {"metadata.year": {"gte": 2020}},
            {"metadata.tags": {"array_contains": "a"}, "metadata.year": {"in": [2019, "2021"]}},
            {"title": {"contains": "tea"}},
            [("source", "ends_with", ".MD", False)],
            {"metadata.missing": {"not_exists": True}},
            {"metadata.year": {"ne": 2020}},
            {"metadata.tags": {"exists": True}, "metadata.year": {"not_in": [2019]}},
            {"path": {"starts_with": "notes/"}},
            {"size": {"gt": 40}},
            {"created_at": {"gte": "yesterday"}},
            {"metadata.nothing": 1},
            {"nonsense": 1},
        ]
    )


Question = Callable[[Database], Any]


def searches(rng: random.Random) -> Iterator[tuple[str, Question]]:
    """Questions of every kind, with what they are."""
    for _ in range(10):
        options: dict[str, Any] = {
            "mode": rng.choice(["hybrid", "text", "vector"]),
            "unit": rng.choice(["passage", "passage", "document"]),
            "library": rng.choice([None, None, *LIBRARIES, "nowhere"]),
            "where": where(rng),
            "limit": rng.choice([1, 3, 10, 40]),
            "offset": rng.choice([0, 0, 2]),
            "plain": rng.random() < 0.1,
            "group": rng.random() < 0.2,
            "fold": rng.random() < 0.2,
        }
        options["expand"] = options["unit"] == "document" and rng.random() < 0.5
        text = query(rng)
        yield (
            f"documents {text!r} {options}",
            lambda db, text=text, options=options: (  # type: ignore[misc]
                db.documents.search(text, **options)
            ),
        )
    for _ in range(6):
        words = rng.choice(["match", "prefix", "phrase", "boolean"])
        text = boolean(rng) if words == "boolean" else query(rng)
        options = {
            "words": words,
            "mode": rng.choice(["text", "hybrid"]),
            "limit": rng.choice([1, 5]),
            "tags": rng.choice([None, None, ["tea"]]),
            "thread": rng.choice([None, "t1"]),
            "where": rng.choice([None, None, [("metadata.status", "eq", "open", False)]]),
            "highlight": True,
        }
        yield (
            f"contexts {text!r} {options}",
            lambda db, text=text, options=options: (  # type: ignore[misc]
                db.memories.search(text, **options)
            ),
        )
    for _ in range(3):
        numbers = [rng.choice([0.0, 1.0, 2.0, -1.0]) for _ in range(rng.choice([3, 4]))]
        options = {
            "store": rng.choice(["default", "dots", "far", "none"]),
            "namespace": rng.choice([None, "n"]),
            "where": rng.choice([None, {"metadata.n": {"lt": 5}}]),
            "limit": rng.choice([2, 20]),
        }
        yield (
            f"vectors {numbers} {options}",
            lambda db, numbers=numbers, options=options: (  # type: ignore[misc]
                db.vectors.search(numbers, **options)
            ),
        )


def listings(rng: random.Random) -> Iterator[tuple[str, Question]]:
    """Everything that lists, counts and reads."""
    for _ in range(3):
        options: dict[str, Any] = {
            "where": where(rng),
            "sort": rng.choice(["newest", "oldest", "title", "path", "size", "modified"]),
            "limit": rng.choice([2, 50]),
            "offset": rng.choice([0, 1]),
        }
        yield f"browse {options}", lambda db, options=options: db.documents.browse(**options)  # type: ignore[misc]
    chosen = where(rng)
    yield f"count {chosen}", lambda db: db.documents.count(where=chosen)
    yield "libraries", lambda db: db.documents.libraries()
    yield "types", lambda db: db.documents.values("file_type")
    yield "coverage", lambda db: db.documents.coverage()
    yield "paths", lambda db: [each.path for each in db.documents.matching("**")]
    yield (
        "texts",
        lambda db: [
            (
                db.documents.text(each.id),
                db.documents.outline(each.id),
                db.documents.chunks(each.id),
            )
            for each in db.documents.browse(limit=100)
        ],
    )
    yield "folders", lambda db: db.documents.values("folder")
    yield "contexts", lambda db: db.memories.browse(limit=50, images=True)
    yield (
        "threads",
        lambda db: (db.memories.threads(), db.memories.values("tag"), db.memories.values("day")),
    )
    yield "vectors", lambda db: (db.vectors.browse(store=None), db.vectors.stores())
    name = rng.choice(WORDS)
    yield f"lookup {name}", lambda db: db.documents.lookup(f"{name}/n3.md")
    yield "grep", lambda db: db.grep("tea")
    yield "joint", lambda db: db.search(query(random.Random(name)), limit=8)
    yield "missing", lambda db: db.documents.get("nobody")


@settings(max_examples=scaled(12))
@given(seed=st.integers(0, 2**32))
def test_a_published_file_gives_the_answers_of_the_file(postgres: LocalPostgres, seed: int) -> None:
    rng = random.Random(seed)
    config = SMALL if seed % 4 == 1 else SHORT
    with (
        postgres.database() as url,
        Database(":memory:", config=config, embedder=Letters()) as file,
    ):
        fill(file, rng)
        file.publish(url, origin="one")
        # With no row in a list, what ranks first is tested by the filter.
        tuning = Tuning(engine_rows=rng.choice([20_000, 0]))
        with Database(url, config=SHORT, embedder=Letters(), tuning=tuning) as engine:
            for name, question in [*searches(rng), *listings(rng)]:
                assert not differences(question, file, engine), name
