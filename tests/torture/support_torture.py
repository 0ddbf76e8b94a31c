"""Parts of the torture suite: guarantees, operations and what they change, child processes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from mcpvectordb import Database, NotFound
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters

State = dict[str, str]  # key -> content; a key begins with its shelf
Changes = Mapping[str, str | None]  # key -> what it is afterwards, None when it is gone


# Operations: what a process may do to a file, and what that changes.


@dataclass(frozen=True)
class Step:
    """One call, and what it has changed when it has returned."""

    changes: Changes
    call: Callable[[], object]


Operation = Callable[[Database, random.Random, str], Step]


# The dead leave their leases behind, and a round should not wait long for them, nor for idleness.
SHORT_LEASES = Tuning(lease_seconds=0.3, slice_chunks=1, idle_seconds=0.01)


def opened(path: Path) -> Database:
    """The database of a test, with leases that end soon."""
    return Database(path, embedder=Letters(), tuning=SHORT_LEASES)


def _ingest(db: Database, rng: random.Random, owner: str, embed: bool = True) -> Step:
    source, text = f"{owner}-{rng.randrange(8)}", some_text(rng)
    return Step(
        {f"document {source}": text},
        lambda: db.documents.ingest_text(text, source=source, embed=embed),
    )


def _ingest_later(db: Database, rng: random.Random, owner: str) -> Step:
    return _ingest(db, rng, owner, embed=False)


def _delete(db: Database, rng: random.Random, owner: str) -> Step:
    source = f"{owner}-{rng.randrange(8)}"
    found = db.documents.browse(where={"source": source})
    return Step(
        {f"document {source}": None}, lambda: [db.documents.delete(each.id) for each in found]
    )


def _embed(db: Database, rng: random.Random, owner: str) -> Step:
    return Step({}, db.embed_pending)


def _compact(db: Database, rng: random.Random, owner: str) -> Step:
    return Step({}, db.compact)


def _search(db: Database, rng: random.Random, owner: str) -> Step:
    return Step(
        {},
        lambda: db.documents.search(
            some_text(rng)[:40], mode=rng.choice(["hybrid", "text", "vector"])
        ),
    )


def _read(db: Database, rng: random.Random, owner: str) -> Step:
    def read() -> None:
        for each in db.documents.browse(limit=3):
            with contextlib.suppress(NotFound):  # another process may have deleted it since
                db.documents.text(each.id)

    return Step({}, read)


def _vector(db: Database, rng: random.Random, owner: str) -> Step:
    id, values = (
        f"{owner}-{rng.randrange(8)}",
        [rng.randint(-9, 9) + 0.5 for _ in range(rng.choice([4, 16]))],
    )
    return Step({f"vector {id}": str(values)}, lambda: db.vectors.add(id, values))


def _delete_vector(db: Database, rng: random.Random, owner: str) -> Step:
    id = f"{owner}-{rng.randrange(8)}"
    return Step({f"vector {id}": None}, lambda: db.vectors.delete(id))


def _memory(db: Database, rng: random.Random, owner: str) -> Step:
    thread, text = f"{owner}-{rng.randrange(4)}", some_text(rng).strip()
    said = db.memories.browse(thread=thread).items
    return Step(
        {f"context {thread}": text},
        lambda: (
            db.memories.update(said[0].id, text=text)
            if said
            else db.memories.add(thread, "user", text)
        ),
    )


def _delete_memory(db: Database, rng: random.Random, owner: str) -> Step:
    thread = f"{owner}-{rng.randrange(4)}"
    return Step({f"context {thread}": None}, lambda: db.memories.delete(threads=[thread]))


def _sync(db: Database, rng: random.Random, owner: str) -> Step:
    """Change some files of a folder, then sync its library; afterwards both are the same."""
    folder = db.path.parent / f"{owner}-folder"
    folder.mkdir(exist_ok=True)
    files = [folder / f"{number}.txt" for number in range(4)]
    for file in rng.sample(files, 2):
        file.write_text(some_text(rng)) if rng.random() < 0.7 else file.unlink(missing_ok=True)
    db.documents.add_library(owner, folder)
    return Step(
        {f"document {file}": file.read_text() if file.exists() else None for file in files},
        lambda: db.documents.sync(owner),
    )


def _search_vectors(db: Database, rng: random.Random, owner: str) -> Step:
    return Step({}, lambda: db.vectors.search([rng.uniform(-1, 1) for _ in range(4)], limit=5))


def _search_memories(db: Database, rng: random.Random, owner: str) -> Step:
    return Step({}, lambda: db.memories.search(some_text(rng)[:40], limit=5))


# name: (weight, operation). A new shelf adds its operations here, and what it holds to `state`.
WRITING: Mapping[str, tuple[int, Operation]] = {
    "ingest": (8, _ingest),
    "ingest later": (5, _ingest_later),
    "delete": (5, _delete),
    "embed": (2, _embed),
    "vector": (4, _vector),
    "delete vector": (2, _delete_vector),
    "context": (4, _memory),
    "delete context": (2, _delete_memory),
    "sync": (1, _sync),
    "compact": (1, _compact),
}
READING: Mapping[str, tuple[int, Operation]] = {
    "search": (3, _search),
    "read": (2, _read),
    "search vectors": (2, _search_vectors),
    "search contexts": (2, _search_memories),
}


def state(db: Database) -> State:
    """Everything in a file, by key."""
    held: list[tuple[str, str]] = [
        *(
            (f"document {each.source}", db.documents.text(each.id))
            for each in db.documents.browse(limit=1_000_000)
        ),
        *(
            (f"vector {each.id}", str(each.embedding.tolist()))
            for each in db.vectors.browse(limit=1_000_000)
        ),
        *((f"context {each.thread}", each.text) for each in db.memories.browse(limit=100).items),
    ]
    assert len(held) == len(dict(held)), "something is there twice"
    return dict(held)


def some_text(rng: random.Random) -> str:
    """A title and one or many sentences, from a small vocabulary."""
    sentences = rng.choice([1, 1, 1, 3, 40])
    lines = [" ".join(rng.choices(WORDS, k=9)) + "." for _ in range(sentences)]
    return f"# {rng.choice(WORDS)} {rng.randrange(10_000)}\n\n" + "\n\n".join(lines) + "\n"


WORDS = (
    "harbour lamp keeper signal winter bread letter engine coast 数据库 naïve parseHTMLDocument "
    "E-4021 river stone glass paper violet sudden quiet measure oil wick tide fog"
).split()


def steps(
    db: Database, rng: random.Random, owner: str, table: Mapping[str, tuple[int, Operation]]
) -> Iterator[Step]:
    """Operations without end, chosen by weight, on keys that no other owner uses."""
    operations = list(table.values())
    while True:
        _, operation = rng.choices(operations, [weight for weight, _ in operations])[0]
        yield operation(db, rng, owner)


# Children: real processes that write down what they begin and what was acknowledged to them.


class Journal:
    """The log of a child process; a line is written when the call that it reports has returned."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def write(self, **line: object) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass
