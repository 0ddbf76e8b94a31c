from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database, InvalidInput
from mcpvectordb_server.web import serve
from tests.server.web.support_web_server import Served
from tests.support import ROOT, Letters

POSIX = pytest.mark.skipif(os.name != "posix", reason="sends a signal")


@contextmanager
def command(
    path: Path, *options: str, **environ: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `mcpvectordb web` and the address that it has printed."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpvectordb", "--db", str(path), "web", *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, **environ},
    )
    assert process.stderr and process.stdout
    try:
        lines = []
        while "Ctrl-C" not in (line := process.stderr.readline()) and line:
            lines.append(line.strip())
        yield process, lines[-1]
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()
        process.stdout.close()


def session(address: str) -> dict[str, Any]:
    """What the page at a printed address is told first."""
    url, _, token = address.partition("#token=")
    request = urllib.request.Request(f"{url}api/session")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)  # type: ignore[no-any-return]


@POSIX
def test_the_command_prints_an_address_that_works_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with command(tmp_path / "a.db", "--port", "0") as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[\w-]{43}", url)
        assert b"<" in urllib.request.urlopen(url, timeout=60).read()
        assert session(url)["path"] == str(tmp_path / "a.db")
        assert process.stderr and "No browser could be opened" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Stopped." in process.stderr.read()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.db"]


@POSIX
def test_the_page_is_opened_in_the_browser_by_an_address_of_its_own(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    with command(tmp_path / "a.db", "--port", "0", BROWSER=str(browser)) as (_, url):
        deadline = time.monotonic() + 20
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        address = opened.read_text()
        assert address.partition("=")[0] == url.partition("=")[0] and address != url
        assert session(address)["token"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            session(address)


def test_files_that_are_named_are_served_beside_each_other_and_each_once(tmp_path: Path) -> None:
    places = [tmp_path / "a.db", tmp_path / "b.db"]
    again = [str(places[1]), str(tmp_path / "." / "a.db"), str(tmp_path / "b.db")]
    with command(places[0], *again, "--port", "0", "--no-open") as (_, url):
        assert [each["path"] for each in session(url)["files"]] == list(map(str, places))


def test_a_token_of_ones_own_is_not_printed(tmp_path: Path) -> None:
    token = "my-own-token-for-programs"
    with command(tmp_path / "a.db", "--port", "0", "--no-open", MCPVECTORDB_TOKEN=token) as (
        _,
        url,
    ):
        assert url.endswith("#token=$MCPVECTORDB_TOKEN")
        assert session(url.replace("$MCPVECTORDB_TOKEN", token))["token"] != token


@pytest.mark.parametrize("token", ["short", "ü" * 20, "a" * 20 + "\n\0"])
def test_a_token_that_cannot_be_used_is_refused(token: str, tmp_path: Path) -> None:
    with (
        Database(tmp_path / "a.db", embedder=Letters()) as db,
        pytest.raises(InvalidInput, match=r"MCPVECTORDB_TOKEN has .*; unset it"),
    ):
        serve.serve(db, port=0, open_page=False, token=token)


def test_a_port_that_is_taken_is_an_error_and_the_next_one_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"port {port}: .*choose another one with --port"):
            serve._listener(port)
        monkeypatch.setattr(serve, "PORT", port)
        with serve._listener(None) as found:
            assert found.getsockname()[0] == "127.0.0.1" and found.getsockname()[1] != port


def test_a_file_that_is_not_there_is_not_made_for_looking(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mcpvectordb",
            "--db",
            str(tmp_path / "no.db"),
            "web",
            "--read-only",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "there is no database" in done.stderr
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys
from mcpvectordb import Database
from tests.support import Letters
with Database(sys.argv[1], embedder=Letters()) as db:
    for number in range(40):
        db.documents.ingest_text(f"tea {number} of {sys.argv[2]}", source=f"{sys.argv[2]}-{number}.md")
        db.memories.add(sys.argv[2], "agent", f"memory {number}")
"""


@pytest.mark.long
def test_pages_and_agents_work_on_one_file_at_once(served: Served) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(served.db.path), name], cwd=ROOT)
        for name in ("a", "b")
    ]

    def page(number: int) -> list[int]:
        statuses = []
        for step in range(15):
            asked = {"thread": f"page {number}", "text": f"step {step}"}
            statuses += [
                served.ask("POST", "/api/memories", asked)[0],
                served.ask("POST", "/api/search", {"query": "tea memory"})[0],
                served.ask("GET", "/api/status")[0],
                served.ask("GET", "/api/documents")[0],
            ]
        return statuses

    with ThreadPoolExecutor(4) as pages:
        statuses = [status for found in pages.map(page, range(4)) for status in found]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert set(statuses) == {200}
    assert served.get("/api/documents")["total"] == 80
    assert served.get("/api/memories")["total"] == 80 + 4 * 15
    assert served.job(served.post("/api/check"))["result"] == {"problems": []}
