"""CSV and Parquet, which have the same rows."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from mcpvectordb import Database, InvalidInput
from mcpvectordb.export.tables import COLUMNS


def test_csv_has_a_row_for_each_passage_and_vector(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["shelf"] for row in rows] == ["documents"] * 3 + ["contexts"] * 2 + ["vectors"] * 2
    assert rows[0]["text"] == "# Tea\n\nWater at 80 degrees." and rows[0]["model"] == "letters"
    assert rows[2]["text"] == "=1+1, says the sheet"
    assert len(json.loads(rows[0]["embedding"])) == 32
    assert rows[3]["tags"] == '["keys"]' and rows[3]["thread"] == "plans" and rows[3]["id"] == "1#0"
    assert json.loads(rows[5]["embedding"]) == [1, 2, 3]
    assert json.loads(rows[6]["embedding"]) == [0.1, 0.2] and rows[6]["store"] == "exact"


def test_csv_can_be_packed(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.csv.gz")
    with gzip.open(tmp_path / "out.csv.gz", "rt", encoding="utf-8") as file:
        assert file.readline().strip() == ",".join(COLUMNS)


def test_parquet_has_the_same_rows_with_lists_of_numbers(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert tuple(table.column_names) == COLUMNS and table.num_rows == 7
    rows = table.to_pylist()
    assert rows[0]["text"] == "# Tea\n\nWater at 80 degrees." and rows[0]["first_line"] == 4
    assert rows[3]["tags"] == ["keys"] and rows[0]["tags"] is None
    # float32 would not hold 0.1 exactly, so all numbers of this file are float64
    assert rows[6]["embedding"] == [0.1, 0.2]


def test_float32_stays_float32(tmp_path: Path) -> None:
    with Database(":memory:") as db:
        db.vectors.add_many(
            [str(each) for each in range(2_500)], np.ones((2_500, 8), np.float32) / 4
        )
        db.export_to(tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert (
        table.num_rows == 2_500 and str(table.schema.field("embedding").type.value_type) == "float"
    )
    assert table["id"].to_pylist() == [str(each) for each in range(2_500)]


def test_without_pyarrow_the_extra_is_named(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'mcpvectordb\[parquet\]'"):
        db.export_to(tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
