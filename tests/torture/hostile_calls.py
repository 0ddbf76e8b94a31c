"""Hostile calls: arguments that fit a schema and are then spoiled, and checks of the replies."""

from __future__ import annotations

import copy
import json
import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import mcp_types as types
from anyio.from_thread import start_blocking_portal
from mcp.shared.message import SessionMessage

from mcpvectordb_server.arguments import accepts_null, coerce
from mcpvectordb_server.replies import MAX_REFUSAL
from mcpvectordb_server.server import Service
from mcpvectordb_server.surface import Tool
from tests.server.clients import hello

DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]

VALUES: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("hostile_values.json").read_text(encoding="utf-8")
)
WORDS = VALUES["words"]
STRINGS = [
    *VALUES["strings"],
    *("x" * length for length in (3_000, 100_001)),
    *(sign * count for sign, count in (("9", 5_000), ("-", 500), ("?", 300), ("a/", 2_000))),
    *("[" * 50_000, '{"a":' * 3_000, "e\u0301" * 50, "x" * 300 + ".txt", "a.md:" + "9" * 400),
    *("a" + " OR a" * 300, "(" * 400 + "a" + ")" * 400, "NOT " * 400 + "a"),
    *("{" * 50 + "a" + "}" * 50, "*a" * 200, "**/" * 200 + "x", "[!a]*" * 100),
    "00000000-0000-4000-8000-000000000000#" + "9" * 5_000,
]
NUMBERS = [
    *(0, -0.0, 1, -1, 0.1, 2.5, 5.0, 2**31, 2**53 + 1),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, 10**400),
    *(5e-324, 1e-45, 1e-24, 1e38, 1e308, -1e308, math.nan, math.inf, -math.inf),
]
ODD = [
    *(None, True, False, [], {}, [[]], [None], [{}], {"": ""}, {"a": {"b": {"c": None}}}),
    *(DEEP, {"deep": DEEP}, [0] * 20_000, {str(each): each for each in range(2_000)}),
]


def hostile_value(rng: random.Random) -> Any:
    """A value that fits no parameter."""
    value = copy.deepcopy(rng.choice(rng.choice([STRINGS, STRINGS, NUMBERS, ODD])))
    if rng.random() < 0.15:
        value = [copy.deepcopy(value) for _ in range(rng.randint(0, 3))]
    elif rng.random() < 0.15:
        value = {rng.choice(STRINGS): value, "a": hostile_value(rng)}
    return value


class Attacker:
    """Makes calls to the tools of a server; `known` has valid values by names of parameters."""

    def __init__(self, tools: list[dict[str, Any]], known: Mapping[str, list[Any]]) -> None:
        self.tools, self.known = tools, known

    def call(self, rng: random.Random) -> tuple[str, dict[str, Any]]:
        """A tool's name, and arguments that fit its schema, nearly fit it, or do not."""
        tool = rng.choice(self.tools)
        arguments = self._object(tool["inputSchema"], rng)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 5])):
            self._spoil(arguments, rng)
        return tool["name"], arguments

    def _value(self, schema: dict[str, Any], rng: random.Random, name: str = "") -> Any:
        if name in self.known and rng.random() < 0.7:
            return copy.deepcopy(rng.choice(self.known[name]))
        if "anyOf" in schema:
            return self._value(rng.choice(schema["anyOf"]), rng, name)
        if "enum" in schema or "const" in schema:
            return rng.choice(schema.get("enum") or [schema["const"]])
        makers: dict[str, Callable[[], Any]] = {
            "string": lambda: rng.choice(WORDS + STRINGS),
            "boolean": lambda: rng.random() < 0.5,
            "null": lambda: None,
            "integer": lambda: rng.choice([0, 1, 2, 3, 5, 10, 99, 100, 1000, -1]),
            "number": lambda: rng.choice(NUMBERS[:-3]),
            "array": lambda: [
                self._value(schema.get("items", {}), rng, name)
                for _ in range(rng.choice([0, 1, 1, 2, 4, 30]))
            ],
            "object": lambda: self._object(schema, rng),
        }
        return makers[schema["type"]]() if schema.get("type") in makers else hostile_value(rng)

    def _object(self, schema: dict[str, Any], rng: random.Random) -> dict[str, Any]:
        if "properties" not in schema:
            keys = rng.sample(
                ["n", "kind", "library", "source", "a.b", "metadata", "", *STRINGS[:20]],
                rng.randint(0, 4),
            )
            return {
                key: rng.choice([1, "a", None, [1], {"n": 1}, hostile_value(rng)]) for key in keys
            }
        required = schema.get("required", ())
        return {
            name: self._value(each, rng, name)
            for name, each in schema["properties"].items()
            if rng.random() < (0.97 if name in required else 0.4)
        }

    def _spoil(self, value: Any, rng: random.Random) -> None:
        """Change one place in an object, or in an object or array inside it."""
        parts = value.values() if isinstance(value, dict) else value
        inner = [each for each in parts if isinstance(each, dict | list) and each]
        if inner and rng.random() < 0.5:
            self._spoil(rng.choice(inner), rng)
        elif isinstance(value, list):
            value[rng.randrange(len(value))] = hostile_value(rng)
        elif value and rng.random() < 0.75:
            key = rng.choice(list(value))
            old = value[key]
            others = [hostile_value(rng), json.dumps(old), [old], {"x": old}, str(old)]
            value[key] = rng.choice(others)
        else:
            value[rng.choice(STRINGS)] = hostile_value(rng)


