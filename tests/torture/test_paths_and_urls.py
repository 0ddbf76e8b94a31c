"""Files and URLs that an agent names: what it must not read is refused with a reason."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.surfaces import load
from tests.guarantees import Guarantee
from tests.server.clients import service
from tests.support_files import KEYS, SECRETS, make
from tests.torture.hostile_calls import Defects, Session, refusal_of
from tests.torture.support_torture import opened

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(os.name != "posix", reason="needs links, pipes and sockets"),
]

SECRET = "the treasure lies under the third stone"
TOOLS = (("mcpvectordb", "ingest_file", "path"), ("openrag", "ingest_document", "file_path"))


@contextmanager
def offered(db: Database, roots: tuple[Path, ...] | None = None) -> Iterator[dict[str, Session]]:
    """A session with each surface that reads files."""
    with (
        Defects.watched() as defects,
        Session.with_server(service(db, load("mcpvectordb"), roots=roots)) as one,
        Session.with_server(service(db, load("openrag"), roots=roots)) as other,
    ):
        yield {"mcpvectordb": one, "openrag": other}
        defects.none()


def refusal_text(
    sessions: dict[str, Session], surface: str, tool: str, arguments: dict[str, Any]
) -> str:
    """The text of a refusal, "" if there was none."""
    session = sessions[surface]
    described = next(each for each in session.tools if each["name"] == tool)
    return refusal_of(
        surface, described, session.request("tools/call", {"name": tool, "arguments": arguments})
    )


def readable_text(db: Database) -> str:
    """Everything in a reply that a client can read."""
    return "\n".join(db.documents.text(each.id) for each in db.documents.browse(limit=1_000))


# Paths


def world(folder: Path) -> tuple[list[str], list[str]]:
    """A folder that may be read, and many files outside of it that may not.

    Returns the paths that are refused if the folder is a root, and those that are always refused.
    """
    inside, outside = folder / "inside", folder / "outside"
    make(inside / "sub" / "note.txt", b"harmless")
    make(outside / "secret.txt", SECRET.encode())
    links = {
        "link.txt": outside / "secret.txt",
        "folder": outside,
        "absolute": Path("/"),
        "dangling.txt": outside / "none.txt",
        "up": Path(".."),
        "chain.txt": inside / "folder" / "secret.txt",
        "loop": inside / "loop",
        "device.txt": Path("/dev/zero"),
        "kernel.txt": Path("/proc/self/environ"),
        "database.txt": folder / "x.db",
    }
    for name, target in links.items():
        (inside / name).symlink_to(target)
    os.link(folder / "x.db", inside / "hard.txt")
    os.link(folder / "x.db-wal", inside / "hard-wal.txt")
    os.mkfifo(inside / "pipe.txt")
    with closing(socket.socket(socket.AF_UNIX)) as server:
        here = Path.cwd()
        os.chdir(inside)  # the path of a socket must be short
        server.bind("socket.txt")
        os.chdir(here)
    escapes = [
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "link.txt",
        "folder/secret.txt",
        "up/outside/secret.txt",
        "chain.txt",
        "absolute/etc/passwd",
        f"absolute{outside}/secret.txt",
        "dangling.txt",
        "sub//..//..//outside//secret.txt",
    ]
    outward = [
        *(str(inside / each) for each in escapes),
        str(outside / "secret.txt"),
        "/etc/passwd",
        "/etc/hostname",
        "~/x.txt",
        "~root/x",
        f"{inside}-not/x.txt",
        str(folder),
        f"{inside}/./../outside/secret.txt",
    ]
    odd = [
        "hard.txt",
        "hard-wal.txt",
        "pipe.txt",
        "socket.txt",
        "device.txt",
        "kernel.txt",
        "loop",
        "database.txt",
        "sub",
        "missing.txt",
        "sub/note.txt/x",
        "a\x00b",
        "x" * 5_000,
    ]
    always = [
        *(str(inside / name) for name in odd),
        "/dev/zero",
        "/dev/null",
        "/dev/tty",
        "/dev/stdin",
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/proc/1/root/etc/passwd",
        "/sys/kernel/profiling",
        "/dev/../proc/version",
        "/proc/self/root/etc/passwd",
        "",
        " ",
        "/",
        *(f"{folder / 'x.db'}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    ]
    always += [str(make(inside / "home" / each, SECRET.encode())) for each in SECRETS]
    always += [
        str(make(inside / f"key{number}.txt", head + SECRET.encode()))
        for number, head in enumerate(KEYS)
    ]
    return outward, always


def test_no_path_leads_outside_the_roots_or_to_a_secret(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    with opened(tmp_path / "x.db") as db:
        db.documents.ingest_text("so that there is a log", source="x")
        outward, always = world(tmp_path)
        cases = [
            (tool, path, rooted)
            for tool in TOOLS
            for paths, rooted in ((outward, True), (always, True), (always, False))
            for path in paths
        ]
        tested = guarantee("8 paths", full=len(cases), short=len(cases))
        with offered(db) as free, offered(db, (tmp_path / "inside",)) as bound:

            def round(number: int, rng: random.Random) -> None:
                (surface, tool, parameter), path, rooted = cases[number % len(cases)]
                reason = refusal_text(bound if rooted else free, surface, tool, {parameter: path})
                assert len(reason) > 15, f"{tool} {path}: {reason!r}"
                assert SECRET not in reason and SECRET not in readable_text(db)

            tested.run_rounds(round)
            assert (
                refusal_text(
                    bound, *TOOLS[0][:2], {"path": str(tmp_path / "inside" / "sub" / "note.txt")}
                )
                == ""
            )
        assert db.check() == []


def test_a_path_swapped_between_check_and_open_is_not_read(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    tested = guarantee("8 races between check and open", full=5_000, short=50)
    inside, over = tmp_path / "inside", threading.Event()
    make(inside / "sub" / "note.txt", b"public")
    make(inside / "file.txt", b"public")
    secret = make(tmp_path / "outside" / "note.txt", SECRET.encode())
    outcomes: dict[str, int] = {}
    with opened(tmp_path / "x.db") as db, offered(db, (inside,)) as sessions:

        def round(number: int, rng: random.Random) -> None:
            surface, tool, parameter = TOOLS[number % 2]
            reason = refusal_text(
                sessions,
                surface,
                tool,
                {parameter: str(inside / rng.choice(["sub/note.txt", "file.txt"]))},
            )
            outcomes["refused" if reason else "read"] = (
                outcomes.get("refused" if reason else "read", 0) + 1
            )
            if number % 50 == 0:
                assert SECRET not in readable_text(db)

        swappers = [
            threading.Thread(target=swap, args=[inside / name, target, over])
            for name, target in (("sub", secret.parent), ("file.txt", secret))
        ]
        for swapper in swappers:
            swapper.start()
        try:
            tested.run_rounds(round)
        finally:
            over.set()
            for swapper in swappers:
                swapper.join()
        assert (
            SECRET not in readable_text(db)
            and db.documents.search("treasure", mode="text").hits == ()
        )
    tested.note = ", ".join(f"{count:,} {name}" for name, count in sorted(outcomes.items()))


def swap(path: Path, target: Path, over: threading.Event) -> None:
    """Replace a path by a symbolic link and restore it, repeatedly."""
    original, link = path.with_name(f"{path.name}.kept"), path.with_name(f"{path.name}.link")
    while not over.is_set():
        link.symlink_to(target)
        path.rename(original)
        link.rename(path)
        path.unlink()
        original.rename(path)
        over.wait(0.002)
