from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mcpvectordb.config import Config
from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest import formats, sandbox
from mcpvectordb.ingest.worker import Worker
from mcpvectordb.records import Source
from tests.core.ingest.formats.test_hostile_files import SAMPLES
from tests.core.ingest.test_worker import asking, evaluating
from tests.support import python
from tests.support_formats import source

CONFINED = pytest.mark.skipif(
    sys.platform != "linux" or bool(sandbox.lacking()), reason="this system cannot confine"
)
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs limits of POSIX")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A parser process that does what its files say, as one that was taken over would."""
    with evaluating() as made:
        yield made


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file of the user that a parser has no business with."""
    file = tmp_path / "diary.txt"
    file.write_text("dear diary")
    return file


@CONFINED
@pytest.mark.parametrize(
    "attempt",
    [
        # the network
        "__import__('socket').socket()",
        "__import__('socket').socket(__import__('socket').AF_INET6)",
        "__import__('socket').socket(type=__import__('socket').SOCK_DGRAM)",
        "__import__('socket').socket(__import__('socket').AF_UNIX)",
        "__import__('socket').socket(__import__('socket').AF_NETLINK)",
        "__import__('socket').socketpair()",
        # reading
        "open(TARGET).read()",
        "open('/etc/passwd').read()",
        "open('/proc/self/environ').read()",
        "open(f'/proc/{os.getppid()}/environ').read()",
        "os.listdir(os.path.dirname(TARGET))",
        "os.listdir('/')",
        "os.readlink('/proc/self/cwd') and os.listdir('/proc/self/cwd')",
        # writing
        "open(TARGET, 'w')",
        "open(TARGET, 'a')",
        "open(TARGET + '.new', 'x')",
        "os.truncate(TARGET, 0)",
        "os.unlink(TARGET)",
        "os.rename(TARGET, TARGET + '.new')",
        "os.link(TARGET, TARGET + '.new')",
        "os.symlink('/etc/passwd', TARGET + '.new')",
        "os.mkdir(TARGET + '.new')",
        "os.rmdir(os.path.dirname(TARGET))",
        "os.mkfifo(TARGET + '.new')",
        "os.chmod(TARGET, 0o777)",
        "os.chown(TARGET, os.getuid(), os.getgid())",
        "os.utime(TARGET)",
        "os.setxattr(TARGET, 'user.x', b'y')",
        "__import__('tempfile').TemporaryFile()",
        "open('/dev/shm/mcpvectordb-test', 'w')",
        # other processes
        "os.kill(os.getppid(), 0)",
        "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    ],
)
def test_a_parser_that_was_taken_over_reaches_nothing(
    worker: Worker, target: Path, attempt: str
) -> None:
    before = target.stat()
    with pytest.raises(
        ParseFailed, match=r"^file cannot be parsed: (Permission|FileNotFound)Error"
    ):
        worker.parse(asking(attempt.replace("TARGET", repr(str(target)))))
    assert target.read_text() == "dear diary" and list(target.parent.iterdir()) == [target]
    assert unchanged_part(target.stat()) == unchanged_part(before)
    assert not Path("/dev/shm/mcpvectordb-test").exists()
    assert worker.parse(asking("'fine'")).text == "fine"


def unchanged_part(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


@CONFINED
@pytest.mark.parametrize(
    "attempt",
    [
        # io_uring opens sockets without the system call for it, x32 has other numbers for it, and
        # the memory of other processes can be read by a system call.
        "libc.syscall(425, 1, ctypes.create_string_buffer(200))",
        "libc.syscall(0x40000000 + 41, 2, 1, 0)",
        "libc.syscall({'x86_64': 310, 'aarch64': 270}[MACHINE], os.getppid(), 0, 0, 0, 0, 0)",
        "libc.syscall({'x86_64': 101, 'aarch64': 117}[MACHINE], 16, os.getppid(), 0, 0)",
    ],
)
def test_system_calls_around_the_rules_are_refused(worker: Worker, attempt: str) -> None:
    if "0x4" in attempt and platform.machine() != "x86_64":
        pytest.skip("only x86-64 has this ABI")
    attempt = attempt.replace("MACHINE", repr(platform.machine()))
    library = "ctypes.CDLL(None, use_errno=True)"
    code = f"[{attempt.replace('libc', library)}, ctypes.get_errno()]"
    result, number = eval(worker.parse(asking(code)).text)
    assert result == -1 and os.strerror(number) in ("Permission denied", "Operation not permitted")


@CONFINED
def test_children_and_threads_of_a_parser_are_confined_too(worker: Worker, target: Path) -> None:
    attempt = (
        "__import__('concurrent.futures').futures.ThreadPoolExecutor(1)"
        f".submit(open, {str(target)!r}).result()"
    )
    with pytest.raises(ParseFailed, match="PermissionError"):
        worker.parse(asking(attempt))


@POSIX
def test_no_byte_can_be_put_into_a_file_even_without_landlock(target: Path) -> None:
    program = (
        "import os, sys; from mcpvectordb.ingest import sandbox; file = open(sys.argv[1], 'ab', 0); "
        "sandbox._limit_writes(); file.write(b'x')"
    )
    assert "File too large" in python(program, str(target)).stderr
    assert target.read_text() == "dear diary"


def samples() -> dict[str, Source]:
    found = {suffix: source(make(), f"a.{suffix}") for suffix, make in SAMPLES.items()}
    text = "Die Straße führt über die Brücke nach Köln, wo schöne Häuser stehen."
    found["txt"] = source(text.encode("latin-1"), "a.txt")
    found["md"] = source(f"---\ntitle: Größe\n---\n{text}".encode("latin-1"), "a.md")
    return found


@pytest.mark.parametrize("given", samples().values(), ids=samples())
def test_every_format_is_parsed_in_confinement_as_without(given: Source) -> None:
    with Worker(Config()) as confined:
        assert confined.parse(given) == formats.parse(given, None)


def test_a_parser_is_confined_unless_the_configuration_says_otherwise(target: Path) -> None:
    reading = asking(f"open({str(target)!r}).read()")
    with evaluating(replace(Config(), parse_sandbox=False)) as free:
        assert free.parse(reading).text == "dear diary"


def test_a_parser_that_cannot_be_confined_does_not_start() -> None:
    program = (
        "import sys; from mcpvectordb.ingest import sandbox, worker; "
        "sandbox.confine = lambda: (_ for _ in ()).throw(OSError(1, 'landlock: not permitted')); "
        "worker.main('1000000000', '1000', '1', '5', '1')"
    )
    with (
        Worker(Config(), command=[sys.executable, "-P", "-c", program]) as made,
        pytest.raises(ParseFailed, match=r"does not start.*landlock: not permitted"),
    ):
        made.parse(asking("1"))


@pytest.mark.parametrize(
    ("system", "machine", "version", "said"),
    [
        ("linux", "x86_64", 7, ""),
        ("linux", "x86_64", 0, "this kernel has no Landlock: it may read and delete files"),
        ("linux", "riscv64", 3, "there is no filter for riscv64: it may use the network"),
        ("darwin", "arm64", 0, "only Linux can confine it"),
    ],
)
def test_what_a_system_cannot_enforce_is_said(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, version: int, said: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sandbox, "_landlock_version", lambda: version)
    monkeypatch.setattr(sandbox, "_prctl", lambda *_: 0)
    assert sandbox.lacking().startswith(said) and bool(sandbox.lacking()) is bool(said)


@CONFINED
@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_of_landlock_is_asked_only_for_what_it_knows(version: int) -> None:
    program = (
        "import sys; from mcpvectordb.ingest import sandbox; "
        "sandbox._checked(sandbox._prctl(sandbox._NO_NEW_PRIVS, 1), 'prctl'); "
        "sandbox._take_files(int(sys.argv[1])); open('/etc/passwd')"
    )
    if version > sandbox._landlock_version():
        pytest.skip("this kernel is older")
    assert "PermissionError" in python(program, str(version)).stderr
