"""The server over a published database: tools that read answer as over the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.__main__ import tools
from mcpvectordb_server.hosts import command_line
from mcpvectordb_server.options import parse
from mcpvectordb_server.replies import Reply
from mcpvectordb_server.surface import call
from mcpvectordb_server.surfaces import desk_resources
from tests.support import Letters

# Arguments for tools that need some, by a name of theirs.
ARGUMENTS: dict[str, Any] = {
    "query": "green tea",
    "file": "tea.md",
    "pattern": "notes/tea.md",
    "place": "tea.md",
    "quotation": "Green tea is brewed",
    "context_ids": [1],
}
# What differs: the place and size of the database, times, and what of it can be changed.
STATUS = {"get_stats", "get_statistics", "status", "qmd_status", "desk_status"}


@pytest.fixture
def both(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    """A file and what it has published."""
    with Database(tmp_path / "notes.db", embedder=Letters()) as file:
        file.documents.ingest_text(
            "# Tea\n\nGreen tea is brewed for three minutes.", source="notes/tea.md", title="Tea"
        )
        file.documents.ingest_text("The pump does not start.", source="notes/pump.md")
        file.memories.add("chores", "user", "Buy green tea", tags=["tea"])
        file.vectors.add("v", [1.0, 2.0])
        file.publish(postgres_url)
        with Database(postgres_url, embedder=Letters()) as engine:
            yield file, engine


def test_only_tools_that_read_are_offered_and_they_answer_as_over_the_file(
    both: tuple[Database, Database], postgres_url: str
) -> None:
    options = parse(["--db", postgres_url, "--surface", "all"], {})
    assert options.db == postgres_url and options.config.read_only
    _, offered = tools(options)
    assert len(offered) > 20 and all(each.tool.hints.read_only for each in offered.values())
    file, engine = both
    id = file.documents.browse()[0].id
    for name, each in offered.items():
        needed = each.tool.arguments.schema.get("required", [])
        raw = {one: {**ARGUMENTS, "doc_id": id}[one] for one in needed}
        if each.surface.name == "vector_store" and "query" in raw:
            raw["query"] = [1.0, 2.0]
        ours, theirs = (call(each, db, raw) for db in (file, engine))
        assert not ours.failed and not theirs.failed, (name, theirs)
        if name not in STATUS:
            assert _plain(ours) == _plain(theirs), name


def _plain(reply: Reply) -> Any:
    """A reply without how long it took."""
    structured = dict(reply.structured) if isinstance(reply.structured, dict) else reply.structured
    if isinstance(structured, dict):
        structured.pop("stats", None)
        return structured
    return structured or reply.content


def test_a_tool_that_writes_says_where_to_write(
    both: tuple[Database, Database], tmp_path: Path
) -> None:
    _, offered = tools(parse(["--db", str(tmp_path / "x.db"), "--surface", "desk"], {}))
    _, engine = both
    reply = call(offered["remember"], engine, {"text": "a memory"})
    assert reply.failed and "mcpvectordb publish" in str(reply.content)


def test_hosts_start_the_server_with_the_url_as_it_is(postgres_url: str) -> None:
    assert command_line(postgres_url)[3:5] == ["--db", postgres_url]


def test_resources_are_listed_completed_and_read_as_over_the_file(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_resources, "PAGE", 3)
    names = ["b.md", "B.md", "a-b.md", "aB.md", "ä.md", "a/b.md", "_b.md", "10.md", "9.md"]
    with Database(tmp_path / "notes.db", embedder=Letters()) as file:
        for library in ("one", "One", "two"):
            file.documents.ingest_many(names, sources=names, library=library)
        for number in range(5):
            file.memories.add("tea", "agent", f"fact {number}", tags=["t"])
        file.publish(postgres_url)
        with Database(postgres_url, embedder=Letters()) as engine:
            ours, theirs = (_listed(each) for each in (file, engine))
            assert len(ours) == len(set(ours)) == 3 * len(names) + 5
            assert sorted(ours) == sorted(theirs)
            for each in desk_resources.templates(lambda db, place: place, str):
                if each.complete is not None:
                    assert sorted(each.complete(file, "")) == sorted(each.complete(engine, ""))
            assert engine.last_change() == engine.last_change()


def _listed(db: Database) -> list[str]:
    """The names of all resources, page by page."""
    found, after = desk_resources.page(db, ())
    every = [each.name for each in found]
    while after:
        found, after = desk_resources.page(db, after)
        every += [each.name for each in found]
    return every
