"""The HNSW graphs of embeddings, made once there are enough of them to pay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from mcpvectordb.postgres.connection import Server
from mcpvectordb.records import Progress, ProgressCallback

_LOOK = 0.5  # seconds between two looks at how far PostgreSQL is


def make(server: Server, exact_rows: int, progress: ProgressCallback | None) -> int:
    """Make the graphs of all models and stores that have more rows; how many were made.

    Others cannot write embeddings meanwhile, but everybody can read.
    """
    with ThreadPoolExecutor(1, "graphs") as pool:
        made = pool.submit(_make, server, exact_rows)
        while wait([made], _LOOK).not_done:
            _report(server, progress)
    return made.result()


def _make(server: Server, exact_rows: int) -> int:
    with server.writing() as sql:
        row: Any = sql.execute("SELECT make_graphs(%s)", (exact_rows,)).fetchone()
        return int(row[0])


def _report(server: Server, progress: ProgressCallback | None) -> None:
    with server.outside() as sql:
        row: Any = sql.execute(
            "SELECT blocks_done, blocks_total FROM pg_stat_progress_create_index p "
            "JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'mcpvectordb' "
            "AND a.datname = current_database() AND blocks_total > 0 LIMIT 1"
        ).fetchone()
    if progress and row:
        progress(Progress(step="graph", done=int(row[0]), total=int(row[1])))
