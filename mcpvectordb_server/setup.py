"""Put the server into the settings of an MCP host, or remove it; comments and a backup are kept."""

from __future__ import annotations

import difflib
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from mcpvectordb import Config, InvalidInput
from mcpvectordb_server import options
from mcpvectordb_server.hosts import McpHost, find
from mcpvectordb_server.settings import Entry

NAME = "mcpvectordb"


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsChange:
    """A change of a host's settings file; `before` is None where there is no file yet."""

    path: Path
    before: str | None
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff; "" when there is none."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(),
            self.after.splitlines(),
            str(self.path),
            str(self.path),
            lineterm="",
        )
        return "".join(f"{line}\n" for line in lines)


def command_line(
    db: Path | str, arguments: Sequence[str] = (), roots: Sequence[Path] = ()
) -> list[str]:
    """The command by which a host starts the server; it ingests files from `roots` only.

    It offers the surface desk unless the arguments name another. Paths are absolute, because hosts
    run servers in another folder and with few variables. Options that the server would not take
    raise InvalidInput.
    """
    allowed = [part for root in roots for part in ("--root", str(root.expanduser().absolute()))]
    named = any(each.partition("=")[0] == "--surface" for each in arguments)
    arguments = [*allowed, *([] if named else ["--surface", "desk"]), *arguments]
    options.parse(arguments, {})
    if isinstance(db, Path) and str(db) != ":memory:":
        db = db.expanduser().absolute()
    return [sys.executable, "-m", "mcpvectordb_server", "--db", str(db), *arguments]


def remote_entry(host: McpHost, url: str, token: str) -> Entry:
    """The entry by which a host reaches a server over HTTP; InvalidInput where it cannot."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"--http must be a URL such as http://127.0.0.1:8000/mcp, not {url!r}")
    if host.remote is None:
        raise InvalidInput(
            f"{host.title} only starts servers by a command, as far as its settings file goes; "
            "leave out --http"
        )
    return host.remote(url, {"Authorization": f"Bearer {token}"})


def token_of(url: str) -> str:
    """The bearer token for a server: MCPVECTORDB_TOKEN, or this machine's own for a URL on it."""
    from mcpvectordb_server.connections import is_loopback
    from mcpvectordb_server.http import token_for

    given = os.environ.get(f"{Config.ENV_PREFIX}TOKEN")
    if given is None and not is_loopback(urlsplit(url).hostname or ""):
        raise InvalidInput(f"set {Config.ENV_PREFIX}TOKEN to the bearer token of {url}")
    return token_for("localhost", given, Config.data_folder())


def set_up(name: str, entry: Entry | None, *, dry_run: bool = False) -> str:
    """Put an entry into the settings of the host `name`, or remove ours without one.

    Returns a report for people. InvalidInput says that the host was not found on this machine, or
    that there is nothing to remove; nothing is written then.
    """
    host = find(name)
    paths = [path for path in host.settings() if host.found(path)]
    if not paths:
        place = host.settings()[0]
        raise InvalidInput(
            f"{host.title} was not found on this machine: there is no folder {host.folder(place)}; "
            f"`mcpvectordb setup {name} --print` shows what to put into {place.name} where it is"
        )
    changes = [plan(host, path, entry) for path in paths]
    if entry is None and not any(change.diff for change in changes):
        raise InvalidInput(f"there is no {NAME} in {changes[0].path}: nothing was removed")
    return "".join(_carried_out(host, change, entry is None, dry_run) for change in changes)


def _carried_out(host: McpHost, change: SettingsChange, remove: bool, dry_run: bool) -> str:
    if not change.diff:
        return f"{change.path} is already {'without' if remove else 'set up for'} {NAME}.\n"
    if dry_run:
        return f"{change.diff}Nothing was written: this was a dry run.\n"
    backup = apply(change)
    kept = f" The old file is kept as {backup}." if backup else ""
    return (
        f"{change.diff}Written to {change.path}.{kept} Restart {host.title} to "
        f"{'forget' if remove else 'use'} it.\n"
    )


def plan(host: McpHost, path: Path, entry: Entry | None) -> SettingsChange:
    """The change that puts an entry into a settings file, or removes ours; nothing is written."""
    before = _read(path)
    try:
        after = host.form.changed(before or "", host.section, NAME, entry)
    except InvalidInput as error:
        raise InvalidInput(f"{path} was left as it is: {error}") from None
    return SettingsChange(path=path, before=before, after=after)


def apply(change: SettingsChange) -> Path | None:
    """Write a change; returns the path of the backup, or None where there was no file.

    A symbolic link stays one: the file that it points to is written.
    """
    path = Path(os.path.realpath(change.path))
    if _read(path) != change.before:
        raise InvalidInput(f"{path} was changed by another program just now; try again")
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = _backup(path) if change.before is not None else None
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_private(written, change.after.encode())
        if backup:
            shutil.copymode(path, written)
        written.replace(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
    return backup


def _backup(path: Path) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    backup = path.with_name(f"{path.name}.{stamp}.bak")
    try:
        _write_private(backup, path.read_bytes())
        shutil.copystat(path, backup)
    except OSError as error:
        raise InvalidInput(f"{backup} cannot be written: {error.strerror}") from None
    return backup


def _write_private(path: Path, content: bytes) -> None:
    """Write a new file that nobody but its owner can read: settings may hold keys."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
