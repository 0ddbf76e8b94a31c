"""A server over HTTP, in a thread of the test."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from mcpvectordb_server import connections
from mcpvectordb_server import http as served
from mcpvectordb_server.server import Service
from tests.server.clients import hello

if TYPE_CHECKING:
    from mcpvectordb_server.oauth import AuthorizationServer

TOKEN = "a-token-for-tests"


class Running:
    """A server on a free port of this machine, in a thread."""

    def __init__(
        self,
        transport: str,
        made: Service,
        *,
        head_seconds: float = 10.0,
        most: int = 0,
        oauth: Callable[[str], AuthorizationServer] | None = None,
    ) -> None:
        self.made = made
        self.listener = connections.listen("127.0.0.1", 0)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = served.application(
            made.server,
            transport,
            token=TOKEN,
            hosts=served.hosts_of("127.0.0.1", []),
            oauth=oauth and oauth(self.url),
        )
        self.server = connections.uvicorn_server(
            app, head_timeout=head_seconds, shutdown_seconds=1, connections=most
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        anyio.run(self.server.serve, [self.listener])

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.listener.close()

    def request(
        self, method: str = "POST", path: str = "/mcp", body: Any = None, **headers: str
    ) -> tuple[int, str]:
        """The status and the text of the answer to a request, which has the token."""
        status, text, _ = self.answer(method, path, body, **headers)
        return status, text

    def answer(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        given = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                method,
                path,
                body if isinstance(body, str | bytes) else json.dumps(body or HELLO),
                {name: value for name, value in given.items() if value},
            )
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read().decode(), told
        finally:
            connection.close()


HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