class Session:
    """A server in memory, and raw messages to and from it, as they are on the wire."""

    def __init__(self, made: Service, portal: Any, sends: Any, receives: Any) -> None:
        self.made, self._portal, self._last = made, portal, 0
        self._sends, self._receives = sends, receives
        self.request("initialize", hello())
        self.tools: list[dict[str, Any]] = self.request("tools/list", {})["result"]["tools"]

    @classmethod
    @contextmanager
    def with_server(cls, made: Service) -> Iterator[Session]:
        """A session that ends with the block, by when the server must still be running."""
        with start_blocking_portal() as portal:
            sends, reads = anyio.create_memory_object_stream[Any](1)
            writes, receives = anyio.create_memory_object_stream[Any](1)
            running = portal.start_task_soon(
                made.server.run, reads, writes, made.server.create_initialization_options()
            )
            try:
                yield cls(made, portal, sends, receives)
                assert not running.done(), "the server is dead"
            finally:
                portal.call(sends.aclose)
                running.exception(20)
                for stream in (reads, writes, receives):
                    portal.call(stream.aclose)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request, encoded and decoded as on the wire."""
        self._last += 1
        answer = self._portal.call(
            self._exchange,
            types.JSONRPCRequest(jsonrpc="2.0", id=self._last, method=method, params=params),
        )
        line = json.dumps(
            answer.model_dump(by_alias=True, exclude_unset=True),
            allow_nan=False,
            ensure_ascii=False,
        ).encode()
        found: dict[str, Any] = json.loads(line)
        assert found["id"] == self._last
        return found

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The reply to one call of a tool."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def refusal(self, surface: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool; the text of a refusal, "" for a result, which fits its schema."""
        offered = next(each for each in self.tools if each["name"] == tool)
        return refusal_of(surface, offered, self.call(tool, arguments))

    async def _exchange(self, request: types.JSONRPCRequest) -> Any:
        with anyio.fail_after(120):
            await self._sends.send(SessionMessage(request))
            return (await self._receives.receive()).message


# What an answer must be.


