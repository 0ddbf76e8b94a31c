"""The page's server in a thread of the test, and requests to it as a program or a browser."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import anyio
from jsonschema import Draft202012Validator

from mcpvectordb import Database
from mcpvectordb_server.connections import listen, uvicorn_server
from mcpvectordb_server.web.api import ROUTES
from mcpvectordb_server.web.application import application
from mcpvectordb_server.web.openapi import describe
from mcpvectordb_server.web.site import Site

TOKEN = "a-token-for-the-tests-of-the-page"


class Served:
    """A server for a file on a free port of this machine, in a thread."""

    def __init__(self, db: Database, *others: Database, most: int = 0) -> None:
        self.db, self.site = db, Site(db)
        sites = [self.site, *map(Site, others)]
        self.listener = listen("127.0.0.1", 0)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        app = application(*sites, token=TOKEN)
        self.server = uvicorn_server(app, shutdown_seconds=1, connections=most)
        for site in sites:
            site.events.stopping = lambda: self.server.should_exit
        self.thread = threading.Thread(target=anyio.run, args=(self.server.serve, [self.listener]))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.listener.close()

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request; a header that is None is left out."""
        given = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                method,
                path,
                body,
                {name: value for name, value in given.items() if value is not None},
            )
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> tuple[int, Any]:
        """A request with a JSON body, as a program; the status and what it is answered."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        status, _, answer = self.raw(method, path, raw, {**kind, **(headers or {})})
        reply = json.loads(answer)
        check_reply(method, path, status, reply)
        return status, reply

    def get(self, path: str) -> Any:
        """What a route answers that must succeed."""
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def post(self, path: str, **body: Any) -> Any:
        """What a route answers that must succeed."""
        status, answer = self.ask("POST", path, body)
        assert status in (200, 202), answer
        return answer

    def job(self, started: Mapping[str, Any]) -> dict[str, Any]:
        """The job that a route has started, when it has ended."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            job: dict[str, Any] = self.get(f"/api/jobs/{started['job']['id']}")
            if job["state"] in ("done", "failed", "cancelled"):
                return job
            time.sleep(0.02)
        raise AssertionError(f"the job did not end: {job}")


def check_reply(method: str, path: str, status: int, reply: Any) -> None:
    """Whether a reply is as /api/openapi.json says, with nothing besides."""
    document = _description()
    route = urlsplit(path).path
    for template, operations in document["paths"].items():
        expression = re.sub(r"{\w+}", "[^/]+", template)
        if re.fullmatch(expression, route) and method.lower() in operations:
            answers = operations[method.lower()]["responses"]
            if str(status) not in answers and status < 400:
                raise AssertionError(f"{method} {template} does not say that it answers {status}")
            content = answers.get(str(status), answers["default"])["content"]
            break
    else:
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    if "application/json" in content and route != "/api/openapi.json":
        schema = {**content["application/json"]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(reply)


@cache
def _description() -> Any:
    return _strict(describe(ROUTES))


def _strict(schema: Any) -> Any:
    """A schema in which objects have no properties but those that are named."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        made.setdefault("additionalProperties", False)
    return made
