"""Hosts from npm's registry, each told of a model and of a server, both on this machine.

A host gets an empty home, no variable of ours and a proxy that refuses: it reaches loopback only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.external.judges import installed, node
from tests.external.scripted_model import SERVER

PROMPT = "Go on."


class Setting(NamedTuple):
    """What a host is told: its home, the model's URL, the server's command and environment."""

    home: Path
    model: str
    server: Sequence[str]
    environ: dict[str, str]

    def write(self, path: str, content: Any) -> None:
        """Write a file into the home, JSON unless it is a text."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    @property
    def stdio(self) -> dict[str, Any]:
        """The entry of the server in the form that most hosts share."""
        return {"command": self.server[0], "args": list(self.server[1:]), "env": self.environ}


class Host(NamedTuple):
    """A host: its npm package, its command, and what makes it call our server without asking.

    `prepare` writes its settings and returns its arguments and environment.
    """

    package: str
    command: str
    prepare: Callable[[Setting], tuple[list[str], dict[str, str]]]

    def run(self, setting: Setting) -> subprocess.CompletedProcess[str]:
        """Start it with a prompt and wait until its turn ends; skips the test if it cannot run."""
        folder = installed(self.command, self.package) / "node_modules" / ".bin"
        command = shutil.which(self.command, path=str(folder)) or str(folder / self.command)
        arguments, environ = self.prepare(setting)
        environ |= _surroundings(setting.home)
        shown = _started([command, "--version"], setting.home, environ)
        if shown.returncode:
            pytest.skip(f"{self.package} cannot run here: {(shown.stderr or shown.stdout)[-300:]}")
        return _started([command, *arguments], setting.home, environ)


def _surroundings(home: Path) -> dict[str, str]:
    refused = "http://127.0.0.1:9"
    local = "127.0.0.1,localhost"
    kept = ("SYSTEMROOT", "COMSPEC", "PATHEXT", "TMPDIR", "TEMP", "TMP", "LANG")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PATH": node()[1]["PATH"],
        "HOME": str(home),
        "USERPROFILE": str(home),
        "APPDATA": str(home),
        "LOCALAPPDATA": str(home),
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), refused),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), local),
    }


def _started(
    command: Sequence[str], home: Path, environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    work = home / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        command,
        cwd=work,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=600,
        check=False,
    )


def _claude_code(setting: Setting) -> tuple[list[str], dict[str, str]]:
    setting.write("servers.json", {"mcpServers": {SERVER: setting.stdio}})
    arguments = ["-p", PROMPT, "--mcp-config", str(setting.home / "servers.json")]
    return [*arguments, "--strict-mcp-config", "--dangerously-skip-permissions"], {
        "ANTHROPIC_BASE_URL": setting.model,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",  # all tools are listed in the first request
        "MCP_CONNECTION_NONBLOCKING": "0",  # which waits for the server
        "IS_SANDBOX": "1",  # as root, too
    }


def _codex(setting: Setting) -> tuple[list[str], dict[str, str]]:
    # A TOML string and list of strings may be written as in JSON, an inline table not.
    environ = ", ".join(f"{name} = {json.dumps(value)}" for name, value in setting.environ.items())
    setting.write(
        ".codex/config.toml",
        f"""model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = {json.dumps(f"{setting.model}/v1")}
wire_api = "responses"
[mcp_servers.{SERVER}]
command = {json.dumps(setting.server[0])}
args = {json.dumps(list(setting.server[1:]))}
env = {{ {environ} }}
required = true
""",
    )
    bypass = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *bypass, PROMPT], {}


def _gemini_cli(setting: Setting) -> tuple[list[str], dict[str, str]]:
    setting.write(
        ".gemini/settings.json",
        {
            "mcpServers": {SERVER: {**setting.stdio, "trust": True}},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            # Otherwise it asks the model, after thirty calls, whether they lead anywhere.
            "model": {"disableLoopDetection": True, "skipNextSpeakerCheck": True},
        },
    )
    return ["-p", PROMPT, "--yolo", "-m", "gemini-2.5-pro"], {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": setting.model,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def _opencode(setting: Setting) -> tuple[list[str], dict[str, str]]:
    setting.write(
        "work/opencode.json",
        {
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
            "provider": {
                "scripted": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "scripted",
                    "options": {"baseURL": f"{setting.model}/v1", "apiKey": "none"},
                    "models": {"scripted": {"name": "scripted"}},
                }
            },
            "mcp": {
                SERVER: {
                    "type": "local",
                    "command": list(setting.server),
                    "environment": setting.environ,
                    "enabled": True,
                }
            },
        },
    )
    return ["run", PROMPT], {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


HOSTS = {
    "Claude Code": Host("@anthropic-ai/claude-code@2", "claude", _claude_code),
    "Codex": Host("@openai/codex@0", "codex", _codex),
    "Gemini CLI": Host("@google/gemini-cli@0", "gemini", _gemini_cli),
    "opencode": Host("opencode-ai@1", "opencode", _opencode),
}