class Defects(logging.Handler):
    """Log records of internal errors of the server, with their tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))

    def none(self) -> None:
        """Fail if there was any."""
        seen, self.seen = self.seen, []
        assert not seen, seen[0][-1_500:]

    @classmethod
    @contextmanager
    def watched(cls) -> Iterator[Defects]:
        handler, log = cls(), logging.getLogger("mcpvectordb_server")
        before = log.propagate
        log.addHandler(handler)
        log.propagate = False  # thousands of unknown arguments are not worth being kept
        try:
            yield handler
        finally:
            log.removeHandler(handler)
            log.propagate = before


def refusal_of(surface: str, tool: dict[str, Any], answer: dict[str, Any]) -> str:
    """Check a reply against its schema and the dialect of its surface.

    Returns the text of a refusal, "" for a result.
    """
    assert "error" not in answer, f"an error of the protocol: {answer['error']}"
    result = answer["result"]
    structured, failed = result.get("structuredContent"), result.get("isError", False)
    assert result["content"], "an empty reply"
    if structured is not None and tool.get("outputSchema"):
        jsonschema.validate(structured, tool["outputSchema"])
    refusal = DIALECTS[surface](result, structured, failed)
    assert "inside the server" not in refusal, refusal
    assert len(refusal) <= MAX_REFUSAL + 50, (
        f"a refusal of {len(refusal):,} characters: {refusal[:100]}"
    )
    return refusal


def _mcpvectordb(result: dict[str, Any], structured: dict[str, Any], failed: bool) -> str:
    assert not failed and json.loads(result["content"][0]["text"]) == structured
    if structured.get("status") != "error":
        return ""
    assert set(structured) == {"status", "error"}
    return str(structured["error"]) or "nothing"


def _vector_store(result: dict[str, Any], structured: dict[str, Any], failed: bool) -> str:
    assert not failed and json.loads(result["content"][0]["text"]) == structured
    assert "error" not in structured or set(structured) == {"error"}
    return str(structured.get("error", ""))


CODES = """
    file_not_found invalid_file_type file_too_large encoding_error empty_query empty_collection
    document_not_found invalid_document_id validation_error ingestion_failed
""".split()


def _openrag(result: dict[str, Any], structured: dict[str, Any], failed: bool) -> str:
    assert not failed and json.loads(result["content"][0]["text"]) == structured
    if structured["status"] == "success":
        return ""
    assert set(structured) == {"status", "error", "message"} and structured["error"] in CODES, (
        structured
    )
    return str(structured["message"]) or "nothing"


def _error_of_mcp(result: dict[str, Any], structured: dict[str, Any] | None, failed: bool) -> str:
    if not failed:
        return ""
    assert structured is None and [block["type"] for block in result["content"]] == ["text"]
    return str(result["content"][0]["text"]) or "nothing"


def _context_server(result: dict[str, Any], structured: dict[str, Any] | None, failed: bool) -> str:
    refusal = _error_of_mcp(result, structured, failed)
    assert "\n" not in refusal and (failed or structured is not None)
    # Invalid filters are reported in a result without entries.
    if structured and "error" in structured:
        assert structured["results"] == [] and structured["validation_errors"]
        return str(structured["validation_errors"][0])
    if structured and structured.get("success") is False:  # what can be done of a batch is done
        return next(str(each["error"]) for each in structured["results"] if each["error"])
    return refusal


DIALECTS: Mapping[str, Callable[[dict[str, Any], Any, bool], str]] = {
    "mcpvectordb": _mcpvectordb,
    "vector_store": _vector_store,
    "openrag": _openrag,
    "qmd": _error_of_mcp,
    "desk": _error_of_mcp,
    "context_server": _context_server,
}


def misfits(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """The parameters whose argument does not fit the schema, after lenient readings of JSON."""
    schema, kinds = tool.arguments.schema, tool.arguments.kinds
    required = schema.get("required", ())
    given = {
        name: coerce(kinds[name], value)
        for name, value in arguments.items()
        if name in schema["properties"]
    }
    given = {
        name: value
        for name, value in given.items()
        if value is not None or name in required or accepts_null(kinds[name])
    }
    missing = [name for name in required if name not in given]
    return missing + [
        name for name, value in given.items() if not _fits(value, schema["properties"][name])
    ]


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    return _is_valid(_undone(value, schema), schema)


def _is_valid(value: Any, schema: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def _undone(value: Any, schema: dict[str, Any]) -> Any:
    """An item of a batch after the server's lenient readings: JSON in strings, 5.0 for 5."""
    if isinstance(value, list) and "properties" in (items := schema.get("items", {})):
        return [
            {name: _undone(each, items["properties"].get(name, {})) for name, each in item.items()}
            if isinstance(item, dict)
            else item
            for item in value
        ]
    if isinstance(value, str) and not _is_valid(value, schema):
        with suppress(ValueError, RecursionError):
            return _undone(json.loads(value), schema)
    return value
