"""Parse untrusted bytes in a separate process, which may hang, crash or exhaust its memory safely.

On Linux each file gets a process of its own, which is killed with its group when it has answered:
what a hostile file has done to its parser ends with that file. It is forked from a *template*, a
fresh interpreter that has imported the parsers and never reads a foreign byte; that costs a few
milliseconds where a start and its imports cost two hundred. The template has one thread, no
connection to any database, and only the pipes that come with each order. Elsewhere the started
process itself serves one file after the other and is replaced after a failure: a fork is not safe
there or does not exist, and a process that nothing confines gains nothing by being a new one.

Limits apply to each file; exceeding one raises a ParseFailed that names it:

- parse_timeout: wall-clock time, enforced by the parent, which kills the process.
- parse_memory: address space (RLIMIT_AS), set by the process itself before it reads any input.
- parse_output_bytes, parse_output_ratio: size of the text, in bytes and as a multiple of the file's
  size, checked on both sides. Formats that compress, or refer to one part many times, turn a small
  file into any amount of text.

The process is confined by `sandbox` (parse_sandbox) before it reads any input: no network, no
writes, no processes, and nothing to read but Python and its packages, as far as the system can
enforce it.

RLIMIT_AS works on Linux only. macOS accepts it without enforcing it and Windows does not have it:
there only the time and output limits apply, and a parser can use all available memory.

The environment is minimal. Results travel on a pipe whose file descriptor no parser knows. What a
parser prints goes to a third pipe: the parent keeps its end, for the message in case the process
dies, and never prints it. Results are JSON and UTF-8 text, never pickles, and are validated on
arrival, so that a process compromised by a hostile file can misreport that file but cannot run code
in the parent. When the parent dies, so does the template, and the kernel ends its children with it;
elsewhere an idle process ends with its pipe, and a busy one by an alarm signal soon after the time
limit (not on Windows).

The parent detects the format, once, and sends its name along. Containers (ZIP, OLE) are the
exception: to detect their format means to parse them, so that also happens in the process. Plain
text, Markdown and source code in UTF-8 need no parser and are read in the parent, without starting
a process.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from typing import IO, Any, TypeVar

from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import IngestError, NoText, ParseFailed
from mcpvectordb.ingest import formats, sandbox
from mcpvectordb.ingest.answers import parsed_of, picture_of
from mcpvectordb.ingest.formats import Format
from mcpvectordb.ingest.ocr import KeptPages, PageReader, Picture, Tesseract
from mcpvectordb.records import Parsed, Source

T = TypeVar("T")

FORKS = sys.platform == "linux"
"""Whether each file gets a process of its own, forked from a template."""
START_SECONDS = 60.0
GRACE_SECONDS = 5.0
"""How long after the time limit a process ends itself if no parent has killed it."""
HEAD_BYTES = 8_000_000
"""Size limit of what accompanies a text: its title, pages and metadata."""
PICTURE_BYTES = 30_000_000
"""Size limit of a page that is drawn for OCR."""
SMALL_OUTPUT = 1_000_000
"""Bytes of text that a file of any size may turn into; beyond them, parse_output_ratio applies."""
PRINTED_BYTES = 8192
"""How much is kept of what a parser prints: the last bytes, which say why it died."""
OUT_OF_MEMORY = 77
"""Exit status for an exhausted memory limit: composing a message would need memory."""

_OUT_OF_MEMORY_IN_C = re.compile(r"\b(?:m|c|re)alloc \(.*failed|std::bad_alloc")
_START = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # ZIP archives and OLE containers
_LENGTH = struct.Struct(">Q")
_RUNNING = 1000  # no exit status is that high
# Each additional thread or malloc arena would reserve a good part of the limited address space.
_SINGLE_THREADED = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# A parser may use ONNX Runtime, which otherwise reports to Microsoft.
_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}
# What the modules of formats import when they first parse something: the template has it already.
_ZIPPED = ("lxml.etree", "encodings.cp437")
_LIBRARIES = {
    **dict.fromkeys(("pdf", "ebook"), ("pymupdf", "heapq")),
    **dict.fromkeys(("docx", "odt", "pptx"), _ZIPPED),
    **dict.fromkeys(("doc", "ppt"), ("olefile",)),
    "xls": ("olefile", "python_calamine"),
    "xlsx": (*_ZIPPED, "python_calamine"),
    "html": ("lxml.etree",),
    "email": ("lxml.etree", "email.parser"),
    "text": ("charset_normalizer",),
}
_SOURCE_FIELDS = [each.name for each in fields(Source) if each.name != "raw"]

ParseFunction = Callable[[Source, Format | None], Parsed]
"""Parses a source of the given format; detects the format where it is None."""

TimerFactory = Callable[[float, Callable[[], None]], threading.Timer]
"""Makes the timer that calls a function after so many seconds."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What the parser process enforces itself: memory, text and seconds per file.

    `output` is in bytes, `output_ratio` in multiples of the file's size beyond `SMALL_OUTPUT`.
    `sandbox` confines the process.
    """

    memory: int
    output: int
    output_ratio: int
    seconds: float
    sandbox: bool

    def output_of(self, size: int) -> int:
        """The most bytes of text that a file of this size may turn into."""
        return min(self.output, SMALL_OUTPUT + self.output_ratio * size)

    @classmethod
    def of(cls, config: Config) -> ProcessLimits:
        """The limits that a configuration sets."""
        return cls(
            config.parse_memory,
            config.parse_output_bytes,
            config.parse_output_ratio,
            config.parse_timeout,
            config.parse_sandbox,
        )


class Worker:
    """Parses sources in separate processes; thread-safe, one source at a time.

    `command` starts a process that calls `serve`; the default one reads all our formats. `timer`
    makes the timers of the time limits. Close the worker when it is no longer needed, or use it as
    a context manager.
    """

    def __init__(
        self,
        config: Config,
        *,
        command: Sequence[str] = (),
        timer: TimerFactory = threading.Timer,
    ) -> None:
        self._config = config
        self._command = command or (sys.executable, "-P", "-c", _START, *_arguments(config))
        self._timer = timer
        self._lock = threading.Lock()
        self._template: _Template | None = None
        self._process: _ParserProcess | None = None
        engine = Tesseract.found(config)
        kept = KeptPages(config.cache_folder() / "ocr")
        self._pages = PageReader(engine, config.parse_timeout, kept) if engine else None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parse(self, source: Source) -> Parsed:
        """Return the text of a source, as `formats.parse` does.

        ParseFailed is raised also for a parser that exceeds a limit or crashes. Where OCR is
        installed, pages without text and pictures are read by it.
        """
        if self._pages and (kind := formats.picture(source)):
            return self._pages.read_picture(source, partial(self._draw, source, kind))
        found = None if source.raw.startswith(_CONTAINERS) else formats.detect(source)
        if found and found.inline and _is_utf8(source.raw):
            return formats.parse(source, found)
        likely = found or formats.by_name(source.name)
        with self._lock, self._running(likely.module if likely else "") as process:
            answer = process.parse(source, found, self._config)
        if self._pages:
            answer = self._pages.complete(source, answer, partial(self._draw, source, "pdf"))
        if isinstance(answer, IngestError):
            raise answer
        return answer

    def _draw(self, source: Source, kind: str, page: int) -> Picture:
        with self._lock, self._running("pdf") as process:
            return process.draw(source, kind, page, self._config)

    def close(self) -> None:
        """End the processes; a later `parse` starts new ones."""
        with self._lock:
            self._drop()
            if self._template is not None:
                self._template.end()
            self._template = None

    @contextmanager
    def _running(self, module: str) -> Iterator[_ParserProcess]:
        """A process for one file, likely of that module's format; any exception ends it.

        Where processes cannot be forked, the running one takes the next file, too.
        """
        if self._process is None or not self._process.usable():
            self._drop()
            self._process = _ParserProcess(self._starting(module), self._timer)
        try:
            yield self._process
        except BaseException:
            self._drop()
            raise
        if FORKS:
            self._drop()

    def _starting(self, module: str) -> Start:
        if not FORKS:
            return partial(_spawned, self._command)
        if self._template is None or not self._template.usable():
            self._template = _Template(self._command)
        return partial(self._template.fork, module)

    def _drop(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None


def _arguments(config: Config) -> Iterator[str]:
    """The arguments of `main` in the parser process."""
    limits = ProcessLimits.of(config)
    return map(
        str,
        (limits.memory, limits.output, limits.output_ratio, limits.seconds, int(limits.sandbox)),
    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Forked:
    """A process that the template forked; what is used of it is as in Popen."""

    def __init__(self, template: _Template, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._template, self.pid, self.stdin, self.stdout = template, pid, stdin, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, once the process was waited for."""
        return self.returncode

    def wait(self, timeout: float = 0) -> int:
        """Return the exit status of a process that has ended or was killed.

        With a timeout it may end by itself until then. Only now can another get its id.
        """
        if self.returncode is None:
            self.returncode = self._template.wait(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("", timeout)
        return self.returncode


Process = subprocess.Popen[bytes] | _Forked
Start = Callable[[int], Process]
"""Starts a process that prints to the given file descriptor; raises OSError."""


class _Template:
    """The process that parser processes are forked from. It never reads a byte of any file."""

    def __init__(self, command: Sequence[str]) -> None:
        self._owner, self._lock, self._printed = os.getpid(), threading.Lock(), _Printed()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        try:
            with theirs:
                self._process = _spawned(
                    command,
                    self._printed.write_end,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                )
        except BaseException:
            self._control.close()
            self._printed.drop()
            raise
        self._printed.drain()
        pipes = (self._control,)
        self.end = weakref.finalize(self, _end, self._process, pipes, self._printed, self._owner)
        try:
            self._reply()
        except OSError:
            self.end()
            raise ParseFailed(f"{_not_starting(command)}{self._printed.quoted()}") from None

    def usable(self) -> bool:
        """Whether the process runs and was started by this process, not by one it forked from."""
        return self._owner == os.getpid() and self.end.alive and self._process.poll() is None

    def fork(self, module: str, printed: int) -> _Forked:
        """Return a new process that has imported what this module of a format needs."""
        (reading, stdin), (stdout, writing) = os.pipe(), os.pipe()
        pipes = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        try:
            pid = self._asked(f"fork {module}", [reading, writing, printed])
        except BaseException:
            for pipe in pipes:
                pipe.close()
            raise
        finally:
            os.close(reading)
            os.close(writing)
        return _Forked(self, pid, *pipes)

    def wait(self, pid: int, seconds: float) -> int | None:
        """Return the exit status of a process; None if it still runs after so many seconds.

        Without a number of seconds it is waited for as long as it takes.
        """
        try:
            status = self._asked(f"wait {pid} {seconds}", [])
        except ParseFailed:  # the template is gone, and with it its processes
            return -signal.SIGKILL
        return None if status == _RUNNING else status

    def _asked(self, order: str, descriptors: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [order.encode()], descriptors)
                return int(self._reply())
            except (OSError, ValueError):
                self.end()
                raise ParseFailed(
                    f"the process that starts parsers has ended{self._printed.quoted()}"
                ) from None

    def _reply(self) -> bytes:
        if not (reply := self._control.recv(100)):
            raise ConnectionError
        return reply


def _spawned(
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


class _ParserProcess:
    """One parser process, from its start to its end."""

    def __init__(self, start: Start, timer: TimerFactory) -> None:
        self._owner, self._timer = os.getpid(), timer
        self._printed = _Printed()
        try:
            self._process = start(self._printed.write_end)
        except BaseException:
            self._printed.drop()
            raise
        self._printed.drain()
        pipes = (self._process.stdin, self._process.stdout)
        self.end = weakref.finalize(self, _end, self._process, pipes, self._printed, self._owner)
        if isinstance(self._process, _Forked):  # the start is that of the template
            return
        try:
            with self._killed_after(START_SECONDS):
                _receive(self._process.stdout, HEAD_BYTES)
        except (OSError, EOFError, ValueError):
            self.end()
            raise ParseFailed(
                f"the process that parses files does not start{self._printed.quoted()}"
            ) from None

    def usable(self) -> bool:
        """Whether the process runs and was started by this process, not by one it forked from."""
        return self._owner == os.getpid() and self.end.alive and self._process.poll() is None

    def parse(self, source: Source, found: Format | None, config: Config) -> Parsed | IngestError:
        """Return the parser's result or its error; raise ParseFailed without a valid answer."""
        request = {"format": found.name if found else None}
        output = ProcessLimits.of(config).output_of(len(source.raw))
        return self._asked(source, request, output, parsed_of, config)

    def draw(self, source: Source, kind: str, page: int, config: Config) -> Picture:
        """Return a page as a picture; raise an IngestError if it cannot be drawn."""
        asked = {"draw": [kind, page]}
        answer = self._asked(source, asked, PICTURE_BYTES, picture_of, config)
        if isinstance(answer, IngestError):
            raise answer
        return answer

    def _asked(
        self,
        source: Source,
        request: dict[str, Any],
        output: int,
        answer_of: Callable[[dict[str, Any], bytes], T],
        config: Config,
    ) -> T:
        request |= {name: getattr(source, name) for name in _SOURCE_FIELDS}
        try:
            with self._killed_after(config.parse_timeout) as expired:
                _send(self._process.stdin, json.dumps(request).encode(), source.raw)
                head = _loaded(_receive(self._process.stdout, HEAD_BYTES))
                return answer_of(head, _receive(self._process.stdout, output))
        except (OSError, EOFError):
            reason = self._cause_of_death(expired.is_set(), config)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"its parser gave an invalid answer ({error})"
        raise ParseFailed(f"{source.name} cannot be parsed: {reason}")

    def _cause_of_death(self, expired: bool, config: Config) -> str:
        if expired:
            seconds = f"{config.parse_timeout:g} seconds"
            return f"it took longer than {seconds} {how_to_allow('parse_timeout')}"
        try:
            status = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "its parser closed the connection"
        if status == OUT_OF_MEMORY:
            needed = f"{config.parse_memory} bytes of memory"
            return f"it needs more than {needed} {how_to_allow('parse_memory')}"
        name = (
            signal.Signals(-status).name
            if -status in set(signal.Signals)
            else f"exit status {status}"
        )
        return f"its parser crashed ({name}){self._printed.quoted()}"

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[threading.Event]:
        """Kill the process after so many seconds; the event is then set."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            _kill(self._process)

        timer = self._timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()
            timer.join()
            if expired.is_set():
                self._process.wait()


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


def _send(pipe: IO[bytes] | None, *parts: bytes) -> None:
    assert pipe  # noqa: S101 - for the type checker: all our processes have pipes
    for part in parts:
        pipe.write(_LENGTH.pack(len(part)))
        pipe.write(part)
    pipe.flush()


def _receive(pipe: IO[bytes] | None, limit: int) -> bytes:
    """The next part; EOFError at the end of the stream."""
    assert pipe  # noqa: S101 - for the type checker: all our processes have pipes
    length = pipe.read(_LENGTH.size)
    size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else 0
    if size > limit:
        raise ValueError(f"{size} bytes where {limit} are allowed")
    part = pipe.read(size)
    if len(length) < _LENGTH.size or len(part) < size:
        raise EOFError
    return part


def _loaded(head: bytes) -> dict[str, Any]:
    loaded = json.loads(head)
    if not isinstance(loaded, dict):
        raise ValueError("not an object")
    return loaded


# --- the parser process


def serve(parse: ParseFunction, limits: ProcessLimits) -> None:
    """Run as the parser process: answer each source from stdin with its text until stdin ends.

    On Linux this process becomes the template, and what returns from the fork is the parser.
    """
    if FORKS:
        _fork_on_request()
    requests, replies = _private_pipes()
    sandbox.limit_memory(limits.memory)
    if limits.sandbox:
        sandbox.confine()
    if not FORKS:
        _send(replies, b"{}")
    try:
        while True:
            request = _loaded(_receive(requests, HEAD_BYTES))
            found = formats.BY_NAME.get(request.pop("format", None))
            page = request.pop("draw", None)
            source = Source(raw=_receive(requests, sys.maxsize), **request)
            with _alarm(limits.seconds + GRACE_SECONDS):
                head, text = _answer(
                    source,
                    partial(_drawn, source, *page)
                    if page
                    else partial(_parsed, parse, source, found, limits),
                )
            _send(replies, _packed(head), text)
    except EOFError:
        return
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _fork_on_request() -> None:
    """Run as the template until the parent is gone; return in each process that it forks.

    Stdin is a socket to the parent. "fork MODULE" comes with the three standard streams of the new
    process and is answered by its id, "wait ID SECONDS" by its exit status: only then is its id
    free for others, so the parent never kills a stranger.
    """
    template, control = os.getpid(), socket.socket(fileno=os.dup(0))
    sandbox.prepare()
    control.send(b"ready")
    while True:
        order, streams, _, _ = socket.recv_fds(control, 100, 3)
        if not order:
            os._exit(0)
        name, *details = order.decode().split(" ")
        if name == "wait":
            control.send(str(_status_of(int(details[0]), float(details[1]))).encode())
            continue
        _import_parser(details[0])
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


def _status_of(pid: int, seconds: float) -> int:
    """The exit status of a child; _RUNNING after so many seconds, if any are given."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG if seconds else 0)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return _RUNNING
        time.sleep(0.01)


def _import_parser(module: str) -> None:
    """Import a module of a format with what it needs; what fails will fail again for its file."""
    needed = [f"{formats.__name__}.{module}", *_LIBRARIES.get(module, ())] if module else []
    missing = [each for each in needed if each not in sys.modules]
    for each in missing:
        with suppress(Exception):
            import_module(each)
    if missing:
        gc.freeze()  # a collection in a child would copy the pages of all these objects


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Duplicates of stdin and stdout, which themselves become an empty input and stderr."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a device, not a path
        os.dup2(nothing.fileno(), 0)
        try:
            os.dup2(2, 1)
        except OSError:  # started without a stderr
            os.dup2(nothing.fileno(), 1)
    return requests, replies


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """End this process by a signal after so many seconds, in case no parent is left to kill it.

    On Linux the kernel ends it with its parent.
    """
    if FORKS or not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def _drawn(source: Source, kind: str, page: int) -> tuple[dict[str, Any], bytes]:
    from mcpvectordb.ingest.formats.pdf import draw

    width, height, grey = draw(source, kind, page)
    return {"width": width, "height": height}, grey


def _parsed(
    parse: ParseFunction, source: Source, found: Format | None, limits: ProcessLimits
) -> tuple[dict[str, Any], bytes]:
    parsed = parse(source, found)
    text = parsed.text.encode()
    _check_output(source, len(text), limits)
    head = {
        "title": parsed.title,
        "kind": parsed.kind,
        "pages": parsed.pages,
        "metadata": dict(parsed.metadata),
        "note": parsed.note,
        "images": parsed.images,
    }
    if len(_packed(head)) > HEAD_BYTES - 100:
        raise ParseFailed(f"{source.name} has more than {HEAD_BYTES} bytes of metadata")
    return head, text


def _answer(
    source: Source, work: Callable[[], tuple[dict[str, Any], bytes]]
) -> tuple[dict[str, Any], bytes]:
    try:
        return work()
    except Exception as error:  # parser libraries raise errors of any class
        if isinstance(error, MemoryError) or _OUT_OF_MEMORY_IN_C.search(str(error)):
            raise MemoryError from error
        if isinstance(error, NoText):
            scan = {"pages": error.pages, "images": error.images}
            return {"error": error.code, "message": str(error), **scan}, b""
        if isinstance(error, IngestError):
            return {"error": error.code, "message": str(error)}, b""
        message = f"{source.name} cannot be parsed: {type(error).__name__}: {error}"
        return {"error": ParseFailed.code, "message": message}, b""


def _check_output(source: Source, output: int, limits: ProcessLimits) -> None:
    if output > limits.output:
        raise ParseFailed(
            f"{source.name} turns into more than {limits.output} bytes of text "
            f"{how_to_allow('parse_output_bytes')}"
        )
    if output > limits.output_of(len(source.raw)):
        raise ParseFailed(
            f"{source.name} turns {len(source.raw)} bytes into {output} bytes of text, more than "
            f"{limits.output_ratio} times its size and {SMALL_OUTPUT} bytes "
            f"{how_to_allow('parse_output_ratio')}"
        )


def _packed(head: dict[str, Any]) -> bytes:
    return json.dumps(head).encode()


def main(memory: str, output: str, output_ratio: str, seconds: str, confined: str) -> None:
    """Run as the process that reads all our formats; the arguments come from its command line."""
    limits = ProcessLimits(
        int(memory), int(output), int(output_ratio), float(seconds), confined == "1"
    )
    serve(formats.parse, limits)
