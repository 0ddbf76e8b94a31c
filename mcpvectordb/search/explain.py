"""The statements that were run for a query, their plans, and the time that they took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import apsw

from mcpvectordb.records import Explained
from mcpvectordb.storage.dialect import dialect_of


class StatementLog:
    """Measures the time of its `with` block and, if `on`, records the plans of its SELECTs."""

    def __init__(self, sql: apsw.Connection, on: bool) -> None:
        self._sql, self._on = sql, on
        self._statements: list[tuple[str, Any]] = []
        self._milliseconds = 0.0

    def __enter__(self) -> Self:
        if self._on:
            self._sql.exec_trace = self._trace
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._milliseconds = 1000 * (time.perf_counter() - self._began)
        if self._on:
            self._sql.exec_trace = None

    def explained(self, rows: int) -> Explained:
        """The time, the number of rows and the recorded plans."""
        plans = [
            line
            for statement, bindings in self._statements
            for line in _plan(self._sql, statement, bindings)
        ]
        return Explained(milliseconds=self._milliseconds, rows=rows, plan="\n".join(plans))

    def _trace(self, _: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if statement.lstrip().startswith("SELECT"):
            self._statements.append((statement, bindings))
        return True


def together(legs: Mapping[str, Explained], milliseconds: float, rows: int) -> Explained:
    """The legs of a search combined."""
    return Explained(
        milliseconds=milliseconds,
        rows=rows,
        plan="\n".join(leg.plan for leg in legs.values()),
        legs=legs,
    )


def _plan(sql: apsw.Connection, statement: str, bindings: Any) -> list[str]:
    rows: list[Any] = sql.execute(f"{dialect_of(sql).explain} {statement}", bindings).fetchall()
    if len(rows[0]) == 1:  # PostgreSQL's, which are lines already
        return [str(line) for (line,) in rows]
    depths = {0: -1}
    lines = []
    for id, parent, _, detail in rows:
        depths[id] = depths.get(parent, -1) + 1
        lines.append("  " * depths[id] + str(detail))
    return lines
