"""MCP hosts: where each keeps its settings, what our entry looks like there, and how it gets there.

Comments, the other entries and a backup of the file are kept.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from mcpvectordb import Config, InvalidInput
from mcpvectordb_server import options
from mcpvectordb_server.settings import JSON, TOML, YAML, Entry, SettingsFormat

NAME = "mcpvectordb"


PROGRAM = {"command": "$PROGRAM", "args": "$ARGUMENTS"}
URL = {"url": "$URL", "headers": "$HEADERS"}
FORMATS = {".json": JSON, ".toml": TOML, ".yaml": YAML}


def _filled(entry: Entry, values: Mapping[str, Any]) -> Entry:
    return {
        key: values.get(each, each) if isinstance(each, str) else each
        for key, each in entry.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class McpHost:
    """An MCP host and its settings file.

    title    its name for people
    page     where its settings are described
    path     the settings file; parts in braces are variables ({APPDATA}), {CONFIG} being the folder
             in which the platform keeps settings
    section  the key of the settings under which servers are listed
    windows  paths there, if not that one; those whose folder exists are used, * matches any name
    sign     folder by which the host is detected; "" is the folder of the settings file
    command  the entry for a command, with $PROGRAM and $ARGUMENTS, or the whole $LINE
    remote   the entry for a $URL and $HEADERS; None where the host starts servers only by a command
    skills   the folder in which it looks for skills of the user; "" if it knows none
    hooks    the file of its hooks (`path`), the `events` that they are entered for, the one before
             a `prompt`, and their `timeout` in its own unit; {} where there are none. With a
             timeout an entry is a group of commands, without one the command itself
    """

    title: str
    path: str
    page: str = ""
    section: str = "mcpServers"
    windows: Sequence[str] = ()
    sign: str = ""
    command: Entry = field(default_factory=PROGRAM.copy)
    remote: Entry | None = field(default_factory=URL.copy)
    skills: str = ""
    hooks: Entry = field(default_factory=dict)

    @property
    def form(self) -> SettingsFormat:
        """The format of its settings."""
        return FORMATS[PurePosixPath(self.path).suffix]

    def local(self, line: Sequence[str]) -> Entry:
        """The entry for a command line."""
        values = {"$PROGRAM": line[0], "$ARGUMENTS": list(line[1:]), "$LINE": list(line)}
        return _filled(self.command, values)

    def paths(self, platform: str) -> list[str]:
        """The paths of the settings on a platform, with variables in them."""
        config = {"darwin": "~/Library/Application Support", "win32": "{APPDATA}"}
        chosen = self.windows if platform == "win32" and self.windows else (self.path,)
        return [each.replace("{CONFIG}", config.get(platform, "~/.config")) for each in chosen]

    def settings(
        self, *, platform: str = sys.platform, environ: Mapping[str, str] = os.environ
    ) -> list[Path]:
        """The paths of the settings on this machine, whether the files exist or not.

        There is more than one where the host has been installed in two ways.
        """
        found: list[Path] = []
        for path in self.paths(platform):
            before, star, after = self._filled(path, environ).partition("*")
            start = Path(before).expanduser()
            matching = sorted(start.parent.glob(f"{start.name}*")) if star else [start]
            found += [each / after.lstrip("/") for each in matching]
        return [path for path in found if path.parent.is_dir()] or found

    def hooks_file(self) -> Path:
        """The file of its hooks on this machine."""
        return Path(self._filled(self.hooks["path"], os.environ)).expanduser()

    def skill_file(self) -> Path:
        """The file of our skill on this machine."""
        return Path(self.skills).expanduser() / NAME / SKILL.name

    @staticmethod
    def _filled(path: str, environ: Mapping[str, str]) -> str:
        known = {
            "APPDATA": environ.get("APPDATA", "~/AppData/Roaming"),
            "LOCALAPPDATA": environ.get("LOCALAPPDATA", "~/AppData/Local"),
            "CODEX_HOME": environ.get("CODEX_HOME", "~/.codex"),
        }
        return path.format_map(known)

    def folder(self, path: Path) -> Path:
        """The folder that a machine with this host has, for a path of its settings."""
        return Path(self.sign).expanduser() if self.sign else path.parent


# Claude Desktop comes by an installer of its own and, on Windows, as a package of the store (MSIX),
# which sees another folder. Continue reads every file of its folder, so that its own settings need
# no change.
_TABLE = Path(__file__).parent / "packaging" / "hosts.json"
SKILL = _TABLE.with_name("SKILL.md")
HOSTS = {name: McpHost(**row) for name, row in json.loads(_TABLE.read_bytes()).items()}

# What most hosts take, for those that are not in the table.
ANY = McpHost(title="any host", path="mcp.json")


def find(name: str) -> McpHost:
    """The host of this name; an unknown one raises InvalidInput."""
    if name not in HOSTS:
        raise InvalidInput(
            f"there is no host {name!r}; known are {', '.join(HOSTS)}; for another one, "
            "`mcpvectordb setup --print` shows the entry to paste"
        )
    return HOSTS[name]


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
    if "archive-v0" in Path(sys.prefix).parts:
        raise InvalidInput(
            "uvx runs from uv's cache, and what is in it may be gone when the host starts the "
            "server: run `uv tool install mcpvectordb`, then `mcpvectordb setup` again"
        )
    if isinstance(db, Path) and str(db) != ":memory:":
        db = db.expanduser().absolute()
    return [sys.executable, "-m", "mcpvectordb_server", "--db", str(db), *arguments]


def hook_entries(
    name: str, db: Path | str, *, prompts: bool = False, program: Sequence[str] = ()
) -> Entry:
    """The entries of our hooks by the events of a host; InvalidInput if it has none.

    `prompts` adds the one that is run before each prompt. `program` is the command of the shell, if
    not this Python.
    """
    hooks = find(name).hooks
    if not hooks:
        known = ", ".join(each for each, host in HOSTS.items() if host.hooks)
        raise InvalidInput(f"hooks of {HOSTS[name].title} are not known; they are of {known}")
    if prompts and "prompt" not in hooks:
        raise InvalidInput(f"{HOSTS[name].title} takes nothing from a hook before a prompt")
    entries: Entry = {}
    for event in [*hooks["events"], *([hooks["prompt"]] if prompts else [])]:
        line = [*(program or (sys.executable, "-m", "mcpvectordb")), "hook", event, "--host", name]
        line += ["--db", str(db)] if db else []
        command: Entry = {"command": _shell_line(line)}
        if "timeout" in hooks:
            command = {"hooks": [{"type": "command", **command, "timeout": hooks["timeout"]}]}
        entries[event] = command
    return entries


def _shell_line(line: Sequence[str]) -> str:
    return subprocess.list2cmdline(line) if sys.platform == "win32" else shlex.join(line)


def with_hooks(host: McpHost, before: str, entries: Entry) -> str:
    """The text of a hooks file with these entries as the only ones of ours; {} removes them."""
    text = before
    if not text.strip() and "timeout" not in host.hooks:
        text = '{\n  "version": 1,\n  "hooks": {}\n}\n' if entries else text
    events = [*host.hooks["events"], host.hooks.get("prompt")]
    for event in filter(None, events):
        known = (JSON.parse(text) or {}).get("hooks") or {}
        now = known.get(event) or [] if isinstance(known, dict) else []
        kept = [each for each in now if not re.search(r"mcpvectordb\W* hook ", json.dumps(each))]
        wanted = kept + ([entries[event]] if event in entries else [])
        if wanted != now:
            text = JSON.changed(text, "hooks", event, wanted or None)
    return text


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
    return _filled(host.remote, {"$URL": url, "$HEADERS": {"Authorization": f"Bearer {token}"}})


def token_of(url: str) -> str:
    """The bearer token for a server: MCPVECTORDB_TOKEN, or this machine's own for a URL on it."""
    from mcpvectordb_server.connections import is_loopback
    from mcpvectordb_server.http import token_for

    given = os.environ.get(f"{Config.ENV_PREFIX}TOKEN")
    if given is None and not is_loopback(urlsplit(url).hostname or ""):
        raise InvalidInput(f"set {Config.ENV_PREFIX}TOKEN to the bearer token of {url}")
    return token_for("localhost", given, Config.data_folder())


