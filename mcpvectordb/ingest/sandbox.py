"""Confine a process that reads foreign bytes: it keeps what parsing needs, and nothing else.

A parser that a hostile file has taken over may then lie about that file, and nothing else. Linux
lets a process give up rights for good, without privileges and without a service:

- A seccomp filter is a list of the system calls that parsing needs; every other call is refused.
  There is none among them that makes a process or a thread, opens a file to write it, changes
  another process, or leaves anything in the kernel that outlives the process.
- Landlock (from 5.13 on) takes the file system away. What remains is reading Python, its packages
  and the system's libraries, which parsers import when they are first needed. The file itself comes
  through a pipe.
- Resource limits, on every POSIX system: memory (`limit_memory`), no byte into a file, few open
  files, and no new process (the last not for root).

`confine` is for the current process, whatever it goes on to run; `execute` is for a program that is
not ours. Where a kernel lacks one of the first two, `lacking` says so and the others apply. macOS
and Windows have nothing of the kind for a process that was started already.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

# What parsers import when they are first needed; the folders that these are in may be read.
PACKAGES = "apsw charset_normalizer lxml numpy olefile pyarrow pymupdf python_calamine yaml".split()
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
STORES = ("/nix/store", "/gnu/store", "/home/linuxbrew")
SYSTEM = ("/usr", *LIBRARIES, *STORES, "/sys/devices/system/cpu")
FILES = ("/etc/ld.so.cache", "/dev/urandom", "/dev/zero", "/proc/cpuinfo")
OPEN_FILES = 64
PROGRAM_ENVIRONMENT = {"OMP_THREAD_LIMIT": "1", "PATH": os.defpath}
"""The variables of a program that is not ours."""

_INHERITED = """
    PATH HOME LANG LC_ALL LC_CTYPE TMPDIR TEMP TMP SYSTEMROOT WINDIR LD_LIBRARY_PATH
    DYLD_LIBRARY_PATH PYTHONHOME
""".split()

# Numbers of <linux/landlock.h>.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14
# Rights over files that each version of Landlock controls, from version 1 on: all are taken away.
_CONTROLLED = (1 << 13, 1 << 14, 1 << 15, 1 << 15, 1 << 16)
_TCP, _SIGNALS_AND_SOCKETS = 0b11, 0b11

# Numbers of <linux/prctl.h>, <linux/seccomp.h> and <linux/audit.h>.
_PDEATHSIG, _NO_NEW_PRIVS, _GET_SECCOMP, _SET_SECCOMP, _FILTER = 1, 38, 21, 22, 2
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The architecture of a machine for the filter, and its column in the tables below."""

# System calls with their numbers on x86-64 and arm64 ("-" where it has no such call), the most
# frequent first. On their own none of them reaches beyond the process and what it may open.
_CALLS = """
    read 0 63  write 1 64  futex 202 98  mmap 9 222  munmap 11 215  brk 12 214  mprotect 10 226
    mremap 25 216  madvise 28 233  lseek 8 62  close 3 57  fstat 5 80  newfstatat 262 79
    stat 4 -  lstat 6 -  statx 332 291  access 21 -  faccessat 269 48  faccessat2 439 439
    readlink 89 -  readlinkat 267 78  getdents 78 -  getdents64 217 61  getcwd 79 17
    pread64 17 67  readv 19 65  writev 20 66  fadvise64 221 223  dup 32 23  dup2 33 -  dup3 292 24
    poll 7 -  ppoll 271 73  select 23 -  pselect6 270 72
    rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139  sigaltstack 131 132
    restart_syscall 219 128  nanosleep 35 101  clock_nanosleep 230 115  sched_yield 24 124
    clock_gettime 228 113  clock_getres 229 114  gettimeofday 96 169  time 201 -  times 100 153
    getpid 39 172  getppid 110 173  gettid 186 178  getuid 102 174  geteuid 107 175
    getgid 104 176  getegid 108 177  uname 63 160  sysinfo 99 179  getrusage 98 165
    getrlimit 97 163  getrandom 318 278  rseq 334 293  set_robust_list 273 99
    exit 60 93  exit_group 231 94
"""
# What a program needs besides, for its own start.
_START_CALLS = "execve 59 221  set_tid_address 218 96  arch_prctl 158 -"
# The C library makes threads with an older call where this one is unknown, which is refused then.
_CLONE3 = 435


class _Checked(NamedTuple):
    """A call that is allowed if an argument, as far as `mask` goes, has one of these values.

    Its lower 32 bits are compared: the kernel takes no more of these arguments. With `null`, that
    further argument, a pointer, must be NULL.
    """

    numbers: tuple[int | None, int | None]
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    null: int | None = None


