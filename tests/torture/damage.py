"""Ways to damage a file, and checks of a damaged file in child processes that may crash."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from mcpvectordb import Database, DatabaseError, MCPVectorDBError, NotFound
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.recovery.salvage import salvage
from tests.support import Letters
from tests.torture.support_torture import State, some_text, start, state

PAGE = 8192
TIMEOUT = 60.0  # seconds for one file, on a busy machine
Spoiler = Callable[[bytearray, random.Random], None]


def opened(path: Path) -> Database:
    """A damaged file; every other one is searched by its codes, small as it is."""
    by_codes = 0
    if path.is_file():
        with path.open("rb") as file:
            by_codes = zlib.crc32(file.read(1_000_000)) % 2
    tuning = Tuning(lease_seconds=0.3, exact_rows=0 if by_codes else 5_000, uncoded_chunks=0)
    return Database(path, embedder=Letters(), tuning=tuning)


def made(path: Path) -> State:
    """Make a file with every kind of content, some of it deleted or not embedded yet."""
    rng = random.Random("a file to be damaged")
    with opened(path) as db:
        for number in range(60):
            db.documents.ingest_text(
                some_text(rng), source=f"a{number}", embed=number % 7 > 0, metadata={"n": number}
            )
            db.vectors.add(f"v{number}", [rng.uniform(-1, 1) for _ in range(4)])
            db.memories.add(f"t{number}", "user", some_text(rng)) if number % 3 == 0 else None
        for document in db.documents.browse(limit=10):
            db.documents.delete(document.id)
        return state(db)


def forked(target: Callable[[Path], None], path: Path) -> None:
    """Run a function in a child process that exits without closing what is open."""
    child = os.fork()
    if child == 0:
        target(path)
        os._exit(1)  # it has closed what it had open
    assert os.waitpid(child, 0)[1] == 0


def exit_while_writing(path: Path) -> None:
    """Write to a file and exit, so that a log is left; to be used with `forked`."""
    db = opened(path)
    rng = random.Random("a log to be damaged")
    for number in range(20):
        db.documents.ingest_text(some_text(rng), source=f"b{number}")
    os._exit(0)


def _flip(data: bytearray, rng: random.Random, place: int) -> None:
    data[place] ^= 1 << rng.randrange(8)


def _flip_one(data: bytearray, rng: random.Random) -> None:
    _flip(data, rng, rng.randrange(len(data)))


def _flip_many(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(2, 200)):
        _flip_one(data, rng)


def _flip_head_of_page(data: bytearray, rng: random.Random) -> None:
    _flip(data, rng, min(len(data) - 1, rng.randrange(0, len(data), PAGE) + rng.randrange(40)))


def _flip_what_is_used(data: bytearray, rng: random.Random) -> None:
    places = rng.choices(range(len(data)), k=400)
    _flip(data, rng, next((place for place in places if data[place]), 0))


def _noise(data: bytearray, rng: random.Random) -> None:
    place, length = rng.randrange(len(data)), rng.randint(1, 600)
    data[place : place + length] = rng.randbytes(len(data[place : place + length]))


def _lost_sector(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(0, len(data), 512)
    data[place : place + 512] = bytes(len(data[place : place + 512]))


def _swapped_pages(data: bytearray, rng: random.Random) -> None:
    one, other = (PAGE * rng.randrange(len(data) // PAGE) for _ in range(2))
    data[one : one + PAGE], data[other : other + PAGE] = (
        data[other : other + PAGE],
        data[one : one + PAGE],
    )


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(1, len(data)) :]


def _cut_at_page(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(PAGE, len(data), PAGE) :]


SPOILERS: tuple[Spoiler, ...] = (
    _flip_one,
    _flip_one,
    _flip_one,
    _flip_what_is_used,
    _flip_what_is_used,
    _flip_many,
    _flip_head_of_page,
    _flip_head_of_page,
    _noise,
    _lost_sector,
    _swapped_pages,
    _cut,
    _cut_at_page,
)


def write_damaged(base: Path, target: Path, number: int) -> None:
    """Write a damaged copy of a file and its log, the same for the same number."""
    rng = random.Random(f"spoiled {number}")
    for part in ("", "-wal"):
        Path(f"{target}{part}").unlink(missing_ok=True)
        if Path(f"{base}{part}").exists():
            shutil.copyfile(f"{base}{part}", f"{target}{part}")
    victim = (
        Path(f"{target}-wal") if Path(f"{base}-wal").exists() and rng.random() < 0.5 else target
    )
    data = bytearray(victim.read_bytes())
    rng.choice(SPOILERS)(data, rng)
    victim.write_bytes(data)


@dataclass
class Inspection:
    """How a file was treated (`answer`), and everything that must not have happened (`wrong`)."""

    answer: str = ""
    wrong: list[str] = field(default_factory=list)


def inspect_file(path: Path, before: State, *, save: bool = False, new: bool = False) -> Inspection:
    """Open a file that may be damaged, read all of it, and optionally repair and salvage it."""
    inspection, fingerprint = Inspection(), _fingerprint(path)
    # A log of ours is written back when the file is closed.
    may_change = new or Path(f"{path}-wal").exists()
    try:
        with opened(path) as db:
            reported = [answer for answer in _read_everything(db, inspection) if answer]
            inspection.answer = "damage reported" if reported else "sound"
            inspection.wrong += _changed(texts(db), before) if before and not reported else []
    except DatabaseError as error:
        inspection.answer = f"refused: {type(error).__name__}"
    except Exception as error:
        inspection.wrong.append(f"opening raised {type(error).__name__}: {error}")
    if not may_change or inspection.answer.startswith("refused"):
        if _fingerprint(path) != fingerprint:
            inspection.wrong.append("reading changed the file")
        left = [
            each.name
            for each in path.parent.iterdir()
            if each.name.startswith(path.name) and each != path
        ]
        if left and not may_change:
            inspection.wrong.append(f"reading left {left}")
    if inspection.answer != "sound" and save:
        write_to(path, inspection)
        _salvage(path, before, inspection)
    return inspection


def _fingerprint(path: Path) -> object:
    """What reading must not change: the bytes of an ordinary file, or the status of another."""
    try:
        info = path.stat()
    except OSError as error:
        return str(error)
    return (
        path.read_bytes()
        if path.is_file() and info.st_size < 1 << 30
        else (info.st_mode, info.st_ino, info.st_size)
    )


def _read_everything(db: Database, inspection: Inspection) -> Iterator[str]:
    """The results of every way of reading; errors of other libraries are added to `wrong`."""
    documents = db.documents
    questions: list[Callable[[], object]] = [
        db.stats,
        documents.libraries,
        documents.count,
        lambda: db.memories.search("harbour"),
        lambda: [documents.text(each.id) for each in documents.browse(limit=1_000)],
        lambda: documents.search("harbour lamp", mode="text", limit=20),
        lambda: documents.search("harbour lamp", mode="vector", limit=20),
        lambda: documents.search("harbour lamp", mode="hybrid", limit=20),
        lambda: documents.search(
            "tide", where={"metadata.n": {"gt": 3}, "source": {"starts_with": "a"}}
        ),
        lambda: db.vectors.search([1.0, 2.0, 3.0, 4.0]),
        lambda: db.memories.browse(limit=50),
    ]
    for question in (lambda: "; ".join(db.check()), *questions):
        try:
            answer = question()
            yield answer if isinstance(answer, str) else ""
        except (DatabaseError, NotFound) as error:
            yield str(error)
        except Exception as error:
            inspection.wrong.append(f"a question raised {type(error).__name__}: {error}")


def write_to(path: Path, inspection: Inspection) -> None:
    """Write to the damaged file; it may refuse, but not hang or raise an error that is not ours."""
    try:
        with opened(path) as db:
            for deed in (
                lambda: db.documents.ingest_text("new harbour", source="new"),
                lambda: [db.documents.delete(each.id) for each in db.documents.browse(limit=5)],
                db.embed_pending,
                db.rebuild,
                db.compact,
                db.check,
            ):
                with contextlib.suppress(MCPVectorDBError):
                    deed()
    except DatabaseError:
        pass
    except Exception as error:
        inspection.wrong.append(f"writing raised {type(error).__name__}: {error}")


def _salvage(path: Path, before: State, inspection: Inspection) -> None:
    target = path.with_name("saved.db")
    target.unlink(missing_ok=True)
    try:
        done = salvage(path, target, embedder=Letters())
    except DatabaseError:
        return  # nothing was left
    with opened(target) as db:
        reported = {f"document {source}" for source in done.incomplete} | {"document new"}
        whole = {key: text for key, text in texts(db).items() if key not in reported}
        inspection.wrong += [
            f"saved: {problem}" for problem in (*db.check(), *_changed(whole, before))
        ]


def texts(db: Database) -> State:
    """The texts of the documents of a file."""
    return {
        f"document {each.source}": db.documents.text(each.id)
        for each in db.documents.browse(limit=1_000)
    }


def _changed(found: State, before: State) -> list[str]:
    """The texts that have changed without being reported.

    Names and white space are not compared, because no hash covers them.
    """
    known = {"".join(content.split()) for content in before.values()}
    return [
        f"{key} is {content[:40]!r}"
        for key, content in found.items()
        if "".join(content.split()) not in known
    ]


# Many files in few children.

Job = Callable[[int], Inspection]


def in_children(
    job: Callable[..., Inspection],
    arguments: Sequence[object],
    numbers: Sequence[int],
    children: int = 2,
) -> Iterator[tuple[int, Inspection]]:
    """Run a job for each number in child processes; a crash or a hang is a failure of it."""
    waiting = list(reversed(numbers))
    running: dict[Connection, tuple[_Child, list[int]]] = {}
    while waiting or running:
        while waiting and len(running) < children:
            batch = [waiting.pop() for _ in range(min(50, len(waiting)))]
            child = _Child(job, arguments, batch)
            running[child.answers] = (child, batch)
        ready = wait(list(running), timeout=1)
        for answers in [each for each in running if each in ready or running[each][0].late]:
            child, batch = running[answers]
            inspection = child.answer()
            yield batch.pop(0), inspection
            if child.dead or not batch:
                del running[answers]
                child.end()
                waiting += reversed(batch)


class _Child:
    def __init__(
        self, job: Callable[..., Inspection], arguments: Sequence[object], batch: Sequence[int]
    ) -> None:
        self.answers, theirs = Pipe(duplex=False)
        self._process = start(_work_through, job, tuple(arguments), list(batch), theirs)
        theirs.close()
        self._since = time.monotonic()
        self.dead = False

    @property
    def late(self) -> bool:
        return time.monotonic() - self._since > TIMEOUT

    def answer(self) -> Inspection:
        self._since = time.monotonic()
        if not self.answers.poll():
            self.dead = True
            return Inspection("hang", [f"the process did not come back within {TIMEOUT:g} s"])
        try:
            inspection: Inspection = self.answers.recv()
            return inspection
        except EOFError:
            self.dead = True
            self._process.join()
            return Inspection("crash", [f"the process died with {self._process.exitcode}"])

    def end(self) -> None:
        if self.dead:
            self._process.kill()
        self._process.join()
        self.answers.close()


def _work_through(
    job: Callable[..., Inspection],
    arguments: tuple[object, ...],
    batch: list[int],
    answers: Connection,
) -> None:
    for number in batch:
        answers.send(job(*arguments, number))


def damage_and_inspect(base: Path, folder: Path, before: State, number: int) -> Inspection:
    """The job for one damaged file."""
    own = folder / str(number)
    own.mkdir()
    write_damaged(base, own / "spoiled.db", number)
    inspection = inspect_file(own / "spoiled.db", before, save=number % 3 == 0)
    shutil.rmtree(own)
    return inspection
