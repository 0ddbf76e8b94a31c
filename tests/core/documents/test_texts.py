from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import (
    Config,
    Database,
    Exists,
    Ingested,
    InvalidInput,
    NoText,
    Progress,
    Source,
    TooLarge,
)
from tests.support import Letters

TEXTS = [
    "# Tea\n\nGreen tea.",
    "def pour():\n    return 1\n",
    "---\nyear: 2024\n---\nOld.",
    "Plain.",
]
SOURCES = ["tea.md", "pour.py", "old.md", "notes/plain"]
TITLES = [None, "Pouring", None, None]
METADATA: list[dict[str, Any] | None] = [{"kind": "drink"}, None, {"year": 2026}, {}]


class Counting(Letters):
    """Remembers how many passages each call embeds."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.calls.append(len(texts))
        return super().embed(texts, query=query)


def facts(done: Ingested) -> tuple[object, ...]:
    document = done.document
    return (
        done.status,
        document.source,
        document.title,
        document.library,
        document.file_type,
        document.hash,
        document.metadata,
        document.chunks,
        done.pending,
        done.note,
    )


def test_many_texts_are_stored_as_one_by_one() -> None:
    with (
        Database(":memory:", embedder=Letters()) as db,
        Database(":memory:", embedder=Letters()) as other,
    ):
        for texts in (TEXTS, TEXTS, [*TEXTS[:3], "Replaced."], [f"{TEXTS[0]} Hot.", *TEXTS[1:]]):
            many = db.documents.ingest_many(
                iter(texts),
                sources=iter(SOURCES),
                titles=TITLES,
                metadata=METADATA,
                library="shelf",
            )
            one_by_one = [
                other.documents.ingest_text(
                    text, source=source, title=title, metadata=metadata, library="shelf"
                )
                for text, source, title, metadata in zip(
                    texts, SOURCES, TITLES, METADATA, strict=True
                )
            ]
            assert [facts(each) for each in many] == [facts(each) for each in one_by_one]
            for mine, its in zip(many, one_by_one, strict=True):
                assert db.documents.text(mine.document.id) == other.documents.text(its.document.id)
        assert db.check() == []


@pytest.mark.parametrize("source", ["a.md", "a.py", "a"])
@pytest.mark.parametrize(
    "text", ["\x00 \n\n", "\x00t\x00e", "t\x00e\x00", "\ufefftea", "\r\ntea\r"]
)
def test_a_text_is_never_taken_for_another_encoding(text: str, source: str) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        done = db.documents.ingest_text(text, source=source)
        assert db.documents.text(done.document.id) == text


def test_many_texts_take_few_transactions_and_are_embedded_together(path: Path) -> None:
    embedder, steps = Counting(), list[Progress]()
    with Database(path, embedder=embedder) as db:
        done = db.documents.ingest_many(
            [f"note {number}" for number in range(100)],
            sources=[f"{number}.md" for number in range(100)],
            progress=steps.append,
        )
        assert [each.document.source for each in done] == [f"{number}.md" for number in range(100)]
        assert {(each.status, each.pending, each.note) for each in done} == {("indexed", 0, "")}
        assert [each.done for each in steps if each.step == "ingest"] == [32, 64, 96, 100]
        assert sum(embedder.calls) == 100 and len(embedder.calls) <= 4
        assert db.documents.search("note 42", mode="text")[0].item.document.source == "42.md"


def test_a_transaction_has_few_chunks_also_if_the_texts_are_long(path: Path) -> None:
    steps = list[Progress]()
    long = "\n\n".join(f"Paragraph {number} about tea and its leaves." * 8 for number in range(160))
    with Database(path, embedder=Letters()) as db:
        done = db.documents.ingest_many(
            [f"{long} {number}" for number in range(4)],
            sources=["a", "b", "c", "d"],
            embed=False,
            progress=steps.append,
        )
        assert all(each.document.chunks > 32 and each.pending for each in done)
        assert max(np.diff([0, *(each.done for each in steps)])) <= 2


def test_an_interrupted_call_is_continued_by_the_same_one(path: Path) -> None:
    texts, sources = [f"note {n}" for n in range(40)], [f"{n}.md" for n in range(40)]

    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with Database(path, embedder=Letters()) as db:
        with pytest.raises(KeyboardInterrupt):
            db.documents.ingest_many(texts, sources=sources, progress=interrupt)
        assert db.documents.count() == 32
        done = db.documents.ingest_many(texts, sources=sources)
        assert [each.status for each in done] == ["skipped"] * 32 + ["indexed"] * 8
        assert db.stats().pending == 0 and db.check() == []


def test_a_missing_model_is_said_of_each_text(path: Path) -> None:
    with Database(path, config=Config(model="nomic-embed-text-v1.5", models_dir="none")) as db:
        done = db.documents.ingest_many(["tea", "pie"], sources=["a", "b"])
        assert all(each.pending and "found by words, but not yet" in each.note for each in done)


@pytest.mark.parametrize("words", [1, 20_000])  # written in one transaction, and in several
def test_without_replace_another_text_of_the_same_name_stays(words: int) -> None:
    first, second = ("first " * words, "second " * words)
    with Database(":memory:", embedder=Letters(), config=Config(chunk_size=20)) as db:
        ingest = partial(db.documents.ingest_text, source="note.md", replace=False, embed=False)
        kept = ingest(first).document
        assert ingest(first).status == "skipped"
        assert ingest(first, metadata={"a": 1}).status == "updated"
        with pytest.raises(Exists, match=r"library 'default' has another text named 'note.md'"):
            ingest(second)
        given = Source(source="note.md", name="note.md", raw=second.encode(), file_type="md")
        with pytest.raises(Exists):
            db.documents.ingest(given, replace=False, embed=False)
        assert db.documents.text(kept.id) == first and db.documents.count() == 1
        assert ingest(second, library="other").status == "indexed"
        assert ingest(second, replace=True).status == "replaced"
        assert db.check() == []


def test_of_two_who_store_under_one_name_at_once_one_is_told(path: Path) -> None:
    together = threading.Barrier(2)

    def store(text: str) -> str:
        with Database(path, embedder=Letters()) as db:
            together.wait(30)
            try:
                return db.documents.ingest_text(text, source="a.md", replace=False).status
            except Exists:
                return "refused"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(store, ["one", "two"])) == ["indexed", "refused"]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"sources": ["a", "b"]}, InvalidInput, "there are 3 texts, but 2 sources"),
        ({"titles": ["a"]}, InvalidInput, "but 1 titles"),
        ({"metadata": []}, InvalidInput, "but 0 metadata"),
        ({"sources": ["a", "b", "a"]}, InvalidInput, "'a' is given 2 times"),
        ({"sources": "abc"}, InvalidInput, "not one string"),
        ({"texts": "abc"}, InvalidInput, "not one string"),
        ({"texts": ["x", "y", " \n"]}, NoText, "the text of 'c' is blank"),
        ({"texts": ["x", "y", "z" * 101]}, TooLarge, "MCPVECTORDB_MAX_SOURCE_BYTES"),
        ({"texts": ["x", "y", 3]}, InvalidInput, "text"),
        ({"metadata": [None, None, {"a": object()}]}, InvalidInput, "metadata"),
        ({"library": " "}, InvalidInput, "library"),
    ],
)
def test_nothing_is_stored_if_one_text_cannot_be(
    changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    given = {"texts": ["x", "y", "z"], "sources": ["a", "b", "c"], **changes}
    with Database(":memory:", embedder=Letters(), config=Config(max_source_bytes=100)) as db:
        with pytest.raises(error, match=said):
            db.documents.ingest_many(given.pop("texts"), **given)
        assert db.documents.count() == 0
        assert db.documents.ingest_many([], sources=[]) == []
