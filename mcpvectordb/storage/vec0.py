"""sqlite-vec, the extension that makes vec0 tables: found without its package, which would load
numpy.
"""

from __future__ import annotations

import functools

import apsw

from mcpvectordb.errors import DatabaseError


def load(connection: apsw.Connection) -> None:
    """Teach a connection vec0 tables; it can load nothing else afterwards."""
    connection.enable_load_extension(True)
    connection.load_extension(_library())
    connection.enable_load_extension(False)


@functools.cache
def _library() -> str:
    from importlib.metadata import files

    for file in files("sqlite-vec") or ():
        if file.stem == "vec0":
            return str(file.locate())
    raise DatabaseError("the package sqlite-vec is not installed properly: reinstall it with pip")
