"""One client at the other end of stdin and stdout.

The SDK drops lines that it cannot parse, and drops calls under way when stdin ends. Both leave a
client waiting; here the first are answered and the second get a moment to finish.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

# Where clients write the id of a request: right after the version, or as the last member.
_ID_FIRST = re.compile(
    r'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18}|"[^"\\]{0,100}")'
)
_ID_LAST = re.compile(r'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,100}")\s*\}\s*$')

CANCELLED = "notifications/cancelled"
DRAIN = 5.0
"""Seconds that calls under way get to finish once the client has closed its side."""


async def serve(server: Server[Any]) -> None:
    """Serve until the client closes its side."""
    async with stdio_server() as (incoming, outgoing):
        to_server, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        server_writes, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        waiting: set[Any] = set()
        async with anyio.create_task_group() as group:
            group.start_soon(_inward, incoming, to_server, outgoing, waiting)
            group.start_soon(_outward, from_server, outgoing, waiting)
            await server.run(server_reads, server_writes, server.create_initialization_options())


async def _inward(incoming: Any, to_server: Any, outgoing: Any, waiting: set[Any]) -> None:
    async with incoming, to_server:
        async for item in incoming:
            known = await _read_again(item, outgoing) if isinstance(item, Exception) else item
            if known is None:
                continue
            if isinstance(known.message, types.JSONRPCRequest):
                waiting.add(known.message.id)
            elif (
                isinstance(known.message, types.JSONRPCNotification)
                and known.message.method == CANCELLED
            ):
                waiting.discard((known.message.params or {}).get("requestId"))
            await to_server.send(known)
        with anyio.move_on_after(DRAIN):
            while waiting:
                await anyio.sleep(0.01)


async def _outward(from_server: Any, outgoing: Any, waiting: set[Any]) -> None:
    async with from_server, outgoing:
        async for item in from_server:
            await outgoing.send(item)
            if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                waiting.discard(item.message.id)


async def _read_again(error: Exception, outgoing: Any) -> SessionMessage | None:
    """A line the SDK could not parse: as a message if Python can (the tool then says what is
    wrong), else answered.
    """
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    broken = next((each for each in details if each["type"] == "json_invalid"), None)
    if broken and not broken["input"].strip():
        return None
    if broken:
        seen, reason = _loosely_parsed(broken["input"]), f"Parse error: {broken['msg']}"
        with suppress(ValidationError):
            return SessionMessage(
                types.jsonrpc_message_adapter.validate_python(seen, by_name=False)
            )
    else:
        seen = next((each["input"] for each in details if isinstance(each["input"], dict)), None)
        reason = "Invalid request: not a JSON-RPC 2.0 message"
    number = seen.get("id") if isinstance(seen, dict) else None
    known = number if isinstance(number, str | int) and not isinstance(number, bool) else None
    failure = types.ErrorData(
        code=types.PARSE_ERROR if broken else types.INVALID_REQUEST, message=reason
    )
    await outgoing.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=known, error=failure)))
    return None


def _loosely_parsed(line: str) -> Any:
    """Python reads half surrogate pairs where strict JSON does not; of worse lines, at least the
    id.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        found = _ID_FIRST.match(line) or _ID_LAST.search(line)
        return {"id": json.loads(found[1])} if found else None