# Access modes other than reading, O_CREAT, O_TRUNC and O_TMPFILE.
_WRITES = 0o3 | 0o100 | 0o1000 | 0o20000000


# Calls whose arguments matter.
_CHECKED = (
    _Checked((257, 56), 2, (0,), mask=_WRITES),  # openat: to read
    _Checked((2, None), 1, (0,), mask=_WRITES),  # open: to read
    _Checked((16, 29), 1, (0x5401, 0x802C542A, 0x5450, 0x5451)),  # ioctl: isatty, close-on-exec
    _Checked((72, 25), 1, (0, 1, 2, 3, 1030)),  # fcntl: duplicates, close-on-exec, reading flags
    _Checked((302, 261), 0, (0,), null=2),  # prlimit64: reading its own limits
    _Checked((204, 123), 0, (0,)),  # sched_getaffinity: its own
)
# kill and tgkill, which abort() uses: only to the process itself.
_SIGNALS = ((62, 129), (234, 131))


def lacking() -> str:
    """What this system cannot keep a parser from, for people; "" where it is confined."""
    if sys.platform != "linux":
        return (
            "only Linux can confine it: it may use the network, read and delete files, start "
            "processes and use all memory, and reads the other files of a batch too"
        )
    missing = []
    if not _landlock_version():
        missing.append("this kernel has no Landlock: it may read files")
    if not _can_filter():
        missing.append(
            f"there is no filter of system calls for {platform.machine()}: it may use the network "
            "and change other processes of this user"
        )
    return "; ".join(missing)


def limit_memory(memory: int) -> None:
    """Limit the address space of this process to so many bytes, and let it dump no core.

    Only Linux enforces it: macOS takes the limit and ignores it, Windows has none.
    """
    _limit(RLIMIT_CORE=0, RLIMIT_AS=memory)


def confine(readable: Iterable[str] = ()) -> None:
    """Give up the rights of this process for good, as far as the system can; raises OSError.

    What is `readable`, files and whole folders, stays so. Call it while there is one thread: no
    other can be started afterwards, nor any process.
    """

    def rules(version: int) -> int:
        ruleset = _python_rules(version)
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _READ_DIR)
        return ruleset

    _confine(rules)


def prepare() -> None:
    """Do what `confine` takes time for once, for all processes that are forked from this one."""
    if sys.platform == "linux" and (version := _landlock_version()):
        _python_rules(version)
    if _can_filter():
        _filter(*_MACHINES[platform.machine()], executes=False)


def execute(program: str, arguments: Sequence[str], readable: Sequence[str], memory: int) -> None:
    """Become that program, confined, with an environment of its own; raises OSError.

    It may read what `readable` names, and the system's libraries. It ends with its parent.
    """
    limit_memory(memory)
    end_with_parent(os.getppid())
    read = _READ_FILE | _READ_DIR
    rules = [
        *((folder, read) for folder in (*SYSTEM, *readable)),
        *((folder, read | _EXECUTE) for folder in (*LIBRARIES, *STORES)),  # they have the loader
        (program, _READ_FILE | _EXECUTE),
    ]
    _confine(partial(_ruleset, rules), executes=True)
    os.execve(program, [program, *arguments], PROGRAM_ENVIRONMENT)  # noqa: S606 - an installed one


def end_with_parent(parent: int) -> None:
    """End this process when the thread of the process `parent` that started it ends (Linux)."""
    if sys.platform == "linux":
        _checked(_prctl(_PDEATHSIG, signal.SIGKILL), "prctl")
        if os.getppid() != parent:  # it was gone before
            os._exit(1)


def environment() -> dict[str, str]:
    """The variables needed to find the same Python and packages, without any secrets."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}


def _confine(ruleset: Callable[[int], int], *, executes: bool = False) -> None:
    """Confine this process by that ruleset of Landlock, which is made for the kernel's version."""
    _limit(RLIMIT_FSIZE=0, RLIMIT_NPROC=0, RLIMIT_NOFILE=OPEN_FILES)
    if sys.platform != "linux":
        return
    _checked(_prctl(_NO_NEW_PRIVS, 1), "prctl")
    if version := _landlock_version():
        _take_files(ruleset(version))
    if not _can_filter():
        return
    # Refuse all system calls but those of the tables.
    architecture, column = _MACHINES[platform.machine()]
    code = _filter(architecture, column, executes=executes)
    for numbers in _SIGNALS:
        code += _code(_argument_check(_Checked(numbers, 0, (os.getpid(),)), column))
    code += _code([(_RETURN, 0, 0, _REFUSE)])
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    )
    _checked(_prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(header)), "seccomp")


def _limit(**limits: int) -> None:
    """Limit resources of this process, by the names that POSIX has for them."""
    with suppress(ImportError):  # Windows
        import resource

        for name, amount in limits.items():
            with suppress(ValueError, OSError):  # a lower limit is in force, or none is supported
                resource.setrlimit(getattr(resource, name), (amount, amount))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}; parse_sandbox=false does without")
    return result


def _prctl(option: int, *arguments: int) -> int:
    values = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    return int(_libc().prctl(ctypes.c_int(option), *values))


def _syscall(number: int, *arguments: object) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *arguments))


# --- Landlock


def _landlock_version() -> int:
    """The version of the kernel's Landlock; 0 without."""
    return max(0, _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION)))


def _take_files(ruleset: int) -> None:
    """Leave this process the rights of that ruleset, and no others."""
    _checked(_syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)), "landlock")
    os.close(ruleset)


@cache
def _python_rules(version: int) -> int:
    """A ruleset for reading Python, our package, the packages it needs, and libraries."""
    folders = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *SYSTEM}
    folders.add(str(Path(__file__).parents[1]))
    folders.update(filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    for package in PACKAGES:
        spec = find_spec(package)
        if spec and spec.origin:
            folders.add(str(Path(spec.origin).parents[1]))
    return _ruleset([(folder, _READ_FILE | _READ_DIR) for folder in folders], version)


def _ruleset(rules: Iterable[tuple[str, int]], version: int) -> int:
    """Return the descriptor of a ruleset of these rights over files and folders."""
    controlled = _CONTROLLED[min(version, len(_CONTROLLED)) - 1] - 1
    attributes = struct.pack(
        "QQQ", controlled, _TCP if version >= 4 else 0, _SIGNALS_AND_SOCKETS if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(
        _syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0)),
        "landlock_create_ruleset",
    )
    for path, rights in rules:
        _allow(ruleset, path, rights)
    for file in FILES:
        _allow(ruleset, file, _READ_FILE)
    _allow(ruleset, os.devnull, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & controlled)
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Leave rights over a file, or over everything in a folder; what does not exist is ignored."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):  # noqa: PTH112 - no Path for each of many
                rights &= ~_READ_DIR
            rule = struct.pack("=Qi", rights, handle)
            _checked(
                _syscall(_ADD_RULE, ctypes.c_int(ruleset), _PATH_BENEATH, rule, ctypes.c_uint(0)),
                f"landlock_add_rule {path}",
            )
        finally:
            os.close(handle)


# --- seccomp


def _can_filter() -> bool:
    """Whether there is a filter for this machine, and the kernel takes filters.

    A 32-bit Python has other numbers for its calls.
    """
    return platform.machine() in _MACHINES and sys.maxsize > 2**32 and _prctl(_GET_SECCOMP) >= 0


@cache
def _filter(architecture: int, column: int, *, executes: bool) -> bytes:
    """The instructions that are the same for every process; what they let pass is refused."""
    # Another architecture, and with it another ABI, has other numbers: nothing of it is allowed.
    # (The numbers of x32 begin at 2^30, so none of them is in the tables.)
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _REFUSE)]
    program.append((_LOAD, 0, 0, 0))
    words = (_CALLS + _START_CALLS if executes else _CALLS).split()
    for number in words[1 + column :: 3]:
        if number != "-":
            program += [(_EQUAL, 0, 1, int(number)), (_RETURN, 0, 0, _ALLOW)]
    program += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    for call in _CHECKED:
        program += _argument_check(call, column)
    return _code(program)


def _code(program: Iterable[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("HBBI", *each) for each in program)


def _argument_check(call: _Checked, column: int) -> list[tuple[int, int, int, int]]:
    """Instructions that allow or refuse a call by its arguments, and let other calls pass."""
    number, block = call.numbers[column], []
    if number is None:
        return []
    if call.null is not None:
        for half in (0, 4):
            block += [(_LOAD, 0, 0, 16 + 8 * call.null + half), (_EQUAL, 1, 0, 0)]
            block += [(_RETURN, 0, 0, _REFUSE)]
    block += [(_LOAD, 0, 0, 16 + 8 * call.argument), (_AND, 0, 0, call.mask)]
    for value in call.values:
        block += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    block += [(_RETURN, 0, 0, _REFUSE)]
    return [(_EQUAL, 0, len(block), number), *block]
