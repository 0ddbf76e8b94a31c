from __future__ import annotations

import apsw
import pytest

from mcpvectordb import extension
from tests.support import python


def test_a_connection_learns_vec0_and_can_load_nothing_else() -> None:
    sql = apsw.Connection(":memory:")
    extension.load(sql)
    assert sql.execute("SELECT vec_version()").get.startswith("v")
    with pytest.raises(apsw.ExtensionLoadingError):
        sql.load_extension(extension._library())


def test_the_extension_is_loaded_without_numpy() -> None:
    done = python("import sys, apsw; from mcpvectordb import extension; extension.load(apsw.Connection(':memory:')); "
                  "print('numpy' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr
