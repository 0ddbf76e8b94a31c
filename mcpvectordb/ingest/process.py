"""A process that reads foreign bytes: how it is started, talked to, limited in time and ended.

Its environment is minimal. Answers travel on a pipe whose file descriptor no parser knows. What a
parser prints goes to a third pipe: the parent keeps its end, for the message in case the process
dies, and never prints it. It is the first of a session and of a group, which is killed as a whole.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest import sandbox

START_SECONDS = 60.0
HEAD_BYTES = 8_000_000
"""Size limit of what accompanies a text: its title, pages and metadata."""
PRINTED_BYTES = 8192
"""How much is kept of what a parser prints: the last bytes, which say why it died."""
OUT_OF_MEMORY = 77
"""Exit status for an exhausted memory limit: composing a message would need memory."""

_OUT_OF_MEMORY_IN_C = re.compile(r"\b(?:m|c|re)alloc \(.*failed|std::bad_alloc")
_LENGTH = struct.Struct(">Q")
# Each additional thread or malloc arena would reserve a good part of the limited address space.
_SINGLE_THREADED = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# A parser may use ONNX Runtime, which otherwise reports to Microsoft.
_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}

TimerFactory = Callable[[float, Callable[[], None]], threading.Timer]
"""Makes the timer that calls a function after so many seconds."""


class ForkedProcess:
    """A process that another one forked; what is used of it is as in Popen.

    `status` returns its exit status, or None if it still runs after so many seconds.
    """

    def __init__(
        self,
        pid: int,
        stdin: IO[bytes],
        stdout: IO[bytes],
        status: Callable[[int, float], int | None],
    ) -> None:
        self.pid, self.stdin, self.stdout, self._status = pid, stdin, stdout, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, once the process was waited for."""
        return self.returncode

    def wait(self, timeout: float = 0) -> int:
        """Return the exit status of a process that has ended or was killed.

        With a timeout it may end by itself until then. Only now can another get its id.
        """
        if self.returncode is None:
            self.returncode = self._status(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("", timeout)
        return self.returncode


Process = subprocess.Popen[bytes] | ForkedProcess


class ForeignProcess:
    """One process, from its start to its end.

    `start` gets the file descriptor that the process prints to. `pipes` are closed with its own.
    """

    def __init__(
        self,
        start: Callable[[int], Process],
        timer: TimerFactory = threading.Timer,
        pipes: Sequence[socket.socket] = (),
    ) -> None:
        self._owner, self._timer = os.getpid(), timer
        self.printed = _Printed()
        try:
            self.process = start(self.printed.write_end)
        except BaseException:
            self.printed.drop()
            raise
        self.printed.drain()
        ends = (self.process.stdin, self.process.stdout, *pipes)
        self.end = weakref.finalize(self, _end, self.process, ends, self.printed, self._owner)

    def usable(self) -> bool:
        """Whether the process runs and was started by this process, not by one it forked from."""
        return self._owner == os.getpid() and self.end.alive and self.process.poll() is None

    def wait_for_start(self, first: Callable[[], object] | None = None) -> None:
        """Wait for the first answer of the process; ParseFailed without one."""
        try:
            if first:
                first()
            else:
                with self.killed_after(START_SECONDS):
                    receive(self.process.stdout, HEAD_BYTES)
        except (OSError, EOFError, ValueError):
            self.end()
            command = getattr(self.process, "args", ())
            raise ParseFailed(f"{_not_starting(command)}{self.printed.quoted()}") from None

    def exit_status(self, seconds: float) -> int | None:
        """The exit status of a process that should have ended; None if it has not."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    @contextmanager
    def killed_after(self, seconds: float) -> Iterator[threading.Event]:
        """Kill the process after so many seconds; the event is then set."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            _kill(self.process)

        timer = self._timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()
            timer.join()
            if expired.is_set():
                self.process.wait()


def spawned(
    command: Sequence[str],
    printed: int,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """A new process, the first of a session: Ctrl-C at the terminal is for the parent."""
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=printed,
            env=sandbox.environment() | _SINGLE_THREADED | _NO_TELEMETRY,
            start_new_session=True,
        )
    except OSError:
        raise ParseFailed(_not_starting(command)) from None


def _not_starting(command: Sequence[str]) -> str:
    return f"the process that parses files does not start: {shlex.join(command)}"


class _Printed:
    """A pipe for what a process prints; a thread reads all of it and keeps the last bytes."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self._last = b""
        self._thread = threading.Thread(target=self._run, name="mcpvectordb-printed", daemon=True)

    def drain(self) -> None:
        """Read the pipe from now on, until the process that has its write end is gone."""
        os.close(self.write_end)
        self._thread.start()

    def drop(self) -> None:
        """Close a pipe that no process got."""
        os.close(self.write_end)
        os.close(self._read_end)

    def abandon(self) -> None:
        """Close the pipe in a fork of this process, which has no such thread."""
        os.close(self._read_end)

    def wait(self) -> None:
        """Wait until all is read; not for long, as a child of the process may still print."""
        self._thread.join(timeout=1)

    def quoted(self) -> str:
        """What a process that has ended printed last, for the end of a message; "" for nothing."""
        from mcpvectordb.ingest.formats.markdown_writer import line

        self.wait()
        last = line(self._last.decode(errors="replace"))
        return f"; the last that it printed: {last}" if last else ""

    def _run(self) -> None:
        with suppress(OSError):
            while some := os.read(self._read_end, 65_536):
                self._last = (self._last + some)[-PRINTED_BYTES:]
        os.close(self._read_end)


def _end(
    process: Process,
    pipes: Sequence[IO[bytes] | socket.socket | None],
    printed: _Printed,
    owner: int,
) -> None:
    for pipe in pipes:
        with suppress(OSError):  # unsent bytes of a broken pipe
            if pipe:
                pipe.close()
    if os.getpid() == owner:
        _kill(process)
        process.wait()
        printed.wait()
    else:
        printed.abandon()


def _kill(process: Process) -> None:
    """Kill a process and its group, unless it was waited for: its id may be another's then."""
    if process.returncode is not None:
        return
    if isinstance(process, subprocess.Popen) and os.name == "nt":
        process.kill()
        return
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


# --- both ends of the pipe


def send(pipe: IO[bytes] | None, *parts: bytes) -> None:
    """Write the parts, each after its length."""
    assert pipe  # noqa: S101 - for the type checker: all our processes have pipes
    for part in parts:
        pipe.write(_LENGTH.pack(len(part)))
        pipe.write(part)
    pipe.flush()


def receive(pipe: IO[bytes] | None, limit: int) -> bytes:
    """The next part; EOFError at the end of the stream, ValueError above the limit."""
    assert pipe  # noqa: S101 - for the type checker: all our processes have pipes
    length = pipe.read(_LENGTH.size)
    size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else 0
    if size > limit:
        raise ValueError(f"{size} bytes where {limit} are allowed")
    part = pipe.read(size)
    if len(length) < _LENGTH.size or len(part) < size:
        raise EOFError
    return part


def loaded(head: bytes) -> dict[str, Any]:
    """The JSON object of a part; ValueError for anything else."""
    found = json.loads(head)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


# --- in the process


def private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Duplicates of stdin and stdout, which themselves become an empty input and stderr."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a device, not a path
        os.dup2(nothing.fileno(), 0)
        try:
            os.dup2(2, 1)
        except OSError:  # started without a stderr
            os.dup2(nothing.fileno(), 1)
    return requests, replies


def is_out_of_memory(error: Exception | str) -> bool:
    """Whether an error, or what a library printed, says that memory was exhausted."""
    return isinstance(error, MemoryError) or bool(_OUT_OF_MEMORY_IN_C.search(str(error)))
