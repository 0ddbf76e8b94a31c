"""A surface: plain functions `(db, *, the spec's parameters) -> the spec's reply`, and its errors.

A function's signature is its input schema, its docstring the description that agents read, and the
TypedDict it returns its output schema. Nothing here depends on the MCP SDK.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from mcpvectordb import InvalidInput, MCPVectorDBError, RetryLater
from mcpvectordb_server.arguments import ArgumentError, Arguments, arguments_of
from mcpvectordb_server.grant import Grant, Unconfirmed
from mcpvectordb_server.replies import Reply, refusal_of, reply_of, with_note

log = logging.getLogger("mcpvectordb_server")


class Hints(NamedTuple):
    """The four annotations of a tool that MCP defines."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


READS = Hints(read_only=True, destructive=False, idempotent=True, open_world=False)
ADDS = READS._replace(read_only=False)
"""Of a tool that adds, or does nothing where that was done already."""
STORES = ADDS._replace(idempotent=False)
"""Of a tool that adds something with every call."""
OVERWRITES = ADDS._replace(destructive=True)
"""Of a tool that overwrites or deletes; done again, it changes nothing more."""


class InternalError(MCPVectorDBError):
    """An unexpected exception: the log has its details, the reply has none."""

    code = "unexpected"

    def __init__(self) -> None:
        super().__init__("something went wrong inside the server; its log has the details")


@dataclass(frozen=True)
class Tool:
    """One function that clients may call.

    more      how to get what a reply left out for its length, as the end of a sentence
    max_text  most characters of a string in an argument
    view      whether its replies have a view
    """

    function: Callable[..., Any]
    title: str
    hints: Hints
    more: str = "ask for less"
    max_text: int = 100_000
    view: bool = False

    @property
    def name(self) -> str:
        """The name in the surface's specification."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """The function's docstring, each paragraph as one line."""
        paragraphs = (inspect.getdoc(self.function) or "").split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    @property
    def arguments(self) -> Arguments:
        """The parameters of the function."""
        return arguments_of(self.function)


@dataclass(frozen=True, kw_only=True)
class ResourceTemplate:
    """Resources that can be read by URI.

    `read(db, path)` returns a text; `path` is the URI after `prefix`, percent-decoded.

    variable  what stands behind the prefix, as an expression of RFC 6570
    complete  (db, what was typed) -> the paths that may be meant, or None if it cannot tell
    watched   (db, path) -> a function of which the value is another one when that was changed;
              raises NotFound; None where nobody can subscribe to changes
    """

    prefix: str
    name: str
    title: str
    description: str
    read: Callable[[Any, str], str]
    media_type: str = "text/markdown"
    variable: str = "+path"
    complete: Callable[[Any, str], Sequence[str]] | None = None
    watched: Callable[[Any, str], Callable[[], object]] | None = None

    @property
    def uri_template(self) -> str:
        """The template that clients are told."""
        return f"{self.prefix}{{{self.variable}}}"


class ListedResource(NamedTuple):
    """A resource in a listing; `modified` is a time, or "" if that is not known."""

    uri: str
    name: str
    title: str
    modified: str


Position = tuple[str, ...]
"""Where a page of a listing ends: what it was sorted by, () at the beginning and after the end."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A text for the user to send; `{tool}` in it is replaced by that tool's exposed name."""

    name: str
    title: str
    description: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A set of tools that report errors in one way, as one specification says.

    instructions  what an agent should know first; `{tool}` is replaced by the exposed name
    failure       (name of the tool, error) -> the reply that reports the error
    about         db -> what the file holds, for the instructions; called at each handshake
    listed        (db, position) -> the resources behind a position, and where they end
    """

    name: str
    version: str
    instructions: str
    tools: tuple[Tool, ...]
    failure: Callable[[str, MCPVectorDBError], Any]
    templates: tuple[ResourceTemplate, ...] = ()
    prompt: Prompt | None = None
    about: Callable[[Any], str] | None = None
    listed: Callable[[Any, Position], tuple[list[ListedResource], Position]] | None = None


@dataclass(frozen=True, kw_only=True)
class ExposedTool:
    """A tool and the name by which this server offers it."""

    name: str
    surface: Surface
    tool: Tool


def expose(
    surfaces: Iterable[Surface], *, read_only: bool = False, disabled: Collection[str] = ()
) -> dict[str, ExposedTool]:
    """The tools on offer by exposed name; a name that is taken becomes `surface_tool`.

    Names are given before tools are left out, so that disabling one tool never renames another.
    """
    offered: dict[str, ExposedTool] = {}
    for surface in surfaces:
        for tool in surface.tools:
            name = tool.name if tool.name not in offered else f"{surface.name}_{tool.name}"
            offered[name] = ExposedTool(name=name, surface=surface, tool=tool)
    for name in disabled:
        if name not in offered:
            near = get_close_matches(name, sorted(offered), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(offered))}"
            raise InvalidInput(f"there is no tool {name!r} to disable; {hint}")
    return {
        name: each
        for name, each in offered.items()
        if name not in disabled and (each.tool.hints.read_only or not read_only)
    }


def exposed_names(surface: Surface, offered: Mapping[str, ExposedTool]) -> dict[str, str]:
    """The exposed name of each tool of a surface; a tool that is not offered keeps its own."""
    found = {each.tool.name: each.name for each in offered.values() if each.surface is surface}
    return {tool.name: found.get(tool.name, tool.name) for tool in surface.tools}


def call(
    exposed: ExposedTool,
    db: Any,
    raw: Mapping[str, Any],
    grant: Grant | None = None,
    cancelled: Callable[[], object] | None = None,
) -> Reply:
    """Run one tool; errors become replies of its surface, and every reply is of bounded length.

    The reply names unknown arguments in its `note`; without structured content, in a text block.
    RetryLater and Unconfirmed are raised: nothing has happened yet, and the same call is made
    again. What `cancelled` raises ends a tool that only reads; one that changes the file does so
    whole.
    """
    tool, surface = exposed.tool, exposed.surface
    # A name may have half of a surrogate pair, which cannot be sent back.
    ignored = tool.arguments.ignored(raw).encode("utf-8", "replace").decode()
    try:
        arguments = tool.arguments.read(raw, max_text=tool.max_text)
        if tool.arguments.grant is not None and grant is not None:
            arguments[tool.arguments.grant] = grant
        if tool.arguments.client is not None and grant is not None:
            arguments[tool.arguments.client] = grant.client
        with db.deadline(cancelled) if tool.hints.read_only else nullcontext():
            value = tool.function(db, **arguments)
        if ignored and isinstance(value, dict):
            value["note"] = " ".join(filter(None, [ignored, value.get("note", "")]))
        reply = reply_of(value, more=tool.more)
        if ignored and not isinstance(value, dict):
            reply = with_note(reply, ignored)
        return reply
    except (RetryLater, Unconfirmed):
        raise
    except ArgumentError as error:
        # A required argument may be missing because its name was misspelt.
        failure: MCPVectorDBError = (
            ArgumentError(error.argument, f"{error}; {ignored}") if ignored else error
        )
    except MCPVectorDBError as error:
        failure = error
    except Exception:
        log.exception("%s failed", exposed.name)
        failure = InternalError()
    return refusal_of(surface.failure(tool.name, failure))
