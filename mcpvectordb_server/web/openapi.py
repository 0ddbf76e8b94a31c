"""The description of the API (OpenAPI 3.1), made from the same rows and types as the routes."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

from mcpvectordb import __version__
from mcpvectordb_server.shown import adapter
from mcpvectordb_server.web.errors import ErrorBody
from mcpvectordb_server.web.route import ApiRoute
from mcpvectordb_server.web.site import SessionReply

Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_INTRODUCTION = (
    "What `mcpvectordb web` serves on this machine. Programs send the token as `Authorization: "
    "Bearer`; `X-Database`, percent-encoded, names one of several files. Offsets count Unicode "
    "code points; texts are never markup."
)


@cache
def describe(routes: tuple[ApiRoute, ...]) -> Schema:
    """The whole document."""
    schemas: Schema = {}
    session = {"application/json": {"schema": _schema(SessionReply, schemas)}}
    before = "What a page must know before anything else."
    told = "Changes of the file, jobs and the model, as server-sent events."
    paths: Schema = {
        f"/api/{name}": {
            "get": {
                "operationId": name,
                "summary": summary,
                "tags": [name],
                "responses": _responses(200, done, content),
            }
        }
        for name, summary, done, content in (
            ("session", before, "Done", session),
            ("events", told, "A stream", {"text/event-stream": {}}),
        )
    }
    for route in routes:
        path = re.sub(r":\w+}", "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    _schema(ErrorBody, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mcpvectordb", "version": __version__, "description": _INTRODUCTION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: ApiRoute, schemas: Schema) -> Schema:
    summary, _, description = (inspect.getdoc(route.function) or "").partition("\n\n")
    binary = route.media != "application/json"
    content = {} if binary else {"schema": _schema(route.reply, schemas)}
    made: Schema = {
        "operationId": route.function.__name__,
        "summary": summary,
        **({"description": description} if description else {}),
        "tags": [route.path.split("/")[2]],
        "responses": _responses(route.status, "Done", {route.media: content}),
    }
    inputs = route.arguments.schema
    in_path = re.findall(r"{(\w+)", route.path)
    # In the path and, unless there is a body for them, in the query.
    listed = [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in inputs.get("required", ()),
            "schema": _without_null(schema),
        }
        for name, schema in inputs.get("properties", {}).items()
        if name in in_path or route.body != "json"
    ]
    if listed:
        made["parameters"] = listed
    if route.body == "json":
        properties = {
            name: each for name, each in inputs.get("properties", {}).items() if name not in in_path
        }
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required := [name for name in inputs.get("required", ()) if name in properties]:
            schema["required"] = required
        made["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": schema}},
        }
    elif route.body == "file":
        made["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return made


def _without_null(schema: Schema) -> Schema:
    """A query cannot say null: a parameter that may be null is left out instead."""
    kinds = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if not kinds:
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**kept, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}


def _responses(status: int, description: str, content: Schema) -> Schema:
    error = {"schema": {"$ref": _REFERENCE.format(model="ErrorBody")}}
    return {
        str(status): {"description": description, "content": content},
        "default": {"description": "What went wrong", "content": {"application/json": error}},
    }


def _schema(kind: Any, schemas: Schema) -> Schema:
    """The schema of a type; what it refers to is put among the `schemas`, and so is one by name."""
    made = adapter(kind).json_schema(mode="serialization", ref_template=_REFERENCE)
    schemas.update(made.pop("$defs", {}))
    if "title" not in made:
        return made
    schemas[made["title"]] = made
    return {"$ref": _REFERENCE.format(model=made["title"])}
