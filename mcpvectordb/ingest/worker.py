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

Results are JSON and UTF-8 text, never pickles, and are validated on arrival, so that a process
compromised by a hostile file can misreport that file but cannot run code in the parent. When the
parent dies, so does the template, and the kernel ends its children with it; elsewhere an idle
process ends with its pipe, and a busy one by an alarm signal soon after the time limit (not on
Windows).

The parent detects the format, once, and sends its name along. Containers (ZIP, OLE) are the
exception: to detect their format means to parse them, so that also happens in the process. Plain
text, Markdown and source code in UTF-8 need no parser and are read in the parent, without starting
a process.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import IngestError, NoText, ParseFailed
from mcpvectordb.ingest import formats, sandbox
from mcpvectordb.ingest.formats import Format
from mcpvectordb.ingest.ocr import KeptPages, PageReader, Picture, Tesseract
from mcpvectordb.ingest.process import (
    HEAD_BYTES,
    OUT_OF_MEMORY,
    START_SECONDS,
    ForeignProcess,
    ForkedProcess,
    Process,
    TimerFactory,
    is_out_of_memory,
    loaded,
    private_pipes,
    receive,
    send,
    spawned,
)
from mcpvectordb.records import Parsed, Source

T = TypeVar("T")

FORKS = sys.platform == "linux"
"""Whether each file gets a process of its own, forked from a template."""
GRACE_SECONDS = 5.0
"""How long after the time limit a process ends itself if no parent has killed it."""
PICTURE_BYTES = 30_000_000
"""Size limit of a page that is drawn for OCR."""
LONGEST_MESSAGE = 2_000
MOST_PAGES = 1_000_000
MOST_PIXELS = 32_767
"""The greatest width or height of a picture that Tesseract takes."""
SMALL_OUTPUT = 1_000_000
"""Bytes of text that a file of any size may turn into; beyond them, parse_output_ratio applies."""
_START = f"import sys; from {__name__} import main; main(sys.argv[1])"
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # ZIP archives and OLE containers
_RUNNING = 1000  # no exit status is that high
# Files of our own that the template parses after it has imported their modules: what a parser does
# once (compile expressions, fill caches) is then done for all files.
_SAMPLES = {
    "email": b"From: a@b.c\nSubject: title\nMIME-Version: 1.0\n\nA text.\n",
    "html": b"<title>title</title><h1>title</h1><p>A text.</p>",
    "json": b'{"title": ["A text.", 1]}',
    "pdf": b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>
>>endobj
4 0 obj<</Length 31>>stream
BT/F 9 Tf 9 50 Td(A text.)Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
""",
}
_ERROR_BY_CODE = {each.code: each for each in IngestError.__subclasses__()}
_PARSED_FIELDS = [each.name for each in fields(Parsed) if each.name != "text"]
_SOURCE_FIELDS = [each.name for each in fields(Source) if each.name != "raw"]

ParseFunction = Callable[[Source, Format | None], Parsed]
"""Parses a source of the given format; detects the format where it is None."""


class ProcessLimits(NamedTuple):
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
        self, config: Config, *, command: Sequence[str] = (), timer: TimerFactory = threading.Timer
    ) -> None:
        self._config, limits = config, ProcessLimits.of(config)
        self._command = command or (sys.executable, "-P", "-c", _START, json.dumps(limits))
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

    def _starting(self, module: str) -> Callable[[int], Process]:
        if not FORKS:
            return partial(spawned, self._command)
        if self._template is None or not self._template.usable():
            self._template = _Template(self._command)
        return partial(self._template.fork, module)

    def _drop(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Template(ForeignProcess):
    """The process that parser processes are forked from. It never reads a byte of any file."""

    def __init__(self, command: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        streams = {"stdin": theirs.fileno(), "stdout": subprocess.DEVNULL}
        try:
            with theirs:
                super().__init__(partial(spawned, command, **streams), pipes=[self._control])
        except BaseException:
            self._control.close()
            raise
        self.wait_for_start(self._reply)

    def fork(self, module: str, printed: int) -> ForkedProcess:
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
        return ForkedProcess(pid, *pipes, self.wait)

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
                    f"the process that starts parsers has ended{self.printed.quoted()}"
                ) from None
            except BaseException:  # an interrupt: its answer must not become that of the next
                self.end()
                raise

    def _reply(self) -> bytes:
        if not (reply := self._control.recv(100)):
            raise ConnectionError
        return reply


class _ParserProcess(ForeignProcess):
    """One parser process, for one file if it was forked from the template."""

    def __init__(self, start: Callable[[int], Process], timer: TimerFactory) -> None:
        super().__init__(start, timer)
        if not isinstance(self.process, ForkedProcess):  # the start is that of the template
            self.wait_for_start()

    def parse(self, source: Source, found: Format | None, config: Config) -> Parsed | IngestError:
        """Return the parser's result or its error; raise ParseFailed without a valid answer."""
        request = {"format": found.name if found else None}
        output = ProcessLimits.of(config).output_of(len(source.raw))
        return self._asked(source, request, output, _parsed_of, config)

    def draw(self, source: Source, kind: str, page: int, config: Config) -> Picture:
        """Return a page as a picture; raise an IngestError if it cannot be drawn."""
        asked = {"draw": [kind, page]}
        answer = self._asked(source, asked, PICTURE_BYTES, _picture_of, config)
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
            with self.killed_after(config.parse_timeout) as expired:
                send(self.process.stdin, json.dumps(request).encode(), source.raw)
                head = loaded(receive(self.process.stdout, HEAD_BYTES))
                return answer_of(head, receive(self.process.stdout, output))
        except (OSError, EOFError):
            reason = self._cause_of_death(expired.is_set(), config)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"its parser gave an invalid answer ({error})"
        raise ParseFailed(f"{source.name} cannot be parsed: {reason}")

    def _cause_of_death(self, expired: bool, config: Config) -> str:
        if expired:
            seconds = f"{config.parse_timeout:g} seconds"
            return f"it took longer than {seconds} {how_to_allow('parse_timeout')}"
        status = self.exit_status(1)
        if status is None:
            return "its parser closed the connection"
        if status == OUT_OF_MEMORY:
            needed = f"{config.parse_memory} bytes of memory"
            return f"it needs more than {needed} {how_to_allow('parse_memory')}"
        name = (
            signal.Signals(-status).name
            if -status in set(signal.Signals)
            else f"exit status {status}"
        )
        return f"its parser crashed ({name}){self.printed.quoted()}"


# --- what the parser process answers, checked: a hostile file may have taken it over
#
# Each function raises ValueError, TypeError or LookupError for an answer that is not valid.


def _parsed_of(head: dict[str, Any], text: bytes) -> Parsed | IngestError:
    """Return the text of a source, or the error that its parser raised."""
    if "error" in head:
        return _error_of(head)
    parsed = Parsed(
        text=text.decode(),
        title=head["title"],
        kind=head["kind"],
        pages=tuple(head["pages"]),
        metadata=head["metadata"],
        note=head.get("note", ""),
        images=_numbers(head.get("images", ()), len(head["pages"])),
    )
    if not (
        isinstance(parsed.title, str)
        and isinstance(parsed.note, str)
        and parsed.kind in ("markdown", "text", "code")
        and all(type(page) is int and 0 <= page <= len(parsed.text) for page in parsed.pages)
        and list(parsed.pages) == sorted(parsed.pages)
        and isinstance(parsed.metadata, dict)
    ):
        raise ValueError("title, kind, pages, metadata or note have the wrong type or range")
    return parsed


def _picture_of(head: dict[str, Any], grey: bytes) -> Picture | IngestError:
    """Return a page that was drawn, or the error."""
    if "error" in head:
        return _error_of(head)
    width, height = _numbers([head["width"], head["height"]], MOST_PIXELS)
    if width * height != len(grey):
        raise ValueError(f"{len(grey)} bytes for a picture of {width} by {height}")
    return Picture(width, height, grey)


def _error_of(head: dict[str, Any]) -> IngestError:
    error = _ERROR_BY_CODE.get(str(head["error"]), ParseFailed)(
        str(head.get("message"))[:LONGEST_MESSAGE]
    )
    if isinstance(error, NoText) and head.get("images"):
        (error.pages,) = _numbers([head["pages"]], MOST_PAGES)
        error.images = _numbers(head["images"], error.pages)
    return error


def _numbers(given: Sequence[int], most: int) -> tuple[int, ...]:
    """Numbers of pages or pixels, each between 1 and `most`; raises ValueError for others."""
    if not all(type(each) is int and 1 <= each <= most for each in given):
        raise ValueError("numbers of pages or pixels are out of range")
    return tuple(given)


# --- the parser process


def serve(parse: ParseFunction, limits: ProcessLimits) -> None:
    """Run as the parser process: answer each source from stdin with its text until stdin ends.

    On Linux this process becomes the template, and what returns from the fork is the parser.
    """
    if FORKS:
        _fork_on_request()
    requests, replies = private_pipes()
    sandbox.limit_memory(limits.memory)
    if limits.sandbox:
        sandbox.confine()
    if not FORKS:
        send(replies, b"{}")
    try:
        while True:
            request = loaded(receive(requests, HEAD_BYTES))
            found = formats.BY_NAME.get(request.pop("format", None))
            page = request.pop("draw", None)
            source = Source(raw=receive(requests, sys.maxsize), **request)
            with _alarm(limits.seconds + GRACE_SECONDS):
                if page:
                    answer = _answer(source, partial(_drawn, source, *page))
                else:
                    answer = _answer(source, partial(_parsed, parse, source, found, limits))
            send(replies, *answer)
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
    if not module or f"{formats.__name__}.{module}" in sys.modules:
        return
    with suppress(Exception):
        import_module("charset_normalizer")
        import_module(f"{formats.__name__}.{module}")
        if sample := _SAMPLES.get(module):
            found = next(each for each in formats.FORMATS if each.module == module)
            formats.parse(Source(source="", name="sample", raw=sample, file_type=""), found)
    gc.freeze()  # a collection in a child would copy the pages of all these objects


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


def _drawn(source: Source, kind: str, page: int) -> tuple[bytes, bytes]:
    from mcpvectordb.ingest.formats.pdf import draw

    width, height, grey = draw(source, kind, page)
    return _head(width=width, height=height), grey


def _parsed(
    parse: ParseFunction, source: Source, found: Format | None, limits: ProcessLimits
) -> tuple[bytes, bytes]:
    parsed = parse(source, found)
    text = parsed.text.encode()
    _check_output(source, len(text), limits)
    head = _head(**{name: getattr(parsed, name) for name in _PARSED_FIELDS})
    if len(head) > HEAD_BYTES - 100:
        raise ParseFailed(f"{source.name} has more than {HEAD_BYTES} bytes of metadata")
    return head, text


def _answer(source: Source, work: Callable[[], tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    try:
        return work()
    except Exception as error:  # parser libraries raise errors of any class
        if is_out_of_memory(error):
            raise MemoryError from error
        if isinstance(error, NoText):
            scan = {"pages": error.pages, "images": error.images}
            return _head(error=error.code, message=str(error), **scan), b""
        if isinstance(error, IngestError):
            return _head(error=error.code, message=str(error)), b""
        message = f"{source.name} cannot be parsed: {type(error).__name__}: {error}"
        return _head(error=ParseFailed.code, message=message), b""


def _head(**values: Any) -> bytes:
    return json.dumps(values).encode()


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


def main(limits: str) -> None:
    """Run as the process that reads all our formats, within these limits (JSON)."""
    serve(formats.parse, ProcessLimits(*json.loads(limits)))
