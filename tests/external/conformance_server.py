"""A server with the tools that the official conformance suite calls, on a free port.

The suite sends no token, so one is added to its requests in front of the access gate.
`python -m tests.external.conformance_server` prints the URL and serves until it is stopped.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpvectordb import InvalidInput, Progress
from mcpvectordb_server import connections, http
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.replies import Reply, Resource, Text
from mcpvectordb_server.server import Service
from mcpvectordb_server.surface import (
    ADDS,
    ListedResource,
    Prompt,
    ResourceTemplate,
    Surface,
    Tool,
    expose,
)
from tests.server.little_surface import Shelf, flag_dialect

TOKEN = "a-token-for-conformance"


def test_simple_text(db: Shelf) -> Reply:
    """Return a simple text."""
    return Reply(content=(Text(text="This is a simple text response for testing."),))


def test_error_handling(db: Shelf) -> Reply:
    """Fail on purpose."""
    raise InvalidInput("This tool intentionally returns an error for testing")


def test_embedded_resource(db: Shelf) -> Reply:
    """Return an embedded resource."""
    resource = Resource(
        uri="test://embedded-resource",
        name="embedded",
        title="Embedded",
        text="This is an embedded resource content.",
        media_type="text/plain",
    )
    return Reply(content=(resource,))


def test_tool_with_progress(db: Shelf, *, grant: Grant = Grant()) -> Reply:  # noqa: B008
    """Report progress."""
    for done in (0, 50, 100):
        grant.progress(Progress(step="work", done=done + 1, total=101))
        time.sleep(0.12)
    return Reply(content=(Text(text="done"),))


def greet(db: Shelf, *, name: Annotated[str, "Whom to greet"] = "you") -> dict[str, Any]:
    """Greet somebody."""
    return {"greeting": f"Hello, {name}!"}


SURFACE = Surface(
    name="conformance",
    version="1",
    instructions="For the conformance suite.",
    failure=flag_dialect,
    tools=tuple(
        Tool(function=each, title=each.__name__, hints=ADDS)
        for each in (
            test_simple_text,
            test_error_handling,
            test_embedded_resource,
            test_tool_with_progress,
            greet,
        )
    ),
    templates=(
        ResourceTemplate(
            prefix="test://template/",
            name="template",
            title="ResourceTemplate",
            description="Data by number.",
            read=lambda db, path: f"This is the data of {path.partition('/')[0]}: {path}",
        ),
        ResourceTemplate(
            prefix="test://",
            name="any",
            title="Any",
            description="Data by name, which nothing changes.",
            media_type="text/plain",
            read=lambda db, path: f"This is {path}.",
            complete=lambda db, typed: [f"{typed}-1", f"{typed}-2"],
            watched=lambda db, path: lambda: path,
        ),
    ),
    listed=lambda db, position: (
        [ListedResource("test://static-text", "static-text", "A text", "2025-11-29T10:00:00Z")],
        (),
    ),
    prompt=Prompt(
        name="test_simple_prompt",
        title="Simple",
        description="A simple prompt.",
        text="A simple prompt.",
    ),
)


def with_token(app: ASGIApp) -> ASGIApp:
    """The application with a bearer token added to every request."""

    async def authorized(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            token = (b"authorization", f"Bearer {TOKEN}".encode())
            scope = {**scope, "headers": [*scope["headers"], token]}
        await app(scope, receive, send)

    return authorized


def main() -> None:
    """Serve until stopped."""
    service = Service(Shelf(), [SURFACE], expose([SURFACE]))
    app = http.application(
        service.server, "streamable-http", token=TOKEN, hosts=http.hosts_of("127.0.0.1", [])
    )
    listener = connections.listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)  # noqa: T201
    anyio.run(connections.uvicorn_server(with_token(app)).serve, [listener])


if __name__ == "__main__":
    main()
