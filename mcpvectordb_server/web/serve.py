"""Serve the page until a signal ends it: the port, the token, the browser."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import webbrowser
from contextlib import suppress
from socket import socket

import anyio

from mcpvectordb import Config, Database, InvalidInput
from mcpvectordb_server.connections import listen, usable_token, uvicorn_server
from mcpvectordb_server.options import close_in_time, log_to_stderr
from mcpvectordb_server.web.application import application
from mcpvectordb_server.web.gate import HOST
from mcpvectordb_server.web.site import Site

PORT = 8765
"""The port that is tried first, so that a bookmark stays right."""

NEXT_PORTS = 20  # that are tried if that one is taken


def serve(*databases: Database, port: int | None, open_page: bool, token: str | None) -> None:
    """Serve files until Ctrl-C or SIGTERM; an address that cannot be used raises InvalidInput.

    `port` None takes PORT or the next free one, 0 any free one. `token` None makes a new one.
    """
    log_to_stderr()
    secret = (
        secrets.token_urlsafe(32)
        if token is None
        else usable_token(token, f"{Config.ENV_PREFIX}TOKEN", "unset it to have one made")
    )
    listener = _listener(port)
    once = secrets.token_urlsafe(32)
    sites = [Site(db) for db in databases]
    server = uvicorn_server(application(*sites, token=secret, once=once))
    for site in sites:
        site.db.documents.follow()
        site.db.remotes.follow()
        site.events.stopping = lambda: server.should_exit
    url = f"http://{HOST}:{listener.getsockname()[1]}/"
    # What follows the # stays in the browser: the page reads it, no server is sent it.
    shown = secret if token is None else f"${Config.ENV_PREFIX}TOKEN"
    for db in databases:
        sys.stderr.write(f"{db.place}{' (read-only)' if db.read_only else ''}\n")
    sys.stderr.write(f"{url}#token={shown}\nCtrl-C ends it.\n")
    sys.stderr.flush()
    if open_page:
        threading.Thread(target=_open, args=(f"{url}#token={once}",), daemon=True).start()
    try:
        anyio.run(server.serve, [listener])
    except KeyboardInterrupt:  # uvicorn raises the signal again when it has ended
        pass
    finally:
        for db in databases:
            close_in_time(db)
    sys.stderr.write("Stopped.\n")


def _listener(port: int | None) -> socket:
    if port is None:
        for each in range(PORT, PORT + NEXT_PORTS):
            with suppress(InvalidInput):
                return listen(HOST, each)
    try:
        return listen(HOST, port or 0)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}; choose another one with --port, or leave it out to take a free one"
        ) from None


def _open(address: str) -> None:
    """Open the page in the user's browser, where there is one."""
    displays = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    opened = False
    with suppress(webbrowser.Error, OSError):
        opened = displays and webbrowser.open(address)
    if not opened:
        sys.stderr.write("No browser could be opened: open that address in one yourself.\n")
        sys.stderr.flush()
