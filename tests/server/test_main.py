from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcpvectordb import Access, Database, __version__
from mcpvectordb_server.__main__ import main
from tests.server.clients import Wire
from tests.server.support_oauth import PASSPHRASE, Web
from tests.support import Letters, leave_a_foreign_log

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("MCPVECTORDB_")
    }
    return subprocess.run(
        [sys.executable, "-m", "mcpvectordb_server", *arguments],
        cwd=ROOT,
        env={**clean, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_misspelt_variable_is_one_line_on_stderr_and_exit_code_2() -> None:
    done = run(MCPVECTORDB_SURFCE="all")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "mcpvectordb-server: unknown environment variable MCPVECTORDB_SURFCE; did you mean "
        "MCPVECTORDB_SURFACE?\n"
    )


def test_a_file_of_another_program_is_one_line_and_stays_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("not a database, but precious" * 100)
    done = run("--db", str(other))
    assert done.returncode == 2
    assert done.stderr.startswith("mcpvectordb-server: ")
    assert done.stderr.count("\n") == 1
    assert other.read_text() == "not a database, but precious" * 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--disable-tool serach", "there is no tool 'serach' to disable; did you mean search?"),
        (
            "--transport streamable-http --host 0.0.0.0",
            "to serve on 0.0.0.0, beyond this machine, set MCPVECTORDB_TOKEN to a token of your "
            "choice",
        ),
    ],
)
def test_a_failed_start_reports_the_reason(arguments: str, message: str, tmp_path: Path) -> None:
    done = run("--db", str(tmp_path / "a.db"), *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"mcpvectordb-server: {message}\n"
    assert list(tmp_path.iterdir()) == []


def test_disabling_every_tool_leaves_nothing_to_serve(capsys: pytest.CaptureFixture[str]) -> None:
    names = (
        "ingest_file,ingest_url,search,list_documents,list_libraries,delete_document,get_document"
    )
    assert main(["--list-tools", "--disable-tool", names]) == 2
    said = capsys.readouterr().err
    assert said == "mcpvectordb-server: no tool is left to offer: every one is disabled\n"


def test_the_listing_names_every_tool_on_offer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-tools", "--read-only", "--disable-tool", "get_document"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["search", "list_documents", "list_libraries"]
    assert lines[0].startswith("search          mcpvectordb: Find the passages")


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_load_neither_the_sdk_nor_pydantic(flag: str) -> None:
    code = (
        f"import sys\nfrom mcpvectordb_server.__main__ import main\ntry:\n    "
        f"main([{flag!r}])\nexcept SystemExit:\n"
        "    print([name for name in ('mcp', 'pydantic', 'anyio', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.endswith("[]\n")


def test_without_a_public_url_nothing_about_clients_is_loaded() -> None:
    code = (
        "import sys\nfrom mcpvectordb_server import __main__, http, server\n"
        "late = ('mcpvectordb_server.oauth', 'mcpvectordb_server.consent', 'mcpvectordb.access')\n"
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_public_url_needs_a_passphrase(tmp_path: Path) -> None:
    done = run("--db", str(tmp_path / "a.db"), "--transport=http", "--public-url=https://a.test")
    assert done.returncode == 2
    assert f"`mcpvectordb --db {tmp_path}/a.db access passphrase`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_at_a_public_url_lets_clients_in_and_revokes_at_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Database(path).close()
    access = Access(path)
    access.set_passphrase(PASSPHRASE)
    arguments = ("--db", str(path), "--surface", "desk", "--read-only")
    with Wire.over_http(*arguments, "--public-url", "https://notes.test", token="t" * 16) as wire:
        web = Web(f"http://127.0.0.1:{wire.port}", public="https://notes.test")
        client = web.client()
        assert "Clients reach it at https://notes.test/mcp" in wire.errors
        tokens = web.tokens(client)
        assert (tokens["scope"], web.call(tokens["access_token"]).status) == ("read", 200)
        access.revoke(access.connected()[0].id)
        assert web.call(tokens["access_token"]).status == 401


def test_version_prints_the_package_s_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"mcpvectordb {__version__}\n"


def test_help_shows_the_name_of_the_calling_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"], prog="mcpvectordb serve")
    assert capsys.readouterr().out.startswith("usage: mcpvectordb serve ")


def test_a_log_that_was_set_aside_is_in_the_log_of_the_server(path: Path) -> None:
    leave_a_foreign_log(path)
    done = run("--db", str(path))
    assert done.returncode == 0
    assert f"it was set aside as {path}-wal-set-aside-1" in done.stderr


def test_a_project_that_cannot_be_is_refused_before_a_client_comes(path: Path) -> None:
    with Wire("--db", str(path), "--project", "a/b") as wire:
        assert wire.process.wait(60) == 2
        assert "without slashes" in wire.errors


@pytest.mark.long
def test_a_server_exchanges_with_the_remotes_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five seconds after it has started, or after a write."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "shared").mkdir()
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.remotes.add("others", tmp_path / "shared")
        db.memories.add("t", "user", "The harbour opens at six.")
    with Wire("--db", str(tmp_path / "notes.db")) as wire:
        while not list((tmp_path / "shared").glob("*.bundle")):
            assert wire.process.poll() is None, wire.errors
            time.sleep(0.1)
    with Database(tmp_path / "other.db", embedder=Letters()) as db:
        db.remotes.add("others", tmp_path / "shared")
        assert db.remotes.sync()[0].added == ("memory:1",)
