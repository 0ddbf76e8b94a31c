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
