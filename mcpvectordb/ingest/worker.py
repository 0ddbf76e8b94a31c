"""Foreign bytes are parsed in a process of their own, which may hang, crash or swell without harm
to this one.

The process is started when the first file needs it, reused for the next ones, and replaced when a
file got the better of it. Three limits hold for each file, and going over one is a ParseFailed that
names it:

parse_timeout       wall clock, kept by the parent, which then kills the process parse_memory
address space (RLIMIT_AS), set by the process itself before it reads anything foreign
parse_output_bytes  size of the text, checked on both sides

RLIMIT_AS is Linux's; macOS accepts it without keeping it, and Windows has no such thing: there only
the clock and the output limit hold, and a parser can use as much memory as there is.

The process is a fresh interpreter, never a fork, with a bare environment. Its results travel on a
pipe that only our code knows: what a parser prints goes to stderr. They are JSON and UTF-8 text,
not pickles, and are checked on arrival, so that a process taken over by a hostile file can lie
about that file but not reach into this one. It ends when its pipe does; if its parent dies while a
parser hangs, an alarm ends it soon after the time limit (not on Windows).

What takes no parser (plain text, Markdown and source code in UTF-8) is read in this process and
spares the start.
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
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from mcpvectordb.config import Config
from mcpvectordb.errors import IngestError, ParseFailed
from mcpvectordb.ingest import formats
from mcpvectordb.records import Parsed, Source

START_SECONDS = 60.0
GRACE_SECONDS = 5.0
"""How long after the time limit a process ends itself that nobody has killed."""
HEAD_BYTES = 8_000_000
"""The most that may come along with a text: its title, pages and metadata."""
LONGEST_MESSAGE = 2_000
OUT_OF_MEMORY = 77
"""An exit status of ours: a process without memory should not have to compose a message."""

_OUT_OF_MEMORY_IN_C = re.compile(r"\b(?:m|c|re)alloc \(.*failed|std::bad_alloc")
_START = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
_LENGTH = struct.Struct(">Q")
_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "WINDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONHOME",
)
# Threads that no parser needs would each reserve a good part of the address space.
_FRUGAL = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_TOLD = [each.name for each in fields(Source) if each.name != "raw"]
_BY_CODE = {each.code: each for each in IngestError.__subclasses__()}


class Worker:
    """Parses sources in a process of its own; safe to use from several threads, which take turns.

    `command` starts a process that calls `serve`; without it, one that reads all our formats. Close
    the worker when it is no longer needed, or use it in a `with`.
    """

    def __init__(self, config: Config, *, command: Sequence[str] = ()) -> None:
        limits = (config.parse_memory, config.parse_output_bytes, config.parse_timeout)
        self._config = config
        self._command = command or (sys.executable, "-P", "-c", _START, *map(str, limits))
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parse(self, source: Source) -> Parsed:
        """Read the text of a source, as `formats.parse` does; a parser that breaks a limit or dies
        is a ParseFailed.
        """
        if takes_no_parser(source):
            return formats.parse(source)
        with self._lock, self._borrowed() as child:
            answer = child.ask(source, self._config)
        if isinstance(answer, IngestError):
            raise answer
        return answer

    def close(self) -> None:
        """End the process; a later `parse` starts another one."""
        with self._lock:
            self._drop()

    @contextmanager
    def _borrowed(self) -> Iterator[_Child]:
        """The running process or a new one; it is kept only if all goes well with it."""
        if self._child is None or not self._child.usable():
            self._drop()
            self._child = _Child(self._command)
        try:
            yield self._child
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None


def takes_no_parser(source: Source) -> bool:
    """Whether a source is text as it stands, with nothing foreign to interpret; also when no format
    fits it.
    """
    if source.raw.startswith(b"PK"):  # even to find out what is in an archive means to parse it
        return False
    try:
        source.raw.decode()
    except UnicodeDecodeError:
        return False
    return formats.detect(source).inline


class _Child:
    """One process, from its start to its end."""

    def __init__(self, command: Sequence[str]) -> None:
        self._owner, pipe = os.getpid(), subprocess.PIPE
        trouble = ParseFailed(
            f"the process that parses files does not start: {shlex.join(command)}"
        )
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=pipe,
                stdout=pipe,
                env=_environment(),
                start_new_session=True,  # Ctrl-C at the terminal is for the parent
            )
        except OSError:
            raise trouble from None
        self.end = weakref.finalize(self, _end, self._process, self._owner)
        try:
            with _killed_after(START_SECONDS, self._process):
                _receive(self._process.stdout, HEAD_BYTES)
        except (OSError, EOFError, ValueError):
            self.end()
            raise trouble from None

    def usable(self) -> bool:
        """Whether the process runs and is ours: a fork of this program must not talk into it."""
        return self._owner == os.getpid() and self.end.alive and self._process.poll() is None

    def ask(self, source: Source, config: Config) -> Parsed | IngestError:
        """What the parser makes of a source, or the error it ends in; whatever else happens is a
        ParseFailed.
        """
        told = {name: getattr(source, name) for name in _TOLD}
        with _killed_after(config.parse_timeout, self._process) as expired:
            try:
                _send(self._process.stdin, json.dumps(told).encode(), source.raw)
                head = _loaded(_receive(self._process.stdout, HEAD_BYTES))
                answer = _answer_of(head, _receive(self._process.stdout, config.parse_output_bytes))
            except (OSError, EOFError):
                reason = self._cause_of_death(expired.is_set(), config)
                raise ParseFailed(f"{source.name} cannot be parsed: {reason}") from None
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise ParseFailed(
                    f"{source.name} cannot be parsed: its parser answers nonsense ({error})"
                ) from None
        if head.get("retires"):
            self.end()
        return answer

    def _cause_of_death(self, expired: bool, config: Config) -> str:
        if expired:
            return f"it took longer than {config.parse_timeout:g} seconds (parse_timeout)"
        try:
            status = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "its parser closed the connection"
        if status == OUT_OF_MEMORY:
            return f"it needs more than {config.parse_memory} bytes of memory (parse_memory)"
        name = (
            signal.Signals(-status).name
            if -status in set(signal.Signals)
            else f"exit status {status}"
        )
        return f"its parser crashed ({name})"


@contextmanager
def _killed_after(seconds: float, process: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    """Kill the process after so many seconds; the event says whether that has happened."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        timer.join()
        if expired.is_set():
            process.wait()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # unsent bytes of a broken pipe
            if pipe:
                pipe.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()


