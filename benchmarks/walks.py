"""What one request does inside the library: `python -m benchmarks walks`.

A few typical requests are run with a profiler: the ingest of one Markdown file, searches of
documents and of memories, and the same through tools of the MCP server. For each of them this
prints how many modules take part, how often the control flow changes from one module to another,
how many transactions are opened, and how often work is done that once should be enough for.

Each request is made once before it is traced, so neither imports nor the loading of the model are
counted. Work in another process (the parser's) is not counted either.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import apsw

from benchmarks import report
from mcpvectordb import Config, Database, Entry

PACKAGES = ("mcpvectordb", "mcpvectordb_server")
# What is counted by the functions that do it ("module:qualified name"). A name that does not exist
# is never called, so the names of other versions of the library may be here too.
FUNCTIONS = {
    "mcpvectordb.embedding.tokenizer:TokenPipeline.token_starts": "texts tokenized",
    "mcpvectordb.embedding.tokenizer:TokenPipeline.count": "texts tokenized",
    "mcpvectordb.embedding.tokenizer:TokenPipeline._encoding": "texts tokenized",
    "mcpvectordb.ingest.formats:detect": "formats detected",
    "mcpvectordb.filters:_entries": "filters validated",
    "mcpvectordb.filters:compile": "filters compiled",
}
# What is counted by the statements that SQLite runs.
STATEMENTS = {
    "transactions": re.compile("BEGIN"),
    "embeddings read": re.compile(r"SELECT .*\bembedding FROM \w+_embeddings"),
}
# JSON that a module of the server encodes.
ENCODED, ENCODER = "replies encoded", "json.encoder:JSONEncoder.encode"
COUNTED = tuple(dict.fromkeys([*STATEMENTS, *FUNCTIONS.values(), ENCODED]))

EXCERPT = 1_500  # characters of a file that is ingested: a few chunks
QUERIES = ("how are files brought in", "what does a search cost")
TRACE = "walks"


@dataclass(slots=True)
class Walk:
    """What was seen of one request; `functions` counts the probed ones by their names."""

    name: str
    modules: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)

    def row(self) -> report.Row:
        """The figures as a row of a table."""
        return {
            "walk": self.name,
            "modules": len(self.modules),
            "changes of module": self.changes,
            **{name: self.counts[name] for name in COUNTED},
        }


class Tracer:
    """Fills in a Walk."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        self._lock = threading.Lock()
        self._local = threading.local()

    @contextmanager
    def traced(self, walk: Walk) -> Iterator[None]:
        """Count what happens until the block ends, in this thread and in those started by it."""
        self._walk, self._local = walk, threading.local()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            # The stubs do not know that None takes the function back.
            threading.setprofile(None)  # type: ignore[arg-type]
            self._walk = None

    def watch(self, connection: apsw.Connection) -> None:
        """Count statements of a connection; made for `apsw.connection_hooks`."""
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._executed, id=TRACE)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        walk, code = self._walk, frame.f_code
        if event != "call" or walk is None or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # the bodies of modules and classes are not calls
        module = _module(frame)
        name = f"{module}:{code.co_qualname}"
        if name == ENCODER and _caller(frame).startswith("mcpvectordb_server"):
            walk.counts[ENCODED] += 1
        if module.partition(".")[0] in PACKAGES:
            last, self._local.last = getattr(self._local, "last", module), module
            with self._lock:
                walk.modules[module] += 1
                walk.changes += last != module
                if name in FUNCTIONS:
                    walk.counts[FUNCTIONS[name]] += 1
                    walk.functions[name] += 1

    def _executed(self, event: dict[str, Any]) -> None:
        if self._walk is not None and not event["trigger"]:
            statement = " ".join(event["sql"].split())
            for name, pattern in STATEMENTS.items():
                self._walk.counts[name] += bool(pattern.match(statement))


