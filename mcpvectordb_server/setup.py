"""Add the server to the settings of an MCP host, or remove it; comments and a backup are kept."""

from __future__ import annotations

import difflib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mcpvectordb import InvalidInput
from mcpvectordb_server import jsonc

NAME = "mcpvectordb"


@dataclass(frozen=True, slots=True)
class McpHost:
    """An MCP host and its settings file.

    title    its name for people
    section  the key of the settings under which servers are listed
    linux    path of the settings file, also on platforms that have no path of their own
    extra    members that an entry needs in addition to command and args
    sign     folder by which the host is detected; "" is the folder of the settings file
    """

    title: str
    section: str
    linux: str
    darwin: str = ""
    win32: str = ""
    extra: tuple[tuple[str, Any], ...] = ()
    sign: str = ""

    def settings(
        self, *, platform: str = sys.platform, environ: Mapping[str, str] | None = None
    ) -> Path:
        """The path of the settings file on this machine, whether the file exists or not."""
        environ = os.environ if environ is None else environ
        chosen = {"darwin": self.darwin, "win32": self.win32}.get(platform) or self.linux
        appdata = environ.get("APPDATA", "~/AppData/Roaming")
        return Path(chosen.replace("%APPDATA%", appdata)).expanduser()


_STDIO = (("type", "stdio"),)

HOSTS = {
    "claude-desktop": McpHost(
        "Claude Desktop",
        "mcpServers",
        "~/.config/Claude/claude_desktop_config.json",
        darwin="~/Library/Application Support/Claude/claude_desktop_config.json",
        win32="%APPDATA%/Claude/claude_desktop_config.json",
    ),
    "claude-code": McpHost(
        "Claude Code", "mcpServers", "~/.claude.json", extra=_STDIO, sign="~/.claude"
    ),
    "cursor": McpHost("Cursor", "mcpServers", "~/.cursor/mcp.json"),
    "vscode": McpHost(
        "VS Code",
        "servers",
        "~/.config/Code/User/mcp.json",
        extra=_STDIO,
        darwin="~/Library/Application Support/Code/User/mcp.json",
        win32="%APPDATA%/Code/User/mcp.json",
    ),
    "windsurf": McpHost("Windsurf", "mcpServers", "~/.codeium/windsurf/mcp_config.json"),
    "zed": McpHost(
        "Zed",
        "context_servers",
        "~/.config/zed/settings.json",
        win32="%APPDATA%/Zed/settings.json",
        extra=(("source", "custom"),),
    ),
}


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


def entry(host: McpHost, db: Path, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """The entry by which a host starts the server.

    Paths are absolute, because hosts run servers in another folder and with few variables.
    """
    if str(db) != ":memory:":
        db = db.expanduser().absolute()
    return {
        **dict(host.extra),
        "command": sys.executable,
        "args": ["-m", "mcpvectordb_server", "--db", str(db), *arguments],
    }


def set_up(
    name: str,
    db: Path,
    *,
    arguments: Sequence[str] = (),
    remove: bool = False,
    dry_run: bool = False,
) -> str:
    """Add the server to the settings of the host `name`, or remove it; returns a report for people.

    Where the host is not found on this machine nothing is written, and the report contains the
    entry to paste.
    """
    host = find(name)
    path = host.settings()
    section = {host.section: {NAME: entry(host, db, arguments)}}
    sign = Path(host.sign).expanduser() if host.sign else path.parent
    if not path.exists() and not sign.is_dir():
        return (
            f"{host.title} was not found on this machine: there is no folder {sign}.\n"
            f"Where it is, put this into {path.name}:\n{json.dumps(section, indent=2)}\n"
        )
    change = plan(host, path, section[host.section][NAME], remove=remove)
    if not change.diff:
        return f"{path} is already {'without' if remove else 'set up for'} {NAME}.\n"
    if dry_run:
        return f"{change.diff}Nothing was written: this was a dry run.\n"
    backup = apply(change)
    kept = f" The old file is kept as {backup}." if backup else ""
    return (
        f"{change.diff}Written to {path}.{kept} Restart {host.title} to "
        f"{'forget' if remove else 'use'} it.\n"
    )


def find(name: str) -> McpHost:
    """The host of this name; an unknown one raises InvalidInput."""
    if name not in HOSTS:
        raise InvalidInput(f"there is no host {name!r}; known are {', '.join(HOSTS)}")
    return HOSTS[name]


def plan(
    host: McpHost, path: Path, wanted: Mapping[str, Any], *, remove: bool = False
) -> SettingsChange:
    """The change that adds the server to a settings file or removes it; nothing is written yet."""
    before = _read(path)
    place = (host.section, NAME)
    try:
        after = (
            jsonc.drop(before or "", place)
            if remove
            else jsonc.put(before or "", place, dict(wanted))
        )
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
