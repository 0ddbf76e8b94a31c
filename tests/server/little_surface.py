"""A small surface with everything a surface can have, over a list instead of a database."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from mcpvectordb import Database, MCPVectorDBError, NotFound, Progress, RetryLater
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.replies import Reply, Resource, Text, failed
from mcpvectordb_server.surface import (
    READS,
    Hints,
    InternalError,
    Prompt,
    ResourceTemplate,
    Surface,
    Tool,
)


class Shelf:
    """Stands in for a Database: notes in a list, and events that tests wait for."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warmed = threading.Event()
        self.stopped = threading.Event()
        self.rested, self.pause = threading.Event(), 0.01

    def warm(self) -> None:
        self.warmed.set()

    def last_change(self) -> int:
        return len(self.notes)

    def deadline(self, cancelled: object = None) -> AbstractContextManager[None]:
        return nullcontext()

    def acting_as(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()


class Added(TypedDict, total=False):
    """What was added."""

    status: str
    count: int
    error: str


class Part(TypedDict):
    """A part of a list."""

    text: str
    weight: NotRequired[int]
    extra: NotRequired[dict[str, Any]]


def add(
    db: Shelf,
    *,
    note: Annotated[str, "What to keep"],
    times: Annotated[int, "How often"] = 1,
    extra: Annotated[dict[str, Any] | None, "Anything else"] = None,
) -> Added:
    """Keep a note. See `find` for finding it."""
    db.notes += [note] * times
    return Added(status="added", count=len(db.notes))


def find(db: Shelf, *, word: str) -> dict[str, Any]:
    """Find notes by a word, which `add` kept."""
    found = [note for note in db.notes if word in note]
    if not found:
        raise NotFound(f"no note has the word {word!r}")
    return {"results": found, "count": len(found)}


def everything(db: Shelf) -> list[str]:
    """All notes, as a plain list."""
    return db.notes


def bounded(
    db: Shelf,
    *,
    limit: Annotated[int, Field(ge=1, le=100)] = 5,
    source: Literal["user", "agent"] = "user",
    parts: Annotated[list[Part], Field(max_length=3)] = [],  # noqa: B006
    vector: list[float] | None = None,
    exact: bool = False,
) -> dict[str, Any]:
    """Take arguments with bounds and give them back."""
    return {"limit": limit, "source": source, "parts": parts, "vector": vector, "exact": exact}


def read(db: Shelf, *, file: str) -> Reply:
    """Give a note as an embedded resource."""
    return Reply(
        content=(
            Text(text="first a notice"),
            Resource(uri=f"little://{file}", name=file, title=f"The {file}", text="1: body"),
        )
    )


def slow(db: Shelf, *, steps: int, grant: Grant = Grant()) -> dict[str, Any]:  # noqa: B008
    """Take a while, step by step."""
    try:
        for done in range(steps):
            grant.progress(Progress(step="work", done=done, total=steps))
            time.sleep(0.02)
        grant.progress(Progress(step="work", done=steps, total=steps))
        grant.progress(
            Progress(step="tidy", done=1, total=1, tokens_per_second=1234.5, seconds_left=61.2)
        )
    finally:
        db.stopped.set()
    return {"steps": steps}


def fetch(db: Shelf, *, grant: Grant = Grant()) -> dict[str, Any]:  # noqa: B008
    """Fetch from a host that is left alone for some time."""
    if not db.rested.is_set():
        raise RetryLater("not yet", db.pause)
    return {"fetched": True}


def roots(db: Shelf, *, grant: Grant = Grant()) -> dict[str, Any]:  # noqa: B008
    """Return the granted folders."""
    return {"roots": None if grant.roots is None else [str(root) for root in grant.roots]}


def broken(db: Shelf) -> dict[str, Any]:
    """Raise an unexpected exception."""
    raise RuntimeError("SELECT secret FROM /home/user/private.db")


def read_note(db: Shelf, path: str) -> str:
    if path == "missing":
        raise NotFound("no such note")
    if path == "broken":
        raise RuntimeError("SELECT secret")
    return f"note {path}: {db.notes}" if path != "long" else "x" * 300_000


def dict_dialect(tool: str, error: MCPVectorDBError) -> dict[str, Any]:
    return {
        "status": "error",
        "error": ("Internal error: " if isinstance(error, InternalError) else "") + str(error),
    }


def flag_dialect(tool: str, error: MCPVectorDBError) -> Reply:
    return failed(str(error))


WRITES = Hints(read_only=False, destructive=True, idempotent=False, open_world=True)
INGESTS = WRITES._replace(destructive=False, idempotent=True)

LITTLE = Surface(
    name="little",
    version="1.2.3",
    instructions="Keep notes with {add}; find them with {find}.",
    tools=(
        Tool(function=add, title="Add a note", hints=WRITES),
        *(
            Tool(function=each, title=each.__name__.title(), hints=READS, more="ask for fewer")
            for each in (find, everything, bounded, read, broken)
        ),
        *(
            Tool(function=each, title=each.__name__.title(), hints=INGESTS)
            for each in (slow, fetch, roots)
        ),
    ),
    failure=dict_dialect,
)

FLAGGING = Surface(
    name="flagging",
    version="2.0",
    instructions="A second one: {find}, {broken}.",
    tools=(
        Tool(function=find, title="Find", hints=READS),
        Tool(function=broken, title="Break", hints=READS),
    ),
    failure=flag_dialect,
    templates=(
        ResourceTemplate(
            prefix="little://",
            name="note",
            title="A note",
            description="A note by its number.",
            read=read_note,
        ),
    ),
    prompt=Prompt(
        name="guide", title="Guide", description="How to use it.", text="Call {find} first."
    ),
)


def read_for_ever(db: Database, begun: threading.Event, ended: threading.Event) -> None:
    """A read that only its deadline or its client ends; it says when it begins and has ended."""
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    try:
        with db._file.reading() as sql:
            begun.set()
            sql.execute(f"{numbers} SELECT count(*) FROM n").fetchall()
    finally:
        ended.set()
