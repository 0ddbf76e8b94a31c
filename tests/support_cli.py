"""Ways to run the command line in tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mcpvectordb.cli.main import program
from tests.support import ROOT

TEA = '# Tea & "more"\n\nWater at 80 <degrees>.\nPour it.\n'
PLAN = "# Plan\n\nThe budget for 2025.\n"


class Shell:
    """Runs the program in a process of its own, with its own file and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "notes.db"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "MCPVECTORDB_MODEL": "all-MiniLM-L6-v2",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "mcpvectordb", *arguments],
            cwd=self.folder,
            text=True,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        process = self.start("--db", str(self.db), *arguments, stdin=subprocess.PIPE)
        self.out, self.err = process.communicate(stdin, timeout=120)
        assert process.returncode == code, self.err
        assert "Traceback" not in self.err
        return self.out


class Commands:
    """Runs commands in this process, on a file whose model is not installed: searches go by words."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.db = folder, folder / "notes.db"

    def invoke(self, *arguments: str) -> Result:
        env = {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder / "data")}
        return CliRunner(env=env).invoke(program, ["--db", str(self.db), *arguments])

    def run(self, *arguments: str) -> str:
        result = self.invoke(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout
