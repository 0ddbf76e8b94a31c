"""A route of the API: what is asked, by which function it is answered, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_type_hints

from starlette.requests import ClientDisconnect, Request

from mcpvectordb_server.arguments import Arguments, arguments_of
from mcpvectordb_server.connections import LIMITS
from mcpvectordb_server.web.errors import HttpError

Function = Callable[..., Any]
Body = Literal["none", "json", "file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiRoute:
    """One route. Its function is `(site, *, parameters) -> reply`, as those of MCP surfaces are.

    Parameters come from the path, and from the query or, with a JSON body, from that. `writes` is
    what --read-only refuses. `media` is the type of the reply.
    """

    method: str
    path: str
    function: Function
    writes: bool
    body: Body = "none"
    status: int = 200
    media: str = "application/json"

    @property
    def arguments(self) -> Arguments:
        """The parameters of the function."""
        return arguments_of(self.function)

    @property
    def reply(self) -> Any:
        """The type of what the function returns."""
        return _returned(self.function)


@cache
def _returned(function: Function) -> Any:
    return get_type_hints(function, include_extras=True)["return"]


def get(path: str, function: Function, *, media: str = "application/json") -> ApiRoute:
    """A route that reads, with its parameters in the query."""
    return ApiRoute(method="GET", path=path, function=function, writes=False, media=media)


def ask(path: str, function: Function, *, status: int = 200) -> ApiRoute:
    """A route that reads, with its parameters in the body, because they may be long."""
    return ApiRoute(
        method="POST", path=path, function=function, writes=False, body="json", status=status
    )


def write(
    method: str, path: str, function: Function, *, status: int = 200, body: Body = "json"
) -> ApiRoute:
    """A route that changes something."""
    return ApiRoute(
        method=method, path=path, function=function, writes=True, body=body, status=status
    )


async def parameters(route: ApiRoute, request: Request) -> dict[str, Any]:
    """The checked arguments for the function of a route; raises HttpError or ArgumentError."""
    raw = dict(request.path_params)
    if route.body == "none":  # until it is read, it is not seen that a client has gone
        await body(request, LIMITS.max_body)
    given = await _json(request) if route.body == "json" else _query(route, request)
    if both := raw.keys() & given.keys():
        raise HttpError(400, "invalid_argument", f"{min(both)} is given by the path already")
    raw |= given
    if route.arguments.unknown(raw):
        remark = route.arguments.ignored(raw) or "there are no parameters here"
        raise HttpError(400, "invalid_argument", remark.replace(" and was ignored", ""))
    _refuse_nulls(route, raw)
    return route.arguments.read(raw, max_text=LIMITS.max_body)


def _refuse_nulls(route: ApiRoute, raw: Mapping[str, Any]) -> None:
    """Refuse null where it is no value: that `dry_run: null` deletes is what nobody expects."""
    for name, value in raw.items():
        kinds = _kinds(route, name)
        if "null" not in kinds and (value is None or (value == "null" and "string" not in kinds)):
            raise HttpError(400, "invalid_argument", f"{name} must not be null: leave it out")


def _query(route: ApiRoute, request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if "array" in _kinds(route, name):
            found[name] = values
        elif len(values) > 1:
            raise HttpError(400, "invalid_argument", f"{name} is given {len(values)} times")
        else:
            found[name] = values[0]
    return found


def _kinds(route: ApiRoute, name: str) -> set[str]:
    """The types of JSON that a parameter may have."""
    schema = route.arguments.schema.get("properties", {}).get(name, {})
    return {each["type"] for each in (schema, *schema.get("anyOf", ())) if "type" in each}


async def _json(request: Request) -> dict[str, Any]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    raw = await body(request, LIMITS.max_body)
    if not raw:
        return {}
    if media != "application/json":
        raise HttpError(415, "unsupported_media_type", "send the body as application/json")
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        raise HttpError(400, "bad_json", "the body is not JSON in UTF-8") from None
    if not isinstance(given, Mapping):
        raise HttpError(400, "bad_json", "the body must be a JSON object")
    return dict(given)


async def body(request: Request, most: int) -> bytes:
    """The body of a request; one that is too long is refused as soon as that is known."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise HttpError(413, "too_large", f"the body has more than {most:,} bytes")
            parts.append(part)
    except ClientDisconnect:
        raise HttpError(400, "bad_request", "the client has gone") from None
    return b"".join(parts)
