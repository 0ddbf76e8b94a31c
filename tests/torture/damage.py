"""Ways to spoil a file, and a look at what is left of it, in children that may die of it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from mcpvectordb import Database, DatabaseError, MCPVectorDBError, NotFound
from mcpvectordb.index import chunks, vector
from mcpvectordb.recovery.salvage import salvage
from tests.support import Letters
from tests.torture.support_torture import State, some_text, start, state

PAGE = 8192
PATIENCE = 60.0  # seconds for one file, on a busy machine
Spoiler = Callable[[bytearray, random.Random], None]


def made(path: Path) -> State:
    """A file of every kind of content, some of it deleted or waiting."""
    rng = random.Random("a file to be damaged")
    with Database(path, embedder=Letters()) as db:
        for number in range(60):
            db.documents.ingest_text(
                some_text(rng), source=f"a{number}", embed=number % 7 > 0, metadata={"n": number}
            )
            db.vectors.add(f"v{number}", [rng.uniform(-1, 1) for _ in range(4)])
            db.contexts.add(f"t{number}", "user", some_text(rng)) if number % 3 == 0 else None
        for document in db.documents.browse(limit=10):
            db.documents.delete(document.id)
        return state(db)


def forked(target: Callable[[Path], None], path: Path) -> None:
    """Do something in a child that dies of it, so that what is open stays as it is."""
    child = os.fork()
    if child == 0:
        target(path)
        os._exit(1)  # it has closed what it had open
    assert os.waitpid(child, 0)[1] == 0


def die_while_writing(path: Path) -> None:
    """Leave a log behind; to be forked."""
    db = Database(path, embedder=Letters())
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


def spoiled(base: Path, target: Path, number: int) -> None:
    """Write a damaged copy of a file and its log, the same one for the same number."""
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
class Look:
    """What became of one file: how it was received, and everything that must not have happened."""

    answer: str = ""
    wrong: list[str] = field(default_factory=list)


def looked_at(path: Path, before: State, *, save: bool = False, new: bool = False) -> Look:
    """Open a file that may be damaged, ask it everything, mend it and save what is left of it."""
    look, print_before = Look(), _print(path)
    may_change = (
        new or Path(f"{path}-wal").exists()
    )  # a log of ours is written back when the file is closed
    try:
        with Database(path, embedder=Letters()) as db:
            told = [answer for answer in _asked(db, look) if answer]
            look.answer = "damage told" if told else "sound"
            look.wrong += _changed(texts(db), before) if before and not told else []
    except DatabaseError as error:
        look.answer = f"refused: {type(error).__name__}"
    except Exception as error:
        look.wrong.append(f"opening raised {type(error).__name__}: {error}")
    if not may_change or look.answer.startswith("refused"):
        if _print(path) != print_before:
            look.wrong.append("reading changed the file")
        left = [
            each.name
            for each in path.parent.iterdir()
            if each.name.startswith(path.name) and each != path
        ]
        if left and not may_change:
            look.wrong.append(f"reading left {left}")
    if look.answer != "sound" and save:
        mended(path, look)
        _saved(path, before, look)
    return look


def _print(path: Path) -> object:
    """What must stay the same: the bytes of an ordinary file, or what kind of thing it is."""
    try:
        info = path.stat()
    except OSError as error:
        return str(error)
    return (
        path.read_bytes()
        if path.is_file() and info.st_size < 1 << 30
        else (info.st_mode, info.st_ino, info.st_size)
    )


def _asked(db: Database, look: Look) -> Iterator[str]:
    """What every way of reading says; only errors of ours may come back."""
    documents = db.documents
    questions: list[Callable[[], object]] = [
        db.stats,
        documents.libraries,
        documents.count,
        lambda: db.contexts.search("harbour"),
        lambda: [documents.text(each.id) for each in documents.browse(limit=1_000)],
        lambda: documents.search("harbour lamp", mode="text", limit=20),
        lambda: documents.search("harbour lamp", mode="vector", limit=20),
        lambda: documents.search("harbour lamp", mode="hybrid", limit=20),
        lambda: documents.search(
            "tide", where={"metadata.n": {"gt": 3}, "source": {"starts_with": "a"}}
        ),
        lambda: db.vectors.search([1.0, 2.0, 3.0, 4.0]),
        lambda: db.contexts.browse(limit=50),
    ]
    for question in (lambda: "; ".join(db.check()), *questions):
        try:
            answer = question()
            yield answer if isinstance(answer, str) else ""
        except (DatabaseError, NotFound) as error:
            yield str(error)
        except Exception as error:
            look.wrong.append(f"a question raised {type(error).__name__}: {error}")


def mended(path: Path, look: Look) -> None:
    """Write to the damaged file: it may refuse, but it may neither hang nor raise what is not
    ours.
    """
    try:
        with Database(path, embedder=Letters()) as db:
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
        look.wrong.append(f"mending raised {type(error).__name__}: {error}")


def _saved(path: Path, before: State, look: Look) -> None:
    target = path.with_name("saved.db")
    target.unlink(missing_ok=True)
    try:
        done = salvage(path, target, embedder=Letters())
    except DatabaseError:
        return  # nothing was left
    with Database(target, embedder=Letters()) as db:
        told = {f"document {source}" for source in done.incomplete} | {"document new"}
        whole = {key: text for key, text in texts(db).items() if key not in told}
        look.wrong += [f"saved: {problem}" for problem in (*db.check(), *_changed(whole, before))]


def texts(db: Database) -> State:
    """The documents of a file."""
    return {
        f"document {each.source}": db.documents.text(each.id)
        for each in db.documents.browse(limit=1_000)
    }


def _changed(found: State, before: State) -> list[str]:
    """Texts that are not what they were although nobody said so; names and white space have nothing
    that could prove them.
    """
    known = {"".join(content.split()) for content in before.values()}
    return [
        f"{key} is {content[:40]!r}"
        for key, content in found.items()
        if "".join(content.split()) not in known
    ]


# Many files in few children.

Job = Callable[[int], Look]


def in_children(
    job: Callable[..., Look], arguments: Sequence[object], numbers: Sequence[int], children: int = 2
) -> Iterator[tuple[int, Look]]:
    """Do a job for every number in processes of their own; a death or a hang is what that number's
    file has done.
    """
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
            look = child.answer()
            yield batch.pop(0), look
            if child.dead or not batch:
                del running[answers]
                child.end()
                waiting += reversed(batch)


class _Child:
    def __init__(
        self, job: Callable[..., Look], arguments: Sequence[object], batch: Sequence[int]
    ) -> None:
        self.answers, theirs = Pipe(duplex=False)
        self._process = start(_work_through, job, tuple(arguments), list(batch), theirs)
        theirs.close()
        self._since = time.monotonic()
        self.dead = False

    @property
    def late(self) -> bool:
        return time.monotonic() - self._since > PATIENCE

    def answer(self) -> Look:
        self._since = time.monotonic()
        if not self.answers.poll():
            self.dead = True
            return Look("hang", [f"the process did not come back within {PATIENCE:g} s"])
        try:
            look: Look = self.answers.recv()
            return look
        except EOFError:
            self.dead = True
            self._process.join()
            return Look("crash", [f"the process died with {self._process.exitcode}"])

    def end(self) -> None:
        if self.dead:
            self._process.kill()
        self._process.join()
        self.answers.close()


def _work_through(
    job: Callable[..., Look], arguments: tuple[object, ...], batch: list[int], answers: Connection
) -> None:
    chunks.LEASE_SECONDS = 0.3
    for number in batch:
        vector.EXACT_ROWS = 5_000 * (number % 2)  # every other file is searched by its vec0 tables
        answers.send(job(*arguments, number))


def spoil_and_look(base: Path, folder: Path, before: State, number: int) -> Look:
    """The job for one damaged file."""
    own = folder / str(number)
    own.mkdir()
    spoiled(base, own / "spoiled.db", number)
    look = looked_at(own / "spoiled.db", before, save=number % 3 == 0)
    shutil.rmtree(own)
    return look
