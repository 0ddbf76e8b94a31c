"""Where bundles lie: a folder that some program synchronises, a git repository, a host over SFTP.

A bundle's name is the digest of its bytes, so it never changes: a target only has to list, read,
add and remove files. git and sftp are the programs of this machine, with the keys and settings that
it has; they never ask anything, and get no more than a few minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from mcpvectordb.errors import InvalidInput, TooLarge, Unreachable, Unwritable, quoted
from mcpvectordb.storage.new_file import create_private, flush_to_disk, part_of, sync_folder

SUFFIX = ".bundle"
NAME = re.compile(r"[0-9a-f]{64}\.bundle")
MOST_BYTES = 400_000_000
"""A file that is larger is none of ours."""

_SECONDS = 300.0  # for one command of git or sftp
_BRANCH_REF = "refs/heads/mcpvectordb"
_STALE_SECONDS = 3600
_TRIES = 5  # at pushing, while others push


class Target(Protocol):
    """A place for bundles."""

    pause: float  # seconds between two looks at what others have put there

    def names(self) -> dict[str, int]:
        """Every file that calls itself a bundle, with its size."""

    def read(self, name: str) -> bytes:
        """The bytes of one; raises OSError, or TooLarge."""

    def change(self, added: Mapping[str, bytes], removed: Sequence[str]) -> None:
        """Add files, each complete or not at all, and then remove others."""


def target_of(place: str, cache: Path) -> Target:
    """The target that a text names; `cache` is a folder for what can be fetched again."""
    if any(ord(each) < 32 for each in place) or not place.strip():
        raise InvalidInput("a target is a folder, git+URL, or host:path")
    if place.startswith("git+"):
        return GitTarget(place.removeprefix("git+"), cache)
    if "://" in place:
        raise InvalidInput(f"{quoted(place)} is no target: write git+{place} for a git repository")
    if found := re.fullmatch(r"([^/\\:\[]*\[[^\]]*\]|[^/\\:]{2,}):(.*)", place):
        return SftpTarget(found[1], found[2])
    return FolderTarget(Path(place).expanduser())


def _check_size(name: str, size: int) -> None:
    if size > MOST_BYTES:
        raise TooLarge(f"{name} has {size:,} bytes, and no bundle has more than {MOST_BYTES:,}")


class FolderTarget:
    """A folder that Dropbox, Syncthing or a share brings to other machines."""

    pause = 15.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def names(self) -> dict[str, int]:
        """The bundles in the folder; a link is none."""
        try:
            with os.scandir(self._folder) as entries:
                return {
                    each.name: each.stat(follow_symlinks=False).st_size
                    for each in entries
                    if each.name.endswith(SUFFIX) and each.is_file(follow_symlinks=False)
                }
        except OSError as error:
            raise Unreachable(
                f"the folder {self._folder} cannot be read: {error.strerror}; is its disk there?"
            ) from None

    def read(self, name: str) -> bytes:
        """The bytes of a bundle."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(self._folder / name, flags), "rb") as file:  # noqa: PTH123
            _check_size(name, os.fstat(file.fileno()).st_size)
            return file.read(MOST_BYTES)

    def change(self, added: Mapping[str, bytes], removed: Sequence[str]) -> None:
        """Write bundles beside their names and rename them, then remove others."""
        try:
            for each in self._folder.glob(f".*{SUFFIX}.*.part"):  # of a process that was killed
                if time.time() - each.lstat().st_mtime > _STALE_SECONDS:
                    each.unlink(missing_ok=True)
            for name, content in added.items():
                part = part_of(self._folder / name)
                try:
                    create_private(part, content)
                    flush_to_disk(part)
                    part.replace(self._folder / name)
                finally:
                    part.unlink(missing_ok=True)
            sync_folder(self._folder)
            for name in removed:
                (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise Unwritable(
                f"the folder {self._folder} cannot be written: {error.strerror}"
            ) from None


def _run(program: str, *arguments: str, given: bytes = b"", **variables: str) -> bytes:
    """The output of a program, which never asks; raises Unreachable with what it said."""
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are a list, and checked
            [program, *arguments],
            input=given,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, **variables, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise Unreachable(f"the program {program} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{program} took longer than {_SECONDS:.0f} seconds") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise Unreachable(f"{program}: {said[-500:]}")
    return done.stdout


class GitEntry(NamedTuple):
    """A line of a tree of git."""

    mode: str
    kind: str
    id: str
    size: str = ""


class GitTarget:
    """A branch of a git repository, whose commits are made in a bare one without a work tree.

    When bundles are removed, the branch begins anew with what is left: what was forgotten does not
    stay in its history.
    """

    pause = 300.0

    def __init__(self, url: str, cache: Path) -> None:
        transport, sign, _ = url.partition("://")
        if url.startswith("-") or "::" in url or (sign and transport not in _TRANSPORTS):
            raise InvalidInput(
                f"{quoted(url)} is no git repository: write git+https://…, git+ssh://…, "
                "git+host:path or git+/path"
            )
        self._url, self._folder = url, cache / "git"
        self._head = ""  # the commit that was fetched

    def _git(self, *arguments: str, given: bytes = b"") -> bytes:
        options = ("-c", f"core.hooksPath={os.devnull}", "-c", "gc.auto=0")
        variables = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **os.environ, **_GIT}
        return _run(
            "git", *options, f"--git-dir={self._folder}", *arguments, given=given, **variables
        )

    def _fetch(self) -> None:
        """Get what the branch has now; one that does not exist yet is empty."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._git("init", "--quiet", "--bare")
        listed = self._git("ls-remote", "--", self._url, _BRANCH_REF).split()
        named = ("for-each-ref", "--format=%(objectname)", _BRANCH_REF)
        self._head = self._git(*named).decode().strip()
        before, self._head = self._entries(), listed[0].decode() if listed else ""
        if self._head:
            refs = f"+{_BRANCH_REF}:{_BRANCH_REF}"
            self._git("fetch", "--quiet", "--no-tags", "--depth=1", "--", self._url, refs)
            self._head = self._git("rev-parse", _BRANCH_REF).decode().strip()
        else:
            self._git("update-ref", "-d", _BRANCH_REF)
        if before.keys() - self._entries().keys():
            self._git("gc", "--quiet", "--prune=now")

    def _entries(self) -> dict[str, GitEntry]:
        """What is in the branch, by its names: bundles, and whatever else somebody put there."""
        if not self._head:
            return {}
        lines = self._git("ls-tree", "-l", "-z", self._head).decode("utf-8", "surrogateescape")
        parts = (line.partition("\t") for line in lines.split("\0")[:-1])
        return {name: GitEntry(*about.split()) for about, _, name in parts}

    def names(self) -> dict[str, int]:
        """The bundles in the branch as it is now."""
        self._fetch()
        return {
            name: int(each.size)
            for name, each in self._entries().items()
            if each.kind == "blob" and each.mode.startswith("100") and name.endswith(SUFFIX)
        }

    def read(self, name: str) -> bytes:
        """The bytes of a bundle."""
        entry = self._entries()[name]
        _check_size(name, int(entry.size))
        return self._git("cat-file", "blob", entry.id)

    def change(self, added: Mapping[str, bytes], removed: Sequence[str]) -> None:
        """Commit and push, again if another machine was faster."""
        for attempt in range(_TRIES):
            if attempt:
                self._fetch()
            entries = self._entries()
            for name, content in added.items():
                id = self._git("hash-object", "-w", "--stdin", given=content).decode().strip()
                entries[name] = GitEntry("100644", "blob", id)
            gone = [name for name in removed if entries.pop(name, None)]
            tree = "".join(
                f"{each.mode} {each.kind} {each.id}\t{name}\0" for name, each in entries.items()
            )
            tree_bytes = tree.encode("utf-8", "surrogateescape")
            made = self._git("mktree", "-z", given=tree_bytes).decode().strip()
            parent = ["-p", self._head] if self._head and not gone else []
            commit = self._git("commit-tree", made, *parent, "-m", "bundles").decode().strip()
            lease = f"--force-with-lease={_BRANCH_REF}:{self._head}"
            try:
                refs = f"{commit}:{_BRANCH_REF}"
                self._git("push", "--quiet", "--no-verify", lease, "--", self._url, refs)
            except Unreachable as error:
                if not re.search(r"stale info|rejected|cannot lock ref|fetch first", str(error)):
                    raise
                continue
            self._head = commit
            self._git("update-ref", _BRANCH_REF, commit)
            if gone:
                self._git("gc", "--quiet", "--prune=now")
            return
        raise Unreachable(f"others pushed to {self._url} meanwhile, {_TRIES} times: try again")


_TRANSPORTS = ("https", "ssh", "file")
_GIT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": ":".join(_TRANSPORTS),
    **{
        f"GIT_{who}_{what}": said
        for who in ("AUTHOR", "COMMITTER")
        for what, said in (("NAME", "mcpvectordb"), ("EMAIL", "mcpvectordb@localhost"))
    },
}


class SftpTarget:
    """A folder on a host that is reached by ssh, through the program sftp."""

    pause = 300.0

    def __init__(self, host: str, path: str) -> None:
        if not re.fullmatch(r"(?!-)[\w.@%-]+|([\w.-]+@)?\[[0-9a-fA-F:]+\]", host, re.ASCII):
            raise InvalidInput(f"{quoted(host)} is no host for ssh: write host:path")
        self._host, self._path = host, path or "."
        self._quoted = self._quote(self._path)
        self._sizes: dict[str, int] = {}

    @staticmethod
    def _quote(path: str) -> str:
        """A path as a batch of sftp reads it: in quotes it is never a pattern, nor an option."""
        path = f"./{path}" if path.startswith(("-", "~")) else path
        return '"' + re.sub(r'([\\"])', r"\\\1", path) + '"'

    def _sftp(self, *batch: str) -> bytes:
        options = ("-q", "-b", "-", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30")
        return _run("sftp", *options, "--", self._host, given="\n".join(batch).encode() + b"\n")

    def names(self) -> dict[str, int]:
        """The bundles in the folder."""
        listed = self._sftp(f"cd {self._quoted}", "ls -ln").decode("utf-8", "replace")
        self._sizes = {}
        for line in listed.splitlines():
            words = line.split(maxsplit=8)
            if len(words) == 9 and words[0].startswith("-") and words[8].endswith(SUFFIX):
                self._sizes[words[8]] = int(words[4])
        return dict(self._sizes)

    def read(self, name: str) -> bytes:
        """The bytes of a bundle."""
        _check_size(name, self._sizes[name])
        with tempfile.TemporaryDirectory(prefix="mcpvectordb-") as folder:
            path = Path(folder) / name
            self._sftp(f"cd {self._quoted}", f"get {name} {self._quote(path.as_posix())}")
            return path.read_bytes()

    def change(self, added: Mapping[str, bytes], removed: Sequence[str]) -> None:
        """Send bundles under other names and rename them, then remove others."""
        with tempfile.TemporaryDirectory(prefix="mcpvectordb-") as folder:
            batch = [f"cd {self._quoted}"]
            for name, content in added.items():
                create_private(path := Path(folder) / name, content)
                part = part_of(Path(name)).name
                batch += [f"put -f {self._quote(path.as_posix())} {part}", f"rename {part} {name}"]
            self._sftp(*batch, *(f"-rm {name}" for name in removed))
