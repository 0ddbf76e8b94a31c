"""A process that reads foreign bytes: how it is started, talked to, limited in time and ended.

Its environment is minimal. Answers travel on a pipe whose file descriptor no parser knows. What a
parser prints goes to a third pipe: the parent keeps its end, for the message in case the process
dies, and never prints it. It is the first of a group, which is killed as a whole.

What starts such a process makes a `ForeignProcess`, of a command (`spawned`) or, on Linux, of a
fork of one that waits for that (`Template.fork`), then sends and receives within `killed_after`.
What runs in it calls `private_pipes`, and gives up its rights (`sandbox`) before it reads anything.
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
from functools import partial
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

    `status` returns the exit status of a process that has ended, by its id.
    """

    def __init__(
        self, pid: int, stdin: IO[bytes], stdout: IO[bytes], status: Callable[[int], int]
    ) -> None:
        self.pid, self.stdin, self.stdout, self._status = pid, stdin, stdout, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, once the process was waited for."""
        return self.returncode

    def wait(self, timeout: float = 0) -> int:
        """Kill the process and return its exit status: its own, if it was ending by itself.

        Only now can another get its id.
        """
        if self.returncode is None:
            _kill(self)
            self.returncode = self._status(self.pid)
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
        read_end, write_end = os.pipe()
        try:
            self.process = start(write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self.printed = _Printed(read_end)
        ends = (self.process.stdin, self.process.stdout, *pipes)
        self.end = weakref.finalize(self, _end, self.process, ends, self.printed, self._owner)

    def usable(self) -> bool:
        """Whether the process runs and was started by this process, not by one it forked from."""
        return self._owner == os.getpid() and self.end.alive and self.process.poll() is None

    def wait_for_start(self) -> None:
        """Wait for the first answer of the process; ParseFailed without one."""
        try:
            with self.killed_after(START_SECONDS):
                receive(self.process.stdout, HEAD_BYTES)
        except (OSError, EOFError, ValueError):
            self.end()
            command = getattr(self.process, "args", ())
            raise ParseFailed(f"{_not_starting(command)}{self.printed.quoted()}") from None

    def exit_status(self, seconds: float) -> int | None:
        """The exit status of a process that should have ended; None if it has not."""
        self.printed.wait(seconds)  # its end closes that pipe
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


class Template(ForeignProcess):
    """A process that others are forked from (`fork_on_request`). It never reads a foreign byte."""

    def __init__(self, command: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        try:
            with theirs:
                start = partial(spawned, command, stdin=theirs.fileno())
                super().__init__(start, pipes=[self._control])
        except BaseException:
            self._control.close()
            raise
        self.wait_for_start()

    def fork(self, task: str, printed: int) -> ForkedProcess:
        """Return a new process that is prepared for a task, a name without spaces."""
        (reading, stdin), (stdout, writing) = os.pipe(), os.pipe()
        pipes = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        try:
            pid = self._asked(f"fork {task}", [reading, writing, printed])
        except BaseException:
            for pipe in pipes:
                pipe.close()
            raise
        finally:
            os.close(reading)
            os.close(writing)
        return ForkedProcess(pid, *pipes, self._status)

    def _status(self, pid: int) -> int:
        """The exit status of a process that has ended or was killed."""
        try:
            return self._asked(f"wait {pid}", [])
        except ParseFailed:  # the template is gone, and with it its processes
            return -signal.SIGKILL

    def _asked(self, order: str, descriptors: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [order.encode()], descriptors)
                return int(self._control.recv(100))
            except (OSError, ValueError):  # of no answer, too
                self.end()
                raise ParseFailed(
                    f"the process that starts parsers has ended{self.printed.quoted()}"
                ) from None
            except BaseException:  # an interrupt: its answer must not become that of the next
                self.end()
                raise


def spawned(
    command: Sequence[str], printed: int, stdin: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """A new process, the first of a session: Ctrl-C at the terminal is for the parent."""
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=printed,
            env=sandbox.environment() | _SINGLE_THREADED | _NO_TELEMETRY,
            start_new_session=True,
        )
    except OSError:
        raise ParseFailed(_not_starting(command)) from None


def _not_starting(command: Sequence[str]) -> str:
    return f"the process that parses files does not start: {shlex.join(command)}"


class _Printed:
    """What a process prints: a thread reads all of it from a pipe and keeps the last bytes."""

    def __init__(self, read_end: int) -> None:
        self.read_end, self._last = read_end, b""
        self._thread = threading.Thread(target=self._run, name="mcpvectordb-printed", daemon=True)
        self._thread.start()

    def wait(self, seconds: float = 1) -> None:
        """Wait until all is read; not for long, as a child of the process may still print."""
        self._thread.join(timeout=seconds)

    def quoted(self) -> str:
        """What a process that has ended printed last, for the end of a message; "" for nothing."""
        from mcpvectordb.ingest.formats.markdown import line

        self.wait()
        last = line(self._last.decode(errors="replace"))
        return f"; the last that it printed: {last}" if last else ""

    def _run(self) -> None:
        with suppress(OSError):
            while some := os.read(self.read_end, 65_536):
                self._last = (self._last + some)[-PRINTED_BYTES:]
        os.close(self.read_end)


Pipe = IO[bytes] | socket.socket | None


def _end(process: Process, pipes: Sequence[Pipe], printed: _Printed, owner: int) -> None:
    for pipe in pipes:
        with suppress(OSError):  # unsent bytes of a broken pipe
            if pipe:
                pipe.close()
    if os.getpid() == owner:
        _kill(process)
        process.wait()
        printed.wait()
    else:  # a fork of this process, which has no thread that reads it
        os.close(printed.read_end)


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


def fork_on_request(prepare: Callable[[str], None]) -> None:
    """Run as a `Template` until the parent is gone; return in each process that it forks.

    Stdin is a socket to the parent. "fork TASK" comes with the three standard streams of the new
    process and is answered by its id, after the template has prepared itself for that task; "wait
    ID" is answered by its exit status when it has ended: only then is its id free for others, so
    the parent never kills a stranger.
    """
    template, control = os.getpid(), socket.socket(fileno=os.dup(0))
    sandbox.prepare()
    with os.fdopen(os.dup(1), "wb") as started:
        send(started, b"{}")
    while True:
        order, streams, _, _ = socket.recv_fds(control, 100, 3)
        if not order:
            os._exit(0)
        name, detail = order.decode().split(" ")
        if name == "wait":
            _, status = os.waitpid(int(detail), 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        prepare(detail)
        if (pid := os.fork()) == 0:
            break
        os.setpgid(pid, pid)  # before the parent knows of it, and may kill its group
        control.send(str(pid).encode())
        for stream in streams:
            os.close(stream)
    sandbox.end_with_parent(template)
    control.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def is_out_of_memory(error: Exception | str) -> bool:
    """Whether an error, or what a library printed, says that memory was exhausted."""
    return isinstance(error, MemoryError) or bool(_OUT_OF_MEMORY_IN_C.search(str(error)))
