"""A database that another process has open, for tests of what processes see of each other's
changes.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mcpvectordb import Database
from mcpvectordb.index.tuning import Tuning


class Elsewhere:
    """What is asked for here is done there: `ask("vectors.add", id, row)`."""

    def __init__(self) -> None:
        memory = multiprocessing.get_context("spawn")
        self._pipe, there = memory.Pipe()
        memory.Process(target=_serve, args=(there,), daemon=True).start()

    def open(self, path: Path, tuning: Tuning) -> None:
        """Open a file with these thresholds."""
        self._pipe.send((path, tuning))
        self._pipe.recv()

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the database and wait for its answer."""
        self._pipe.send((method, arguments, options))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Close the file."""
        self.ask("close")


def _serve(pipe: Connection) -> None:
    while True:
        path, tuning = pipe.recv()
        db = Database(path, tuning=tuning)
        pipe.send(None)
        method = ""
        while method != "close":
            method, arguments, options = pipe.recv()
            called: Any = db
            for part in method.split("."):
                called = getattr(called, part)
            try:
                answer = called(*arguments, **options)
                pipe.send(answer if isinstance(answer, int) else None)
            except Exception as error:
                pipe.send(error)
