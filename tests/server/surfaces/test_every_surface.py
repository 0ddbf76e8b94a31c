"""What all surfaces have in common; tools, schemas and instructions are on record in goldens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Database
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.surface import ExposedTool, Surface, Tool, call, expose
from mcpvectordb_server.surfaces import NAMES, load
from tests.server.clients import ask, service, valid
from tests.server.surfaces import readable
from tests.support import Letters


@pytest.fixture(params=NAMES)
def surface(request: pytest.FixtureRequest) -> Surface:
    return load(request.param)


def test_read_only_offers_exactly_the_tools_that_read(surface: Surface) -> None:
    reading = [tool.name for tool in surface.tools if tool.hints.read_only]
    assert list(expose([surface], read_only=True)) == reading != []


def test_only_tools_that_delete_or_overwrite_are_destructive(surface: Surface) -> None:
    destructive = {tool.name for tool in surface.tools if tool.hints.destructive}
    assert destructive == {
        tool.name
        for tool in surface.tools
        if any(word in tool.name for word in ("delete", "update", "forget", "vector_add"))
    }


def test_the_instructions_warn_of_orders_in_documents(surface: Surface) -> None:
    assert (
        "not instructions" in surface.instructions or "never instructions" in surface.instructions
    )


def test_tools_that_say_that_they_read_write_nothing_to_the_file(tmp_path: Path) -> None:
    with Database(tmp_path / "x.db", embedder=Letters()) as db:
        turns = readable.fill(db, tmp_path)
        offered = expose(readable.surfaces())
        other = apsw.Connection(str(db.path))
        # Or it would be written back meanwhile, which changes the number too.
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() == [(0, 0, 0)]
        # SQLite changes this number with every commit of another connection.
        before = other.pragma("data_version")
        for turn in turns:
            exposed = offered[readable.exposed()[turn.surface, turn.tool]]
            if exposed.tool.hints.read_only:
                call(exposed, db, turn.arguments)
                assert other.pragma("data_version") == before, turn
        other.close()


INSIDE = "something went wrong inside the server; its log has the details"


@pytest.mark.parametrize(
    ("name", "tool", "broken", "reply"),
    [
        (
            "mcpvectordb",
            "list_libraries",
            "documents.libraries",
            {"status": "error", "error": f"Internal error: {INSIDE}"},
        ),
        ("vector_store", "vector_count", "vectors.count", {"error": INSIDE}),
        (
            "openrag",
            "get_stats",
            "stats",
            {"status": "error", "error": "tool_execution_failed", "message": INSIDE},
        ),
        ("qmd", "status", "documents.libraries", None),
        ("context_server", "list_threads", "memories.threads", None),
        ("desk", "status", "documents.libraries", None),
    ],
)
def test_an_unexpected_exception_is_reported_without_details(
    name: str, tool: str, broken: str, reply: Any, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("SELECT * FROM /home/user/secret.db")

    owner, _, method = broken.rpartition(".")
    monkeypatch.setattr(getattr(db, owner) if owner else db, method, fail)
    answer = ask(service(db, load(name)), tool)
    assert (answer.structured_content, answer.is_error) == (reply, reply is None)
    assert INSIDE in answer.content[0].text and "secret" not in answer.content[0].text


@pytest.mark.parametrize(
    ("name", "tool", "argument"),
    [
        ("mcpvectordb", "ingest_file", "path"),
        ("openrag", "ingest_document", "file_path"),
        ("desk", "ingest", "source"),
    ],
)
def test_agents_get_no_secrets_and_nothing_from_outside_of_the_roots(
    name: str, tool: str, argument: str, db: Database, tmp_path: Path
) -> None:
    def said(source: Path, roots: tuple[Path, ...] | None) -> str:
        reply = ask(service(db, load(name), roots=roots), tool, {argument: str(source)})
        return str(reply.content[0].text)

    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside, inside / ".ssh"):
        folder.mkdir()
        (folder / "tea.txt").write_text(f"tea of {folder.name}")
    (inside / "link.txt").symlink_to(outside / "tea.txt")
    (inside / "key.txt").write_text("-----BEGIN RSA PRIVATE KEY-----\nabc")
    assert "outside" not in said(inside / "tea.txt", (inside,)) and db.documents.count() == 1
    for hidden in (outside / "tea.txt", outside / "missing.txt", inside / "link.txt"):
        assert "outside of the folders" in said(hidden, (inside,))
    assert "--root DIR" in said(inside / "tea.txt", ())
    assert "secrets" in said(inside / ".ssh" / "tea.txt", None)
    assert "private key" in said(inside / "key.txt", None)
    assert "is the database itself" in said(db.path, None)
    assert db.documents.count() == 1


@pytest.mark.parametrize("name", NAMES)
def test_no_schema_has_a_keyword_that_narrow_clients_cannot_read(name: str) -> None:
    for tool in load(name).tools:
        schema = json.dumps([tool.arguments.schema, tool.arguments.output])
        for keyword in ("exclusiveMinimum", "exclusiveMaximum", "const"):
            assert f'"{keyword}":' not in schema


# An argument that a tool does not have is ignored, and named


def test_a_batch_names_the_item_whose_argument_was_ignored(db: Database) -> None:
    entry = {"thread_id": "t", "source": "user", "text": "x"}
    arguments = {"entries": [entry, {**entry, "meta_data": {}}]}
    reply = ask(service(db, load("context_server")), "store_context_batch", arguments)
    assert reply.structured_content["note"].startswith(
        'index 1: "meta_data" is an unknown argument and was ignored; did you mean metadata?'
    )


@pytest.mark.parametrize("name", ["qmd", "desk"])
def test_a_name_that_cannot_be_sent_back_does_no_harm(db: Database, name: str) -> None:
    reply = call(expose([load(name)])["search"], db, {"query": "x", "half\ud800": 1})
    said = reply.structured["note"] if reply.structured else reply.content[-1].text
    assert "half?" in said
    said.encode()


# Whatever is sent

ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(["a", "a.b", "x y", "page", "title", "metadata", "id", "words", "text"])
TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        *("tea", '"tea', "tea AND (leaves", "-a", "[", "{a", "*.md", "tea.md, x", "#abcdef"),
        *("tea.md:1", "tea.md:1-2", "memory:1", "qmd://notes/te%61.md", "/nowhere/a.txt"),
        *("2025-11-29", "9999-12-31", "7d", "00000000-0000-4000-8000-000000000000", " t ", "a"),
    ]
)


def likely(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values as a schema wants them, and a little beyond its bounds."""
    if "anyOf" in schema:
        return st.one_of([likely(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("type") == "object" and "properties" in schema:
        inner = {name: likely(each) | ODD for name, each in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=inner)
    kinds: dict[str | None, st.SearchStrategy[Any]] = {
        "string": TEXTS,
        "integer": st.integers(-1, 102) | st.integers(0, 10**9),
        "number": st.floats(-2, 2),
        "boolean": st.booleans(),
        "object": st.dictionaries(KEYS, ODD, max_size=2),
    }
    if schema.get("type") == "array":
        return st.lists(likely(schema.get("items", {})), max_size=3)
    return kinds.get(schema.get("type"), ODD)


def call_of(tool: Tool) -> st.SearchStrategy[tuple[Tool, dict[str, Any]]]:
    schema = tool.arguments.schema
    known = {name: likely(each) for name, each in schema.get("properties", {}).items()}
    needed = {name: known[name] for name in schema.get("required", ())}
    usual = st.fixed_dictionaries(
        needed, optional={name: each for name, each in known.items() if name not in needed}
    )
    odd = st.dictionaries(st.sampled_from([*known, "other"]), ODD, max_size=3)
    return st.tuples(st.just(tool), st.builds(dict.__or__, usual, odd) | usual)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_any_arguments_get_a_result_or_an_error_message(name: str, data: st.DataObject) -> None:
    surface = load(name)
    calls = st.lists(st.sampled_from(surface.tools).flatmap(call_of), max_size=6)
    config = Config(models_dir="/nowhere")  # without a reranker
    with Database(":memory:", embedder=Letters(), config=config) as db:
        db.documents.ingest_text("tea leaves", source="tea.md", library="notes")
        db.memories.add("t", "user", "tea")
        db.vectors.add("a", [1.0, 0.5])
        for tool, raw in data.draw(calls):
            exposed = ExposedTool(name=tool.name, surface=surface, tool=tool)
            reply = call(exposed, db, raw, Grant(roots=()))  # which reads no file
            said = "".join(block.text for block in reply.content)
            assert INSIDE not in said, (tool.name, raw)
            if tool.arguments.output and not reply.failed:
                valid(reply.structured, tool.arguments.output)
                known = tool.arguments.output["properties"].keys() | {"note"}
                assert reply.structured.keys() <= known, tool.name
