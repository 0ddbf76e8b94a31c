"""JSON Lines, CSV, Parquet and tables of databases: rows with named fields."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mcpvectordb import Database, InvalidInput, ParseFailed
from mcpvectordb.transfer.rows import ONLY_PASSAGES
from tests.core.transfer.conftest import execute
from tests.support import Letters

pytestmark = pytest.mark.long

TEA, MILK = "Green tea, hot.", "Milk is cold."


def embedded(text: str) -> list[float]:
    found: list[float] = Letters().embed([text])[0].tolist()
    return found


ROWS: list[dict[str, Any]] = [
    {"id": "tea", "text": TEA, "metadata": {"year": 2024}, "embedding": embedded(TEA), "tag": "x"},
    {"id": "milk", "text": MILK, "metadata": {"year": 2025}, "embedding": embedded(MILK)},
]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def packed(path: Path, rows: list[dict[str, Any]]) -> Path:
    plain = jsonl(path, rows).read_bytes()
    path = path.with_name(f"{path.name}.gz")
    path.write_bytes(gzip.compress(plain))
    return path


def array(path: Path, rows: list[dict[str, Any]]) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps(rows, indent=2))
    return path


def columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def as_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    path = path.with_suffix(".csv")
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(columns(rows))
        for row in rows:
            cells = [row.get(name, "") for name in columns(rows)]
            table.writerow(json.dumps(c) if isinstance(c, dict | list) else c for c in cells)
    return path


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path = path.with_suffix(".parquet")
    complete = [{name: row.get(name) for name in columns(rows)} for row in rows]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(complete), path)
    return path


FORMS = [jsonl, packed, array, as_csv, as_parquet]


@pytest.mark.parametrize("form", FORMS)
def test_rows_become_documents_with_their_embeddings_or_vectors(
    db: Database, tmp_path: Path, form: Callable[..., Path]
) -> None:
    path = form(tmp_path / "drinks.jsonl", ROWS)
    done = db.import_from(path)
    assert done.added == {"documents": 2} and not done.skipped and not done.unread
    assert done.embeddings == {"kept": 2} and not done.pending
    [tea] = db.documents.browse(library="drinks", where={"metadata.year": 2024})
    assert tea.source == "tea" and db.documents.text(tea.id) == TEA and tea.metadata["tag"] == "x"
    again = db.import_from(path)
    assert again.known == {"documents": 2} and not again.added and not again.changed
    assert db.import_from(path, into="vectors", library="mine").added == {"vectors": 2}
    vector = db.vectors.get("tea", store="mine")
    assert np.allclose(vector.embedding, embedded(TEA)) and vector.metadata["text"] == TEA


@pytest.mark.parametrize("form", FORMS)
def test_fields_of_other_names_are_named(
    db: Database, tmp_path: Path, form: Callable[..., Path]
) -> None:
    rows = [{"nr": 7, "head": "Tea", "a": "Green.", "b": "Hot.", "c": "kept", "d": "not"}]
    path = form(tmp_path / "drinks.jsonl", rows)
    kind = {".json": "jsonl", ".gz": "jsonl"}.get(path.suffix, path.suffix[1:])
    done = db.import_from(path, kind, text=["a", "b"], id="nr", title="head", metadata=["c"])
    [document] = db.documents.browse()
    assert done.kind == kind and document.source == "7" and document.title == "Tea"
    assert db.documents.text(document.id) == "Green.\n\nHot."
    assert {"c"} == set(document.metadata) - {"imported"}
    with pytest.raises(InvalidInput, match="there is no field 'z'"):
        db.import_from(path, kind, text=["z"])
    with pytest.raises(InvalidInput, match="name the fields that have the text"):
        db.import_from(path, kind)


def test_what_cannot_be_stored_is_reported(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    rows = [
        {"id": "a", "text": TEA, "embedding": [1.0, float("nan")]},
        {"id": "b", "text": "  ", "embedding": [1.0, float("inf")]},
        {"id": "c", "text": None},
        {"id": "a", "text": "another one"},
        {"id": "d", "text": "half \ud83d of a pair", "metadata": "[1, 2]"},
        {"id": "e", "embedding": ["1", "2"]},
    ]
    lines = [json.dumps(row) for row in rows]
    deep = '{"text": "x", "metadata": ' + "[" * 100_000
    path.write_text("\n".join([*lines, "not JSON", "7", "", deep]) + "\n")
    done = db.import_from(path)
    assert done.added == {"documents": 2}
    assert dict(done.skipped_items) == {
        "b": "an embedding that is no list of finite numbers",
        "c": "neither text nor embedding",
        "a": "a row with this id came before it",
        "e": "an embedding that is no list of finite numbers",
    }
    assert done.not_kept == {"embeddings that are no lists of finite numbers": 1}
    assert [each.split(":")[0] for each in done.unread] == ["line 7", "line 8", "line 10"]
    [half] = db.documents.browse(where={"source": "d"})
    assert half.metadata["value"] == [1, 2]


def test_rows_without_an_id_are_known_by_their_text(db: Database, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"text": TEA}, {"text": MILK}, {"text": TEA}])
    assert db.import_from(path).added == {"documents": 2}
    jsonl(path, [{"text": "Water."}, {"text": MILK}])
    done = db.import_from(path)
    assert done.added == {"documents": 1} and done.known == {"documents": 1}


def test_our_own_csv_and_parquet_can_be_imported(db: Database, tmp_path: Path) -> None:
    db.documents.ingest_text(TEA, source="tea.md")
    db.vectors.add("v", [1.0, 2.0])
    for name in ("out.csv", "out.parquet"):
        db.export_to(tmp_path / name)
        with Database(tmp_path / f"{name}.db", embedder=Letters()) as other:
            done = other.import_from(tmp_path / name)
            assert done.added == {"documents": 1, "vectors": 1}
            assert done.embeddings == {"kept": 1} and done.not_kept == {ONLY_PASSAGES: 1}


def test_csv_of_windows_and_with_an_open_quote(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('id;text;;\n1;Grüner Tee;x;y;z\n2;"never closed\n'.encode("cp1252"))
    assert db.import_from(path).added == {"documents": 2}
    [tea] = db.documents.browse(where={"source": "1"})
    assert db.documents.text(tea.id) == "Grüner Tee"


def test_a_damaged_parquet_is_an_error_or_a_part_that_was_not_read(
    db: Database, tmp_path: Path
) -> None:
    path = as_parquet(tmp_path / "a.jsonl", ROWS)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ParseFailed, match="no sound Parquet"):
        db.import_from(path)


# Any table of a database.


def test_a_table_has_embeddings_as_bytes(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "teas.db"
    with closing(apsw.Connection(str(path))) as sql:
        sql.execute("CREATE TABLE e (id TEXT PRIMARY KEY, content TEXT, embedding BLOB)")
        raw = Letters().embed([TEA])[0].astype("<f4").tobytes()
        rows = [("tea", TEA, raw), ("bare", None, raw), ("odd", None, b"abc")]
        sql.executemany("INSERT INTO e VALUES (?, ?, ?)", rows)
    done = db.import_from(path, table="e")
    assert (done.kind, done.added) == ("sqlite", {"documents": 1, "vectors": 1})
    assert done.embeddings == {"kept": 1}
    assert done.skipped == {"an embedding that is no list of finite numbers": 1}
    assert np.allclose(db.vectors.get("e/bare", store="teas").embedding, embedded(TEA))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    execute(
        path,
        "CREATE TABLE tea (id INTEGER PRIMARY KEY, name TEXT, note TEXT, price REAL);"
        "INSERT INTO tea VALUES (1, 'Assam', 'Malty and strong', 4.5), "
        "(2, 'Sencha', 'Green and fresh', 6), (3, NULL, NULL, 1)",
    )
    return path


def test_a_row_becomes_a_document_and_again_if_it_changed(db: Database, shop: Path) -> None:
    def imported() -> list[int]:
        done = db.import_from(shop, "sqlite", table="tea", text=["note"], title="name")
        assert done.skipped == {"neither text nor embedding": 1} and done.pending == 0
        return [each.get("documents", 0) for each in (done.added, done.changed, done.known)]

    assert imported() == [2, 0, 0]
    [tea] = db.documents.search("malty", mode="text")
    document = tea.item.document
    assert (document.library, document.source, document.title) == ("shop", "tea/1", "Assam")
    assert document.metadata["price"] == 4.5 and "name" not in document.metadata
    assert imported() == [0, 0, 2]
    execute(
        shop, "UPDATE tea SET note = 'Grassy' WHERE id = 2; INSERT INTO tea (note) VALUES ('Red')"
    )
    assert imported() == [1, 1, 1]
    assert not db.documents.search("fresh", mode="text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"name the table \(--table\): tea \(id, name, note, price\)"),
        ({"table": "teas"}, r"there is no table 'teas'; there are tea \(id"),
        ({"table": "tea"}, r"name the fields that have the text \(--text\).*: name, note, price"),
        ({"table": "tea", "text": ["notes"]}, "no field 'notes'; there are name, note, price"),
        ({"table": "tea", "text": ["note"], "id": "sku"}, "no field 'sku'; there are id, name"),
    ],
)
def test_tables_and_columns_are_named_where_one_is_wrong(
    db: Database, shop: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        db.import_from(shop, "sqlite", **options)  # type: ignore[arg-type]
