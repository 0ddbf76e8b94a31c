from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from tests.server.clients import Wire

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def call_line(id: Any, tool: str, arguments: str) -> str:
    params = f'{{"name":"{tool}","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"method":"tools/call","params":{params}}}'


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """One server for the tests that leave it as they found it."""
    with Wire("--db", str(tmp_path_factory.mktemp("stdio") / "test.db")) as wire:
        wire.send("")  # a blank line is nothing
        wire.send("   ")
        wire.handshake()
        yield wire


def test_the_stateless_protocol_is_served_too(path: Path) -> None:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    with Wire("--db", str(path)) as wire:
        discovered = wire.request("server/discover", {"_meta": envelope})["result"]
        assert "2026-07-28" in discovered["supportedVersions"]
        called = wire.request(
            "tools/call", {"name": "list_libraries", "arguments": {}, "_meta": envelope}
        )["result"]
        assert called["structuredContent"] == {"libraries": []}


def test_tools_are_listed_byte_by_byte_the_same_whatever_the_hashes_are(path: Path) -> None:
    def listed(seed: str, *flags: str) -> list[dict[str, Any]]:
        environ = {"PYTHONHASHSEED": seed}
        with Wire("--db", str(path), "--surface", "all", *flags, environ=environ) as wire:
            wire.handshake()
            tools: list[dict[str, Any]] = wire.request("tools/list")["result"]["tools"]
            return tools

    every = listed("1")
    assert json.dumps(every) == json.dumps(listed("2"))
    hidden = ("--disable-tool", "get,search", "--disable-tool", "vector_add", "--read-only")
    fewer = listed("3", *hidden)
    assert 10 < len(fewer) < len(every)
    left = {tool["name"] for tool in fewer}
    names = [each["name"] for each in every]
    assert [each["name"] for each in fewer] == [name for name in names if name in left]


def test_stdout_has_only_the_protocol_and_stderr_only_expected_warnings(
    path: Path, tmp_path: Path
) -> None:
    note = tmp_path / "tea.md"
    note.write_text("# Tea\n\nWater at 80 degrees.\n")
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        wire.call("ingest_file", {"path": str(note)})
        found = wire.call("search", {"query": "water", "colour": "green"})["structuredContent"]
        assert found["results"][0]["title"] == "Tea"
        assert wire.finish() == 0
        assert wire.process.stdout is not None
        assert wire.process.stdout.read() == ""
        assert (
            wire.errors
            == "WARNING mcpvectordb_server: search ignores the unknown argument 'colour'\n"
        )


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        ("hello", None, -32700),
        ('{"jsonrpc":"2.0","id":7,"method":"ping"', 7, -32700),
        (f'{{"params":{"[" * 100_000}{"]" * 100_000},"jsonrpc":"2.0","id":"x"}}', "x", -32700),
        ("[]", None, -32600),
        ('{"jsonrpc":"2.0","id":8}', 8, -32600),
        ('{"jsonrpc":"1.0","id":9,"method":"ping"}', 9, -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":true,"method":"tools/list"}', None, -32600),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":77,"method":"tools/call","params":[1]}', 77, -32600),
        ('{"jsonrpc":"2.0","id":1,"result":"accept"}', None, -32600),  # to a question of ours
    ],
)
def test_an_invalid_line_is_answered_with_its_id_and_the_server_goes_on(
    line: str, id: Any, code: int, wire: Wire
) -> None:
    wire.send(line)
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (id, code)
    assert wire.request("ping")["result"] == {}


def test_each_request_of_a_batch_is_refused(wire: Wire) -> None:
    wire.send(
        '[{"jsonrpc":"2.0","id":70,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},'
        '{"jsonrpc":"2.0","id":"b","method":"tools/list"}]'
    )
    answers = [wire.receive() for _ in range(2)]
    assert [answer["id"] for answer in answers] == [70, "b"]
    for answer in answers:
        assert "send each message by itself" in answer["error"]["message"]
    assert wire.request("ping")["result"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            '{"query":"\\ud800"}',
            "query contains half of a surrogate pair, which is not a character",
        ),
        (
            '{"query":"a","top_k":NaN}',
            "top_k contains nan, which is not a number that can be stored",
        ),
    ],
)
def test_values_outside_of_strict_json_get_an_error_of_the_surface(
    arguments: str, message: str, wire: Wire
) -> None:
    wire.send(call_line("five", "search", arguments))
    answer = wire.receive()
    assert answer["id"] == "five"
    assert answer["result"]["structuredContent"] == {"status": "error", "error": message}
    assert wire.request("ping")["result"] == {}


