"""Parse untrusted bytes in a separate process, which may hang, crash or exhaust its memory safely.

The process starts with the first file that needs it, serves the following files too, and is
replaced after a failure. Limits apply to each file; exceeding one raises a ParseFailed that
names it:

- parse_timeout: wall-clock time, enforced by the parent, which kills the process.
- parse_memory: address space (RLIMIT_AS), set by the process itself before it reads any input.
- parse_output_bytes, parse_output_ratio: size of the text, in bytes and as a multiple of the file's
  size, checked on both sides. Formats that compress, or refer to one part many times, turn a small
  file into any amount of text.

The process is confined by `sandbox` (parse_sandbox): no network, no writes, and nothing to read
but Python and its packages, as far as the system can enforce it.

RLIMIT_AS works on Linux only. macOS accepts it without enforcing it and Windows does not have it:
there only the time and output limits apply, and a parser can use all available memory.

The process is a fresh interpreter, never a fork, with a minimal environment. Results travel on a
pipe whose file descriptor no parser knows. What a parser prints goes to a third pipe: the parent
keeps its end, for the message in case the process dies, and never prints it. Results are JSON
and UTF-8 text, never pickles, and are validated on arrival, so that a process compromised by a
hostile file can misreport that file but cannot run code in the parent. The process exits when its
pipe closes. If the parent dies while a parser hangs, an alarm signal ends the process soon after
the time limit (not on Windows).

The parent detects the format, once, and sends its name along. Containers (ZIP, OLE) are the
exception: to detect their format means to parse them, so that also happens in the process. Plain
text, Markdown and source code in UTF-8 need no parser and are read in the parent, without starting
a process.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import IngestError, NoText, ParseFailed
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.answers import parsed_of, picture_of
from mcpvectordb.ingest.formats import Format
from mcpvectordb.ingest.ocr import KeptPages, PageReader, Tesseract
from mcpvectordb.records import Parsed, Source

T = TypeVar("T")

START_SECONDS = 60.0
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
_INHERITED = """
    PATH HOME LANG LC_ALL LC_CTYPE TMPDIR TEMP TMP SYSTEMROOT WINDIR LD_LIBRARY_PATH
    DYLD_LIBRARY_PATH PYTHONHOME
""".split()
# Each additional thread or malloc arena would reserve a good part of the limited address space.
_SINGLE_THREADED = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# A parser may use ONNX Runtime, which otherwise reports to Microsoft.
_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}
_SOURCE_FIELDS = [each.name for each in fields(Source) if each.name != "raw"]

ParseFunction = Callable[[Source, Format | None], Parsed]
"""Parses a source of the given format; detects the format where it is None."""

TimerFactory = Callable[[float, Callable[[], None]], threading.Timer]
"""Makes the timer that calls a function after so many seconds."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What the parser process enforces itself: memory, text and seconds per file.

    `output` is in bytes, `output_ratio` in multiples of the file's size beyond `SMALL_OUTPUT`.
    `sandbox` confines the process. `grace_seconds` is how long after the time limit it ends itself
    if no parent has killed it.
    """

    memory: int
    output: int
    output_ratio: int
    seconds: float
    sandbox: bool
    grace_seconds: float = 5.0

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
    """Parses sources in a separate process; thread-safe, one source at a time.

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
        self._process: _ParserProcess | None = None
        engine = Tesseract.found(config.ocr_languages)
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
        with self._lock, self._running() as process:
            answer = process.parse(source, found, self._config)
        if self._pages:
            answer = self._pages.complete(source, answer, partial(self._draw, source, "pdf"))
        if isinstance(answer, IngestError):
            raise answer
        return answer

    def _draw(self, source: Source, kind: str, page: int) -> bytes:
        with self._lock, self._running() as process:
            return process.draw(source, kind, page, self._config)

    def close(self) -> None:
        """End the process; a later `parse` starts a new one."""
        with self._lock:
            self._drop()

    @contextmanager
    def _running(self) -> Iterator[_ParserProcess]:
        """The running process or a new one; any exception ends it."""
        if self._process is None or not self._process.usable():
            self._drop()
            self._process = _ParserProcess(self._command, self._timer)
        try:
            yield self._process
        except BaseException:
            self._drop()
            raise

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


