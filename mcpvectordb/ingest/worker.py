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

Results are JSON, UTF-8 text and pixels, never pickles, and are validated on arrival, so that a
process compromised by a hostile file can misreport that file but cannot run code in the parent.
When the parent dies, so does the template, and the kernel ends its children with it; elsewhere an
idle process ends with its pipe, and a busy one by an alarm signal soon after the time limit (not on
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
import re
import signal
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import IngestError, NoText, ParseFailed, UnsupportedFormat
from mcpvectordb.ingest import formats, sandbox
from mcpvectordb.ingest import process as foreign
from mcpvectordb.ingest.formats import Format
from mcpvectordb.ingest.ocr import Picture, Tesseract
from mcpvectordb.ingest.process import TimerFactory
from mcpvectordb.records import UNREAD_PAGES, Parsed, Source

T = TypeVar("T")

FORKS = sys.platform == "linux"
"""Whether each file gets a process of its own, forked from a template."""
GRACE_SECONDS = 5.0
"""How long after the time limit a process ends itself if no parent has killed it."""
PICTURE_BYTES = 30_000_000
"""Size limit of the pixels of a page that is drawn."""
LONGEST_MESSAGE = 2_000
MOST_PAGES = 1_000_000
MOST_PIXELS = 32_767
"""The greatest width or height of a picture that Tesseract takes."""
SMALL_OUTPUT = 1_000_000
"""Bytes of text that a file of any size may turn into; beyond them, parse_output_ratio applies."""
_START = f"import sys; from {__name__} import formats, serve; serve(formats.parse, sys.argv[1])"
_LIMITS = "parse_memory parse_output_bytes parse_output_ratio parse_timeout parse_sandbox".split()
"""What of the configuration the process enforces itself."""
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # ZIP archives and OLE containers
# The template parses it once: what MuPDF does for its first file, and takes longer for than for
# most files, is then done for all.
_SAMPLE_PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>
>>endobj
4 0 obj<</Length 31>>stream
BT/F 9 Tf 9 50 Td(A text.)Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
"""
_ERROR_BY_CODE = {each.code: each for each in IngestError.__subclasses__()}
_PARSED_FIELDS = [each.name for each in fields(Parsed) if each.name != "text"]
_SOURCE_FIELDS = [each.name for each in fields(Source) if each.name != "raw"]


def limits_of(config: Config) -> str:
    """The argument of the process: what of a configuration it enforces itself, as JSON."""
    return json.dumps({name: getattr(config, name) for name in _LIMITS})


def most_output(config: Config, size: int) -> int:
    """The most bytes of text that a file of this size may turn into."""
    return min(config.parse_output_bytes, SMALL_OUTPUT + config.parse_output_ratio * size)


class Worker:
    """Parses sources in separate processes; thread-safe, one source at a time.

    `command` starts a process that calls `serve`; the default one reads all our formats. `timer`
    makes the timers of the time limits. Close the worker when it is no longer needed, or use it as
    a context manager.
    """

    def __init__(
        self, config: Config, *, command: Sequence[str] = (), timer: TimerFactory = threading.Timer
    ) -> None:
        self._config, self._timer = config, timer
        self._command = command or (sys.executable, "-P", "-c", _START, limits_of(config))
        self._lock = threading.Lock()
        self._template: foreign.Template | None = None
        self._process: foreign.ForeignProcess | None = None
        self._ocr = Tesseract.found(config)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parse(self, source: Source) -> Parsed:
        """Return the text of a source, as `formats.parse` does.

        ParseFailed is raised also for a parser that exceeds a limit or crashes. Where OCR is
        installed, pages without text and pictures are read by it.
        """
        if self._ocr and (kind := formats.picture(source)):
            return self._ocr.read_picture(source, partial(self._draw, source, kind))
        found = None if source.raw.startswith(_CONTAINERS) else formats.detect(source)
        if found and found.inline:
            with suppress(UnicodeDecodeError):
                source.raw.decode()
                return formats.parse(source, found)
        likely = found or formats.by_name(source.name)
        answer = self._asked(
            likely.module if likely else "",
            source,
            {"format": found.name if found else None},
            most_output(self._config, len(source.raw)),
            _parsed_of,
        )
        if self._ocr:
            answer = self._ocr.complete(source, answer, partial(self._draw, source, "pdf"))
        if isinstance(answer, IngestError):
            raise answer
        if answer.images:  # there is no OCR, which may be there another time
            return replace(answer, metadata={**answer.metadata, UNREAD_PAGES: list(answer.images)})
        return answer

    def draw(self, source: Source, page: int, most: int) -> bytes:
        """Return a page of a PDF or picture as a PNG of at most so many pixels on each side.

        What the process answers are pixels: they are written as a PNG here, so that a parser that
        was taken over can show something else and do nothing else. Raises UnsupportedFormat for
        what has no pages to draw, or ParseFailed.
        """
        kind = formats.picture(source) or "pdf"
        if kind == "pdf" and not re.match(formats.BY_NAME["PDF"].magic, source.raw[:4096]):
            raise UnsupportedFormat(f"{source.name} is neither a PDF nor a picture")
        return _png(self._draw(source, kind, page, most))

    def _draw(self, source: Source, kind: str, page: int, most: int = 0) -> Picture:
        """A page as a picture; raises an IngestError if it cannot be drawn.

        It is one for OCR, or with `most` one in colours that has at most so many pixels on a side.
        """
        answer = self._asked(
            "pdf",
            source,
            {"draw": [kind, page, most]},
            PICTURE_BYTES,
            partial(_picture_of, most=most),
        )
        if isinstance(answer, IngestError):
            raise answer
        return answer

    def close(self) -> None:
        """End the processes; a later `parse` starts new ones."""
        with self._lock:
            self._drop()
            if self._template is not None:
                self._template.end()
            self._template = None

    def _asked(
        self,
        module: str,
        source: Source,
        request: dict[str, Any],
        most: int,
        answer_of: Callable[[dict[str, Any], bytes], T],
    ) -> T | IngestError:
        """The parser's answer, whose bytes are at most so many, or its error.

        Raises ParseFailed without a valid answer.
        """
        request |= {name: getattr(source, name) for name in _SOURCE_FIELDS}
        with self._lock, self._running(module) as process:
            pipes = process.process
            try:
                with process.killed_after(self._config.parse_timeout) as expired:
                    foreign.send(pipes.stdin, json.dumps(request).encode(), source.raw)
                    head = foreign.loaded(foreign.receive(pipes.stdout, foreign.HEAD_BYTES))
                    body = foreign.receive(pipes.stdout, most)
                    return _error_of(head) if "error" in head else answer_of(head, body)
            except (OSError, EOFError):
                reason = self._cause_of_death(process, expired.is_set())
            except (ValueError, TypeError, LookupError, RecursionError) as invalid:
                reason = f"its parser gave an invalid answer ({invalid})"
            error = ParseFailed(f"{source.name} cannot be parsed: {reason}")
            error.settled = False
            raise error

    def _cause_of_death(self, process: foreign.ForeignProcess, expired: bool) -> str:
        if expired:
            seconds = f"{self._config.parse_timeout:g} seconds"
            return f"it took longer than {seconds} {how_to_allow('parse_timeout')}"
        status = process.exit_status(1)
        if status is None:
            return "its parser closed the connection"
        if status == foreign.OUT_OF_MEMORY:
            needed = f"{self._config.parse_memory} bytes of memory"
            return f"it needs more than {needed} {how_to_allow('parse_memory')}"
        known = -status in set(signal.Signals)
        name = signal.Signals(-status).name if known else f"exit status {status}"
        return f"its parser crashed ({name}){process.printed.quoted()}"

    @contextmanager
    def _running(self, module: str) -> Iterator[foreign.ForeignProcess]:
        """A process for one file, likely of that module's format; any exception ends it.

        Where processes cannot be forked, the running one takes the next file, too.
        """
        if self._process is None or not self._process.usable():
            self._drop()
            if FORKS:
                if self._template is None or not self._template.usable():
                    self._template = foreign.Template(self._command)
                start: Callable[[int], foreign.Process] = partial(self._template.fork, module)
            else:
                start = partial(foreign.spawned, self._command)
            self._process = foreign.ForeignProcess(start, self._timer)
            if not FORKS:  # else the start is that of the template
                self._process.wait_for_start()
        try:
            yield self._process
        except BaseException:
            self._drop()
            raise
        if FORKS:
            self._drop()

    def _drop(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None


# --- what the parser process answers, checked: a hostile file may have taken it over
#
# Each function raises ValueError, TypeError or LookupError for an answer that is not valid.


def _parsed_of(head: dict[str, Any], text: bytes) -> Parsed:
    """Return the text of a source."""
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


def _picture_of(head: dict[str, Any], pixels: bytes, *, most: int) -> Picture:
    """Return a page that was drawn, in colours if it may have at most so many pixels on a side."""
    width, height = _numbers([head["width"], head["height"]], most or MOST_PIXELS)
    if width * height * (3 if most else 1) != len(pixels):
        raise ValueError(f"{len(pixels)} bytes for a picture of {width} by {height}")
    return Picture(width, height, pixels)


def _png(picture: Picture) -> bytes:
    """A picture in colours as a PNG."""
    width, height, pixels = picture
    # Each line is preceded by how it is filtered: not at all.
    lines = (b"\0" + pixels[at : at + 3 * width] for at in range(0, len(pixels), 3 * width))
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),  # 8 bits of each colour
        b"IDAT": zlib.compress(b"".join(lines), 3),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts.items()
    )


def _error_of(head: dict[str, Any]) -> IngestError:
    """Return the error that the parser raised."""
    kind, message = _ERROR_BY_CODE.get(str(head["error"]), ParseFailed), str(head.get("message"))
    error = kind(message[:LONGEST_MESSAGE])
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


def serve(parse: Callable[[Source, Format | None], Parsed], limits: str) -> None:
    """Run as the parser process: answer each source from stdin with its text until stdin ends.

    `limits` are those of `limits_of`; `parse` gets the format, or None to detect it. On Linux this
    process becomes the template, and what returns from the fork is the parser.
    """
    config = Config(**json.loads(limits))
    if FORKS:
        foreign.fork_on_request(_import_parser)
    requests, replies = foreign.private_pipes()
    sandbox.limit_memory(config.parse_memory)
    if config.parse_sandbox:
        sandbox.confine()
    if not FORKS:
        foreign.send(replies, b"{}")
    try:
        while True:
            request = foreign.loaded(foreign.receive(requests, foreign.HEAD_BYTES))
            found = formats.BY_NAME.get(request.pop("format", None))
            page = request.pop("draw", None)
            source = Source(raw=foreign.receive(requests, sys.maxsize), **request)
            work = partial(_drawn, source, *page) if page else partial(parse, source, found)
            _set_alarm(config.parse_timeout + GRACE_SECONDS)
            answer = _answer(source, work, config)
            _set_alarm(0)
            foreign.send(replies, *answer)
    except EOFError:
        return
    except MemoryError:
        os._exit(foreign.OUT_OF_MEMORY)


def _import_parser(module: str) -> None:
    """Import a module of a format with what it needs; what fails will fail again for its file."""
    if not module or f"{formats.__name__}.{module}" in sys.modules:
        return
    with suppress(Exception):
        import_module("charset_normalizer")
        import_module(f"{formats.__name__}.{module}")
        if module == "pdf":
            formats.parse(Source(source="", name="sample", raw=_SAMPLE_PDF, file_type=""))
    gc.freeze()  # a collection in a child would copy the pages of all these objects


def _set_alarm(seconds: float) -> None:
    """End this process by a signal after so many seconds, in case no parent is left to kill it.

    0 takes it back. On Linux the kernel ends it with its parent.
    """
    if not FORKS and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _drawn(source: Source, kind: str, page: int, most: int) -> Picture:
    from mcpvectordb.ingest.formats.pdf import draw

    return Picture(*draw(source, kind, page, most))


def _answer(
    source: Source, work: Callable[[], Parsed | Picture], config: Config
) -> tuple[bytes, bytes]:
    """The head and the body of the answer to a request."""
    try:
        done = work()
        if isinstance(done, Picture):
            return _head(width=done.width, height=done.height), done.pixels
        text, size = done.text.encode(), len(source.raw)
        if len(text) > config.parse_output_bytes:
            raise ParseFailed(
                f"{source.name} turns into more than {config.parse_output_bytes} bytes of text "
                f"{how_to_allow('parse_output_bytes')}"
            )
        if len(text) > most_output(config, size):
            raise ParseFailed(
                f"{source.name} turns {size} bytes into {len(text)} bytes of text, more than "
                f"{config.parse_output_ratio} times its size and {SMALL_OUTPUT} bytes "
                f"{how_to_allow('parse_output_ratio')}"
            )
        head = _head(**{name: getattr(done, name) for name in _PARSED_FIELDS})
        if len(head) > foreign.HEAD_BYTES - 100:
            raise ParseFailed(f"{source.name} has more than {foreign.HEAD_BYTES} bytes of metadata")
        return head, text
    except Exception as error:  # parser libraries raise errors of any class
        if foreign.is_out_of_memory(error):
            raise MemoryError from error
        if not isinstance(error, IngestError):
            message = f"{source.name} cannot be parsed: {type(error).__name__}: {error}"
            return _head(error=ParseFailed.code, message=message), b""
        scan = {"pages": error.pages, "images": error.images} if isinstance(error, NoText) else {}
        return _head(error=error.code, message=str(error), **scan), b""


def _head(**values: Any) -> bytes:
    return json.dumps(values).encode()
