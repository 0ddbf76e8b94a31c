from __future__ import annotations

import errno
import json
import os
import platform
import re
import subprocess
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


NETWORK = "socket.socket(type=socket.SOCK_DGRAM)|socket.socketpair()|" + "|".join(
    f"socket.socket(socket.{family})" for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK")
)
READING = """
    open(TARGET).read()|open('/etc/passwd').read()|open('/proc/self/environ').read()|os.listdir('/')
    |open(f'/proc/{os.getppid()}/environ').read()|os.listdir(os.path.dirname(TARGET))|os.listdir('/proc/self/cwd')
"""
WRITING = """
    open(TARGET, 'w')|open(TARGET, 'a')|open(TARGET + '.new', 'x')|os.truncate(TARGET, 0)|os.unlink(TARGET)
    |os.rename(TARGET, TARGET + '.new')|os.link(TARGET, TARGET + '.new')|os.symlink('/etc/passwd', TARGET + '.new')
    |os.mkdir(TARGET + '.new')|os.rmdir(os.path.dirname(TARGET))|os.mkfifo(TARGET + '.new')|os.chmod(TARGET, 0o777)
    |os.chown(TARGET, os.getuid(), os.getgid())|os.utime(TARGET)|os.setxattr(TARGET, 'user.x', b'y')
    |__import__('tempfile').TemporaryFile()|open('/dev/shm/mcpvectordb-test', 'w')
"""
PROCESSES = "os.kill(os.getppid(), 0)|os.execv('/bin/sh', ['sh', '-c', 'exit 0'])"


@CONFINED
@pytest.mark.parametrize("attempt", "|".join((NETWORK, READING, WRITING, PROCESSES)).split("|"))
def test_a_parser_that_was_taken_over_reaches_nothing(
    worker: Worker, target: Path, attempt: str
) -> None:
    before = target.stat()
    with pytest.raises(
        ParseFailed, match=r"^file cannot be parsed: (Permission|FileNotFound)Error"
    ):
        attempt = attempt.strip().replace("socket.", "__import__('socket').")
        worker.parse(asking(attempt.replace("TARGET", repr(str(target)))))
    assert target.read_text() == "dear diary" and list(target.parent.iterdir()) == [target]
    assert unchanged_part(target.stat()) == unchanged_part(before)
    assert not Path("/dev/shm/mcpvectordb-test").exists()
    assert worker.parse(asking("'fine'")).text == "fine"


