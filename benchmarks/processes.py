"""Processes that are measured from outside: what they say, and what they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mcpvectordb import InvalidInput

ROOT = Path(__file__).resolve().parent.parent
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmarks", "version": "1"},
}


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds by the clock and of the processor."""

    wall: float
    cpu: float


def run(
    command: Sequence[str | Path], given: bytes = b"", variables: Mapping[str, str] | None = None
) -> tuple[str, Spent]:
    """What a command prints, and what it took from start to end; one that fails is an error."""
    with (
        tempfile.TemporaryFile() as content,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        content.write(given)
        content.seek(0)
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=content,
            stdout=out,
            stderr=errors,
            env={**_environment(), **(variables or {})},
        )
        spent = _reaped(process, begin)
        if process.returncode:
            raise InvalidInput(
                f"{Path(command[0]).name} {' '.join(map(str, command[1:4]))} failed: "
                f"{_said(errors)[-800:]}"
            )
        return _said(out), spent


def spent_by(
    command: Sequence[str | Path], given: bytes = b"", variables: Mapping[str, str] | None = None
) -> Spent:
    """What a command took from start to end."""
    return run(command, given, variables)[1]


def figures(module: str, *arguments: str | Path, python: Path | None = None) -> dict[str, Any]:
    """What a module of ours prints as JSON in its last line, run by an interpreter."""
    said, _ = run([python or Path(sys.executable), "-m", module, *arguments])
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


class Server:
    """An MCP server at the other end of two pipes, greeted and asked for its tools."""

    def __init__(self, *arguments: str | Path) -> None:
        self._begin = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(),
        )
        self._asked = 0
        self.ask("initialize", HELLO)
        self._send({"method": "notifications/initialized"})
        self.tools: list[dict[str, Any]] = self.ask("tools/list")["tools"]

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of one request."""
        assert self._process.stdout is not None
        self._asked += 1
        self._send({"id": self._asked, "method": method, "params": params or {}})
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._asked:
                if "result" not in answer:
                    raise InvalidInput(f"the server answered {method} with {answer}")
                result: dict[str, Any] = answer["result"]
                return result
        raise InvalidInput(f"the server ended while it was asked {method}")

    @property
    def memory(self) -> int:
        """The bytes of memory that it has now."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.exists():
            raise InvalidInput("memory of another process can be read on Linux only")
        return 1024 * next(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith("VmRSS")
        )

    def end(self) -> Spent:
        """Kill it; what it took until now."""
        self._process.kill()
        spent = _reaped(self._process, self._begin)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return spent

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


def _environment() -> dict[str, str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("MCPVECTORDB_")
    }
    return {**clean, "PYTHONPATH": str(ROOT)}


def _reaped(process: subprocess.Popen[Any], begin: float) -> Spent:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Spent(1000 * (time.perf_counter() - begin), 1000 * (usage.ru_utime + usage.ru_stime))


def _said(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace").strip()
