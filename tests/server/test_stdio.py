from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from tests.server.clients import VERSIONS, Wire

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


def test_stdout_has_only_the_protocol_and_stderr_only_expected_warnings(
    path: Path, tmp_path: Path
) -> None:
    note = tmp_path / "tea.md"
    note.write_text("# Tea\n\nWater at 80 degrees.\n")
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        assert (
            wire.call("ingest_file", {"path": str(note)})["structuredContent"]["status"]
            == "indexed"
        )
        assert (
            wire.call("search", {"query": "water"})["structuredContent"]["results"][0]["title"]
            == "Tea"
        )
        wire.call("search", {"query": "water", "colour": "green"})
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
        (
            '{"method":"ping","params":{"deep":'
            + "[" * 100_000
            + "]" * 100_000
            + '},"jsonrpc":"2.0","id":"x"}',
            "x",
            -32700,
        ),
        ("[]", None, -32600),
        ('{"jsonrpc":"2.0","id":8}', 8, -32600),
        ('{"jsonrpc":"1.0","id":9,"method":"ping"}', 9, -32600),
    ],
)
def test_an_invalid_line_is_answered_with_its_id_and_the_server_goes_on(
    line: str, id: Any, code: int, wire: Wire
) -> None:
    wire.send(line)
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (id, code)
    assert wire.request("ping")["result"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            '{"query":"a\\ud800b"}',
            "query contains half of a surrogate pair, which is not a character",
        ),
        (
            '{"query":"a","top_k":NaN}',
            "top_k contains nan, which is not a number that can be stored",
        ),
        (
            '{"query":"a","top_k":1e999}',
            "top_k contains inf, which is not a number that can be stored",
        ),
        (
            '{"query":"a","filter":{"page":9223372036854775808}}',
            "filter contains an integer beyond 64 bits",
        ),
        (
            '{"query":"a","filter":' + '{"a":' * 40 + "1" + "}" * 40 + "}",
            "filter is nested deeper than 32 levels",
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
    lines = [
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": VERSIONS[-1],
                    "capabilities": {},
                    "clientInfo": {"name": "pipe", "version": "1"},
                },
            }
        ),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        call_line(2, "list_libraries", "{}"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mcpvectordb_server", "--db", str(path)],
        cwd=ROOT,
        timeout=60,
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"] == {"libraries": []}
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="children are looked up in /proc")
@pytest.mark.parametrize("end", ["eof", "terminate", "interrupt", "kill"])
def test_no_process_is_left_behind_and_the_file_is_sound(
    end: str, path: Path, tmp_path: Path
) -> None:
    note = tmp_path / "tea.txt"
    # Not UTF-8, so that a parser process is needed.
    note.write_bytes("Thé: water at 80 degrees.\n".encode("latin-1"))
    with Wire("--db", str(path)) as wire:
        wire.handshake()
        assert (
            wire.call("ingest_file", {"path": str(note)})["structuredContent"]["status"]
            == "indexed"
        )
        threads = Path(f"/proc/{wire.process.pid}/task").iterdir()
        children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
        assert children
        wire.start("tools/call", {"name": "search", "arguments": {"query": "tea"}})
        if end == "eof":
            assert wire.finish() == 0
        else:
            number = {
                "terminate": signal.SIGTERM,
                "interrupt": signal.SIGINT,
                "kill": signal.SIGKILL,
            }[end]
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


def test_a_cancelled_call_stops_without_an_answer_and_does_not_delay_the_end(
    path: Path, tmp_path: Path
) -> None:
    with Wire("--db", str(path)) as wire:
        number = long_ingest(wire, tmp_path)
        wire.notify("notifications/cancelled", {"requestId": number, "reason": "enough"})
        assert wire.request("ping")["result"] == {}
        assert wire.finish() == 0
        assert "Traceback" not in wire.errors
    with Database(path) as db:
        assert db.check() == []


@pytest.mark.long
def test_a_long_call_does_not_outlive_its_client(path: Path, tmp_path: Path) -> None:
    with Wire("--db", str(path)) as wire:
        long_ingest(wire, tmp_path)
        assert wire.finish() == 0
        assert "Traceback" not in wire.errors
    with Database(path) as db:
        assert db.check() == []


def test_the_server_ends_when_its_client_is_killed(path: Path) -> None:
    read, write = os.pipe()
    server = subprocess.Popen(
        [sys.executable, "-m", "mcpvectordb_server", "--db", str(path)],
        cwd=ROOT,
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(read)
    os.write(
        write,
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": VERSIONS[-1],
                    "capabilities": {},
                    "clientInfo": {"name": "x", "version": "1"},
                },
            }
        ).encode()
        + b"\n",
    )
    assert server.stdout is not None
    assert server.stderr is not None
    server.stdout.readline()
    server.stdout.close()
    os.write(write, (call_line(2, "list_libraries", "{}") + "\n").encode())
    os.close(write)
    assert server.wait(15) == 0
    assert b"Traceback" not in server.stderr.read()
    server.stderr.close()


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
