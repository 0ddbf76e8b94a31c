"""The ASGI application: the gate, the routes of the API in threads, and the files of the page."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mcpvectordb import MCPVectorDBError, ReadOnly, __version__
from mcpvectordb_server.shown import plain
from mcpvectordb_server.web import assets
from mcpvectordb_server.web.api import ROUTES
from mcpvectordb_server.web.api.ingest import take_upload
from mcpvectordb_server.web.errors import HttpError, refusal
from mcpvectordb_server.web.gate import SESSION, PageGate
from mcpvectordb_server.web.openapi import describe
from mcpvectordb_server.web.route import ApiRoute, Upload, parameters
from mcpvectordb_server.web.site import SessionReply, Site
from mcpvectordb_server.web.turns import Turns

Endpoint = Callable[[Request], Awaitable[Response]]

ACTOR = "web page"
"""By whom the history says that changes were made."""


FILE = "X-Database"
"""The header that says which of several files is asked; the first one without it."""


class Sites(dict[str, Site]):
    """The files that are served, by name; equal names are told apart by a number.

    The first is started with the application, each other one when it is asked for first: until then
    its model is not loaded.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        for site in sites:
            name, number = site.db.path.name, 1
            while name in self:
                number += 1
                name = f"{site.db.path.name} ({number})"
            self[name] = site

    def asked(self, request: Request) -> tuple[str, Site]:
        """The file that a request is about, with its name, percent-encoded in the header."""
        name = unquote(request.headers.get(FILE, "")) or next(iter(self))
        if name not in self:
            raise HttpError(404, "unknown_file", f"no file {name!r} is served here")
        self[name].start()
        return name, self[name]


def application(*sites: Site, token: str, once: str = "") -> ASGIApp:
    """The page and its API for some files; they are started and closed with the application.

    `token` lets browsers and programs in, `once` one browser; see `PageGate`.
    """
    turns, served = Turns(), Sites(sites)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sites[0].start()
        try:
            yield
        finally:
            for site in sites:
                site.close()
            turns.close()

    routes = [
        Route("/", assets.serve),
        Route("/static/{name:path}", assets.serve),
        Route("/api/openapi.json", _openapi),
        Route(SESSION, partial(_session, served)),
        Route("/api/events", partial(_events, served)),
        *(
            Route(each.path, _endpoint(each, served, turns), methods=[each.method])
            for each in ROUTES
        ),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={MCPVectorDBError: _failed, HTTPException: _unknown},
    )
    app.router.redirect_slashes = False
    return PageGate(app, token=token, once=once)


def _endpoint(route: ApiRoute, sites: Sites, turns: Turns) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            _, site = sites.asked(request)
            if route.writes and site.db.read_only:
                raise ReadOnly(
                    "this page only looks (--read-only, or the file cannot be written): nothing "
                    "can be changed here"
                )
            given = await parameters(route, request)
            files = [await take_upload(request, site)] if route.body == "file" else []
            return await turns.run(request, partial(_reply, route, site, files, given))
        except Exception as error:
            return await _failed(request, error)

    return answer


def _reply(
    route: ApiRoute,
    site: Site,
    files: Sequence[Upload],
    given: Mapping[str, Any],
    check: Callable[[], None],
) -> Response:
    """Run the function of a route. A read ends when nobody waits for it; a change is made whole."""
    with site.db.acting_as(ACTOR), nullcontext() if route.writes else site.db.deadline(check):
        reply = route.function(site, *files, **given)
    if isinstance(reply, Response):
        return reply
    return _json(plain(route.reply, reply), route.status)


def _json(reply: Any, status: int = 200) -> Response:
    # Also where a lone surrogate got into the file by another way: it is sent as an escape.
    text = json.dumps(reply, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, media_type="application/json")


async def _openapi(_: Request) -> Response:
    return _json(describe(ROUTES))


async def _session(sites: Sites, request: Request) -> Response:
    name, site = sites.asked(request)
    # The token is good until the server ends; programs may go on with their own.
    return _json(
        SessionReply(
            token=request.scope["page_token"],
            read_only=site.db.read_only,
            version=__version__,
            file=name,
            path=site.db.place,
            files=[{"name": name, "path": each.db.place} for name, each in sites.items()],
        )
    )


async def _events(sites: Sites, request: Request) -> Response:
    _, site = sites.asked(request)
    return site.events.response({"revision": site.watch.revision, "loading": site.db.loading})


async def _failed(_: Request, error: Exception) -> Response:
    if not isinstance(error, MCPVectorDBError):
        logging.getLogger(__name__).error("a request failed", exc_info=error)
    return refusal(error)


async def _unknown(_: Request, error: Exception) -> Response:
    """Starlette's own errors: a path or a method that no route has."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return refusal(HttpError(405, "method_not_allowed", "this path has no such method"))
    return refusal(HttpError(404, "unknown_route", "there is nothing here; see /api/openapi.json"))