def unchanged_part(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


# System calls around the rules, with their numbers on x86-64 and arm64 and arguments with which most
# of them would do something. VICTIM is another process of the same user.
REFUSED = {
    "prlimit64": (302, 261, "VICTIM, 1, (ctypes.c_ulong * 2)(0, 0), None"),
    "prlimit64, itself": (302, 261, "0, 7, (ctypes.c_ulong * 2)(9, 9), None"),
    "prlimit64, reading": (302, 261, "VICTIM, 7, None, (ctypes.c_ulong * 2)()"),
    "setrlimit": (160, 164, "7, (ctypes.c_ulong * 2)(9, 9)"),
    "setpriority": (141, 140, "0, VICTIM, 7"),
    "sched_setaffinity": (203, 122, "VICTIM, 8, ctypes.byref(ctypes.c_ulong(1))"),
    "sched_setscheduler": (144, 119, "VICTIM, 3, ctypes.byref(ctypes.c_int(0))"),
    "sched_setattr": (314, 274, "VICTIM, 0, 0"),
    "ioprio_set": (251, 30, "1, VICTIM, 3 << 13"),
    "kill": (62, 129, "VICTIM, 0"),
    "kill, everyone": (62, 129, "-1, 0"),
    "tkill": (200, 130, "VICTIM, 0"),
    "tgkill": (234, 131, "VICTIM, VICTIM, 0"),
    "rt_sigqueueinfo": (129, 138, "VICTIM, 0, 0"),
    "pidfd_open": (434, 434, "VICTIM, 0"),
    "pidfd_getfd": (438, 438, "0, 0, 0"),
    "pidfd_send_signal": (424, 424, "0, 0, 0, 0"),
    "ptrace": (101, 117, "16, VICTIM, 0, 0"),
    "process_vm_readv": (310, 270, "VICTIM, 0, 0, 0, 0, 0"),
    "process_vm_writev": (311, 271, "VICTIM, 0, 0, 0, 0, 0"),
    "process_madvise": (440, 440, "0, 0, 0, 0, 0"),
    "kcmp": (312, 272, "VICTIM, os.getpid(), 1, 0, 0"),
    "migrate_pages": (256, 238, "VICTIM, 0, 0, 0"),
    "move_pages": (279, 239, "VICTIM, 0, 0, 0, 0, 0"),
    "fork": (57, None, ""),
    "vfork": (58, None, ""),
    "clone, a process": (56, 220, "17, 0, 0, 0, 0"),
    "clone, a thread": (56, 220, "0x3D0F00, 0, 0, 0, 0"),
    "clone, namespaces": (56, 220, "0x10000011, 0, 0, 0, 0"),
    "execve": (59, 221, "b'/bin/true', (ctypes.c_char_p * 2)(b'true'), 0"),
    "execveat": (322, 281, "-100, b'/bin/true', (ctypes.c_char_p * 2)(b'true'), 0, 0"),
    "memfd_create": (319, 279, "b'x', 0"),
    "setsid": (112, 157, ""),
    "setpgid": (109, 154, "0, 0"),
    "unshare": (272, 97, "0x10000000"),
    "setns": (308, 268, "0, 0"),
    "mount": (165, 40, "b'x', b'/', b'tmpfs', 0, 0"),
    "chroot": (161, 51, "b'/usr'"),
    "shmget": (29, 194, "0, 4096, 0o1600"),
    "msgget": (68, 186, "0, 0o1600"),
    "semget": (64, 190, "0, 1, 0o1600"),
    "mq_open": (240, 180, "b'x', 0o102, 0o600, 0"),
    "add_key": (248, 217, "b'user', b'x', b'y', 1, -2"),
    "request_key": (249, 218, "b'user', b'x', 0, -2"),
    "keyctl": (250, 219, "0, -3, 1"),
    "io_uring_setup": (425, 425, "1, ctypes.create_string_buffer(200)"),
    "userfaultfd": (323, 282, "1"),
    "bpf": (321, 280, "0, 0, 0"),
    "perf_event_open": (298, 241, "0, 0, -1, -1, 0"),
    "kexec_load": (246, 104, "0, 0, 0, 0"),
    "personality": (135, 92, "0x0400000"),
    "prctl, dies with its parent": (157, 167, "1, 0, 0, 0, 0"),
    "seccomp": (317, 277, "0, 0, 0"),
    "setitimer": (38, 103, "0, 0, 0"),
    "timer_create": (222, 107, "0, 0, ctypes.byref(ctypes.c_int())"),
    "socket": (41, 198, "2, 1, 0"),
    "socketpair": (53, 199, "1, 1, 0, (ctypes.c_int * 2)()"),
    "open_by_handle_at": (304, 265, "0, 0, 0"),
    "inotify_init1": (294, 26, "0"),
    "fanotify_init": (300, 262, "0, 0"),
    "openat, to write": (257, 56, "-100, b'/dev/null', 1"),
    "openat, to append": (257, 56, "-100, b'/dev/null', 0o2002"),
    "openat, to create": (257, 56, "-100, b'/dev/null', 0o100"),
    "openat, a temporary file": (257, 56, "-100, b'/dev/shm', 0o20200002"),
    "open, to write": (2, None, "b'/dev/null', 1"),
    "openat2": (437, 437, "-100, b'/dev/null', ctypes.create_string_buffer(24), 24"),
    "fcntl, signals for another": (72, 25, "0, 8, VICTIM"),
    "fcntl, flags": (72, 25, "0, 4, 0o2000"),
    "ioctl, typing": (16, 29, "0, 0x5412, b'x'"),
    "truncate": (76, 45, "b'/dev/null', 0"),
    "copy_file_range": (326, 285, "0, 0, 0, 0, 0, 0"),
    "landlock_create_ruleset": (444, 444, "0, 0, 1"),
    "a call that does not exist yet": (990, 990, ""),
    # Calls of another ABI of the same machine have other numbers.
    "socket of x32": (0x40000000 + 41, None, "2, 1, 0"),
    "read of x32": (0x40000000, None, "0, 0, 0"),
}
COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), 0)


HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),  # of arm64
)


@pytest.mark.skipif(not all(map(Path.exists, HEADERS)), reason="needs the headers of Linux")
@pytest.mark.parametrize("column", [0, 1])
def test_the_tables_have_the_numbers_of_the_kernel(column: int) -> None:
    text = HEADERS[column].read_text()
    known = {
        name.replace("fstatat", "newfstatat") if column else name: number
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)
    }
    words = (sandbox._CALLS + sandbox._START_CALLS).split()
    for at in range(0, len(words), 3):
        name, number = words[at], words[at + 1 + column]
        assert known.get(name, "-") == number, name
    calls = "openat open ioctl fcntl prlimit64 sched_getaffinity kill tgkill".split()
    numbers = [each.numbers for each in sandbox._CHECKED] + list(sandbox._SIGNALS)
    assert [int(known[name]) if name in known else None for name in calls] == [
        each[column] for each in numbers
    ]