def test_calls_under_way_finish_when_the_client_closes_its_side(path: Path) -> None:
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        number = wire.start("tools/call", {"name": "list_libraries", "arguments": {}})
        assert wire.finish() == 0
        answer = wire.receive()
        assert answer["id"] == number and answer["result"]["structuredContent"] == {"libraries": []}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="children are looked up in /proc")
@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT", "SIGKILL"])
def test_no_process_is_left_behind_and_the_file_is_sound(
    end: str, path: Path, tmp_path: Path
) -> None:
    note = tmp_path / "tea.txt"
    # Not UTF-8, so that a parser process is needed.
    note.write_bytes("Thé: water at 80 degrees.\n".encode("latin-1"))
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        wire.call("ingest_file", {"path": str(note)})
        threads = Path(f"/proc/{wire.process.pid}/task").iterdir()
        children = []
        for thread in threads:
            with contextlib.suppress(FileNotFoundError):  # a thread may have ended since
                children += (thread / "children").read_text().split()
        assert children
        wire.start("tools/call", {"name": "search", "arguments": {"query": "tea"}})
        if end == "eof":
            assert wire.finish() == 0
        else:
            number = getattr(signal, end)
            wire.process.send_signal(number)
            assert wire.process.wait(10) == -number
        assert "Traceback" not in wire.errors
    deadline = time.monotonic() + 60
    while (
        left := [pid for pid in children if Path(f"/proc/{pid}").exists()]
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    with Database(path) as db:
        assert db.check() == []
        assert db.documents.count() == 1


def long_ingest(wire: Wire, tmp_path: Path) -> int:
    """Start a long ingest and wait for its first progress report; returns the id of the call."""
    note = tmp_path / "long.md"
    note.write_text(
        "\n\n".join(
            f"# Part {number}\n\n" + f"leaves {number} and water " * 50 for number in range(800)
        )
    )
    wire.handshake()
    number = wire.start(
        "tools/call",
        {"name": "ingest_file", "arguments": {"path": str(note)}, "_meta": {"progressToken": 7}},
    )
    heard = wire.receive()
    assert (heard["method"], heard["params"]["progressToken"]) == ("notifications/progress", 7)
    assert heard["params"]["progress"] < heard["params"]["total"]
    return number


@pytest.mark.parametrize("cancelled", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_long_call_is_cancelled_without_an_answer_and_does_not_outlive_its_client(
    cancelled: bool, path: Path, tmp_path: Path
) -> None:
    with Wire("--db", str(path)) as wire:
        number = long_ingest(wire, tmp_path)
        if cancelled:
            wire.notify("notifications/cancelled", {"requestId": number, "reason": "enough"})
            assert wire.request("ping")["result"] == {}
        assert wire.finish() == 0
        assert "Traceback" not in wire.errors
    with Database(path) as db:
        assert db.check() == []


def test_the_server_ends_when_its_client_is_killed(path: Path) -> None:
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        assert wire.process.stdout is not None
        wire.process.stdout.close()
        wire.start("tools/call", {"name": "list_libraries", "arguments": {}})
        assert wire.finish() == 0
        assert "Traceback" not in wire.errors


def test_nothing_heavy_is_loaded_before_it_is_needed(path: Path) -> None:
    code = (
        "import sys, mcpvectordb_server.__main__ as m\n"
        "import mcpvectordb_server.stdio as stdio\n"
        "async def nothing(server): pass\n"
        "stdio.serve = nothing\n"
        "import os; leave = os._exit\n"
        "def report(code):\n"
        "    heavy = ('numpy', 'onnxruntime', 'tokenizers', 'pymupdf', 'bs4', 'requests')\n"
        "    print([name for name in heavy if name in sys.modules])\n"
        "    sys.stdout.flush(); leave(code)\n"
        "os._exit = report\n"
        f"m.main(['--db', {str(path)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr
