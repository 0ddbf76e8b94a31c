"""Confine the parser process: no network, no writes, and nothing to read but Python itself.

A parser that a hostile file has taken over may then lie about that file, and nothing else. Linux
lets a process give up rights for good, without privileges and without a service:

- Landlock (from 5.13 on) takes the file system away. What remains is reading Python, its packages
  and the system's libraries, which parsers import when they are first needed. The file itself comes
  through a pipe. TCP (6.7) and signals to other processes (6.12) go the same way.
- A seccomp filter refuses the system calls that Landlock does not cover: every socket, access to
  the memory of other processes, and changes of modes, owners and times of files.
- RLIMIT_FSIZE, on every POSIX system, keeps a process from putting a byte into a file.

Where a kernel lacks one of the first two, `lacking` says so and the others apply. macOS and Windows
have nothing of the kind for a process that was started already.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

# What parsers import when they are first needed; the folders that these are in may be read.
PACKAGES = (
    *("apsw", "charset_normalizer", "lxml", "numpy", "pyarrow", "pymupdf", "python_calamine"),
    "yaml",
)
SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/home/linuxbrew"),
    "/sys/devices/system/cpu",
)
FILES = ("/etc/ld.so.cache", "/dev/urandom", "/dev/zero", "/proc/self/status", "/proc/cpuinfo")

# Numbers of <linux/landlock.h>.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
# Rights over files that each version of Landlock controls, from version 1 on: all are taken away.
_CONTROLLED = (1 << 13, 1 << 14, 1 << 15, 1 << 15, 1 << 16)
_TCP, _SIGNALS_AND_SOCKETS = 0b11, 0b11

# Numbers of <linux/prctl.h>, <linux/seccomp.h> and <linux/audit.h>.
_NO_NEW_PRIVS, _GET_SECCOMP, _SET_SECCOMP, _FILTER = 38, 21, 22, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
# From here on, x86-64 counts the calls of another ABI, under which those below have other numbers.
_X32 = 0x40000000
_ANY_MACHINE = "io_uring_setup 425 fchmodat2 452 setxattrat 463 removexattrat 466"
# Architecture and refused system calls of a machine.
_MACHINES = {
    "x86_64": (
        0xC000003E,
        "socket 41 socketpair 53 ptrace 101 process_vm_readv 310 process_vm_writev 311 "
        "truncate 76 chmod 90 fchmod 91 chown 92 fchown 93 lchown 94 utime 132 utimes 235 "
        "fchownat 260 futimesat 261 fchmodat 268 utimensat 280 setxattr 188 lsetxattr 189 "
        "fsetxattr 190 removexattr 197 lremovexattr 198 fremovexattr 199 open_by_handle_at 304",
    ),
    "aarch64": (
        0xC00000B7,
        "socket 198 socketpair 199 ptrace 117 process_vm_readv 270 process_vm_writev 271 "
        "truncate 45 fchmod 52 fchmodat 53 fchownat 54 fchown 55 utimensat 88 setxattr 5 "
        "lsetxattr 6 fsetxattr 7 removexattr 14 lremovexattr 15 fremovexattr 16 "
        "open_by_handle_at 265",
    ),
}


def lacking() -> str:
    """What this system cannot keep a parser from, for people; "" where it is confined."""
    if sys.platform != "linux":
        return "only Linux can confine it: it may use the network and read and delete files"
    missing = []
    if not _landlock_version():
        missing.append("this kernel has no Landlock: it may read and delete files")
    if not _can_filter():
        missing.append(f"there is no filter for {platform.machine()}: it may use the network")
    return "; ".join(missing)


def confine(readable: Iterable[str] = ()) -> None:
    """Give up the rights of this process, as far as the system can; raises OSError.

    What is `readable`, files and whole folders, stays so. Call it while there is one thread.
    """
    _limit_writes()
    if sys.platform != "linux":
        return
    _checked(_prctl(_NO_NEW_PRIVS, 1), "prctl")
    if version := _landlock_version():
        _take_files(version, readable)
    if _can_filter():
        _refuse_calls(*_MACHINES[platform.machine()])


def _limit_writes() -> None:
    with suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


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


def _take_files(version: int, readable: Iterable[str] = ()) -> None:
    controlled = _CONTROLLED[min(version, len(_CONTROLLED)) - 1] - 1
    attributes = struct.pack(
        "QQQ",
        controlled,
        _TCP if version >= 4 else 0,
        _SIGNALS_AND_SOCKETS if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _checked(
        _syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0)),
        "landlock_create_ruleset",
    )
    try:
        for folder in _folders():
            _allow(rules, folder, _READ_FILE | _READ_DIR)
        for file in FILES:
            _allow(rules, file, _READ_FILE)
        for path in readable:
            _allow(rules, path, _READ_FILE | (_READ_DIR if Path(path).is_dir() else 0))
        _allow(rules, os.devnull, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & controlled)
        _checked(_syscall(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0)), "landlock")
    finally:
        os.close(rules)


def _folders() -> Iterator[str]:
    """The folders of Python, of our package, of the packages it needs, and of libraries."""
    yield from {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *SYSTEM}
    yield str(Path(__file__).parents[1])
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    for package in PACKAGES:
        spec = find_spec(package)
        if spec and spec.origin:
            yield str(Path(spec.origin).parents[1])


def _allow(rules: int, path: str, rights: int) -> None:
    """Leave rights over a file, or over everything in a folder; what does not exist is ignored."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = struct.pack("=Qi", rights, handle)
            _checked(
                _syscall(_ADD_RULE, ctypes.c_int(rules), _PATH_BENEATH, rule, ctypes.c_uint(0)),
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


def _refuse_calls(architecture: int, calls: str) -> None:
    """Install a filter that refuses these system calls, given as names and numbers in turn."""
    refused = [int(number) for number in f"{calls} {_ANY_MACHINE}".split()[1::2]]
    # Jumps count instructions: to the first of the last two, which refuses, or to the next one.
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(refused) + 3, architecture), (_LOAD, 0, 0, 0)]
    program.append((_AT_LEAST, len(refused) + 1, 0, _X32))
    for done, number in enumerate(refused):
        program.append((_EQUAL, len(refused) - done, 0, number))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    code = b"".join(struct.pack("HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    )
    _checked(_prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(header)), "seccomp")
