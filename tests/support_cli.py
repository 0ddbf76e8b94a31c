"""Ways to run the command line in tests."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner, Result

from mcpvectordb.cli.main import main, program
from tests.support import ROOT

TEA = '# Tea & "more"\n\nWater at 80 <degrees>.\nPour it.\n'
PLAN = "# Plan\n\nThe budget for 2025.\n"


class Shell:
    """Runs the program with its own file and environment; `start` in a process of its own."""

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
        """Run the whole program in this process: a start of Python takes longer than most tests."""
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        command = ["mcpvectordb", "--db", str(self.db), *arguments]
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.multiple(sys, argv=command, stdin=given, stdout=out, stderr=err),
            contextlib.chdir(self.folder),
        ):
            try:
                main()
            except SystemExit as ended:
                returned = ended.code
        self.out, self.err = (
            stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
            for stream in (out, err)
            if not stream.flush()
        )
        assert returned == code, self.err
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
