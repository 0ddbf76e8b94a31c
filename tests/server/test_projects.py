"""Ten sessions at once, over stdio and HTTP, on one file: none sees what belongs to another project."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from mcpvectordb_server.surfaces.desk import SURFACE
from tests.server.clients import Wire, hello, service
from tests.server.support_http import Running
from tests.support import Letters

SESSIONS = 10

Call = Callable[..., str]


def text_of(result: dict[str, object]) -> str:
    return json.dumps(result["content"], ensure_ascii=False)


def over_http(running: Running, project: str) -> Call:
    """Calls of one client that names its project in each."""
    _, _, told = running.answer("POST", "/mcp", {"jsonrpc": "2.0", "id": 1} | HELLO)
    session = {"Mcp_Session_Id": told["mcp-session-id"]} if "mcp-session-id" in told else {}
    counter = iter(range(2, 10**9))

    def call(tool: str, **arguments: object) -> str:
        params = {"name": tool, "arguments": {**arguments, "project": project}}
        body = {"jsonrpc": "2.0", "id": next(counter), "method": "tools/call", "params": params}
        status, text = running.request(body=body, **session)
        assert status == 200, text
        [line] = [each for each in text.splitlines() if '"result"' in each]
        return text_of(json.loads(line.removeprefix("data:"))["result"])

    return call


HELLO = {"method": "initialize", "params": hello()}


@contextlib.contextmanager
def over_stdio(db: Path, project: str, folder: Path) -> Iterator[Call]:
    """Calls to a server of its own, whose project is that of its working folder, or is named."""
    (folder / project).mkdir(parents=True)
    named = project if project[-1] in "02468" else "auto"
    arguments = ("--db", str(db), "--surface", "desk", "--project", named)
    with Wire(*arguments, cwd=folder / project, patience=3_000) as wire:
        wire.handshake()
        yield lambda tool, **arguments: text_of(wire.call(tool, arguments))


def converse(call: Call, project: str, calls: int, start: threading.Barrier) -> int:
    """Store, search and list, again and again; how many replies had something of the project.

    Raises AssertionError for a reply that has anything of another one.
    """
    chance, own, seen = random.Random(project), f"mark{project}", 0
    start.wait(120)
    for number in range(calls):
        topic = chance.choice(["", "plans"])
        inside = {"thread": topic} if topic else {}
        asked: list[tuple[str, dict[str, object]]] = [
            ("remember", {"text": f"The pump {own} number {number} is blue.", **inside}),
            ("search", {"query": "pump", "limit": 30, "budget": 8000, **inside}),
            ("search", {"query": f"is the pump {chance.choice(NAMES)} blue", "limit": 30}),
            ("grep", {"pattern": "mark", "limit": 100, **inside}),
            ("grep", {"pattern": "pump", "kind": "memories"}),
        ]
        tool, arguments = chance.choice(asked)
        reply = call(tool, **arguments)
        others = {name for name in NAMES if name != own and f"{name} " in reply}
        assert not others, f"{project} got {others}: {reply[:2000]}"
        assert "isError" not in reply
        seen += own in reply
    return seen


NAMES = [f"markp{number}" for number in range(SESSIONS)]


def run(tmp_path: Path, calls: int, over_stdio_sessions: int) -> int:
    """Let all sessions converse; how many replies had something of their own project."""
    path = tmp_path / "shared.db"
    with (
        Database(path, embedder=Letters(), config=Config(busy_timeout=120)) as db,
        contextlib.ExitStack() as opened,
    ):
        db.memories.add("general", "user", "The pump is red.")
        running = Running("streamable-http", service(db, SURFACE))
        opened.callback(running.stop)
        sessions: dict[str, Call] = {}
        for number in range(SESSIONS):
            project = f"p{number}"
            sessions[project] = (
                opened.enter_context(over_stdio(path, project, tmp_path / "work"))
                if number < over_stdio_sessions
                else over_http(running, project)
            )
        for project, call in sessions.items():  # so that every name is known
            call("remember", text=f"The first pump mark{project} is green.")
        start = threading.Barrier(SESSIONS)
        with ThreadPoolExecutor(SESSIONS) as pool:
            seen = list(
                pool.map(
                    lambda each: converse(each[1], each[0], calls // SESSIONS, start),
                    sessions.items(),
                )
            )
        for project in sessions:
            texts = [each.text for each in db.memories.browse(limit=10_000, project=project)]
            assert texts and all(f"mark{project}" in each for each in texts)
        assert db.memories.count() == 1 + sum(
            db.memories.count(project=each) for each in sessions
        ), "every memory is in the project of its session"
    assert min(seen) > 0
    return sum(seen)


def test_ten_sessions_of_ten_projects_do_not_see_each_other(tmp_path: Path) -> None:
    assert run(tmp_path, 200, 2) > 60


@pytest.mark.long
def test_ten_sessions_of_ten_projects_do_not_see_each_other_in_ten_thousand_calls(
    tmp_path: Path,
) -> None:
    assert run(tmp_path, 10_000, 3) > 4_000