@pytest.fixture(scope="module")
def victim() -> Iterator[int]:
    """Another process of the same user, which waits."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        yield process.pid


@CONFINED
@pytest.mark.parametrize("name", [name for name, call in REFUSED.items() if call[COLUMN]])
def test_system_calls_around_the_rules_are_refused(worker: Worker, victim: int, name: str) -> None:
    code = (
        f"[ctypes.CDLL(None, use_errno=True).syscall({REFUSED[name][COLUMN]}, "
        f"{REFUSED[name][2]}), ctypes.get_errno()]"
    )
    answer = worker.parse(asking(code.replace("VICTIM", str(victim)))).text
    assert answer == str([-1, errno.EPERM])


@CONFINED
def test_threads_are_refused_in_the_way_that_the_c_library_expects(worker: Worker) -> None:
    clone3 = "[ctypes.CDLL(None, use_errno=True).syscall(435, 0, 0), ctypes.get_errno()]"
    assert worker.parse(asking(clone3)).text == str([-1, errno.ENOSYS])
    with pytest.raises(ParseFailed, match="can't start new thread"):
        worker.parse(asking("__import__('_thread').start_new_thread(print, ())"))


@CONFINED
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has this ABI")
def test_calls_of_32_bit_programs_are_refused(worker: Worker) -> None:
    # mov eax, 20 (getpid there); int 0x80; ret. A kernel without that ABI kills the process.
    code = "b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3'"
    attempt = (
        "(lambda page: (page.write(CODE), ctypes.CFUNCTYPE(ctypes.c_int)("
        "ctypes.addressof(ctypes.c_char.from_buffer(page)))())[1])"
        "(__import__('mmap').mmap(-1, 4096, prot=7))"
    ).replace("CODE", code)
    try:
        assert worker.parse(asking(attempt)).text == str(-errno.EPERM)
    except ParseFailed as error:
        assert "SIGSEGV" in str(error)


@CONFINED
@pytest.mark.parametrize("attempt", [
    "os.fork()", "os.forkpty()", "os.posix_spawn('/bin/sleep', ['sleep', '600'], {})",
    "__import__('subprocess').Popen(['/bin/sleep', '600'])",
])  # fmt: skip
def test_a_parser_leaves_no_process_behind(worker: Worker, attempt: str) -> None:
    with pytest.raises(ParseFailed, match=r"PermissionError|OSError"):
        worker.parse(asking(attempt))
    assert worker.parse(asking("'fine'")).text == "fine"


@CONFINED
def test_a_program_that_is_not_ours_is_confined_like_a_parser(target: Path) -> None:
    # The program is a Python here, which may read its own files, as Tesseract its languages.
    attempts = (
        *("open(target).read()", "open(target, 'w')", "socket.socket()", "os.fork()"),
        *("os.execv('/bin/sh', ['sh', '-c', 'exit 0'])", "os.kill(os.getppid(), 0)"),
    )
    inner = f"""
import json, os, socket, sys
target, found = sys.argv[1], {{}}
for attempt in {attempts}:
    try:
        found[attempt] = repr(eval(attempt))
    except OSError as error:
        found[attempt] = type(error).__name__
print(json.dumps([found, os.environ.get("SOME_API_KEY")]))
"""
    program = (
        "import sys; from mcpvectordb.ingest.sandbox import execute; "
        "execute(sys._base_executable, ['-I', '-S', '-c', sys.argv[1], sys.argv[2]], "
        "[sys.base_prefix], 10**9)"
    )
    done = python(program, inner, str(target))
    refused = dict.fromkeys(attempts, "PermissionError")
    assert json.loads(done.stdout or done.stderr) == [refused, None]
    assert target.read_text() == "dear diary"


@POSIX
def test_no_byte_can_be_put_into_a_file_even_without_landlock(target: Path) -> None:
    program = (
        "import os, sys; from mcpvectordb.ingest import sandbox; file = open(sys.argv[1], 'ab', 0); "
        "sandbox._limit(RLIMIT_FSIZE=0); file.write(b'x')"
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


def test_a_parser_that_cannot_be_confined_reads_nothing() -> None:
    program = (
        "import sys; from mcpvectordb.ingest import sandbox, worker; "
        "sandbox.confine = lambda: (_ for _ in ()).throw(OSError(1, 'landlock: not permitted')); "
        "worker.serve(worker.formats.parse, '{}')"
    )
    with (
        Worker(Config(), command=[sys.executable, "-P", "-c", program]) as made,
        pytest.raises(ParseFailed, match=r"parser crashed .*landlock: not permitted"),
    ):
        made.parse(asking("1"))


@pytest.mark.parametrize(
    ("system", "machine", "version", "said"),
    [
        ("linux", "x86_64", 7, ""),
        ("linux", "x86_64", 0, "this kernel has no Landlock: it may read files"),
        ("linux", "riscv64", 3, "there is no filter of system calls for riscv64: it may use the"),
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
        "sandbox._take_files(sandbox._python_rules(int(sys.argv[1]))); open('/etc/passwd')"
    )
    if version > sandbox._landlock_version():
        pytest.skip("this kernel is older")
    assert "PermissionError" in python(program, str(version)).stderr
