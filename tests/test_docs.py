"""README promises nothing that does not run: its Python blocks and its shell examples are executed
here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "PYTHONPATH": str(ROOT),
    }


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_examples_run(block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def shell_lines() -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("mcpvectordb ")]


def test_the_shell_examples_run(tmp_path: Path) -> None:
    notes = tmp_path / "Documents" / "notes"
    notes.mkdir(parents=True)
    (notes / "keys.md").write_text(
        "---\nyear: 2025\n---\n# Keys\n\nWe rotate the signing keys with an exact phrase.\n"
    )
    assert len(shell_lines()) >= 5
    for line in shell_lines():
        arguments = [each.replace("~", str(tmp_path)) for each in shlex.split(line)[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "mcpvectordb", *arguments],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_the_first_command_and_the_test_command_are_the_ones_that_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [block.strip() for block in blocks("sh") if block.startswith("python -m pip")]
    assert len(commands) == 2 and all(f"\n{command}\n" in script for command in commands)


def test_the_licence_of_pdf_support_is_named() -> None:
    assert "PyMuPDF" in README and "AGPL" in README


def test_every_relative_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
