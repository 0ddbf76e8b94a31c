from __future__ import annotations

import apsw
import pytest

from mcpvectordb.storage import vec0
from tests.support import python


def test_a_connection_has_vec0_and_can_load_no_other_extension() -> None:
    sql = apsw.Connection(":memory:")
    vec0.load(sql)
    assert sql.execute("SELECT vec_version()").get.startswith("v")
    with pytest.raises(apsw.ExtensionLoadingError):
        sql.load_extension(vec0._library())


def test_the_extension_is_loaded_without_numpy() -> None:
    done = python(
        "import sys, apsw; from mcpvectordb.storage import vec0; "
        "vec0.load(apsw.Connection(':memory:')); print('numpy' in sys.modules)"
    )
    assert done.stdout.strip() == "False", done.stderr


def test_a_sample_is_spread_evenly_over_the_ids_that_there_are() -> None:
    sql = apsw.Connection(":memory:")
    vec0.load(sql)
    sql.execute(vec0.create_statement("t", 8))
    assert vec0.sample(sql, "t", 4) == []
    vec0.insert(sql, "t", [7], [bytes(7) + b"\1"])
    assert vec0.sample(sql, "t", 4) == [7]
    ids = [*range(100, 200), *range(1_000, 1_100)]
    vec0.insert(sql, "t", ids, [bytes(7) + b"\1"] * len(ids))
    some = vec0.sample(sql, "t", 50)
    assert some[0] == 7 and some[-1] == 1_099 and len(some) == len(set(some)) <= 50
    assert set(some) <= {7, *ids}
    assert sorted(vec0.sample(sql, "t", 100_000)) == [7, *ids]
