"""Serving one client over stdin and stdout.

The SDK drops lines that it cannot parse, and open calls when stdin ends. Both leave a client
waiting; here such lines are answered with an error, and open calls get some seconds to finish.
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

NOTIFICATIONS = "notifications/"
CANCELLED = f"{NOTIFICATIONS}cancelled"
LISTEN = "subscriptions/listen"  # answered when its client leaves
DRAIN = 5.0
"""Seconds for open calls to finish after the client has closed its side."""


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
    """Pass messages to the server; `waiting` holds the ids of the requests without an answer."""
    async with incoming, to_server:
        async for item in incoming:
            parsed = await _recover(item, outgoing) if isinstance(item, Exception) else item
            if parsed is None:
                continue
            message = parsed.message
            if isinstance(message, types.JSONRPCNotification) and (
                reason := unanswerable({"method": message.method})
            ):
                await _refuse(outgoing, None, reason)
                continue
            if isinstance(message, types.JSONRPCRequest) and message.method != LISTEN:
                waiting.add(message.id)
            elif isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
                waiting.discard((message.params or {}).get("requestId"))
            await to_server.send(parsed)
        with anyio.move_on_after(DRAIN):
            while waiting:
                await anyio.sleep(0.01)


async def _outward(from_server: Any, outgoing: Any, waiting: set[Any]) -> None:
    async with from_server, outgoing:
        async for item in from_server:
            await outgoing.send(item)
            if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                waiting.discard(item.message.id)


async def _recover(error: Exception, outgoing: Any) -> SessionMessage | None:
    """The message of a line that the SDK could not parse but Python can; others are answered."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    broken = next((each for each in details if each["type"] == "json_invalid"), None)
    if broken and not broken["input"].strip():
        return None
    if broken:
        content, reason = _loosely_parsed(broken["input"]), broken["msg"]
        with suppress(ValidationError):
            return SessionMessage(
                types.jsonrpc_message_adapter.validate_python(content, by_name=False)
            )
    else:
        given = [each["input"] for each in details if isinstance(each["input"], dict | list)]
        whole = (each for each in given if isinstance(each, dict) and "jsonrpc" in each)
        content = next(whole, next(iter(given), None))
        reason = "not a JSON-RPC 2.0 message"
    if isinstance(content, list) and content:
        # Whoever sends a batch waits for each of its requests.
        ids: list[str | int | None] = list(dict.fromkeys(map(_id, content)))
        for id in [each for each in ids if each is not None] or ids:
            await _refuse(outgoing, id, unanswerable(content))
    elif broken:
        await _refuse(outgoing, _id(content), reason, types.PARSE_ERROR)
    else:
        # The id of an answer is ours, and that of no request of the client.
        answers = isinstance(content, dict) and "method" not in content and "result" in content
        await _refuse(outgoing, None if answers else _id(content), reason)
    return None


def unanswerable(content: Any) -> str:
    """Why there is no answer to a message, although its sender waits for one; "" if there is."""
    if isinstance(content, list):
        return "batches are not supported: send each message by itself"
    method = content.get("method") if isinstance(content, dict) else None
    # The SDK takes a request whose id is 1.5, true, null or missing for a notification.
    if isinstance(method, str) and not method.startswith(NOTIFICATIONS) and _id(content) is None:
        return f"{method} needs an id: text or whole number"
    return ""


def _id(content: Any) -> str | int | None:
    given = content.get("id") if isinstance(content, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


async def _refuse(
    outgoing: Any, id: str | int | None, reason: str, code: int = types.INVALID_REQUEST
) -> None:
    kind = "Parse error" if code == types.PARSE_ERROR else "Invalid request"
    failure = types.ErrorData(code=code, message=f"{kind}: {reason}")
    await outgoing.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id, error=failure)))


def _loosely_parsed(line: str) -> Any:
    """The line as Python's lenient parser reads it, else an object with its id, else None.

    Python accepts lone surrogates, NaN and infinity, which the SDK's strict parser does not.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        found = _ID_FIRST.match(line) or _ID_LAST.search(line)
        return {"id": json.loads(found[1])} if found else None