def _environment() -> dict[str, str]:
    """Enough to find the same Python and the same packages, and none of the secrets that
    environments hold.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return (
        kept
        | _FRUGAL
        | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
    )


def _answer_of(head: dict[str, Any], text: bytes) -> Parsed | IngestError:
    """The answer as a record or an error; nothing in it is taken on trust."""
    if "error" in head:
        return _BY_CODE.get(str(head["error"]), ParseFailed)(
            str(head.get("message"))[:LONGEST_MESSAGE]
        )
    parsed = Parsed(
        text=text.decode(),
        title=head["title"],
        kind=head["kind"],
        pages=tuple(head["pages"]),
        metadata=head["metadata"],
    )
    if not (
        isinstance(parsed.title, str)
        and parsed.kind in ("markdown", "text", "code")
        and all(type(page) is int and 0 <= page <= len(parsed.text) for page in parsed.pages)
        and list(parsed.pages) == sorted(parsed.pages)
        and isinstance(parsed.metadata, dict)
    ):
        raise ValueError("a title, kind, pages or metadata of the wrong shape")
    return parsed


# --- both ends of the pipe
# -------------------------------------------------------------------------------------------


def _send(pipe: IO[bytes] | None, *parts: bytes) -> None:
    assert pipe  # noqa: S101 - for the type checker: all our processes have pipes
    for part in parts:
        pipe.write(_LENGTH.pack(len(part)))
        pipe.write(part)
    pipe.flush()


def _receive(pipe: IO[bytes] | None, limit: int) -> bytes:
    """The next part; EOFError where there is none any more."""
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


# --- the process's own side
# ------------------------------------------------------------------------------------------


def serve(parse: Callable[[Source], Parsed], *, memory: int, output: int, seconds: float) -> None:
    """Be the process: answer each source that comes in on stdin with what `parse` makes of it,
    until stdin ends.
    """
    requests, replies = _private_pipes()
    _limit(memory)
    _send(replies, b"{}")
    try:
        while True:
            told = _loaded(_receive(requests, HEAD_BYTES))
            source = Source(raw=_receive(requests, sys.maxsize), **told)
            with _alarm(seconds + GRACE_SECONDS):
                head, text = _answer(parse, source, output)
            _send(replies, _packed(head | {"retires": _has_grown(memory)}), text)
    except EOFError:
        return
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Stdin and stdout under numbers that no parser knows; in their place, nothing to read, and
    stderr to write to.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a device, not a path
        os.dup2(nothing.fileno(), 0)
        try:
            os.dup2(2, 1)
        except OSError:  # started without a stderr
            os.dup2(nothing.fileno(), 1)
    return requests, replies


def _limit(memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, amount in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory)):
        with suppress(ValueError, OSError):  # a lower one is in force, or the system has none
            resource.setrlimit(kind, (amount, amount))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Let the system end this process then, even if a parser never returns and nobody is left to
    kill it.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def _answer(
    parse: Callable[[Source], Parsed], source: Source, output: int
) -> tuple[dict[str, Any], bytes]:
    try:
        parsed = parse(source)
        text = parsed.text.encode()
        if len(text) > output:
            raise ParseFailed(
                f"{source.name} turns into more than {output} bytes of text (parse_output_bytes)"
            )
        head = {
            "title": parsed.title,
            "kind": parsed.kind,
            "pages": parsed.pages,
            "metadata": dict(parsed.metadata),
        }
        if len(_packed(head)) > HEAD_BYTES - 100:
            raise ParseFailed(f"{source.name} has more than {HEAD_BYTES} bytes of metadata")
        return head, text
    except Exception as error:  # parsers of foreign bytes raise whatever they like
        if isinstance(error, MemoryError) or _OUT_OF_MEMORY_IN_C.search(str(error)):
            raise MemoryError from error
        if isinstance(error, IngestError):
            return {"error": error.code, "message": str(error)}, b""
        message = f"{source.name} cannot be parsed: {type(error).__name__}: {error}"
        return {"error": ParseFailed.code, "message": message}, b""


def _packed(head: dict[str, Any]) -> bytes:
    return json.dumps(head).encode()


def _has_grown(memory: int) -> bool:
    """Whether this process has once taken half of what it may, so that the next file might not find
    enough.
    """
    try:
        peak = re.search(
            r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii", "replace")
        )
    except OSError:
        return False
    return peak is not None and int(peak[1]) * 1024 > memory // 2


def main(memory: str, output: str, seconds: str) -> None:
    """Be the process that reads all our formats; the arguments come from its command line."""
    serve(formats.parse, memory=int(memory), output=int(output), seconds=float(seconds))
