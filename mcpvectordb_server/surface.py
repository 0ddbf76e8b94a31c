"""What a surface is: plain functions `(db, *, the spec's parameters) -> the spec's reply`, and how
it says no.

A function's signature is its schema, its docstring is what an agent reads to choose it, and the
TypedDict it returns is its output schema. Nothing here knows the MCP SDK.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from mcpvectordb import InvalidInput, MCPVectorDBError
from mcpvectordb_server.arguments import Arguments, arguments_of
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.replies import Reply, refusal_of, reply_of

log = logging.getLogger("mcpvectordb_server")


class Hints(NamedTuple):
    """The four annotations of a tool: what a client may assume before it asks the user."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


class InternalError(MCPVectorDBError):
    """A defect of ours: the details are in the log, not in the reply."""

    code = "unexpected"

    def __init__(self) -> None:
        super().__init__("something went wrong inside the server; its log has the details")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One function that clients may call.

    more      how to get what a bounded reply left out, as the end of a sentence
    max_text  the longest string that an argument may hold
    """

    function: Callable[..., Any]
    hints: Hints
    title: str
    more: str = "ask for less"
    max_text: int = 100_000

    @property
    def name(self) -> str:
        """The name in its spec."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """What an agent reads: the function's docstring, each paragraph as one line."""
        paragraphs = (inspect.getdoc(self.function) or "").split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    @property
    def arguments(self) -> Arguments:
        """Its parameters."""
        return arguments_of(self.function)


@dataclass(frozen=True, kw_only=True)
class Template:
    """Documents that can be read by URI: `read(db, path)` gets what follows `prefix`,
    percent-decoded once.
    """

    prefix: str
    name: str
    title: str
    description: str
    read: Callable[[Any, str], str]
    media_type: str = "text/markdown"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A text for the user to send; `{tool}` in it stands for the name that tool has on this
    server.
    """

    name: str
    title: str
    description: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A set of tools with one manner of speaking.

    instructions  what an agent should know before it chooses; `{tool}` stands for the name in force
    failure       (name of the tool, error) -> the reply in this surface's dialect
    """

    name: str
    version: str
    instructions: str
    tools: tuple[Tool, ...]
    failure: Callable[[str, MCPVectorDBError], Any]
    template: Template | None = None
    prompt: Prompt | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A tool under the name it has on this server."""

    name: str
    surface: Surface
    tool: Tool


def publish(
    surfaces: Iterable[Surface], *, read_only: bool = False, disabled: Collection[str] = ()
) -> dict[str, Published]:
    """The tools on offer by name. The first surface keeps its names; a later one's clash becomes
    `surface_tool`.

    Names are given before tools are taken away, so that hiding one tool never renames another.
    """
    offered: dict[str, Published] = {}
    for surface in surfaces:
        for tool in surface.tools:
            name = tool.name if tool.name not in offered else f"{surface.name}_{tool.name}"
            offered[name] = Published(name=name, surface=surface, tool=tool)
    for name in disabled:
        if name not in offered:
            raise InvalidInput(
                f"there is no tool {name!r} to disable{_did_you_mean(name, offered)}"
            )
    return {
        name: each
        for name, each in offered.items()
        if name not in disabled and (each.tool.hints.read_only or not read_only)
    }


def names_in_force(surface: Surface, offered: Mapping[str, Published]) -> dict[str, str]:
    """The spec's tool names to the names on this server; a tool that is not offered keeps its
    own.
    """
    found = {each.tool.name: each.name for each in offered.values() if each.surface is surface}
    return {tool.name: found.get(tool.name, tool.name) for tool in surface.tools}


def call(
    published: Published, db: Any, raw: Mapping[str, Any], grant: Grant | None = None
) -> Reply:
    """Run one tool. Whatever happens, the reply is in its surface's dialect and of bounded
    length.
    """
    tool, surface = published.tool, published.surface
    try:
        arguments = tool.arguments.read(raw, max_text=tool.max_text)
        if tool.arguments.grant is not None and grant is not None:
            arguments[tool.arguments.grant] = grant
        return reply_of(tool.function(db, **arguments), more=tool.more)
    except MCPVectorDBError as error:
        failure = error
    except Exception:
        log.exception("%s failed", published.name)
        failure = InternalError()
    return refusal_of(surface.failure(tool.name, failure))


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
