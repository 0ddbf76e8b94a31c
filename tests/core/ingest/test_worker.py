from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from mcpvectordb.config import Config
from mcpvectordb.errors import IngestError, NoText, ParseFailed, UnsupportedFormat
from mcpvectordb.ingest.process import PRINTED_BYTES, TimerFactory
from mcpvectordb.ingest.worker import FORKS, SMALL_OUTPUT, Worker, limits_of
from mcpvectordb.records import Parsed, Source
from tests.support_formats import StoppedClock, source

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX processes")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
CONFIG = Config(parse_timeout=600, parse_memory=300_000_000, parse_output_bytes=1_000_000)
ROOT = Path(__file__).parents[3]

# A parser that evaluates its file as an expression; the first byte keeps it from being UTF-8.
EVALUATING = """
import ctypes, os, re, sys, time
from mcpvectordb import errors
from mcpvectordb.ingest import worker
from mcpvectordb.records import Parsed

def parse(source, found):
    code = source.raw.removeprefix(b"\\xff").removeprefix(b"PK").decode()
    answer = eval(code, globals(), {"source": source, "found": found})
    return answer if isinstance(answer, Parsed) else Parsed(text=str(answer), title=source.name)

def fail(error):
    raise error

def fails(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno

worker.serve(parse, %r)
"""
# A process that a hostile file has compromised: it sends back what the file says, as the parts of
# an answer or as raw bytes, on the pipe that it finds for itself.
COMPROMISED = """
import os, struct, sys
from mcpvectordb.ingest import worker

def parse(source, found):
    frame = sys._getframe()
    while "replies" not in frame.f_locals:
        frame = frame.f_back
    replies, answer = frame.f_locals["replies"], eval(source.raw[1:])
    for part in [answer] if isinstance(answer, bytes) else answer:
        if not isinstance(answer, bytes):
            replies.write(struct.pack(">Q", len(part)))
        replies.write(part)
    replies.flush()
    os._exit(0)

worker.serve(parse, %r)
"""


def compromising(config: Config) -> Worker:
    """A worker whose parser answers with what its files say."""
    return Worker(config, command=[sys.executable, "-P", "-c", COMPROMISED % limits_of(config)])


