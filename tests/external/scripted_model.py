"""A model on loopback for hosts: it makes the tool calls of a script and keeps what it is told.

It speaks Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's
generateContent. It has no state: how far the script is follows from the results in a request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

SERVER = "judged"
"""The name by which hosts have to know our server: no part of any tool's name."""

ANSWER = "Done."
"""What it says at the end."""

Json = dict[str, Any]


class Call(NamedTuple):
    """A call that the model makes: a tool of the server, by its own name, and its arguments."""

    tool: str
    arguments: Json


class OfferedTool(NamedTuple):
    """A tool as a host offers it: with the name of its server in front, or in a namespace."""

    name: str
    namespace: str = ""

    @property
    def own(self) -> str:
        """The name that our server gave it; "" for a tool of the host."""
        return f"{self.namespace}{self.name}".partition(SERVER)[2].lstrip("_")


class Dialect(NamedTuple):
    """One API: what a request offers and reports, and the events that answer it."""

    offered: Callable[[Json], list[OfferedTool]]
    results: Callable[[Json], list[str]]
    answer: Callable[[int, OfferedTool | None, Json], Iterator[Json]]
    named_events: bool = False
    end: str = ""


class ScriptedModel:
    """An endpoint that a host takes for a model, as a context manager; `url` is its address.

    results  what the model was told of each call, in their order, as text
    offered  the names of our tools that it was offered
    requests the bodies of all requests
    """

    def __init__(self, script: Sequence[Call]) -> None:
        self.script, self.results, self.offered = tuple(script), list[str](), set[str]()
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, dialect: Dialect, request: Json) -> Iterator[Json]:
        """The next call of the script; where none is left, or none can be made, the end."""
        offered = {each.own: each for each in dialect.offered(request) if each.own}
        if not offered:  # a request of the host for itself, as for the title of a conversation
            return dialect.answer(0, None, {})
        results = dialect.results(request)
        with self._lock:
            self.results = max(self.results, results, key=len)
            self.offered |= set(offered)
        if len(results) == len(self.script):
            return dialect.answer(0, None, {})
        call = self.script[len(results)]
        return dialect.answer(len(results), offered.get(call.tool), call.arguments)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *values: Any) -> None:
                """Say nothing."""

            def do_HEAD(self) -> None:
                self._send("text/plain", b"")

            def do_GET(self) -> None:
                self._send("application/json", b'{"data": [], "models": []}')

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                model.requests.append(body.decode())
                path = urlsplit(self.path).path
                if path.endswith(("count_tokens", ":countTokens")):
                    self._send("application/json", b'{"input_tokens": 1, "totalTokens": 1}')
                    return
                dialect = next((each for end, each in DIALECTS.items() if path.endswith(end)), None)
                if dialect is None:
                    self.send_error(404)
                    return
                request = json.loads(body)
                events = list(model._reply(dialect, request))
                if path.endswith(":generateContent"):
                    self._send("application/json", json.dumps(events[-1]).encode())
                    return
                sent = "".join(
                    (f"event: {each['type']}\n" if dialect.named_events else "")
                    + f"data: {json.dumps(each)}\n\n"
                    for each in events
                )
                self._send("text/event-stream", (sent + dialect.end).encode())

            def _send(self, kind: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


def _text(value: Any) -> str:
    """What a model reads of a value: a text, or the texts of blocks; anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            each["text"] if isinstance(each, dict) and "text" in each else _text(each)
            for each in value
        )
    return json.dumps(value, ensure_ascii=False)


# Anthropic's Messages


def _messages_offered(request: Json) -> list[OfferedTool]:
    return [OfferedTool(each["name"]) for each in request.get("tools", [])]


def _messages_results(request: Json) -> list[str]:
    return [
        _text(block.get("content", ""))
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def _messages_answer(number: int, tool: OfferedTool | None, arguments: Json) -> Iterator[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield {
        "type": "message_start",
        "message": {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [],
            "stop_reason": None,
            "usage": usage,
        },
    }
    if tool is None:
        block: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": ANSWER}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": tool.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use" if tool else "end_turn"},
        "usage": usage,
    }
    yield {"type": "message_stop"}


# OpenAI's Responses


def _responses_offered(request: Json) -> list[OfferedTool]:
    offered = []
    for each in request.get("tools", []):
        if each["type"] == "namespace":
            offered += [OfferedTool(inner["name"], each["name"]) for inner in each["tools"]]
        elif each["type"] == "function":
            offered.append(OfferedTool(each["name"]))
    return offered


def _responses_results(request: Json) -> list[str]:
    return [
        _text(each["output"]) for each in request["input"] if each["type"] == "function_call_output"
    ]


def _responses_answer(number: int, tool: OfferedTool | None, arguments: Json) -> Iterator[Json]:
    response: Json = {"id": f"resp_{number}", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    item: Json = {
        "type": "message",
        "id": f"item_{number}",
        "role": "assistant",
        "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
    }
    if tool is not None:
        item = {
            "type": "function_call",
            "id": f"item_{number}",
            "call_id": f"call_{number}",
            "name": tool.name,
            "arguments": json.dumps(arguments),
        }
        if tool.namespace:
            item["namespace"] = tool.namespace
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {
        "type": "response.completed",
        "response": {**response, "status": "completed", "output": [item], "usage": usage},
    }


# OpenAI's Chat Completions


def _chat_offered(request: Json) -> list[OfferedTool]:
    return [OfferedTool(each["function"]["name"]) for each in request.get("tools", [])]


def _chat_results(request: Json) -> list[str]:
    return [_text(each["content"]) for each in request["messages"] if each["role"] == "tool"]


def _chat_answer(number: int, tool: OfferedTool | None, arguments: Json) -> Iterator[Json]:
    delta: Json = {"role": "assistant", "content": "Done."}
    if tool is not None:
        function = {"name": tool.name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    chunk: Json = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1}
    for change, reason in ((delta, None), ({}, "tool_calls" if tool else "stop")):
        choice = {"index": 0, "delta": change, "finish_reason": reason}
        yield {**chunk, "model": "scripted", "choices": [choice]}


# Gemini's generateContent


def _gemini_offered(request: Json) -> list[OfferedTool]:
    return [
        OfferedTool(each["name"])
        for group in request.get("tools", [])
        for each in group.get("functionDeclarations", [])
    ]


def _gemini_results(request: Json) -> list[str]:
    return [
        _text(part["functionResponse"]["response"].get("output", part["functionResponse"]))
        for content in request["contents"]
        for part in content.get("parts", [])
        if "functionResponse" in part
    ]


def _gemini_answer(number: int, tool: OfferedTool | None, arguments: Json) -> Iterator[Json]:
    part: Json = {"text": ANSWER}
    if tool is not None:
        part = {"functionCall": {"name": tool.name, "args": arguments}}
    yield {
        "candidates": [
            {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }


_GEMINI = Dialect(_gemini_offered, _gemini_results, _gemini_answer)
DIALECTS: Mapping[str, Dialect] = {
    "/v1/messages": Dialect(
        _messages_offered, _messages_results, _messages_answer, named_events=True
    ),
    "/responses": Dialect(
        _responses_offered, _responses_results, _responses_answer, named_events=True
    ),
    "/chat/completions": Dialect(
        _chat_offered, _chat_results, _chat_answer, end="data: [DONE]\n\n"
    ),
    ":streamGenerateContent": _GEMINI,
    ":generateContent": _GEMINI,
}
"""How each API is answered, by the end of its path."""