def main(arguments: list[str]) -> None:
    """Read the options, walk, print."""
    options = _options(arguments)
    walks = walked(options.file, Config(model=options.model))
    notes = [f"{walk.name}: {_listed(walk.modules)}" for walk in walks]
    notes += [f"{walk.name}: {_listed(walk.functions)}" for walk in walks if walk.functions]
    report.show([walk.row() for walk in walks], notes, as_json=options.json)


def walked(file: Path, config: Config) -> list[Walk]:
    """Make all requests, each of them on a copy of the same database file."""
    tracer = Tracer()
    apsw.connection_hooks.append(tracer.watch)
    try:
        with tempfile.TemporaryDirectory(prefix="walks-") as name:
            folder = Path(name)
            _fill(folder / "filled.db", file, config)
            _excerpts(folder, file)
            return [_walk(tracer, name, folder, config) for name in WALKS]
    finally:
        apsw.connection_hooks.remove(tracer.watch)


Request = Callable[[int], object]
"""A request that is made twice: as number 0, and then traced as number 1."""


def _fill(path: Path, file: Path, config: Config) -> None:
    """Store a file as a document, and its sections as memories."""
    sections = [each for each in file.read_text("utf-8").split("\n#") if each.strip()]
    with Database(path, config=config) as db:
        db.documents.ingest(file)
        db.memories.add_many(
            [
                Entry(thread="walk", source="agent", text=text, metadata={"part": number % 2})
                for number, text in enumerate(sections)
            ]
        )


def _excerpts(folder: Path, file: Path) -> None:
    """Write two small files, with different parts of a larger one."""
    text = file.read_text("utf-8")
    length = min(EXCERPT, len(text) // 2)
    for number in range(2):
        part = text[number * length : (number + 1) * length]
        (folder / f"{number}.md").write_text(part, "utf-8")


def _walk(tracer: Tracer, name: str, folder: Path, config: Config) -> Walk:
    walk, path = Walk(name), folder / "copy.db"
    shutil.copyfile(folder / "filled.db", path)
    with Database(path, config=config) as db:
        request = WALKS[name](db)
        request(0)
        with tracer.traced(walk):
            request(1)
    return walk


def _ingest(db: Database) -> Request:
    return lambda number: db.documents.ingest(db.path.parent / f"{number}.md")


def _search(db: Database) -> Request:
    return lambda number: db.documents.search(QUERIES[number])


def _tool(db: Database, surface: str, name: str, **given: Any) -> Request:
    """Call a tool as the server does, up to the reply that it hands to the MCP SDK."""
    from mcpvectordb_server import surfaces
    from mcpvectordb_server.surface import call, expose

    exposed = expose([surfaces.load(surface)])[name]

    def request(number: int) -> None:
        reply = call(exposed, db, {"query": QUERIES[number], **given})
        assert not reply.failed, reply

    return request


def _search_tool(db: Database) -> Request:
    return _tool(db, "mcpvectordb", "search")


def _search_memories(db: Database) -> Request:
    return lambda number: db.memories.search(QUERIES[number], where={"metadata.part": 1})


def _memories_tool(db: Database) -> Request:
    return _tool(db, "context_server", "hybrid_search_context", metadata={"part": 1})


WALKS: dict[str, Callable[[Database], Request]] = {
    "ingest of a Markdown file": _ingest,
    "hybrid search": _search,
    "MCP search": _search_tool,
    "contexts search with a filter": _search_memories,
    "MCP contexts search with a filter": _memories_tool,
}


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _caller(frame: FrameType) -> str:
    """The module that called the module of a frame."""
    above = frame.f_back
    while above is not None and _module(above).partition(".")[0] == "json":
        above = above.f_back
    return "" if above is None else _module(above)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks walks", description=__doc__)
    parser.add_argument(
        "--file",
        type=Path,
        default=Path(__file__).with_name("README.md"),
        metavar="FILE",
        help="the Markdown file that is searched, and ingested in part [benchmarks/README.md]",
    )
    parser.add_argument("--model", default="", metavar="NAME", help="the model [the default one]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
