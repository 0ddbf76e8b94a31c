"""`python -m mcpvectordb_server`: serve a database until the client closes or a signal arrives."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mcpvectordb import Config, Database, InvalidInput, MCPVectorDBError
from mcpvectordb_server.options import (
    Options,
    close_in_time,
    default_db,
    log_to_stderr,
    parse,
    report_error,
)

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from mcpvectordb_server.oauth import AuthorizationServer
    from mcpvectordb_server.surface import ExposedTool, Surface

EMBED_SECONDS = 8.0
"""Seconds from the beginning of an ingest for which its reply waits for embeddings; less than
REPLY_SECONDS, because the reply has to be made."""


FOLLOW_AFTER = 5.0
"""Seconds after the start for which folders are not looked into: the handshake comes first."""


def main(arguments: Sequence[str] | None = None, *, prog: str = "mcpvectordb-server") -> int:
    """Run the program; returns the exit code, 2 when it could not start as requested."""
    try:
        options = parse(arguments, prog=prog)
        if options.list_tools:
            _, offered = tools(options)
            width = max(map(len, offered))
            for name, each in offered.items():
                told = each.tool.description.splitlines()[0]
                sys.stdout.write(f"{name:{width}}  {each.surface.name}: {told}\n")
        else:
            serve(options)
    except MCPVectorDBError as error:
        return report_error(error, prog)
    return 0


def serve(options: Options) -> None:
    """Serve according to the options. Does not return: the process ends with the last client."""
    # MCP hosts show stderr to users; stdout is reserved for the protocol.
    log_to_stderr()
    # Importing the SDK makes many objects that live as long as the process: collecting is wasted.
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    surfaces, offered = tools(options)
    transport = _over_stdio if options.transport == "stdio" else _over_http(options, offered)
    if options.db == (default := default_db()):
        default.parent.mkdir(parents=True, exist_ok=True)
    db = Database(options.db, config=options.config)
    db.projects.chosen()  # a project that cannot be is an error before any client comes
    if db.set_aside:
        logging.getLogger("mcpvectordb_server").warning("%s", db.set_aside)

    def stop(number: int, _: object) -> None:
        close_in_time(db)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        os._exit(128 + number)  # the first process of a container gets no signal by default

    # It begins when the model has been loaded, after the handshake, or with the first ingest.
    db.embed_in_background(wait=EMBED_SECONDS, start=False)
    db.documents.follow(delay=FOLLOW_AFTER)
    db.remotes.follow(delay=FOLLOW_AFTER)
    try:
        from mcpvectordb_server.server import Service

        roots = options.roots if options.roots or options.transport != "stdio" else None
        service = Service(db, surfaces, offered, roots=roots)
        if options.unattended:
            service.answer_seconds = 0
        server = service.server
        gc.enable()
        gc.freeze()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        transport(server)
    finally:
        close_in_time(db)
    sys.stderr.flush()
    # The thread of a cancelled call may still be running, and the interpreter would wait for it.
    os._exit(0)


def tools(options: Options) -> tuple[list[Surface], dict[str, ExposedTool]]:
    """The requested surfaces, and the tools on offer by their exposed names."""
    from mcpvectordb_server.surface import expose
    from mcpvectordb_server.surfaces import load

    surfaces = [load(name) for name in dict.fromkeys(options.surfaces)]
    offered = expose(surfaces, read_only=options.config.read_only, disabled=options.disabled)
    if not offered:
        raise InvalidInput("no tool is left to offer: every one is disabled")
    return surfaces, offered


def _over_stdio(server: Server[Any]) -> None:
    import anyio

    from mcpvectordb_server import stdio

    if sys.stdin.isatty():
        sys.stderr.write(
            "Waiting for an MCP client on standard input, which is this terminal. Hosts start the "
            "server themselves: see `mcpvectordb setup --help`. Ctrl-C ends it.\n"
        )
    try:
        anyio.run(stdio.serve, server)
    except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # A client that was killed leaves a broken pipe.
        pass


def _over_http(options: Options, offered: dict[str, ExposedTool]) -> Callable[[Server[Any]], None]:
    """A transport on a listening socket: a bad address or token fails before a file is made."""
    from functools import partial

    import anyio

    from mcpvectordb_server import connections, http

    token = http.token_for(options.host, options.token, Config.data_folder())
    oauth = _authorization_server(options, offered) if options.public_url else None
    listener = connections.listen(options.host, options.port)

    def run(server: Server[Any]) -> None:
        address, port = listener.getsockname()[:2]
        name = f"[{address}]" if ":" in address else address
        path = "sse" if options.transport == "sse" else "mcp"
        told = f"Listening on http://{name}:{port}/{path}\n"
        hosts = http.hosts_of(options.host, options.hosts)
        if oauth is not None:
            hosts.add(connections.host_of(oauth.url))
            told += f"Clients reach it at {oauth.url}/{path}\n"
        sys.stderr.write(told)
        app = http.application(server, options.transport, token=token, hosts=hosts, oauth=oauth)
        anyio.run(partial(connections.uvicorn_server(app).serve, sockets=[listener]))

    return run


def _authorization_server(options: Options, offered: dict[str, ExposedTool]) -> AuthorizationServer:
    """What lets OAuth clients in; without a passphrase nobody could say who may."""
    from dataclasses import replace

    from mcpvectordb import Access
    from mcpvectordb_server.oauth import AuthorizationServer

    # Strangers name the address of a client: what is private must not be asked for them.
    access = Access(options.db, config=replace(options.config, allow_private_urls=False))
    if not access.has_passphrase():
        raise InvalidInput(
            f"{options.db} has no passphrase yet, with which you let clients in: set one by "
            f"`mcpvectordb --db {options.db} access passphrase`"
        )
    return AuthorizationServer(access, options.public_url, offered)


if __name__ == "__main__":
    sys.exit(main())
