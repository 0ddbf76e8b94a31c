"""A route of the API: what is asked, by which function it is answered, and how it is read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mcpvectordb_server.arguments import Arguments, arguments_of
from mcpvectordb_server.connections import MAX_BODY
from mcpvectordb_server.web.errors import HttpError

IN_MEMORY = 1_000_000  # bytes of a body from which on it is kept on disk


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. Its function is `(site, *, parameters) -> reply`, as those of MCP surfaces are.

    Parameters come from the path, and of GET from the query, of POST and PATCH from a JSON body;
    the body of PUT is a file. `asks` is a POST that only reads, with parameters that may be long.
    """

    method: str
    path: str
    function: Callable[..., Any]
    asks: bool = False
    status: int = 200

    @property
    def writes(self) -> bool:
        """Whether it changes something, which --read-only refuses."""
        return self.method != "GET" and not self.asks

    @property
    def body(self) -> str:
        """What a request brings besides its path and query: none, json or file."""
        return {"GET": "none", "PUT": "file"}.get(self.method, "json")

    @property
    def arguments(self) -> Arguments:
        """The parameters of the function."""
        return arguments_of(self.function)

    @property
    def reply(self) -> Any:
        """The type of what the function returns: for bytes Response, annotated with theirs."""
        return self.arguments.reply

    @property
    def media(self) -> str:
        """The media type of the reply."""
        kind, *notes = get_args(self.reply) or (self.reply,)
        return str(notes[0]) if kind is Response else "application/json"


async def parameters(route: ApiRoute, request: Request) -> dict[str, Any]:
    """The checked arguments for the function of a route; raises HttpError or ArgumentError."""
    raw = dict(request.path_params)
    if route.body == "none":  # until it is read, it is not seen that a client has gone
        await body(request, MAX_BODY)
    given = await _json(request) if route.body == "json" else _query(route, request)
    if both := raw.keys() & given.keys():
        raise HttpError(400, "invalid_argument", f"{min(both)} is given by the path already")
    raw |= given
    if route.arguments.unknown(raw):
        remark = route.arguments.ignored(raw) or "there are no parameters here"
        raise HttpError(400, "invalid_argument", remark.replace(" and was ignored", ""))
    # Null is refused where it is no value: that `dry_run: null` deletes is what nobody expects.
    for name, value in raw.items():
        kinds = _kinds(route, name)
        if "null" not in kinds and (value is None or (value == "null" and "string" not in kinds)):
            raise HttpError(400, "invalid_argument", f"{name} must not be null: leave it out")
    return route.arguments.read(raw, max_text=MAX_BODY)


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
    raw = (await body(request, MAX_BODY)).content()
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


class Upload(tempfile.SpooledTemporaryFile[bytes]):
    """The bytes that a client has sent; they are gone with the object."""

    def content(self) -> bytes:
        """All of it."""
        self.seek(0)
        return self.read()

    __del__ = tempfile.SpooledTemporaryFile.close


async def body(request: Request, most: int, what: str = "body") -> Upload:
    """The body of a request; one that is too long is refused as soon as that is known."""
    too_large = HttpError(413, "too_large", f"the {what} has more than {most:,} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise too_large
    taken, size = Upload(IN_MEMORY), 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            taken.write(part)
    except ClientDisconnect:
        raise HttpError(400, "bad_request", "the client has gone") from None
    return taken
