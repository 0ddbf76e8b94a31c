"""MCP hosts: where each keeps its settings, in which format, and what an entry looks like there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpvectordb import InvalidInput
from mcpvectordb_server.settings import JSON, TOML, YAML, Entry, SettingsFormat


def _command(line: Sequence[str]) -> Entry:
    return {"command": line[0], "args": list(line[1:])}


def _url(url: str, headers: Mapping[str, str]) -> Entry:
    return {"url": url, "headers": dict(headers)}


@dataclass(frozen=True, kw_only=True, slots=True)
class McpHost:
    """An MCP host and its settings file.

    title    its name for people
    section  the key of the settings under which servers are listed
    linux    path of the settings file, also on platforms that have no path of their own; parts in
             braces are variables ({APPDATA}), and * matches any name
    win32    one path or several, of which those whose folder exists are used
    sign     folder by which the host is detected; "" is the folder of the settings file
    local    the entry for a command line
    remote   the entry for a URL and headers; None where the host starts servers only by a command
    """

    title: str
    section: str
    linux: str
    darwin: str = ""
    win32: tuple[str, ...] = ()
    sign: str = ""
    form: SettingsFormat = JSON
    local: Callable[[Sequence[str]], Entry] = _command
    remote: Callable[[str, Mapping[str, str]], Entry] | None = _url

    def settings(
        self, *, platform: str = sys.platform, environ: Mapping[str, str] | None = None
    ) -> list[Path]:
        """The paths of the settings on this machine, whether the files exist or not.

        There is more than one where the host has been installed in two ways.
        """
        environ = os.environ if environ is None else environ
        chosen = {"darwin": (self.darwin,), "win32": self.win32}.get(platform) or (self.linux,)
        paths = [path for each in chosen for path in _expanded(each or self.linux, environ)]
        return [path for path in paths if path.parent.is_dir()] or paths[:1]

    def folder(self, path: Path) -> Path:
        """The folder that a machine with this host has, for a path of its settings."""
        return Path(self.sign).expanduser() if self.sign else path.parent

    def found(self, path: Path) -> bool:
        """Whether the host is on this machine."""
        return path.exists() or self.folder(path).is_dir()


def _expanded(path: str, environ: Mapping[str, str]) -> list[Path]:
    """A path of the table on this machine; one with a * for each folder that matches."""
    known = {
        "APPDATA": environ.get("APPDATA", "~/AppData/Roaming"),
        "LOCALAPPDATA": environ.get("LOCALAPPDATA", "~/AppData/Local"),
        "CODEX_HOME": environ.get("CODEX_HOME", "~/.codex"),
    }
    before, star, after = path.format_map(known).partition("*")
    if not star:
        return [Path(before).expanduser()]
    start = Path(before).expanduser()
    return [each / after.lstrip("/") for each in sorted(start.parent.glob(f"{start.name}*"))]


def _stdio(line: Sequence[str]) -> Entry:
    return {"type": "stdio", **_command(line)}


def _http(url: str, headers: Mapping[str, str]) -> Entry:
    return {"type": "http", **_url(url, headers)}


def _custom(line: Sequence[str]) -> Entry:
    return {"source": "custom", **_command(line)}


def _goose(kind: str, **fields: Any) -> Entry:
    return {"enabled": True, "type": kind, "name": "mcpvectordb", **fields, "timeout": 300}


_VSCODE = "Code/User/mcp.json"
_INSIDERS = "Code - Insiders/User/mcp.json"
_CLINE = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
_SUPPORT = "~/Library/Application Support"
_DESKTOP = "claude_desktop_config.json"

HOSTS = {
    "claude-desktop": McpHost(
        title="Claude Desktop",
        section="mcpServers",
        linux=f"~/.config/Claude/{_DESKTOP}",
        darwin=f"{_SUPPORT}/Claude/{_DESKTOP}",
        # The installer of its own, and the package of the store (MSIX), which sees another folder.
        win32=(
            f"{{APPDATA}}/Claude/{_DESKTOP}",
            f"{{LOCALAPPDATA}}/Packages/Claude_*/LocalCache/Roaming/Claude/{_DESKTOP}",
        ),
        remote=None,
    ),
    "claude-code": McpHost(
        title="Claude Code",
        section="mcpServers",
        linux="~/.claude.json",
        sign="~/.claude",
        local=_stdio,
        remote=_http,
    ),
    "cursor": McpHost(title="Cursor", section="mcpServers", linux="~/.cursor/mcp.json"),
    "vscode": McpHost(
        title="VS Code",
        section="servers",
        linux=f"~/.config/{_VSCODE}",
        darwin=f"{_SUPPORT}/{_VSCODE}",
        win32=(f"{{APPDATA}}/{_VSCODE}",),
        local=_stdio,
        remote=_http,
    ),
    "vscode-insiders": McpHost(
        title="VS Code Insiders",
        section="servers",
        linux=f"~/.config/{_INSIDERS}",
        darwin=f"{_SUPPORT}/{_INSIDERS}",
        win32=(f"{{APPDATA}}/{_INSIDERS}",),
        local=_stdio,
        remote=_http,
    ),
    "windsurf": McpHost(
        title="Windsurf",
        section="mcpServers",
        linux="~/.codeium/windsurf/mcp_config.json",
        remote=lambda url, headers: {"serverUrl": url, "headers": dict(headers)},
    ),
    "zed": McpHost(
        title="Zed",
        section="context_servers",
        linux="~/.config/zed/settings.json",
        win32=("{APPDATA}/Zed/settings.json",),
        local=_custom,
    ),
    "codex": McpHost(
        title="Codex CLI",
        section="mcp_servers",
        linux="{CODEX_HOME}/config.toml",
        form=TOML,
        remote=lambda url, headers: {"url": url, "http_headers": dict(headers)},
    ),
    "gemini": McpHost(
        title="Gemini CLI",
        section="mcpServers",
        linux="~/.gemini/settings.json",
        remote=lambda url, headers: {"httpUrl": url, "headers": dict(headers)},
    ),
    "cline": McpHost(
        title="Cline",
        section="mcpServers",
        linux=f"~/.config/{_CLINE}",
        darwin=f"{_SUPPORT}/{_CLINE}",
        win32=(f"{{APPDATA}}/{_CLINE}",),
        remote=lambda url, headers: {"type": "streamableHttp", **_url(url, headers)},
    ),
    # Continue reads every file of this folder, so that its own settings need no change.
    "continue": McpHost(
        title="Continue",
        section="mcpServers",
        linux="~/.continue/mcpServers/mcpvectordb.json",
        sign="~/.continue",
        remote=_http,
    ),
    "goose": McpHost(
        title="Goose",
        section="extensions",
        linux="~/.config/goose/config.yaml",
        win32=("{APPDATA}/Block/goose/config/config.yaml",),
        form=YAML,
        local=lambda line: _goose("stdio", cmd=line[0], args=list(line[1:])),
        remote=lambda url, headers: _goose("streamable_http", uri=url, headers=dict(headers)),
    ),
    "lm-studio": McpHost(title="LM Studio", section="mcpServers", linux="~/.lmstudio/mcp.json"),
    "jetbrains": McpHost(
        title="JetBrains Junie",
        section="mcpServers",
        linux="~/.junie/mcp/mcp.json",
        sign="~/.junie",
        remote=None,
    ),
    "opencode": McpHost(
        title="OpenCode",
        section="mcp",
        linux="~/.config/opencode/opencode.json",
        local=lambda line: {"type": "local", "command": list(line), "enabled": True},
        remote=lambda url, headers: {"type": "remote", **_url(url, headers), "enabled": True},
    ),
}

# What most hosts take, for those that are not in the table.
ANY = McpHost(title="any host", section="mcpServers", linux="mcp.json")


def find(name: str) -> McpHost:
    """The host of this name; an unknown one raises InvalidInput."""
    if name not in HOSTS:
        raise InvalidInput(
            f"there is no host {name!r}; known are {', '.join(HOSTS)}; for another one, "
            "`mcpvectordb setup --print` shows the entry to paste"
        )
    return HOSTS[name]
