from __future__ import annotations

import time

import apsw

from mcpvectordb.search.explain import StatementLog, together


def connection() -> apsw.Connection:
    sql = apsw.Connection(":memory:")
    sql.execute("CREATE TABLE t (x INTEGER PRIMARY KEY, y); INSERT INTO t VALUES (1, 2), (3, 4)")
    return sql


def test_plans_are_recorded_for_the_selects_that_ran() -> None:
    sql = connection()
    with StatementLog(sql, True) as watch:
        sql.execute("SELECT y FROM t WHERE x = ?", (3,)).fetchall()
        sql.execute("INSERT INTO t VALUES (5, 6)")
        sql.execute("SELECT x FROM t WHERE y IN (SELECT x FROM t WHERE y > ?)", (1,)).fetchall()
    sql.execute("SELECT count(*) FROM t").fetchall()
    lines = watch.explained(2).plan.splitlines()
    assert lines[0] == "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)"
    assert lines[1] == "SCAN t" and lines[2].startswith("LIST SUBQUERY") and lines[3] == "  SCAN t"
    assert watch.explained(2).rows == 2


def test_the_time_of_the_block_is_measured() -> None:
    with StatementLog(connection(), False) as watch:
        time.sleep(0.02)
    explained = watch.explained(0)
    assert 20 <= explained.milliseconds < 2_000 and explained.plan == ""


def test_an_error_removes_the_trace() -> None:
    sql = connection()
    try:
        with StatementLog(sql, True):
            sql.execute("SELECT nonsense")
    except apsw.SQLError:
        pass
    assert sql.exec_trace is None


def test_together_combines_the_legs() -> None:
    with StatementLog(connection(), False) as watch:
        pass
    leg = watch.explained(3)
    whole = together({"text": leg, "vector": leg}, 12.5, 5)
    assert (whole.milliseconds, whole.rows, whole.legs["text"]) == (12.5, 5, leg)
