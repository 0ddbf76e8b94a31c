"""Draw the picture of a search in README: `python .github/docs/pictures.py` writes search.svg.

The real command runs under a pseudo-terminal, on the pages of the demo in a home folder of its own;
`tests/test_docs.py` compares the picture with what the command prints. Not on Windows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PICTURE = Path(__file__).with_name("search.svg")
COLUMNS, LINES = 96, 40
SEARCH = ("search", "may I clean the lens with vinegar?", "-n", "2")


def searched() -> str:
    """What a terminal is sent by the search over the pages of the demo."""
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(ROOT / "mcpvectordb/cli/demo_pages", Path(home, "notes"))
        _run(home, "ingest", "notes")
        return _run(home, *SEARCH)


def _run(home: str, *arguments: str) -> str:
    import fcntl
    import pty
    import struct
    import termios

    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpvectordb", *arguments],
        cwd=home,
        env={
            **kept,
            "HOME": home,
            "TERM": "xterm-256color",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "MCPVECTORDB_MODEL": "all-MiniLM-L6-v2",
        },
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    printed = bytearray()
    try:
        while some := os.read(ours, 65536):
            printed += some
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    if process.wait():
        raise SystemExit(printed.decode())
    return printed.decode().replace("\r\n", "\n")


def drawn(printed: str) -> str:
    """An SVG of a terminal with the command and what it printed."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    command = " ".join(f'"{each}"' if " " in each else each for each in SEARCH)
    console.print(Text.assemble(("$ ", "bold green"), (f"mcpvectordb {command}", "bold")))
    # Links would show the folder in which the picture was made.
    console.print(Text.from_ansi(re.sub(r"\x1b]8;.*?\x1b\\", "", printed)), end="")
    console.file.close()
    # A picture needs no fonts from the network.
    local = re.sub(r"@font-face {{.*?}}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="mcpvectordb", code_format=local, unique_id="search")


def text_of(svg: str) -> list[str]:
    """The lines of text that a picture shows."""
    lines: dict[str, str] = {}
    for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if place := each.get("clip-path"):
            lines[place] = lines.get(place, "") + (each.text or "").replace("\xa0", " ")
    return [line.rstrip() for line in lines.values()]


if __name__ == "__main__":
    PICTURE.write_text(drawn(searched()), "utf-8")
