from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support_cli import Commands
from tests.support_postgres import published, rows


def filled(folder: Path) -> Commands:
    commands = Commands(folder)
    for name, library in (("tea", "default"), ("plan", "work")):
        (folder / f"{name}.md").write_text(f"# {name}\n\nAbout {name}.\n")
        commands.run("ingest", "--no-embed", str(folder / f"{name}.md"), "--library", library)
    return commands


def test_publish_says_what_was_sent_and_what_waits(tmp_path: Path, postgres_url: str) -> None:
    shell = filled(tmp_path)
    said = shell.invoke("publish", postgres_url, "--origin", "mine")
    assert said.exit_code == 0, said.output
    assert "published as mine in " in said.stdout
    assert "2 documents: 2 added, 0 updated, 0 deleted, 0 unchanged" in said.stdout
    assert "2 passages wait for their embedding" in said.stderr
    again = json.loads(shell.run("publish", postgres_url, "--origin", "mine", "--json"))
    assert again["documents"] == {"added": 0, "updated": 0, "deleted": 0, "unchanged": 2}


def test_publish_takes_libraries(tmp_path: Path, postgres_url: str) -> None:
    shell = filled(tmp_path)
    shell.run("publish", postgres_url, "--origin", "work", "--library", "work")
    assert {row["library"] for row in published(postgres_url, "work")["documents"]} == {"work"}
    refused = shell.invoke("publish", postgres_url, "--library", "wrok")
    assert refused.exit_code == 1 and "did you mean 'work'" in str(refused.exception)


def test_grant_lets_a_role_read_or_publish_or_do_nothing(tmp_path: Path, postgres_url: str) -> None:
    shell = filled(tmp_path)
    rows(postgres_url, "CREATE ROLE cli_reader LOGIN")
    try:
        shell.run("publish", postgres_url, "--origin", "mine")
        given = "SELECT origin, publishes FROM mcpvectordb.grants WHERE role = 'cli_reader'"
        assert "cli_reader may read: mine" in shell.run(
            "grant", postgres_url, "cli_reader", "--origin", "mine"
        )
        assert rows(postgres_url, given) == [(0, False)]
        assert "may read and publish: all origins" in shell.run(
            "grant", postgres_url, "cli_reader", "--publish"
        )
        assert rows(postgres_url, given) == [(None, True)]
        assert "cli_reader may do nothing" in shell.run(
            "grant", postgres_url, "cli_reader", "--none"
        )
        assert rows(postgres_url, given) == []
        assert "no role 'ghost'" in str(shell.invoke("grant", postgres_url, "ghost").exception)
    finally:
        rows(postgres_url, "DROP OWNED BY cli_reader")
        rows(postgres_url, "DROP ROLE cli_reader")


@pytest.mark.parametrize("command", ["publish", "grant"])
def test_a_server_that_cannot_be_reached_ends_the_command_without_the_password(
    tmp_path: Path, command: str
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[test]'")
    role = ("someone",) if command == "grant" else ()
    done = filled(tmp_path).invoke(command, "postgresql://me:secret@127.0.0.1:9/db", *role)
    assert done.exit_code == 1 and "cannot be reached" in str(done.exception)
    assert "secret" not in f"{done.output}{done.exception}"
