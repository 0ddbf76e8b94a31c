"""Embeddings are kept where they are those of the file's model, whatever its name is said to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Config, Database
from tests.support import Letters

Floats = NDArray[np.float32]


def collection(
    path: Path, texts: list[str], embed: Callable[[list[str]], Floats], model: str = "letters"
) -> Path:
    """Rows with these texts and embeddings."""
    rows = zip(texts, embed(texts).tolist(), strict=True)
    path.write_text(
        "\n".join(
            json.dumps({"id": f"n{n}", "text": text, "embedding": row, "model": model})
            for n, (text, row) in enumerate(rows)
        )
    )
    return path


def noisy(texts: list[str]) -> Floats:
    """The embeddings in another precision, and of another length."""
    return (7 * Letters().embed(texts)).astype(np.float16).astype(np.float32)


def other(texts: list[str]) -> Floats:
    return np.random.default_rng(0).standard_normal((len(texts), 32)).astype(np.float32)


TEXTS = [f"Note {n} about {'tea coffee milk sugar'.split()[n % 4]}" for n in range(20)]


def test_another_precision_and_another_name_are_kept(db: Database, tmp_path: Path) -> None:
    done = db.import_from(collection(tmp_path / "e.jsonl", TEXTS, noisy, "letters:latest"))
    assert done.embeddings == {"kept": 20}
    assert done.embedded.chunks == 0
    [hit] = db.documents.search(TEXTS[3], mode="vector", limit=1)
    assert hit.item.text == TEXTS[3]


def short(texts: list[str]) -> Floats:
    return np.ones((len(texts), 3), np.float32)


def poisoned(texts: list[str]) -> Floats:
    rows = Letters().embed(texts)
    rows[0], rows[1] = 0, 1e-24
    return rows


@pytest.mark.parametrize(
    ("embed", "outcomes"),
    [
        (other, {"those of letters differ from those of letters": 20}),
        (short, {"those of letters have 3 values, those of letters 32": 20}),
        (poisoned, {"kept": 18, "values that cannot be ranked": 2}),
    ],
)
def test_what_the_model_would_not_make_is_made_anew(
    db: Database, tmp_path: Path, embed: Callable[[list[str]], Floats], outcomes: dict[str, int]
) -> None:
    done = db.import_from(collection(tmp_path / "e.jsonl", TEXTS, embed, "letters"))
    assert done.embeddings == outcomes
    assert (done.embedded.chunks, done.pending) == (20 - outcomes.get("kept", 0), 0)
    assert not db.check()


def test_a_text_of_several_passages_is_embedded_anew(db: Database, tmp_path: Path) -> None:
    long = "\n\n".join(f"Paragraph {n} says a lot about tea." for n in range(300))
    done = db.import_from(collection(tmp_path / "e.jsonl", [long, TEXTS[0]], Letters().embed))
    assert done.embeddings == {"the text is divided into other passages here": 1, "kept": 1}
    assert done.pending == 0


def test_a_dry_run_says_what_would_be_compared(db: Database, tmp_path: Path) -> None:
    source = collection(tmp_path / "e.jsonl", TEXTS, other, "org/all-MiniLM-L6-v2")
    plan = db.import_from(source, dry_run=True)
    assert plan.embeddings == {"to be compared with those of letters": 20}
    [reason] = db.import_from(source).embeddings
    assert reason.endswith("made with MCPVECTORDB_MODEL=all-MiniLM-L6-v2)")


def test_without_the_model_nothing_is_kept_unseen(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.ingest_text("One", source="one")
    source = collection(tmp_path / "e.jsonl", TEXTS, Letters().embed)
    with Database(tmp_path / "notes.db") as db:  # without the embedder
        done = db.import_from(source)
        [reason] = done.embeddings
        assert "cannot be compared" in reason
        assert done.pending == 20
        assert "not yet by meaning" in done.notes[0]
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        done = db.import_from(source)  # known, but their embeddings can be kept now
        assert (done.known, done.embeddings) == ({"documents": 20}, {"kept": 20})
        assert done.embedded.chunks == 0
        assert not db.check()


def test_embeddings_of_our_own_table_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    body = "what is brewed " * 4
    sections = "\n".join(f"## {word} {word}\n\n{body}\n" for word in ("Zz", "Qq", "Xx"))
    config = Config(chunk_size=16)
    with Database(tmp_path / "a.db", config=config, embedder=Letters()) as db:
        db.documents.ingest_text(f"# Jj kk vv\n\n{sections}", source="a.md")
        db.export_to(tmp_path / "a.parquet")
    with Database(tmp_path / "b.db", embedder=Letters()) as db:
        done = db.import_from(tmp_path / "a.parquet")
        assert done.added["documents"] > 2
        assert done.embeddings == {"kept": done.added["documents"]}
