"""README and its pages promise nothing that does not run: their blocks are executed here, twice in
a row, and what they take from the code is compared with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from mcpvectordb.config import SERVER_VARIABLES, Config
from mcpvectordb_server.hosts import HOSTS
from mcpvectordb_server.surfaces import NAMES
from tests.support import ROOT
from tests.support_postgres import LocalPostgres

DOCS = ROOT / ".github" / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), ROOT / "benchmarks" / "README.md"]
README = PAGES[0].read_text("utf-8")
# Runs the steps of a page in one process, as a reader would do it in one folder, and again.
PROGRAM = """
import json, shlex, sys
from pathlib import Path
from mcpvectordb.cli.main import main

def run(language, text):
    if language == "python":
        exec(compile(text, "block", "exec"), {"__name__": "__main__"})
        return
    sys.argv = [each.replace("~", str(Path.home())) for each in shlex.split(text)]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise

steps = json.load(sys.stdin)
for language, text in steps * int(sys.argv[1]):
    print(f"== {text}", file=sys.stderr)
    run(language, text)
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page, with the language of each."""
    text = page.read_text("utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def steps(page: Path) -> list[tuple[str, str]]:
    """The Python blocks of a page and its shell lines, in their order."""
    found = []
    for language, block in blocks(page):
        if language == "python":
            found.append((language, block))
        elif language == "sh":
            lines = (line.split("  #")[0].strip() for line in block.splitlines())
            found += [(language, line) for line in lines if not line.startswith("python -m pip")]
    return found


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


RUNNABLE = [page for page in PAGES if steps(page)]


@contextlib.contextmanager
def team(page: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Variables that lead to the database and roles of a page about PostgreSQL."""
    if "postgresql:///team" not in page.read_text("utf-8"):
        yield {}
        return
    server: LocalPostgres = request.getfixturevalue("postgres")
    roles = ("alice", "bob", "carol")
    with server.database("team"):
        for role in roles:
            server.execute(f"CREATE ROLE {role} LOGIN")
        yield {"PGHOST": server.host, "PGPORT": str(server.port), "PGUSER": "postgres"}
    for role in roles:
        server.execute(f"DROP ROLE {role}")


SHORT = ("README.md", "python.md", "shell.md")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page.name in SHORT else pytest.mark.long) for page in RUNNABLE],
    ids=names(RUNNABLE),
)
def test_every_block_runs_and_with_full_twice_in_a_row(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with team(page, request) as variables:
        run(page, tmp_path, variables, times=2 if request.config.getoption("--full") else 1)


def run(page: Path, tmp_path: Path, variables: dict[str, str], *, times: int) -> None:
    notes = tmp_path / "Documents" / "notes"
    notes.mkdir(parents=True)
    (tmp_path / "Dropbox" / "notes").mkdir(parents=True)
    (notes / "keys.md").write_text(
        "---\nyear: 2025\n---\n# Keys\n\nWe rotate the signing keys with an exact phrase.\n"
    )
    unset = (Config.ENV_PREFIX, "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(times)],
        input=json.dumps(steps(page)),
        cwd=tmp_path,
        env={**kept, **home, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_block_is_run_or_parsed_or_said_to_be_text(page: Path) -> None:
    for language, block in blocks(page):
        assert language in ("python", "sh", "json", "text"), block
        if language == "json":
            json.loads(block)
    for language, text in steps(page):
        assert language == "python" or text.startswith("mcpvectordb "), text


def test_enough_is_shown() -> None:
    languages = [language for page in PAGES for language, _ in steps(page)]
    assert languages.count("python") >= 6 and languages.count("sh") >= 15
    assert "asyncio.to_thread" in (DOCS / "python.md").read_text("utf-8")


def test_the_first_command_and_the_test_command_are_the_ones_that_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [block.strip() for _, block in blocks(PAGES[0]) if block.startswith("python -m pip")]
    assert len(commands) == 2 and all(f"\n{command}\n" in script for command in commands)


def test_the_licence_of_pdf_support_is_named() -> None:
    assert "PyMuPDF" in README and "AGPL" in README


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target, _, place in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]*))?\)", text):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if place:
            headings = re.findall(r"^#+ (.*)$", linked.read_text("utf-8"), re.MULTILINE)
            assert place in [each.lower().replace(" ", "-") for each in headings], place


def test_readme_leads_to_every_page() -> None:
    assert all(f"]({page.relative_to(ROOT).as_posix()})" in README for page in PAGES[1:])


def test_the_speed_of_ingest_is_the_measured_one() -> None:
    command = "python -m benchmarks ingest --characters 60000 --model all-MiniLM-L6-v2"
    results = (ROOT / "benchmarks" / "results" / "ingest.md").read_text("utf-8")
    measured = results.partition(f"`{command}`")[2]
    row = re.search(r"mcpvectordb, end to end \| \d+ \| (\d+) \| [\d.]+ \| ([\d.]+)", measured)
    assert row and f"{row[2]} passages per CPU second" in README
    assert f"`{command}`, which is {row[1]} passages" in README


def loaded(name: str) -> ModuleType:
    """A script of the documentation as a module."""
    spec = util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec and spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["settings.md", "agents.md"])
def test_tables_are_those_that_the_code_makes(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert loaded("tables").renewed(page) == text, "run `python .github/docs/tables.py`"


def test_the_tables_say_something_of_every_setting_surface_and_host() -> None:
    tables = loaded("tables")
    rows = tables.settings().splitlines()[2:]
    assert len(rows) == len(fields(Config))
    assert all(
        re.fullmatch(r"\| `\w+` \| `MCPVECTORDB_\w+` \| .+ \| .{10,} \|", row) for row in rows
    )
    variables = re.findall(r"^\| `(MCPVECTORDB_\w+)`", (DOCS / "settings.md").read_text(), re.M)
    assert set(variables) == SERVER_VARIABLES
    agents = (DOCS / "agents.md").read_text("utf-8")
    assert len(tables.hosts().splitlines()) == len(HOSTS) + 2
    assert "or one of sixteen other hosts" in README and len(HOSTS) == 17
    assert set(re.findall(r"^\| `(\w+)`", agents, re.MULTILINE)) == set(NAMES)


@pytest.mark.skipif(sys.platform == "win32", reason="the page names variables there")
def test_the_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    page = (DOCS / "files.md").read_text("utf-8")
    for folder in (Config.data_folder(), Config().cache_folder()):
        assert f"| `~/{folder.relative_to(tmp_path).as_posix()}` |" in page


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_the_picture_shows_what_the_command_prints() -> None:
    pictures = loaded("pictures")
    drawn, kept = pictures.drawn(pictures.searched()), pictures.PICTURE.read_text("utf-8")
    shown, today = (pictures.text_of(svg) for svg in (kept, drawn))
    assert shown == today, "run `python .github/docs/pictures.py`"
    assert shown[0].startswith("$ mcpvectordb search") and "strong match" in shown[1]
    assert not re.search(r"https?://(?!www\.(w3|textualize))", kept), (
        "it needs nothing from outside"
    )
