"""What the project of a folder is known by, as far as the folder itself says it.

A folder inside of a git repository belongs to the repository, a worktree to the one that it is a
worktree of. Git's files are read directly, because starting git takes longer than hooks may take;
only the first commit of a repository is asked for, and remembered (`shelf.py`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput, quoted

NAME_FILE = ".mcpvectordb.toml"
AUTO = "auto"
"""In place of a project's name: the project of the working folder."""

LONGEST_NAME = 100
LARGEST_NAME_FILE = 65_536
GIT_SECONDS = 5.0  # that the first commit may take; the history of Linux is walked in three


class ProjectFolder(NamedTuple):
    """The folder that a project is in, its repository, and the name that is given for it.

    `root` is the top of the repository or worktree, else the folder itself; `home` is another one
    for a worktree: the folder of its repository, whose name is the project's first one.
    `repository` is the folder with git's own files, which all worktrees share.
    """

    root: Path
    home: Path
    repository: Path | None = None
    given: str = ""

    @property
    def first_name(self) -> str:
        """The name that the folder suggests."""
        return suggested_name(self.home.name.removesuffix(".git"))


def suggested_name(text: str) -> str:
    """A valid name of a project that is like `text`."""
    shown = text.encode("utf-8", "replace").decode()
    plain = " ".join(re.sub(r"[/\\\x00-\x1f\x7f]", " ", shown).split())[:LONGEST_NAME].strip()
    return plain if plain and plain.casefold() != AUTO else f"{plain or 'root'}-1"


def checked_name(name: object, origin: str = "project") -> str:
    """The name of a project without surrounding white space; raises InvalidInput.

    A slash is in no name: the threads of a project are those that begin with its name and a slash.
    """
    given = name.strip() if isinstance(name, str) else ""
    if not given or given != suggested_name(given):
        raise InvalidInput(
            f"{origin} must be a name of 1 to {LONGEST_NAME} characters without slashes and line "
            f"ends, and not {AUTO}: not {quoted(str(name))}"
        )
    return given


def find(folder: str | os.PathLike[str]) -> ProjectFolder:
    """The folder of the project that a folder, which need not exist, belongs to.

    Raises InvalidInput for a file `.mcpvectordb.toml` that cannot be used.
    """
    try:
        start = Path(os.path.realpath(folder))
    except ValueError as error:
        raise InvalidInput(f"{quoted(os.fspath(folder))} is no folder: {error}") from None
    above = [start, *start.parents]
    for place, each in enumerate(above):
        if (git := _git_folder(each)) is None:
            continue
        repository = _common_folder(git)
        home = each
        if repository != git:  # a worktree
            home = repository.parent if repository.name.startswith(".") else repository
        given = next(filter(None, map(_given_name, above[: place + 1])), "")
        return ProjectFolder(each, home, repository, given)
    return ProjectFolder(start, start, given=_given_name(start))


def path_key(folder: Path) -> str:
    """What a folder is known by that is in no repository with a commit."""
    return "path:" + os.fsencode(folder).decode("utf-8", "backslashreplace")


def mark(repository: Path) -> str:
    """What tells a repository from another one that is made at the same place later.

    Git writes the file `description` when it makes a repository, and never again.
    """
    try:
        made = (repository / "description").stat().st_mtime_ns
    except OSError:
        made = 0
    return f"{repository.stat().st_ino}-{made}"


def has_root(repository: Path) -> bool:
    """Whether git may know the first commit: there is a commit, and the history is not cut off."""
    if (repository / "shallow").exists():
        return False
    head = _line(repository / "HEAD")
    if not head.startswith("ref: ") or (repository / "reftable").exists():
        return True
    branch = head.removeprefix("ref: ")
    try:
        packed = (repository / "packed-refs").read_bytes()
    except OSError:
        packed = b""
    return (repository / branch).exists() or b" " + os.fsencode(branch) + b"\n" in packed


def first_commit(repository: Path) -> str | None:
    """The id of the oldest commit without a parent; "" if git cannot say, None without git."""
    import shutil
    import subprocess

    program = shutil.which("git")
    if program is None or not Path(program).is_absolute() or Path(program).parent == Path.cwd():
        return None
    # What git is told by variables is about another repository where a hook of git starts us.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        answer = subprocess.run(  # noqa: S603 - no shell, and git runs nothing for it
            [program, f"--git-dir={repository}", "rev-list", "--max-parents=0", "HEAD"],
            env={**environment, "GIT_NO_LAZY_FETCH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.findall(rb"^[0-9a-f]{40,64}$", answer.stdout, re.MULTILINE)
    return found[-1].decode() if found and answer.returncode == 0 else ""


def _git_folder(folder: Path) -> Path | None:
    """Git's own folder of the repository or worktree whose top `folder` is."""
    git = folder / ".git"
    said = _line(git)  # "" of a folder
    if said.startswith("gitdir:"):
        git = folder / said.removeprefix("gitdir:").strip()
    return Path(os.path.realpath(git)) if _line(git / "HEAD") else None


def _common_folder(git: Path) -> Path:
    """The folder that a worktree shares with its repository; of others, git's own folder."""
    said = _line(git / "commondir")
    common = Path(os.path.realpath(git / said))
    return common if said and _line(common / "HEAD") else git


def _line(path: Path) -> str:
    """The first line of a small file of git; "" if there is none."""
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.readline(4096)).rstrip("\r\n").replace("\0", "")
    except OSError:
        return ""


def _given_name(folder: Path) -> str:
    """The name that a folder's `.mcpvectordb.toml` gives to its project; "" without one."""
    path = folder / NAME_FILE
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_NAME_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    import tomllib

    try:
        if len(content) > LARGEST_NAME_FILE:
            raise ValueError(f"it has more than {LARGEST_NAME_FILE:,} bytes")
        said = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no TOML: {error}") from None
    if unknown := sorted(said.keys() - {"project"}):
        raise InvalidInput(f'{path} may say project = "name", not {", ".join(unknown):.200}')
    return checked_name(said["project"], f"project in {path}") if said else ""
