"""Whatever a client sends, the reply is in the dialect of the surface and the server goes on."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb.ingest import urls
from mcpvectordb_server.surface import Surface
from mcpvectordb_server.surfaces import NAMES, load
from tests.guarantees import Guarantee
from tests.server.clients import Wire, service
from tests.support import Letters
from tests.support_web import HOSTILE
from tests.torture.costly_queries import COSTLY_CALLS, large_file
from tests.torture.hostile_calls import (
    VALUES,
    WORDS,
    Attacker,
    Defects,
    Session,
    hostile_value,
    misfits,
    refusal_of,
)
from tests.torture.support_torture import opened, some_text

pytestmark = pytest.mark.torture

CALLS_PER_FILE = 1_000
STRIDE = 13  # from one costly call to the next, so that a few of them are of all kinds
CPU_SECONDS = 2.0  # that a query may take on 100,000 chunks


def fill(db: Database, folder: Path) -> dict[str, list[Any]]:
    """Fill a file with every kind of content; its ids and names, by names of parameters."""
    rng = random.Random("what is there")
    files = [folder / f"{name}.txt" for name in ("harbour", "lamp", "tea")]
    for file in files:
        file.write_text(some_text(rng))
    documents = [
        db.documents.ingest_text(
            some_text(rng), source=f"{name}.md", library=library, metadata={"n": 1}
        ).document
        for name in ("harbour", "notes/lamp", "tea")
        for library in ("default", "mine")
    ]
    for number in range(12):
        vector = [rng.uniform(-1, 1) for _ in range(3)]
        db.vectors.add(f"v{number}", vector, store="s", namespace="n", metadata={"n": number})
    memories = [
        db.memories.add(
            f"t{number % 3}", "user", some_text(rng), tags=["lamp"], metadata={"n": number}
        ).id
        for number in range(9)
    ]
    ids = [document.id for document in documents]
    return {
        "doc_id": [*ids, f"{ids[0]}#5", f"{ids[0]}#{'9' * 5_000}"],
        "document_id": ids,
        "library": ["default", "mine", None],
        "collection": ["mine", None],
        "query": WORDS,
        "file": ["harbour.md", "mine/notes/lamp.md:2", f"#{documents[0].hash[:6]}"],
        "pattern": ["*.md", "tea.md, x"],
        "path": [str(file) for file in files],
        "file_path": [str(file) for file in files],
        "url": [url for url in HOSTILE if ".test" not in url and "router" not in url],
        "store_name": ["s", "default"],
        "namespace": ["n", "", None],
        "id": ["v1", "v2"],
        "text": WORDS,
        "embedding": [[1, 0, 0], [0.5, -0.25, 1e-30]],
        "metadata": [{"n": 1}, {"a": {"b": [1]}}, None],
        "filter": [
            {"file_type": "md"},
            {"page": 0},
            {"content": "x"},
            {"metadata": {"n": 1}},
            {"metadata": "[" * 50_000},
            {"id": f"{ids[0]}:0"},
            {"id": f"x:{'9' * 5_000}"},
            {"metadata": '{"a": NaN}'},
        ],
        "metadata_filter": [{"n": 1}, {"n": None}, {"a.b": 1}],
        "context_id": memories,
        "context_ids": [memories[:2], [99]],
        "thread_id": ["t0", "t1"],
        "thread_ids": [["t2"]],
        "tags": [["lamp"], ["Tea ", "lamp"]],
    }


def no_names(host: str, port: int) -> list[str]:
    raise OSError("names are not resolved here")


@contextmanager
def attacked_server(surface: Surface, folder: Path) -> Iterator[tuple[Session, Attacker, Database]]:
    """A server that offers one surface of a new file, and an attacker of it."""
    folder.mkdir()
    with Database(folder / "x.db", embedder=Letters(), config=Config(models_dir=str(folder))) as db:
        known = fill(db, folder)
        with Session.with_server(service(db, surface)) as session:
            yield session, Attacker(session.tools, known), db
        assert db.check() == []


@pytest.mark.parametrize("name", NAMES)
def test_every_reply_is_in_the_dialect_of_the_surface(
    name: str, guarantee: Callable[..., Guarantee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urls, "_system_resolver", no_names)
    tested, surface = guarantee(f"7 hostile calls, {name}", full=10_000, short=60), load(name)
    functions = {tool.name: tool for tool in surface.tools}
    refused = 0
    with ExitStack() as stack, Defects.watched() as defects:
        session: Session
        attacker: Attacker

        def round(number: int, rng: random.Random) -> None:
            nonlocal session, attacker, refused
            if number % CALLS_PER_FILE == 0:
                stack.close()
                session, attacker, _ = stack.enter_context(
                    attacked_server(surface, tmp_path / str(number))
                )
            if surface.templates and rng.random() < 0.05:
                read_resource(
                    session, rng.choice(surface.templates).prefix + str(hostile_value(rng))
                )
            tool, arguments = attacker.call(rng)
            refusal = session.refusal(name, tool, arguments)
            defects.none()
            refused += bool(refusal)
            if wrong := misfits(functions[tool], arguments):
                assert refusal, f"{tool} takes {wrong[0]}, although its schema does not"
                assert clear(functions[tool].arguments.schema, refusal), f"{tool}: {refusal}"

        tested.run_rounds(round)
    tested.note = f"{refused:,} refused"


def read_resource(session: Session, uri: str) -> None:
    answer = session.request("resources/read", {"uri": uri})
    assert "result" in answer or answer["error"]["code"] == -32602, answer


def clear(schema: dict[str, Any], refusal: str) -> bool:
    """Whether a refusal names a parameter."""
    names = list(schema.get("properties", ()))
    inner = [each.get("items", {}) for each in schema.get("properties", {}).values()]
    return any(name.casefold() in refusal.casefold() for name in names) or any(
        clear(each, refusal) for each in inner
    )


GARBAGE = [
    *("hello", "[]", "{}", "null", '"\\ud800"', "\x01", "[" * 20_000, "9" * 6_000),
    '{"a":' * 5_000 + "1" + "}" * 5_000,
    '{"jsonrpc":"2.0","id":7,"method":"ping"',
    '{"jsonrpc":"2.0","id":8}',
    '{"jsonrpc":"1.0","id":9,"method":"ping"}',
]


@pytest.mark.long
def test_a_server_process_survives_hostile_calls_over_all_surfaces(
    guarantee: Callable[..., Guarantee], path: Path, tmp_path: Path
) -> None:
    tested = guarantee("7 hostile calls, a process", full=5_000, short=24)
    with Database(path) as db:
        known = fill(db, tmp_path)
    with Wire(
        "--db",
        str(path),
        "--surface",
        "all",
        environ={"MCPVECTORDB_FETCH_TIMEOUT": "1"},
        patience=20_000,
    ) as wire:
        wire.handshake()
        tools = wire.request("tools/list")["result"]["tools"]
        attacker = Attacker(tools, known)

        def round(number: int, rng: random.Random) -> None:
            if number % 10 == 0:
                wire.send(rng.choice(GARBAGE))
                assert "error" in wire.receive()
            tool, arguments = attacker.call(rng)
            answer = wire.request("tools/call", {"name": tool, "arguments": arguments})
            refusal_of(
                surface_of(tool), next(each for each in tools if each["name"] == tool), answer
            )

        tested.run_rounds(round)
        assert wire.request("ping")["result"] == {}
        assert wire.finish() == 0
        assert "Traceback" not in wire.errors
    with Database(path) as db:
        assert db.check() == []


def surface_of(tool: str) -> str:
    """The surface of a tool where all are offered; the first surface keeps its names."""
    for name in NAMES:
        if tool.startswith(f"{name}_"):
            return name
    return next(name for name in NAMES if tool in {each.name for each in load(name).tools})


# Vectors that poison ranking


def test_vectors_with_extreme_numbers_are_ranked_correctly(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    tested = guarantee("7 poisoned vectors", full=200, short=4)

    def round(number: int, rng: random.Random) -> None:
        # Above 5,000 vectors, an index chooses the candidates.
        size = 6_000 if tested.long and number % 20 == 0 else 60
        stored = {f"v{each}": [rng.gauss(0, 1) for _ in range(4)] for each in range(size)}
        with (
            opened(tmp_path / f"{number}.db") as db,
            Session.with_server(service(db, load("vector_store"))) as session,
        ):
            db.vectors.add_many(stored, list(stored.values()))
            for each in range(60):
                poison = extreme_vector(rng)
                reply = text(session, "vector_add", id=f"p{each}", embedding=poison)
                if "error" not in reply:
                    stored[f"p{each}"] = poison
                else:
                    assert (
                        any(not is_number(value) for value in poison)
                        or not 0 < len(poison) <= 16_384
                    ), poison[:4]
            for query in ([rng.gauss(0, 1) for _ in range(4)], extreme_vector(rng)):
                reply = text(session, "vector_search", query=query, k=30)
                if "error" not in reply:
                    judge(query, stored, reply["results"])
        (tmp_path / f"{number}.db").unlink()

    tested.run_rounds(round)


def extreme_vector(rng: random.Random) -> list[Any]:
    """Numbers of which some are denormal, huge or NaN; sometimes of another dimension."""
    scale = rng.choice(
        [0.0, 5e-324, 1e-310, 1e-160, 1e-45, 1e-24, 1e-7, 1.0, 1e7, 1e19, 1e38, 1e154, 1e300]
    )
    dimension = rng.choice([4, 4, 4, 4, 4, 4, 4, 1, 3, 5, 20_000])
    values: list[Any] = [
        rng.choice([-1, 0, 1, rng.uniform(-1, 1)]) * scale for _ in range(dimension)
    ]
    for odd in (
        [1e308, 5e-324],
        [float("nan"), float("inf"), float("-inf"), 2**70, None, "1", True, [1]],
    ):
        if rng.random() < 0.2:
            values[rng.randrange(dimension)] = rng.choice(odd)
    return values


def is_number(value: Any) -> bool:
    return (type(value) is int and abs(value) < 2**63) or (
        type(value) is float and math.isfinite(value)
    )


def text(session: Session, tool: str, **arguments: Any) -> dict[str, Any]:
    reply: dict[str, Any] = session.call(tool, arguments)["result"]["structuredContent"]
    return reply


def cosine(one: list[float], other: list[float]) -> float:
    """The cosine by fractions, which neither overflow nor underflow.

    It is 0 for a vector of zeros or of another dimension.
    """
    if len(one) != len(other) or not any(one) or not any(other):
        return 0.0
    first, second = (
        [Fraction(each) / Fraction(max(map(abs, one))) for each in one],
        [Fraction(each) / Fraction(max(map(abs, other))) for each in other],
    )
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    return (
        float(dot) / (float(sum(a * a for a in first)) * float(sum(b * b for b in second))) ** 0.5
    )


def judge(
    query: list[float], stored: dict[str, list[float]], results: list[dict[str, Any]]
) -> None:
    """Check that every score is the true cosine, and that nothing nearer is left out."""
    for each in results:
        assert abs(each["score"] - cosine(query, stored[each["id"]])) < 1e-6, each
    same = {each["id"]: each["score"] for each in results if len(stored[each["id"]]) == len(query)}
    assert list(same) == [each["id"] for each in results[: len(same)]], (
        "another dimension is in front"
    )
    assert list(same.values()) == sorted(same.values(), reverse=True)
    if len(stored) < 5_000 and same:
        outside = [
            cosine(query, values)
            for id, values in stored.items()
            if id not in same and len(values) == len(query)
        ]
        assert not outside or max(outside) <= min(same.values()) + 1e-6


# Keys and names that reach across


SECRET = "the treasure lies under the third stone"
KEYS, PLACES = VALUES["keys"], VALUES["places"]


def test_no_filter_and_no_name_reaches_another_library_store_or_thread(
    guarantee: Callable[..., Guarantee], path: Path
) -> None:
    tested = guarantee("7 reaching across", full=2_000, short=40)
    with (
        Database(path, embedder=Letters(), config=Config(rerank_memories=False)) as db,
        ExitStack() as stack,
    ):
        # Metadata says of what is theirs that it is mine, by every name that a place has.
        names = ("library", "store", "namespace", "thread", "thread_id")
        for place, text in (("mine", "a lamp"), ("theirs", SECRET)):
            said = {"said": text, "n": 1, **dict.fromkeys(names, "mine")}
            db.documents.ingest_text(text, source=f"{place}.md", library=place, metadata=said)
            db.vectors.add("v", [1.0, 0.5], store=place, metadata=said)
            db.vectors.add("w", [1.0, 0.5], store="mine", namespace=place, metadata=said)
            db.memories.add(place, "user", text, metadata=said)
        sessions = {
            name: stack.enter_context(Session.with_server(service(db, load(name))))
            for name in NAMES
        }

        def round(number: int, rng: random.Random) -> None:
            name, tool, arguments = reach(rng)
            answer = sessions[name].call(tool, arguments)
            assert SECRET not in json.dumps(answer), f"{tool} {arguments}"

        tested.run_rounds(round)
        assert db.check() == []


def odd_filter(rng: random.Random) -> dict[str, Any]:
    texts = ["theirs", "mine", "' OR 1=1 --"]
    values = [*texts, 1, None, True, {"ne": "mine"}, {"$ne": 1}, ["mine", "theirs"], {"or": [1]}]
    return {rng.choice(KEYS): rng.choice(values) for _ in range(rng.randint(1, 3))}


def place(rng: random.Random) -> str:
    """A name of something of mine, or a similar one, but never a name of something of theirs."""
    return rng.choice(["mine", *PLACES])


def conditions(rng: random.Random) -> list[dict[str, Any]]:
    operators = ["OR 1=1", *"eq ne not_in not_exists exists contains gt array_contains".split()]
    return [
        {"key": key, "operator": rng.choice(operators), "value": value}
        for key, value in odd_filter(rng).items()
    ]


def reach(rng: random.Random) -> tuple[str, str, dict[str, Any]]:
    """A surface, one of its tools, and arguments that ask for what is mine and for what is not."""
    thread = {"thread_id": place(rng), "metadata_filters": conditions(rng)}
    vectors = {"query": [1, 0.5], "store_name": "mine", "namespace": "mine"}
    words = 'lamp OR thread:theirs OR "treasure'
    return rng.choice(
        [
            ("mcpvectordb", "search", {"query": SECRET, "library": place(rng), "filter": odd_filter(rng)}),
            ("mcpvectordb", "list_documents", {"library": place(rng)}),
            ("mcpvectordb", "get_document", {"doc_id": rng.choice([*PLACES, *KEYS])}),
            ("qmd", "search", {"query": "treasure stone", "collection": place(rng)}),
            ("qmd", "query", {"query": SECRET[:20], "collection": place(rng)}),
            *(
                ("vector_store", "vector_search", {**vectors, each: place(rng), "metadata_filter": odd_filter(rng)})
                for each in ("store_name", "namespace")
            ),
            ("context_server", "search_context", {**thread, "metadata": odd_filter(rng)}),
            ("context_server", "hybrid_search_context", {**thread, "query": "treasure"}),
            ("context_server", "fts_search_context", {"query": words, "mode": "boolean", "thread_id": place(rng)}),
        ]
    )  # fmt: skip


# Queries that take much CPU time


def test_no_query_takes_more_cpu_time_than_the_limit(
    guarantee: Callable[..., Guarantee], tmp_path: Path
) -> None:
    tested = guarantee("7 queries that burn CPU", full=len(COSTLY_CALLS), short=30)
    slowest: tuple[float, str] = (0.0, "")
    with (
        large_file(tmp_path / "large.db", chunks=100_000 if tested.long else 200) as db,
        ExitStack() as stack,
    ):
        chunks = db.stats().chunks
        sessions = {
            name: stack.enter_context(Session.with_server(service(db, load(name))))
            for name in NAMES
        }
        assert math.gcd(STRIDE, len(COSTLY_CALLS)) == 1, "some would be left out"
        for _ in range(2):  # what is loaded once is not what a query costs
            text(sessions["mcpvectordb"], "search", query="time")
            sessions["qmd"].call("search", {"query": "time"})
            text(sessions["context_server"], "hybrid_search_context", query="time")

        def round(number: int, rng: random.Random) -> None:
            nonlocal slowest
            surface, tool, what, arguments = COSTLY_CALLS[number * STRIDE % len(COSTLY_CALLS)]
            started = time.process_time()
            sessions[surface].refusal(surface, tool, arguments)
            seconds = time.process_time() - started
            slowest = max(slowest, (seconds, f"{surface} {tool}, {what}"))
            if tested.long and seconds > CPU_SECONDS:
                raise AssertionError(f"{surface} {tool}, {what}: {seconds:.1f} s")

        tested.run_rounds(round)
    tested.note = f"on {chunks:,} chunks; at most {slowest[0]:.2f} s: {slowest[1]}"