class Account:
    """The content of a journal: acknowledged changes, the unfinished one, durations, errors."""

    acknowledged: dict[str, str | None] = field(default_factory=dict)
    begun: dict[str, str | None] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Account:
        account = cls()
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if not line.endswith(b"\n"):
                continue  # the child was killed while it wrote
            entry = json.loads(line)
            if "begin" in entry:
                account.begun = entry["begin"]
            elif "done" in entry:
                account.acknowledged |= account.begun
                if account.begun:
                    account.seconds.append(entry["done"])
                account.begun = {}
            else:
                account.errors.append(entry["error"])
        return account


def work(
    path: Path,
    owner: str,
    seed: str,
    journal: Path,
    kinds: Mapping[str, tuple[int, Operation]],
    count: int,
) -> None:
    """What a child process does: open the file, do `count` operations, close it."""
    rng, account = random.Random(seed), Journal(journal)
    try:
        with opened(path) as db:
            for _, step in zip(range(count), steps(db, rng, owner, kinds), strict=False):
                account.write(begin=dict(step.changes))
                started = time.perf_counter()
                step.call()
                account.write(done=time.perf_counter() - started)
    except Exception as error:
        account.write(
            error=f"{type(error).__name__}: {error} "
            f"({getattr(error.__cause__, 'extendedresult', '')})"
        )


def append(path: Path, owner: str, journal: Path) -> None:
    """What a child process does: add one document after the other until it is killed."""
    rng, account = random.Random(owner), Journal(journal)
    with opened(path) as db:
        for number in itertools.count():
            account.write(begin=number)
            db.documents.ingest_text(some_text(rng), source=f"{owner}-{number}")
            account.write(done=number)


def appended(journal: Path) -> tuple[int, int]:
    """How many documents `append` has stored, and how many it has begun to store."""
    lines = journal.read_bytes().splitlines() if journal.exists() else []
    return sum(b"done" in line for line in lines), sum(b"begin" in line for line in lines)


@dataclass(frozen=True)
class Resources:
    """The resources of a process: bytes of memory and open files."""

    memory: int
    files: int

    @classmethod
    def now(cls) -> Resources:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path("/proc/self/fd").iterdir())))


@dataclass(frozen=True)
class ResourceUsage:
    """The resources of a process over time, and the file size before and after compaction."""

    measurements: list[Resources]
    before: int
    after: int


def run_operations(path: Path, count: int, measurements: int, answer: Connection) -> None:
    """What a child process does: `count` operations on one open file, with regular measurements."""
    rng, taken = random.Random("a long life"), []
    with opened(path) as db:
        for number, step in zip(
            range(count), steps(db, rng, "life", {**WRITING, **READING}), strict=False
        ):
            step.call()
            if number % (count // measurements) == 0:
                taken.append(Resources.now())
        taken.append(Resources.now())
        before = db.stats().bytes
        db.compact()
        answer.send(ResourceUsage(taken, before, db.stats().bytes))


def start(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """A new process, forked from a server that has the library loaded but no file open."""
    process = _server().Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def _server() -> ForkServerContext:
    memory = multiprocessing.get_context("forkserver")
    memory.set_forkserver_preload(
        ["tests.torture.support_torture", "numpy", "tokenizers", "mcpvectordb.recovery.salvage"]
    )
    return memory


def wait_for(condition: Callable[[], object], seconds: float = 60, what: str = "it") -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def disagreements(found: State, before: State, accounts: Iterable[Account]) -> list[str]:
    """Where a file differs from the acknowledged changes.

    The unfinished change of each process may be there or not.
    """
    expected: dict[str, set[str | None]] = {key: {content} for key, content in before.items()}
    for account in accounts:
        expected |= {key: {content} for key, content in account.acknowledged.items()}
        for key, content in account.begun.items():
            expected.setdefault(key, {None}).add(content)
    return [
        f"{key} is {_short(found.get(key))} instead of "
        f"{' or '.join(map(_short, expected.get(key, {None})))}"
        for key in sorted(expected.keys() | found.keys())
        if found.get(key) not in expected.get(key, {None})
    ]


def _short(content: str | None) -> str:
    return "absent" if content is None else repr(content[:40])
