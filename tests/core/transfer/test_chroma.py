"""Folders of Chroma, made by three of its versions: see tests/fixtures/importers/make.py."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database
from mcpvectordb.transfer import source
from mcpvectordb.transfer.chroma import HnswVectors, plain
from tests.core.transfer.conftest import Unpacked, execute, state
from tests.support import Letters

VERSIONS = pytest.mark.parametrize("version", ["chroma-0.4.24", "chroma-0.6.3", "chroma-1.5.9"])


@VERSIONS
def test_every_collection_comes_with_its_embeddings_and_the_types_of_its_metadata(
    db: Database, unpacked: Unpacked, version: str
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


@VERSIONS
def test_vectors_come_back_as_they_were_given(
    db: Database, unpacked: Unpacked, version: str
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


def test_what_is_only_in_the_queue_comes_too(db: Database, unpacked: Unpacked) -> None:
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


def test_a_damaged_index_costs_no_item(db: Database, unpacked: Unpacked) -> None:
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
    db: Database, unpacked: Unpacked
) -> None:
    folder = unpacked("chroma-1.5.9")
    for header in folder.rglob("header.bin"):
        header.write_bytes(b"\7" + header.read_bytes()[1:])
    done = db.import_from(folder)
    assert done.added == {"documents": 59, "vectors": 2}
    assert len(done.unread) == 1 and "HNSW files" in done.unread[0]
    assert done.embeddings["the source has none"] > 30
    assert done.pending == 0 and not db.check()


def test_another_database_in_the_folder_is_read_without_the_files_of_chroma(
    db: Database, unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch
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


# The files of an HNSW index, and the pickle of which nothing is called.

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


class Persistent:
    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


class Harmful:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


@given(PLAIN, st.integers(2, 5))
def test_plain_data_is_read_as_pickle_reads_it(value: object, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol)) == value
    instance = pickle.dumps(Persistent(id_to_label=value), protocol)
    assert plain(instance) == {"id_to_label": value}


def test_nothing_that_a_pickle_names_is_called(tmp_path: Path) -> None:
    pickled = pickle.dumps({"id_to_label": Harmful(tmp_path / "made")})
    assert plain(pickled).keys() == {"id_to_label"}
    assert not (tmp_path / "made").exists()
    pickle.loads(pickled)
    assert (tmp_path / "made").exists()


@given(st.binary(max_size=200))
def test_other_bytes_are_a_value_or_a_value_error(pickled: bytes) -> None:
    with contextlib.suppress(ValueError):
        plain(pickled)


def segment(folder: Path, header: bytes, data: bytes) -> HnswVectors:
    (folder / "header.bin").write_bytes(header)
    (folder / "data_level0.bin").write_bytes(data)
    (folder / "index_metadata.pickle").write_bytes(pickle.dumps({"id_to_label": {"a": 1}}))
    return HnswVectors(folder, "cosine")


@given(header=st.binary(min_size=0, max_size=100), data=st.binary(max_size=300))
def test_damaged_files_have_no_vectors(
    header: bytes, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vectors = segment(tmp_path_factory.mktemp("segment"), header, data)
    assert vectors.problem and vectors.get("a") is None


@pytest.mark.parametrize(
    ("numbers", "sound"),
    [
        ((1, 0, 1, 1, 20, 12, 4), True),
        ((1, 0, 2**40, 2**40, 20, 12, 4), False),  # more than there is
        ((1, 0, 1, 1, 19, 12, 4), False),  # no room for the label
        ((1, 0, 1, 1, 20, 12, 6), False),  # not whole numbers
        ((1, 0, 0, 1, 20, 12, 4), False),  # more than the most
        ((2, 0, 1, 1, 20, 12, 4), False),  # another version
    ],
)
def test_a_header_that_cannot_be_is_refused(
    tmp_path: Path, numbers: tuple[int, ...], sound: bool
) -> None:
    element = bytes(4) + struct.pack("<2f", 1.5, 2.5) + struct.pack("<Q", 1)
    vectors = segment(tmp_path, struct.pack("<i6Q", *numbers), element)
    assert bool(vectors.problem) is not sound
    assert vectors.get("a") == (struct.pack("<2f", 1.5, 2.5) if sound else None)
