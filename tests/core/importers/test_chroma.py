"""Folders of Chroma, made by three of its versions: see tests/fixtures/importers/make.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest

from mcpvectordb import Database
from mcpvectordb.importers import source
from tests.core.importers.conftest import execute, state
from tests.support import Letters

VERSIONS = ("chroma-0.4.24", "chroma-0.6.3", "chroma-1.5.9")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_collection_comes_with_its_embeddings_and_the_types_of_its_metadata(
    db: Database, unpacked: Callable[[str], Path], version: str
) -> None:
    folder = unpacked(version)
    before = state(folder)
    done = db.import_from(folder)
    assert (done.kind, done.added) == ("chroma", {"documents": 59, "vectors": 2})
    assert done.embeddings == {"kept": 59}
    assert (done.skipped, done.unread, done.pending, done.embedded.chunks) == ({}, (), 0, 0)
    assert {each.name: each.documents for each in db.documents.libraries()} == {
        "notes": 55,
        "teas": 4,
    }
    assert not db.check()
    assert state(folder) == before
    teas = {each.source: each for each in db.documents.browse(library="teas")}
    assert teas.keys() == {"assam", "sencha", "oolong", "puerh"}  # mate was deleted
    said = {key: value for key, value in teas["assam"].metadata.items() if key != "imported"}
    assert said == {"place": 0, "weight": 0.0, "hot": False, "kind": "black"}
    assert teas["puerh"].metadata["weight"] == 1.5
    assert teas["puerh"].metadata["hot"] is True


@pytest.mark.parametrize("version", VERSIONS)
def test_vectors_come_back_as_they_were_given(
    db: Database, unpacked: Callable[[str], Path], version: str
) -> None:
    db.import_from(unpacked(version), into="vectors")
    cat = db.vectors.get("cat", store="pictures")
    assert (list(cat.embedding), cat.metadata["a"]) == ([1.0, 2.0], 1)
    assert {store.name: store.metric for store in db.vectors.stores()} == {
        "pictures": "euclidean",
        "notes": "cosine",
        "teas": "euclidean",
    }
    note = db.vectors.get("n20", store="notes")  # from the files, where it is normalized
    expected = Letters().embed([note.metadata["text"]])[0]
    assert np.allclose(np.array(note.embedding, np.float32), expected, rtol=1e-5)


def test_what_is_only_in_the_queue_comes_too(db: Database, unpacked: Callable[[str], Path]) -> None:
    """Chroma applies its queue to the tables when it is read the next time."""
    folder = unpacked("chroma-1.5.9")
    sql = apsw.Connection(str(folder / "chroma.sqlite3"))
    [(topic, last)] = sql.execute(
        "SELECT topic, max(seq_id) FROM embeddings_queue WHERE id = 'sencha'"
    )
    operations = [
        (0, "rooibos", np.ones(32, "<f4").tobytes(), {"chroma:document": "Rooibos is red."}),
        (1, "sencha", None, {"chroma:document": "Sencha is steamed."}),
        (3, "oolong", None, {}),
        (3, "puerh", None, {}),
        (0, "puerh", None, {"chroma:document": "Pu-erh is dark.", "weight": None}),
    ]
    for step, (operation, id, vector, metadata) in enumerate(operations, 1):
        sql.execute(
            "INSERT INTO embeddings_queue (seq_id, operation, topic, id, vector, encoding, "
            "metadata) VALUES (?, ?, ?, ?, ?, 'FLOAT32', ?)",
            (last + 1000 + step, operation, topic, id, vector, json.dumps(metadata)),
        )
    sql.close()
    db.import_from(folder)
    texts = {
        each.source: db.documents.text(each.id) for each in db.documents.browse(library="teas")
    }
    assert texts.keys() == {"assam", "sencha", "puerh", "rooibos"}
    assert (texts["sencha"], texts["rooibos"]) == ("Sencha is steamed.", "Rooibos is red.")
    [puerh] = db.documents.browse(where={"source": "puerh"})
    assert (texts["puerh"], puerh.metadata.keys()) == ("Pu-erh is dark.", {"imported"})


def test_a_damaged_index_costs_no_item(db: Database, unpacked: Callable[[str], Path]) -> None:
    path = unpacked("chroma-1.5.9") / "chroma.sqlite3"
    sql = apsw.Connection(str(path))
    size = sql.execute("PRAGMA page_size").get
    root = sql.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_embeddings_1'"
    ).get
    sql.close()
    raw = bytearray(path.read_bytes())
    raw[(root - 1) * size : root * size] = b"\xff" * size
    path.write_bytes(raw)
    done = db.import_from(path)
    assert done.added == {"documents": 59, "vectors": 2}
    assert done.unread == ("some rows of the table embeddings could not be read",)


def test_files_of_an_unknown_layout_are_said_and_embedded_anew(
    db: Database, unpacked: Callable[[str], Path]
) -> None:
    folder = unpacked("chroma-1.5.9")
    for header in folder.rglob("header.bin"):
        header.write_bytes(b"\7" + header.read_bytes()[1:])
    done = db.import_from(folder)
    assert done.added == {"documents": 59, "vectors": 2}
    assert len(done.unread) == 1
    assert "HNSW files" in done.unread[0]
    assert done.embeddings["the source has none"] > 30
    assert done.pending == 0
    assert not db.check()


def test_another_database_in_the_folder_is_read_without_the_files_of_chroma(
    db: Database, unpacked: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpacked("chroma-1.5.9")
    copied: list[str] = []
    copy = source.copy_stable
    monkeypatch.setattr(
        source,
        "copy_stable",
        lambda pairs, path: (copied.extend(each.name for each, _ in pairs), copy(pairs, path)),
    )
    execute(folder / "shop.db", "CREATE TABLE tea (note); INSERT INTO tea VALUES ('x')")
    assert db.import_from(folder / "shop.db", table="tea", text=["note"]).added == {"documents": 1}
    assert not copied
    db.import_from(folder / "chroma.sqlite3", dry_run=True)
    assert "data_level0.bin" in copied
