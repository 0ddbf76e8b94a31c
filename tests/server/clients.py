"""Clients for tests: the SDK's client in memory, and lines of JSON over pipes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import mcp_types as types
from mcp import Client, MCPError
from mcp.shared.message import SessionMessage

from mcpvectordb_server.grant import Grant
from mcpvectordb_server.server import Service, _block, _ingests
from mcpvectordb_server.surface import Surface, call, expose

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def hello(version: str = VERSIONS[-1]) -> dict[str, Any]:
    """The parameters of `initialize`."""
    client = {"name": "test", "version": "1"}
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": client}


class NumberedService(Service):
    """A server whose version stays the same, as goldens need it."""

    version = "9.9.9"


def service(
    db: Any, *surfaces: Surface, roots: Any = None, read_only: bool = False, **options: Any
) -> Service:
    offered = expose(surfaces, read_only=read_only)
    return NumberedService(db, surfaces, offered, roots=roots, **options)


def talk(made: Service, conversation: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
    """Connect a client in memory and return the result of the conversation with it."""

    async def run() -> Any:
        failure = None
        with anyio.fail_after(30):
            async with Client(made.server, **options) as client:
                try:
                    return await conversation(client)
                except MCPError as error:  # inside, before task groups wrap it
                    failure = error
        raise failure

    return anyio.run(run)


def ask(made: Service, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """One tool call as the server makes it, without a client; the SDK's CallToolResult.

    A handshake takes forty times as long as a call: what clients see of a call is tested by those
    tests that `talk`, and is on record in the goldens.
    """
    exposed, raw = made._offered.get(tool), json.loads(json.dumps(dict(arguments or {})))
    if exposed is None:
        return talk(made, lambda client: client.call_tool(tool, raw))
    made._warn_of_unknown(exposed, raw)
    actor = f"test ({exposed.surface.name})"
    if _ingests(exposed):
        work = partial(made._call, exposed, raw, actor)
        reply = anyio.run(made._ingested, exposed, raw, work, lambda _: None)
    else:
        with made._db.acting_as(actor):
            reply = call(exposed, made._db, raw, Grant(jobs=made._ongoing.listed))
    return types.CallToolResult(
        content=[_block(each) for each in reply.content],
        structured_content=reply.structured,
        is_error=reply.failed,
    )


def valid(value: Any, schema: Mapping[str, Any]) -> None:
    """Raise unless a value is as a schema says; that the schema is one is checked once."""
    _validator(json.dumps(schema)).validate(value)


@cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    read = json.loads(schema)
    jsonschema.Draft202012Validator.check_schema(read)
    return jsonschema.Draft202012Validator(read)


def caller(made: Service) -> Callable[..., dict[str, Any]]:
    """A function that calls tools and checks each reply: no MCP error, text equal to data, schema."""
    schemas = {tool.name: tool.output_schema for tool in made._tools}

    def checked(name: str, **arguments: Any) -> dict[str, Any]:
        result = ask(made, name, arguments)
        assert result.is_error is False
        assert json.loads(result.content[0].text) == result.structured_content
        valid(result.structured_content, schemas[name])
        content: dict[str, Any] = result.structured_content
        return content

    return checked


def exchange(
    made: Service, version: str, *requests: tuple[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The results of a handshake and of requests, exactly as they are sent to the client."""
    return [answer["result"] for answer in _answers(made, version, *requests)]


def refusal(made: Service, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The protocol error that answers a request, exactly as it is sent to the client."""
    error: dict[str, Any] = _answers(made, VERSIONS[-1], (method, params))[-1]["error"]
    return error


def _answers(
    made: Service, version: str, *requests: tuple[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The answers to a handshake and to requests."""

    async def run() -> list[dict[str, Any]]:
        to_server, server_reads = anyio.create_memory_object_stream[Any](1)
        server_writes, from_server = anyio.create_memory_object_stream[Any](1)
        results = []
        async with to_server, from_server, anyio.create_task_group() as group:
            group.start_soon(
                made.server.run,
                server_reads,
                server_writes,
                made.server.create_initialization_options(),
            )
            for number, (method, params) in enumerate([("initialize", hello(version)), *requests]):
                request = types.JSONRPCRequest(
                    jsonrpc="2.0", id=number, method=method, params=params
                )
                await to_server.send(SessionMessage(request))
                message = (await from_server.receive()).message
                results.append(message.model_dump(by_alias=True, exclude_unset=True))
            to_server.close()
        return results

    return anyio.run(run)


class Wire:
    """A server process, and lines of JSON to and from it."""

    def __init__(
        self,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience: float = 60,
    ) -> None:
        root = str(Path(__file__).parents[2])
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("MCPVECTORDB_")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "mcpvectordb_server", *arguments],
            cwd=cwd,
            env={**clean, "PYTHONPATH": root, **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._watch = threading.Timer(patience, self.process.kill)
        self._watch.start()
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        self._last = 0

    @classmethod
    def over_http(cls, *arguments: str, token: str, patience: float = 60) -> Wire:
        """A server process on a free port of this machine, which `port` says."""
        over = ("--transport", "streamable-http", "--port", "0")
        return cls(*over, *arguments, environ={"MCPVECTORDB_TOKEN": token}, patience=patience)

    @property
    def port(self) -> int:
        """The port on which it listens, once it does."""
        while not (found := re.search(r"Listening on http://127.0.0.1:(\d+)/", self.errors)):
            assert self.process.poll() is None, self.errors
            time.sleep(0.02)
        return int(found[1])

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors.append(line)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    @property
    def errors(self) -> str:
        """The content of stderr so far; complete once the process has ended."""
        if self.process.poll() is not None:
            self._reader.join(5)
        return "".join(self._errors)

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server closed stdout; stderr: {self.errors}"
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        given = {"params": params} if params else {}
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, **given}))

    def start(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request without waiting; its id."""
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}
        self.send(json.dumps(message))
        return self._last

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; its answer, with notifications before it left out."""
        number = self.start(method, params)
        while (answer := self.receive()).get("id") != number:
            assert "method" in answer
        return answer

    def handshake(self, version: str = VERSIONS[-1]) -> dict[str, Any]:
        answer = self.request("initialize", hello(version))
        self.notify("notifications/initialized")
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One tool call; its result as it was sent."""
        result: dict[str, Any] = self.request(
            "tools/call", {"name": tool, "arguments": arguments or {}}
        )["result"]
        return result

    def finish(self) -> int:
        """Close our side and wait for the end; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)
