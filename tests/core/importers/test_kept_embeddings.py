"""Embeddings are kept where they are those of the file's model, whatever its name is said to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from mcpvectordb import Database
from tests.support import Letters

Floats = NDArray[np.float32]


def collection(
    path: Path, texts: list[str], embed: Callable[[list[str]], Floats], model: str = "letters"
) -> Path:
    """An embeddings.db of llm with these texts and embeddings."""
    sql = apsw.Connection(str(path))
    sql.execute(
        "CREATE TABLE collections (id INTEGER PRIMARY KEY, name TEXT, model TEXT);"
        "CREATE TABLE embeddings (collection_id INTEGER, id TEXT, embedding BLOB, content TEXT, "
        "metadata TEXT, updated INTEGER, PRIMARY KEY (collection_id, id))"
    )
    sql.execute("INSERT INTO collections VALUES (1, 'notes', ?)", (model,))
    with sql:
        sql.executemany(
            "INSERT INTO embeddings VALUES (1, ?, ?, ?, NULL, 0)",
            (
                (f"n{n}", np.asarray(row, "<f4").tobytes(), text)
                for n, (text, row) in enumerate(zip(texts, embed(texts), strict=True))
            ),
        )
    sql.close()
    return path


def noisy(texts: list[str]) -> Floats:
    """The embeddings in another precision, and of another length."""
    return (7 * Letters().embed(texts)).astype(np.float16).astype(np.float32)


def other(texts: list[str]) -> Floats:
    return np.random.default_rng(0).standard_normal((len(texts), 32)).astype(np.float32)


TEXTS = [f"Note {n} about {'tea coffee milk sugar'.split()[n % 4]}" for n in range(20)]


def test_another_precision_and_another_name_are_kept(db: Database, tmp_path: Path) -> None:
    done = db.import_from(collection(tmp_path / "e.db", TEXTS, noisy, "letters:latest"))
    assert done.embeddings == {"kept": 20}
    assert done.embedded.chunks == 0
    [hit] = db.documents.search(TEXTS[3], mode="vector", limit=1)
    assert hit.item.text == TEXTS[3]


def short(texts: list[str]) -> Floats:
    return np.ones((len(texts), 3), np.float32)


def poisoned(texts: list[str]) -> Floats:
    rows = Letters().embed(texts)
    rows[0], rows[1], rows[2, 0] = 0, 1e-24, np.nan
    return rows


@pytest.mark.parametrize(
    ("embed", "outcomes"),
    [
        (other, {"those of letters differ from those of letters": 20}),
        (short, {"those of letters have 3 values, those of letters 32": 20}),
        (poisoned, {"kept": 17, "values that cannot be ranked": 3}),
    ],
)
def test_what_the_model_would_not_make_is_made_anew(
    db: Database, tmp_path: Path, embed: Callable[[list[str]], Floats], outcomes: dict[str, int]
) -> None:
    done = db.import_from(collection(tmp_path / "e.db", TEXTS, embed, "letters"))
    assert done.embeddings == outcomes
    assert (done.embedded.chunks, done.pending) == (20 - outcomes.get("kept", 0), 0)
    assert not db.check()


def test_a_text_of_several_passages_is_embedded_anew(db: Database, tmp_path: Path) -> None:
    long = "\n\n".join(f"Paragraph {n} says a lot about tea." for n in range(300))
    done = db.import_from(collection(tmp_path / "e.db", [long, TEXTS[0]], Letters().embed))
    assert done.embeddings == {"the text is divided into other passages here": 1, "kept": 1}
    assert done.pending == 0


def test_a_dry_run_says_what_would_be_compared(db: Database, tmp_path: Path) -> None:
    source = collection(tmp_path / "e.db", TEXTS, other, "org/all-MiniLM-L6-v2")
    plan = db.import_from(source, dry_run=True)
    assert plan.embeddings == {"to be compared with those of letters": 20}
    [reason] = db.import_from(source).embeddings
    assert reason.endswith("made with MCPVECTORDB_MODEL=all-MiniLM-L6-v2)")


def test_without_the_model_nothing_is_kept_unseen(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.ingest_text("One", source="one")
    source = collection(tmp_path / "e.db", TEXTS, Letters().embed)
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
