"""The smallest server on the MCP SDK, with one tool: `python -m benchmarks.bare_server`."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def list_tools(memory: Any, params: Any) -> types.ListToolsResult:
    """One tool that takes nothing."""
    tool = types.Tool(name="nothing", description="Does nothing", input_schema={"type": "object"})
    return types.ListToolsResult(tools=[tool])


async def serve() -> None:
    """Serve until the client closes its side."""
    server: Server[Any] = Server("bare", version="1", on_list_tools=list_tools)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve)