def set_up(
    name: str, entry: Entry | None, *, hooks: Entry | None = None, dry_run: bool = False
) -> str:
    """Put an entry into the settings of the host `name`, or remove ours without one.

    Our skill goes where the host looks for skills. `hooks` (see `hook_entries`) take the place of
    ours that are there, which otherwise stay; without an entry hooks and skill are removed, too.
    Returns a report for people. InvalidInput says that the host was not found on this machine, or
    that there is nothing to remove; nothing is written then.
    """
    host = find(name)
    paths = [path for path in host.settings() if path.exists() or host.folder(path).is_dir()]
    if not paths:
        place = host.settings()[0]
        raise InvalidInput(
            f"{host.title} was not found on this machine: there is no folder {host.folder(place)}; "
            f"`mcpvectordb setup {name} --print` shows what to put into {place.name} where it is"
        )
    befores = {path: _read(path) for path in paths}
    afters = {path: changed(host, path, text, entry) for path, text in befores.items()}
    if host.hooks and (hooks is not None or entry is None):
        path = host.hooks_file()
        before = befores.setdefault(path, _read(path))
        afters[path] = _checked(path, with_hooks, host, afters.get(path, before or ""), hooks or {})
    if host.skills:
        path, ours = host.skill_file(), SKILL.read_text("utf-8")
        befores[path] = before = _read(path)
        if entry is None:  # one that was changed by hand stays
            ours = "" if before in (ours, None) else before or ""
        afters[path] = ours
    if entry is None and all(afters[path] == (text or "") for path, text in befores.items()):
        raise InvalidInput(f"there is no {NAME} in {paths[0]}: nothing was removed")
    report = ""
    for path, before in befores.items():
        after = afters[path]
        diff = difflib.unified_diff(
            (before or "").splitlines(), after.splitlines(), str(path), str(path), lineterm=""
        )
        report += "".join(f"{line}\n" for line in diff)
        if after == (before or ""):
            if path in paths:
                report += f"{path} is already {'set up for' if entry else 'without'} {NAME}.\n"
        elif dry_run:
            report += "Nothing was written: this was a dry run.\n"
        elif not after and path.name == SKILL.name:
            shutil.rmtree(path.parent)
            report += f"Removed {path.parent}.\n"
        else:
            backup = write(path, before, after)
            kept = f" The old file is kept as {backup}." if backup else ""
            report += (
                f"Written to {path}.{kept} Restart {host.title} to "
                f"{'use' if entry else 'forget'} it.\n"
            )
    return report


def changed(host: McpHost, path: Path, before: str | None, entry: Entry | None) -> str:
    """The text of a settings file with an entry put into it, or without ours."""
    return _checked(path, host.form.changed, before or "", host.section, NAME, entry)


def _checked(path: Path, change: Callable[..., str], *given: Any) -> str:
    try:
        return change(*given)
    except (InvalidInput, ValueError) as error:
        raise InvalidInput(f"{path} was left as it is: {error}") from None


def write(path: Path, before: str | None, after: str) -> Path | None:
    """Write a settings file; returns the path of the backup, or None where there was no file.

    A symbolic link stays one: the file that it points to is written.
    """
    path = Path(os.path.realpath(path))
    if _read(path) != before:
        raise InvalidInput(f"{path} was changed by another program just now; try again")
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if before is not None:
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
        backup = path.with_name(f"{path.name}.{stamp}.bak")
        try:
            _write_private(backup, path.read_bytes())
            shutil.copystat(path, backup)
        except OSError as error:
            raise InvalidInput(f"{backup} cannot be written: {error.strerror}") from None
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_private(written, after.encode())
        if backup:
            shutil.copymode(path, written)
        written.replace(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
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
