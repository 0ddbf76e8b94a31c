from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.support_cli import Shell


@pytest.fixture
def published(shell: Shell, postgres_url: str, tmp_path: Path) -> Shell:
    """The program on a published database."""
    with Database(tmp_path / "notes.db", embedder=Letters()) as file:
        file.documents.ingest_text(
            "Green tea is brewed for three minutes.", source="notes/tea.md", title="Tea"
        )
        file.memories.add("chores", "user", "Buy tea")
        file.publish(postgres_url, origin="desk")
    url: Any = postgres_url
    shell.db = url
    return shell


def test_commands_that_read_take_a_url(published: Shell) -> None:
    found = json.loads(published.run("search", "green tea", "--mode", "text", "--json"))
    assert found["hits"][0]["item"]["document"]["title"] == "Tea"
    assert "tea.md" in published.run("search", "green", "--where", "origin=desk")
    published.run("search", "green", "-w", "origin=d")
    assert "there is no origin 'd'" in published.err
    assert "tea.md" in published.run("list")
    assert "Green tea" in published.run("get", "tea.md")
    status = published.run("status")
    assert "postgresql://" in status and f"{'published from':<22} desk" in status
    assert json.loads(published.run("status", "--json"))["origins"] == ["desk"]


def test_commands_that_write_or_need_a_file_say_so(published: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    for arguments in (
        ["ingest", "a.md"],
        ["delete", "tea.md"],
        ["history"],
        ["check"],
        ["compact"],
        ["copy", "b.db"],
        ["export", "b.jsonl"],
        ["model", "use", "all-MiniLM-L6-v2"],
    ):
        published.run(*arguments, code=1)
        assert "file" in published.err and "internal" not in published.err, published.err
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:secret@127.0.0.1:9/x", "cannot be reached"),
        ("POSTGRESQL://me:secret@127.0.0.1:9/x", "cannot be reached"),
        ("postgresql+psycopg://me:secret@127.0.0.1:9/x", "cannot be reached"),
        ("postgresql://me:sec/secret@127.0.0.1:9/x", "%2F"),
        ("mysql://me:secret@127.0.0.1:9/x", "names no database"),
    ],
)
def test_a_server_that_is_not_there_is_one_line(shell: Shell, url: Any, said: str) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")
    shell.db = url
    shell.run("search", "tea", code=1)
    assert said in shell.err and "sec" not in shell.err
    assert len(shell.err.splitlines()) == 1