def evaluating(config: Config = CONFIG, *, timer: TimerFactory | None = None) -> Worker:
    """A worker whose parser evaluates its files; without `timer` it waits as long as it takes."""
    command = [sys.executable, "-P", "-c", EVALUATING % limits_of(config)]
    return Worker(config, command=command, timer=timer or StoppedClock(0))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all these tests: each must leave it usable for the next."""
    with evaluating() as made:
        yield made


def asking(expression: str) -> Source:
    return source(b"\xff" + expression.encode(), "file")


def works(worker: Worker) -> bool:
    return worker.parse(asking("'fine'")) == Parsed(text="fine", title="file")


# --- the normal case


def test_binary_files_are_parsed_in_other_processes(worker: Worker) -> None:
    first, second = (worker.parse(asking("os.getpid()")).text for _ in range(2))
    assert str(os.getpid()) not in (first, second)
    assert (first != second) is FORKS


@LINUX
def test_a_parser_that_was_taken_over_is_gone_before_the_next_file(worker: Worker) -> None:
    # It replaces the parser, the reading of requests and the answer for whatever comes next.
    poison = "[setattr(worker, '_answer', lambda *_: (b'{}', b'her text')), setattr(worker.foreign, 'receive', fail), os.getpid()][-1]"
    taken = int(worker.parse(asking(poison)).text)
    assert not alive(taken)
    assert works(worker)


@LINUX
def test_a_parser_has_no_file_descriptors_but_its_own_pipes(worker: Worker) -> None:
    kinds = "[n for n in range(64) if not fails(os.fstat, n)]"
    assert len(eval(worker.parse(asking(kinds)).text)) == 5  # three streams and two pipes


@LINUX
def test_a_template_that_was_killed_is_replaced(worker: Worker) -> None:
    first = int(worker.parse(asking("os.getppid()")).text)
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    assert int(worker.parse(asking("os.getppid()")).text) not in (first, os.getpid())


def test_every_field_of_a_source_is_sent_and_every_field_of_the_result_received(
    worker: Worker,
) -> None:
    fields = {"modified": "2026", "media_type": "text/html; charset=x", "etag": '"v\u00e9"'}
    fields["name"] = "n\udcff\u4e2d.bin"
    given = replace(asking("source"), **fields)  # type: ignore[arg-type]
    assert eval(worker.parse(given).text) == given
    answer = Parsed(
        text="Zürich 中文 \U0001f600",
        title="T\u00eftle",
        kind="markdown",
        pages=(0, 3, 3),
        metadata={"a": [1, {"b": None}], "c": 1.5},
    )
    assert worker.parse(asking(repr(answer))) == answer


def test_a_real_file_is_parsed_by_its_format_without_any_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    raw = "Die Straße führt über die Brücke nach Köln, wo schöne Häuser stehen.".encode("latin-1")
    with Worker(CONFIG) as worker:
        for _ in range(2):
            assert worker.parse(source(raw, "a.txt")).text.encode("latin-1") == raw
        with pytest.raises(NoText):
            worker.parse(source(b"\xff\xfe \0\n\0", "a.txt"))
    assert capfd.readouterr() == ("", "")


def test_plain_text_and_unknown_types_start_no_process() -> None:
    worker = Worker(CONFIG, command=["/nonexistent/program"])
    text = source("# Überschrift", "a.md")
    assert worker.parse(text).text == "# Überschrift"
    assert worker.parse(replace(text, name="a.xyzzy")).text == "# Überschrift"
    with pytest.raises(UnsupportedFormat):
        worker.parse(replace(text, name="a.xyzzy", raw=b"\0\1\2"))


def test_the_parent_detects_the_format_but_that_of_an_archive_is_left_to_the_process(
    worker: Worker,
) -> None:
    page = replace(asking("found.name"), media_type="text/html")
    assert worker.parse(page).text == "HTML"
    assert worker.parse(asking("found.name")).text == "plain text"
    archive = replace(asking("found"), raw=b"PKfound", name="a.zip")
    assert worker.parse(archive).text == "None"


def test_an_ingest_error_keeps_its_class_and_message(worker: Worker) -> None:
    for kind in IngestError.__subclasses__():
        with pytest.raises(kind, match=r"^because of ünicode$"):
            worker.parse(asking(f"fail(errors.{kind.__name__}('because of ünicode'))"))
    assert works(worker)


@pytest.mark.parametrize("failure", [
    "1 / 0", "fail(RecursionError('too deep'))", "fail(OSError(5, 'io'))", "'\\ud800'",
    "Parsed(text='x', title='x', metadata={'a': {1, 2}})",
])  # fmt: skip
def test_any_other_error_is_a_parse_failed_that_names_file_and_class(
    worker: Worker, failure: str
) -> None:
    with pytest.raises(ParseFailed, match=r"^file cannot be parsed: [A-Za-z]+Error"):
        worker.parse(asking(failure))
    assert works(worker)


def test_threads_that_share_a_worker_each_get_their_own_result(worker: Worker) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = worker.parse(asking(f"time.sleep(0.01) or {number}")).text

    threads = [threading.Thread(target=ask, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: str(number) for number in range(12)}


def test_what_a_parser_prints_is_not_printed_by_its_parent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with evaluating() as worker:
        noise = "print('noise', flush=True) or os.write(1, b'more')"
        assert worker.parse(asking(noise)).text == "4"
        assert worker.parse(asking("sys.stdin.read() + str(os.read(0, 9))")).text == "b''"
        flood = "[os.write(2, b'noise' * 20_000) for _ in range(1_000)] and 'fine'"
        assert worker.parse(asking(flood)).text == "fine"
    assert capfd.readouterr() == ("", "")


def test_the_environment_has_no_secrets_and_telemetry_is_turned_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("MCPVECTORDB_PROXY", "http://me:secret@proxy:1")
    with evaluating() as worker:
        found = worker.parse(asking("dict(os.environ)")).text
    assert "secret" not in found and eval(found)["ORT_DISABLE_TELEMETRY"] == "1"


def test_modules_in_the_working_folder_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "struct", "mcpvectordb"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile module')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT), *(entry for entry in sys.path if entry)])
    with evaluating() as worker:
        assert works(worker)


# --- limits


@pytest.mark.parametrize("hang", ["time.sleep(600)", "re.match('(a+)+$', 'a' * 60 + 'b')"])
def test_a_parser_that_hangs_is_killed_at_the_time_limit_and_the_next_file_is_read(
    hang: str,
) -> None:
    clock = StoppedClock(0.5)
    with evaluating(replace(CONFIG, parse_timeout=123), timer=clock) as worker:
        assert works(worker)
        with (
            clock.running(),
            pytest.raises(
                ParseFailed, match=r"^file cannot be parsed: it took longer than 123 seconds"
            ) as error,
        ):
            worker.parse(asking(hang))
        assert not error.value.settled  # a sync tries it again
        assert works(worker)


@POSIX
@pytest.mark.parametrize(("crash", "name"), [
    ("os._exit(3)", "exit status 3"), ("os.abort()", "SIGABRT"), ("ctypes.string_at(0)", "SIGSEGV"),
    ("sys.exit(4)", "exit status 4"), ("os.kill(os.getpid(), 9)", "SIGKILL"),
])  # fmt: skip
def test_a_parser_that_crashes_is_replaced_and_the_next_file_is_read(
    worker: Worker, crash: str, name: str
) -> None:
    with pytest.raises(ParseFailed, match=f"^file cannot be parsed: its parser crashed .*{name}"):
        worker.parse(asking(crash))
    assert works(worker)


@LINUX
@pytest.mark.parametrize("swell", [
    "bytes(10**9)", "[bytes(10**6) for _ in range(10**4)]", "'x' * 10**9",
    "fail(errors.ParseFailed('code=2: calloc (4104 x 1 bytes) failed'))",
])  # fmt: skip
def test_a_parser_that_exceeds_the_memory_limit_is_ended_and_the_next_file_is_read(
    worker: Worker, swell: str
) -> None:
    with pytest.raises(ParseFailed, match="needs more than 300000000 bytes of memory"):
        worker.parse(asking(swell))
    assert works(worker)


@POSIX
def test_what_a_parser_printed_last_is_quoted_when_it_crashes() -> None:
    with evaluating() as worker:
        crash = "os.write(2, b'x' * 100_000 + b'\\nthe\\x1b[2J stack is broken\\n') and os.abort()"
        with pytest.raises(ParseFailed, match=r"printed: x+ the\[2J stack is broken$") as caught:
            worker.parse(asking(crash))
        assert PRINTED_BYTES < len(str(caught.value)) < PRINTED_BYTES + 200
        assert works(worker)


@LINUX
def test_a_source_larger_than_the_memory_limit_reports_that_limit() -> None:
    with evaluating(replace(CONFIG, parse_memory=150_000_000)) as worker:
        with pytest.raises(ParseFailed, match="needs more than 150000000 bytes of memory"):
            worker.parse(asking("'x'" + " " * 200_000_000))
        assert works(worker)


@pytest.mark.parametrize(("flood", "message"), [
    ("'x' * 1_000_001", r"1000000 bytes of text \(parse_output_bytes\)"),
    ("'\\u4e2d' * 400_000", r"1000000 bytes of text \(parse_output_bytes\)"),
    ("Parsed(text='x', title='x', metadata={'a': 'x' * 9_000_000})", "8000000 bytes of metadata"),
])  # fmt: skip
def test_a_result_above_the_output_limit_is_refused_and_the_next_file_is_read(
    worker: Worker, flood: str, message: str
) -> None:
    with pytest.raises(ParseFailed, match=message):
        worker.parse(asking(flood))
    assert len(worker.parse(asking("'x' * 1_000_000")).text) == 1_000_000


def test_a_small_file_may_not_turn_into_a_text_of_many_times_its_size() -> None:
    limit = SMALL_OUTPUT + 3 * len(asking("'x' * 1_000_000").raw)
    with evaluating(replace(CONFIG, parse_output_bytes=2_000_000, parse_output_ratio=3)) as worker:
        assert len(worker.parse(asking(f"'x' * {limit:_}")).text) == limit
        with pytest.raises(
            ParseFailed, match=r"3 times its size .*set MCPVECTORDB_PARSE_OUTPUT_RATIO"
        ):
            worker.parse(asking(f"'x' * {limit + 1:_}"))


def test_a_compromised_process_may_not_exceed_the_ratio_either() -> None:
    with (
        compromising(replace(CONFIG, parse_output_bytes=9_000_000, parse_output_ratio=1)) as worker,
        pytest.raises(ParseFailed, match="invalid answer"),
    ):
        worker.parse(asking(f"[{head()!r}, b'x' * 1_001_000]"))


@POSIX
def test_an_interrupted_parse_leaves_no_answer_behind_for_the_next() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with evaluating(replace(CONFIG, parse_sandbox=False)) as worker:
            # The parser itself interrupts its parent, which is certainly waiting for it then.
            with pytest.raises(KeyboardInterrupt):
                worker.parse(asking(f"os.kill({os.getpid()}, 2) or time.sleep(600) or 'late'"))
            assert works(worker)
    finally:
        signal.signal(signal.SIGINT, before)


# --- real hostile files


def pdf(*texts: str) -> pymupdf.Document:
    """A PDF of one page with these lines."""
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), texts)
    return document


def harmless_pdf() -> Source:
    return source(pdf("Hello pages").tobytes(), "file")


def pdf_that_hangs() -> Source:
    """A few kilobytes in which each drawing is ten times the next one: 10^12 letters."""
    inner = pdf("x")
    for _ in range(12):
        outer = pymupdf.open()
        sheet = outer.new_page()
        first = sheet.show_pdf_page(sheet.rect, inner)
        assert first
        contents = sheet.get_contents()[0]
        outer.update_stream(contents, outer.xref_stream(contents) * 10)
        inner = outer
    return source(inner.tobytes(garbage=3), "file")


def pdf_that_swells() -> Source:
    """A hundred kilobytes that unpack to a million words on one page."""
    document = pdf("a word or two")
    contents = document[0].get_contents()[0]
    document.update_stream(contents, document.xref_stream(contents) * 1_000_000)
    return source(document.tobytes(deflate=True), "file")


def test_a_pdf_that_hangs_is_stopped_at_the_time_limit_and_the_next_one_is_read() -> None:
    clock = StoppedClock(2)
    with Worker(Config(parse_timeout=123), timer=clock) as worker:
        assert "Hello pages" in worker.parse(harmless_pdf()).text
        with clock.running(), pytest.raises(ParseFailed, match="took longer than 123 seconds"):
            worker.parse(pdf_that_hangs())
        assert "Hello pages" in worker.parse(harmless_pdf()).text


@LINUX
def test_a_pdf_that_needs_too_much_memory_is_stopped_and_the_next_one_is_read() -> None:
    with Worker(Config(parse_memory=450_000_000), timer=StoppedClock(0)) as worker:
        with pytest.raises(ParseFailed, match="needs more than 450000000 bytes of memory"):
            worker.parse(pdf_that_swells())
        assert "Hello pages" in worker.parse(harmless_pdf()).text


# --- a compromised process


def head(**changes: object) -> bytes:
    sound: dict[str, object] = {"title": "t", "kind": "text", "pages": [0], "metadata": {}}
    return json.dumps(sound | changes).encode()


@pytest.fixture(scope="module")
def compromised() -> Iterator[Worker]:
    with compromising(CONFIG) as made:
        yield made


def test_a_valid_answer_of_a_compromised_process_is_accepted(compromised: Worker) -> None:
    assert compromised.parse(asking(repr([head(), b"text"]))) == Parsed(
        text="text", title="t", pages=(0,)
    )


@pytest.mark.parametrize("answer", [
    b"\xff" * 8, b"\0\0\0\0\x7f\xff\xff\xff{}", [b"not json", b""], [b"[1]", b""], [b"[" * 100_000, b""],
    [b"\xff\xfe", b""], [b"{}", b""], [head(title=1), b"x"], [head(kind="pickle"), b"x"], [head(kind=[]), b"x"],
    [head(pages="x"), b"x"], [head(pages=[2]), b"x"], [head(pages=[1, 0]), b"x"], [head(pages=[-1]), b"x"],
    [head(pages=[True]), b"x"], [head(pages=[0.5]), b"x"], [head(pages=None), b"x"], [head(metadata=[]), b"x"],
    [head(metadata="x"), b"x"], [head(note=1), b"x"], [head(images=[2]), b"x"], [head(images=[0]), b"x"],
    [head(), b"\xff"], [head(), b"\xed\xa0\x80"], [head(), b"x" * 1_000_001],
])  # fmt: skip
def test_an_invalid_answer_of_a_compromised_process_is_rejected(
    compromised: Worker, answer: bytes | list[bytes]
) -> None:
    with pytest.raises(
        ParseFailed, match=r"^file cannot be parsed: its parser gave an invalid answer"
    ):
        compromised.parse(asking(repr(answer)))


def test_an_error_of_an_unknown_kind_is_a_parse_failed_of_bounded_length(
    compromised: Worker,
) -> None:
    answer = [json.dumps({"error": "__class__", "message": "x" * 1_000_000}).encode(), b""]
    with pytest.raises(ParseFailed) as caught:
        compromised.parse(asking(repr(answer)))
    assert len(str(caught.value)) == 2000


# --- start and end


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "print('hello')", ""])
def test_a_process_that_exits_at_its_start_or_is_missing_is_reported_with_its_command(
    code: str,
) -> None:
    command, said = ["/nonexistent/program"], r"/nonexistent/program$"
    if code:
        code = f"import sys; sys.stderr.write('no such module'); {code}"
        command, said = [sys.executable, "-c", code], r".*python.* printed: no such module$"
    with pytest.raises(ParseFailed, match=f"does not start: {said}"):
        Worker(CONFIG, command=command).parse(asking("1"))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def gone(pid: int, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


@POSIX
def test_closing_ends_the_process_and_a_later_file_starts_another(worker: Worker) -> None:
    pids = json.loads(worker.parse(asking("[os.getpid(), os.getppid()]")).text)
    worker.close()
    worker.close()
    assert all(gone(pid) for pid in pids if pid != os.getpid())
    assert works(worker)


@POSIX
def test_a_worker_that_is_garbage_collected_ends_its_process() -> None:
    worker = evaluating()
    pids = json.loads(worker.parse(asking("[os.getpid(), os.getppid()]")).text)
    del worker
    gc.collect()
    assert all(gone(pid) for pid in pids if pid != os.getpid())


def parent(script: str) -> subprocess.Popen[str]:
    """Another Python that uses the worker `worker` and the function `asking` of this file."""
    setting = f"""
        import os, sys, time
        sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
        from test_worker import *
        worker = evaluating(replace(CONFIG, parse_timeout=20))
    """
    code = textwrap.dedent(setting) + textwrap.dedent(script)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@POSIX
def test_the_process_does_not_use_the_stdin_and_stdout_of_its_parent() -> None:
    process = parent("""
        print(worker.parse(asking("print('noise') or 'fine'")).text, input())
        worker.close()
    """)
    assert process.communicate("typed\n", timeout=30)[0] == "fine typed\n"


@POSIX
@pytest.mark.parametrize("state", ["idle", "busy"])
def test_the_process_does_not_outlive_a_parent_that_is_killed(state: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    process = parent(f"""
        worker = evaluating(replace(CONFIG, parse_timeout=2, parse_sandbox=False))
        print(worker.parse(asking("os.getpid() if {not FORKS} else os.getppid()")).text, flush=True)
        if {state == "busy"}:
            busy = "open({str(begun)!r}, 'w').write(str(os.getpid())) and re.match('(a+)+$', 'a' * 60 + 'b')"
            worker.parse(asking(busy))
        time.sleep(600)
    """)
    assert process.stdout
    with process:
        pid = int(process.stdout.readline())
        while state == "busy" and not (begun.exists() and begun.read_text()):
            time.sleep(0.01)
        assert alive(pid) or state == "busy"
        process.kill()
    assert gone(pid)
    assert state == "idle" or gone(int(begun.read_text()))


@LINUX
def test_children_of_a_parser_do_not_outlive_its_file(tmp_path: Path) -> None:
    # Without the filter nothing forbids a fork; the group of the process is killed.
    fork, note = "(lambda pid: pid or time.sleep(600))(os.fork())", tmp_path / "pid"
    clock = StoppedClock(0.5)
    with evaluating(replace(CONFIG, parse_sandbox=False), timer=clock) as free:
        assert gone(int(free.parse(asking(fork)).text))
        with clock.running(), pytest.raises(ParseFailed, match="took longer"):
            free.parse(asking(f"open({str(note)!r}, 'w').write(str({fork})) and time.sleep(600)"))
        assert gone(int(note.read_text()))


@POSIX
def test_a_fork_of_the_program_starts_a_process_of_its_own() -> None:
    process = parent("""
        which = "os.getppid()" if FORKS else "os.getpid()"
        first = worker.parse(asking(which)).text
        if (forked := os.fork()) == 0:
            other = worker.parse(asking(which)).text
            worker.close()
            os._exit(0 if other != first else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), worker.parse(asking(which)).text == first)
        worker.close()
    """)
    assert process.communicate(timeout=30)[0] == "0 True\n"


# --- pages that are drawn


def sheets(*sizes: tuple[float, float]) -> bytes:
    """A PDF of pages of these sizes, each with a red square at its top left."""
    document = pymupdf.open()
    for width, height in sizes:
        page = document.new_page(width=width, height=height)
        page.draw_rect(pymupdf.Rect(0, 0, width / 2, height / 2), fill=(1, 0, 0), color=None)
    return bytes(document.tobytes())


def seen(png: bytes) -> pymupdf.Pixmap:
    return pymupdf.Pixmap(png)


def test_a_page_is_drawn_in_its_colours_and_within_its_pixels() -> None:
    raw = sheets((595, 842), (300, 200), (14_000, 1), (0.5, 0.5))
    with Worker(Config()) as worker:
        pages = [seen(worker.draw(source(raw, "a.pdf"), page, 800)) for page in (1, 2, 3, 4)]
        tall = pages[0]
        assert (tall.width, tall.height) == (565, 799) and tall.pixel(5, 5) == (255, 0, 0)
        assert tall.pixel(560, 790) == (255, 255, 255)
        assert [page.width for page in pages[1:]] == [799, 799, 5]
        with pytest.raises(ParseFailed, match=r"a\.pdf has no page 5: its last one is page 4"):
            worker.draw(source(raw, "a.pdf"), 5, 800)


@pytest.mark.parametrize("kind", ["png", "jpeg", "pnm"])
def test_a_picture_is_drawn_again_and_other_files_are_named(kind: str) -> None:
    page = pymupdf.open(stream=sheets((300, 200)), filetype="pdf")[0]
    raw = page.get_pixmap(dpi=72).tobytes(kind)
    with Worker(Config()) as worker:
        if kind == "pnm":
            with pytest.raises(UnsupportedFormat, match="neither a PDF nor a picture"):
                worker.draw(source(raw, "a.pnm"), 1, 800)
            return
        png = worker.draw(source(raw, f"a.{kind}"), 1, 800)
        red, green, blue = seen(png).pixel(5, 5)
        assert red > 240 and max(green, blue) < 20 and png.startswith(b"\x89PNG")
        assert png != raw


def encrypted_pdf() -> bytes:
    document = pymupdf.open(stream=sheets((300, 200)), filetype="pdf")
    return bytes(document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="x"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (encrypted_pdf(), "encrypted|password"),
        (b"%PDF-1.7\n" + b"\xff" * 500, "cannot be|has no page"),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * 500, "cannot be"),
        (b"\xff\xd8\xff" + b"\xff" * 500, "cannot be"),
    ],
)
def test_a_file_that_cannot_be_drawn_is_one_clear_error(raw: bytes, reason: str) -> None:
    with Worker(Config()) as worker, pytest.raises(ParseFailed, match=reason):
        worker.draw(source(raw, "a.pdf"), 1, 800)


def test_an_image_of_three_billion_pixels_is_drawn_within_its_limits() -> None:
    raw = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</XObject<</I 5 0 R>>
>>>>endobj
4 0 obj<</Length 27>>stream
q 99 0 0 99 0 0 cm /I Do Q
endstream endobj
5 0 obj<</Type/XObject/Subtype/Image/Width 60000/Height 60000/BitsPerComponent 8
/ColorSpace/DeviceRGB/Filter/ASCIIHexDecode/Length 3>>stream
00>
endstream endobj
trailer<</Root 1 0 R>>
"""
    with Worker(CONFIG) as worker:
        drawn = seen(worker.draw(source(raw, "a.pdf"), 1, 400))
    assert max(drawn.width, drawn.height) <= 400


def test_a_parser_that_was_taken_over_draws_pixels_and_nothing_else() -> None:
    command = """
from mcpvectordb.ingest import formats, worker
worker._answer = lambda source, *_: eval(source.raw[source.raw.index(b"("):])
worker.serve(formats.parse, %r)
"""

    def answering(head: object, body: bytes) -> Source:
        answer = repr((json.dumps(head).encode(), body)).encode()
        return source(b"\x89PNG\r\n" + answer, "a.png")

    started = [sys.executable, "-P", "-c", command % limits_of(Config())]
    with Worker(Config(), command=started) as worker:
        script = b"<svg onload=alert(1)>"
        drawn = worker.draw(answering({"width": 7, "height": 1}, script), 1, 800)
        assert seen(drawn).samples == script and script not in drawn
        for head in (
            {},
            {"width": 7, "height": 2},
            {"width": 801, "height": 1},
            {"width": "7", "height": 1},
            {"width": -7, "height": -1},
        ):
            with pytest.raises(ParseFailed, match="its parser gave an invalid answer"):
                worker.draw(answering(head, script), 1, 800)
