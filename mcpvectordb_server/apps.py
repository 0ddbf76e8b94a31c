"""The page inside of a chat: MCP Apps, the extension io.modelcontextprotocol/ui.

A host that declares it learns which tools have a view, fetches that once, and gives it each reply
of theirs, whose metadata has what the view shows. Other hosts get what they always got.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from mcpvectordb_server.surface import ExposedTool

EXTENSION = "io.modelcontextprotocol/ui"
MEDIA_TYPE = "text/html;profile=mcp-app"
URI = "ui://mcpvectordb/view.html"

VIEW = "mcpvectordb/view"
"""The metadata of a reply that its view shows."""

# No origin is declared: a host then allows none.
_FRAME = {"ui": {"prefersBorder": True}}


def shows(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client of a request shows views."""
    able = ctx.session.client_capabilities
    return _among(able.extensions if able else None)


class Apps:
    """A middleware that offers the view for tools that have one, to hosts that show views."""

    def __init__(self, offered: Mapping[str, ExposedTool]) -> None:
        self._names = {name for name, each in offered.items() if each.tool.view}
        # The tool by which a view reads on; it may be disabled, or have another name here.
        self._reads = next((n for n in self._names if offered[n].tool.name == "read"), None)

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Answer a request for the view, and add to the answers of others what hosts look for."""
        if not self._names:
            return await call_next(ctx)
        read = ctx.method == "resources/read" and (ctx.params or {}).get("uri") == URI
        if read and shows(ctx):
            from mcpvectordb_server.web.one_file import view

            content = types.TextResourceContents(
                uri=URI, mime_type=MEDIA_TYPE, text=view(), _meta=_FRAME
            )
            return types.ReadResourceResult(contents=[content])
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        if ctx.method == "tools/call" and (seen := (result.get("_meta") or {}).get(VIEW)):
            seen["reads"] = self._reads
        if ctx.method == "tools/list" and shows(ctx):
            result["tools"] = [self._linked(tool) for tool in result["tools"]]
        if "capabilities" in result and _declared(ctx):
            able = result["capabilities"]
            able["resources"] = able.get("resources") or {}
            able["extensions"] = {**(able.get("extensions") or {}), EXTENSION: {}}
        return result

    def _linked(self, tool: dict[str, Any]) -> dict[str, Any]:
        """A tool with the address of its view, if it has one."""
        if tool["name"] not in self._names:
            return tool
        return {**tool, "_meta": {**(tool.get("_meta") or {}), "ui": {"resourceUri": URI}}}


def _declared(ctx: ServerRequestContext[Any, Any]) -> bool:
    """The same as `shows` for a handshake, before which the session knows no client."""
    if ctx.method != "initialize":
        return shows(ctx)
    able = (ctx.params or {}).get("capabilities")
    return _among(able.get("extensions") if isinstance(able, dict) else None)


def _among(extensions: Any) -> bool:
    settings = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    known = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(known, list) and MEDIA_TYPE in known
