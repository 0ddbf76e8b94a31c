"""sqlite-vec's vec0 table of float32 with a metadata column, compared one by one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, NEAREST


class Engine:
    """The extension in apsw, with SQLite's defaults but for the log."""

    packages = ("sqlite-vec", "apsw")

    def __init__(self, folder: Path) -> None:
        self._connection = import_module("apsw").Connection(str(folder / "vectors.db"))
        self._connection.enable_load_extension(True)
        self._connection.load_extension(import_module("sqlite_vec").loadable_path())
        self._connection.execute("PRAGMA journal_mode = WAL").fetchall()

    def add_vectors(self, rows: Any) -> None:
        """In one transaction."""
        with self._connection as sql:
            sql.execute(
                f"CREATE VIRTUAL TABLE v USING vec0 (embedding float[{rows.shape[1]}] "
                "distance_metric=cosine, g integer)"
            )
            sql.executemany(
                "INSERT INTO v (rowid, embedding, g) VALUES (?, ?, ?)",
                ((number, row.tobytes(), number % GROUPS) for number, row in enumerate(rows)),
            )

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """Row ids only."""
        within, bindings = ("", ()) if group is None else ("AND g = ?", (group,))
        return [
            id
            for (id,) in self._connection.execute(
                f"SELECT rowid FROM v WHERE embedding MATCH ? AND k = ? {within} ORDER BY distance",
                (query.tobytes(), NEAREST, *bindings),
            )
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
