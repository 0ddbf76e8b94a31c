from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import scaled

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")

from mcpvectordb.postgres.connection import from_text
from mcpvectordb.postgres.staged import equip
from tests.support_postgres import LocalPostgres

FLOATS = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5
)


@pytest.fixture(scope="module")
def url(postgres: LocalPostgres):  # type: ignore[no-untyped-def]
    with postgres.database() as made:
        with psycopg.connect(made, autocommit=True) as sql:
            sql.execute("CREATE EXTENSION vector")
        yield made


@settings(max_examples=scaled(30))
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.text(),
            st.none() | st.binary(),
            st.none() | st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**63 - 1)),
            st.none() | FLOATS,
        ),
        max_size=5,
    )
)
def test_postgresql_reads_the_values_that_were_written(
    url: str, values: list[tuple[object, ...]]
) -> None:
    with psycopg.connect(url) as sql:
        equip(sql)
        sql.execute(
            "CREATE TEMP TABLE t (n serial, a int4, b int8, c text, d bytea, e json, f vector)"
        )
        with sql.cursor().copy("COPY t (a, b, c, d, e, f) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "int8", "text", "bytea", "json", "vector"])
            for *plain, fields, numbers in values:
                said = None if fields is None else json.dumps(fields)
                vector = None if numbers is None else np.array(numbers, "<f4").tobytes()
                copy.write_row([*plain, said, vector])
        found = sql.execute("SELECT a, b, c, d, e, f::real[] FROM t ORDER BY n").fetchall()
        assert sql.execute("SELECT %s", ("\ufdd0",)).fetchone() == ("\ufdd0",)  # as it is
    for (a, b, c, d, e, f), expected in zip(found, values, strict=True):
        assert (a, b, d) == (expected[0], expected[1], expected[3])
        assert (None if c is None else from_text(c)) == expected[2]
        assert (
            None
            if e is None
            else {from_text(k): from_text(v) if isinstance(v, str) else v for k, v in e.items()}
        ) == expected[4]
        assert (None if f is None else np.array(f, "<f4").tolist()) == expected[5]