class _ParserProcess:
    """One parser process, from its start to its end."""

    def __init__(self, command: Sequence[str], timer: TimerFactory) -> None:
        self._owner, self._timer = os.getpid(), timer
        failure = ParseFailed(
            f"the process that parses files does not start: {shlex.join(command)}"
        )
        self._printed = _Printed()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed.write_end,
                env=_environment(),
                start_new_session=True,  # Ctrl-C at the terminal is for the parent
            )
        except OSError:
            self._printed.drop()
            raise failure from None
        self._printed.drain()
        self.end = weakref.finalize(self, _end, self._process, self._printed, self._owner)
        try:
            with self._killed_after(START_SECONDS):
                _receive(self._process.stdout, HEAD_BYTES)
        except (OSError, EOFError, ValueError):
            self.end()
            raise ParseFailed(f"{failure}{self._printed.quoted()}") from None

    def usable(self) -> bool:
        """Whether the process runs and was started by this process, not by one it forked from."""
        return self._owner == os.getpid() and self.end.alive and self._process.poll() is None

    def parse(self, source: Source, found: Format | None, config: Config) -> Parsed | IngestError:
        """Return the parser's result or its error; raise ParseFailed without a valid answer."""
        request = {"format": found.name if found else None}
        output = ProcessLimits.of(config).output_of(len(source.raw))
        return self._asked(source, request, output, parsed_of, config)

    def draw(self, source: Source, kind: str, page: int, config: Config) -> bytes:
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
        with self._killed_after(config.parse_timeout) as expired:
            try:
                _send(self._process.stdin, json.dumps(request).encode(), source.raw)
                head = _loaded(_receive(self._process.stdout, HEAD_BYTES))
                answer = answer_of(head, _receive(self._process.stdout, output))
            except (OSError, EOFError):
                reason = self._cause_of_death(expired.is_set(), config)
                raise ParseFailed(f"{source.name} cannot be parsed: {reason}") from None
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise ParseFailed(
                    f"{source.name} cannot be parsed: its parser gave an invalid answer ({error})"
                ) from None
        if head.get("retires"):
            self.end()
        return answer

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
            self._process.kill()

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


def _end(process: subprocess.Popen[bytes], printed: _Printed, owner: int) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # unsent bytes of a broken pipe
            if pipe:
                pipe.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()
        printed.wait()
    else:
        printed.abandon()


def _environment() -> dict[str, str]:
    """The variables needed to find the same Python and packages, without any secrets."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return (
        kept
        | _SINGLE_THREADED
        | _NO_TELEMETRY
        | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
    )


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
    """Run as the parser process: answer each source from stdin with its text until stdin ends."""
    requests, replies = _private_pipes()
    _limit_memory(limits.memory)
    if limits.sandbox:
        from mcpvectordb.ingest import sandbox  # only this process needs ctypes

        sandbox.confine()
    _send(replies, b"{}")
    try:
        while True:
            request = _loaded(_receive(requests, HEAD_BYTES))
            found = formats.BY_NAME.get(request.pop("format", None))
            page = request.pop("draw", None)
            source = Source(raw=_receive(requests, sys.maxsize), **request)
            with _alarm(limits.seconds + limits.grace_seconds):
                head, text = _answer(
                    source,
                    partial(_drawn, source, *page)
                    if page
                    else partial(_parsed, parse, source, found, limits),
                )
            _send(replies, _packed(head | {"retires": _has_grown(limits.memory)}), text)
    except EOFError:
        return
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


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


def _limit_memory(memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, amount in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory)):
        with suppress(ValueError, OSError):  # a lower limit is in force, or none is supported
            resource.setrlimit(kind, (amount, amount))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """End this process by a signal after so many seconds, in case no parent is left to kill it."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def _drawn(source: Source, kind: str, page: int) -> tuple[dict[str, Any], bytes]:
    from mcpvectordb.ingest.formats.pdf import draw

    return {}, draw(source, kind, page)


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


def _has_grown(memory: int) -> bool:
    """Whether this process has used half of its memory limit, too much to take another file."""
    try:
        peak = re.search(
            r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii", "replace")
        )
    except OSError:
        return False
    return peak is not None and int(peak[1]) * 1024 > memory // 2


def main(memory: str, output: str, output_ratio: str, seconds: str, sandbox: str) -> None:
    """Run as the process that reads all our formats; the arguments come from its command line."""
    limits = ProcessLimits(
        int(memory), int(output), int(output_ratio), float(seconds), sandbox == "1"
    )
    serve(formats.parse, limits)
