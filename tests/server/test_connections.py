from __future__ import annotations

import contextlib
import http.client
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mcpvectordb import Database
from mcpvectordb_server.connections import SeldomLog, half_of_the_descriptors, listen
from tests.server.clients import service
from tests.server.little_surface import LITTLE, Shelf
from tests.server.support_http import Running
from tests.server.web.support_web_server import TOKEN, Served
from tests.support import ROOT, Letters

POSIX = pytest.mark.skipif(os.name != "posix", reason="limits descriptors")
MOST = 8


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    """The page's server, with few connections."""
    with Database(tmp_path / "page.db", embedder=Letters()) as db:
        made = Served(db, most=MOST)
        yield made
        made.stop()


@contextmanager
def idle(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections on which nothing is sent."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            for _ in range(count)
        ]


def closed(client: socket.socket) -> bool:
    """Whether the server closes a connection, or has closed it."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def open_still(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("kind", ["mcp", "page"])
def test_the_oldest_silent_connections_are_closed_for_new_ones(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Database(tmp_path / "page.db", embedder=Letters()) as db:
        server = (
            Served(db, most=MOST)
            if kind == "page"
            else Running("streamable-http", service(Shelf(), LITTLE), most=MOST)
        )
        try:
            with idle(server.port, 5 * MOST) as clients:
                for _ in range(3):
                    if isinstance(server, Served):
                        assert server.get("/api/status")
                    else:
                        assert server.request()[0] == 200
                assert all(map(closed, clients[: 4 * MOST]))
                assert all(map(open_still, clients[4 * MOST + 3 :]))
        finally:
            server.stop()
    said = [each for each in caplog.messages if "connections" in each]
    assert len(said) == 1 and "at most 8 are open at once" in said[0]


def test_what_was_let_in_goes_on_however_many_connect(page: Served) -> None:
    head = f"Host: 127.0.0.1:{page.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    with (
        socket.create_connection(("127.0.0.1", page.port), timeout=20) as listening,
        socket.create_connection(("127.0.0.1", page.port), timeout=20) as sending,
    ):
        listening.sendall(f"GET /api/events HTTP/1.1\r\n{head}\r\n".encode())
        events = listening.makefile("rb")
        assert any(b"hello" in line for line in events)
        sending.sendall(
            f"PUT /api/files?path=a.md HTTP/1.1\r\n{head}Content-Length: 13\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        assert sending.recv(100).startswith(b"HTTP/1.1 100")  # its body is waited for
        with idle(page.port, 5 * MOST):
            assert page.post("/api/memories", thread="t", text="tea")["status"] == "added"
            assert any(b"changed" in line for line in events)
            sending.sendall(b"A cup of tea.")
            assert sending.recv(100).startswith(b"HTTP/1.1 202")


def test_a_client_that_reads_no_answer_and_has_no_token_is_closed_as_well(page: Served) -> None:
    asked = 1_000
    request = f"GET /static/read.js HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n\r\n"
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(20)
        deaf.connect(("127.0.0.1", page.port))
        deaf.sendall(request.encode())
        deaf.recv(1)
        deaf.sendall(request.encode() * asked)
        with idle(page.port, 2 * MOST):
            assert page.get("/api/status")
            got = 0
            with contextlib.suppress(ConnectionError):
                while part := deaf.recv(100_000):
                    got += len(part)
    assert got < asked * 10_000


@POSIX
@pytest.mark.parametrize("kind", ["serve", "web"])
def test_more_idle_connections_than_descriptors_stop_neither_server(
    kind: str, tmp_path: Path
) -> None:
    options = {
        "serve": ["serve", "--transport", "streamable-http", "--port", "0"],
        "web": ["web", "--no-open", "--port", "0"],
    }[kind]
    command = [sys.executable, "-m", "mcpvectordb", "--db", str(tmp_path / "a.db"), *options]
    with subprocess.Popen(
        ["sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "MCPVECTORDB_TOKEN": TOKEN},
    ) as process:
        assert process.stderr
        try:
            for line in process.stderr:
                if found := re.search(rb"http://127\.0\.0\.1:(\d+)/", line):
                    break
            port = int(found[1]) if found else 0
            path = "/mcp" if kind == "serve" else "/api/status"
            with idle(port, 400) as clients:
                for _ in range(3):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
                    assert connection.getresponse().status == (406 if kind == "serve" else 200)
                    connection.close()
                assert closed(clients[0])
        finally:
            process.terminate()
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if "connections" in line]) == 1, said
    assert len(said) < 1_000, said


@POSIX
def test_without_descriptors_whoever_waits_is_refused_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    with listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        listener.setblocking(False)
        waiting = [
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=20))
            for _ in range(20)
        ]
        try:
            fillers.append(os.open(os.devnull, os.O_RDONLY))
            resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[0] + 1, limits[1]))
            with contextlib.suppress(OSError):
                while True:
                    fillers.append(os.open(os.devnull, os.O_RDONLY))
            for _ in waiting:
                with pytest.raises(BlockingIOError):
                    listener.accept()
            assert all(map(closed, waiting))
            with pytest.raises(BlockingIOError):
                listener.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for each in fillers:
                os.close(each)
        with socket.create_connection(listener.getsockname(), timeout=20):
            listener.accept()[0].close()
            with pytest.raises(BlockingIOError):  # one in a turn of the loop
                listener.accept()
    assert caplog.messages == ["1 connections were refused: there are no descriptors left"]


def test_a_warning_comes_once_a_minute_with_how_often_there_was_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = [0.0, 1.0, 59.9, 60.0, 61.0, 120.0, 500.0]
    now = iter(times)
    log = SeldomLog("%d times", clock=lambda: next(now))
    for _ in times:
        log.happened()
    assert caplog.messages == ["1 times", "3 times", "2 times", "1 times"]
    assert {each.levelno for each in caplog.records} == {logging.WARNING}


@POSIX
@pytest.mark.parametrize(("descriptors", "most"), [(200, 100), (10, 8), (2_500, 1_000)])
def test_connections_leave_half_of_the_descriptors_to_files(descriptors: int, most: int) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and descriptors > hard:
        pytest.skip(f"this process may have {hard} descriptors at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    try:
        assert half_of_the_descriptors() == most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
