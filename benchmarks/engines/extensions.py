"""SQLite that can load extensions, for engines that search by sqlite-vec."""

from __future__ import annotations

import sqlite3
import sys
from importlib import import_module

PACKAGE = "pysqlite3-binary; sys_platform == 'linux'"


def allow() -> None:
    """Stand in for a `sqlite3` built without them; call it before anything imports that."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        try:
            sys.modules["sqlite3"] = import_module("pysqlite3")
        except ImportError:
            sys.exit("it needs a Python whose sqlite3 can load extensions")
        sys.modules["sqlite3.dbapi2"] = import_module("pysqlite3.dbapi2")
