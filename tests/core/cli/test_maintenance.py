from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import leave_a_foreign_log
from tests.support_cli import Commands, Shell


def test_status_and_check_say_whether_the_parser_is_confined(
    notes: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcpvectordb.ingest import sandbox

    for lacking, said in (
        ("", "confined: a process per file; no network, no writes, no other processes"),
        ("there is no Landlock", "not wholly confined: there is no Landlock"),
    ):
        monkeypatch.setattr(sandbox, "lacking", lambda lacking=lacking: lacking)
        assert f"{'parser':<22} {said}\n" in notes.run("status")
        checked = notes.invoke("check")
        assert checked.exit_code == 0 and checked.stdout == "sound\n"
        assert (f"the parser of files is {said}\n" in checked.stderr) is bool(lacking)
        assert json.loads(notes.run("check", "--json"))["parser"] == said
    monkeypatch.setenv("MCPVECTORDB_PARSE_SANDBOX", "false")
    assert "not confined: parse_sandbox is false" in notes.run("status")
    assert "not confined: parse_sandbox is false" in notes.invoke("check").stderr


def test_the_file_is_copied_compacted_and_rebuilt(filled: Shell) -> None:
    assert "copied to" in filled.run("copy", "copy.db")
    assert "bytes freed" in filled.run("compact")
    assert filled.run("rebuild").strip() == "rebuilt"
    assert filled.run("check").strip() == "sound"
    filled.run("copy", "copy.db", code=1)
    assert "exists already" in filled.err and "(overwrite)" in filled.err
    assert "copied to" in filled.run("copy", "copy.db", "--overwrite")


def test_check_exits_with_1_when_something_is_wrong(filled: Shell) -> None:
    import apsw

    other = apsw.Connection(str(filled.db))
    other.execute("DELETE FROM document_embeddings")
    other.close()
    assert "neither embedded nor waiting" in filled.run("check", code=1)


def test_a_file_that_is_no_database_is_refused_in_one_line(shell: Shell) -> None:
    shell.db.write_text("not a database, but precious")
    shell.run("status", code=1)
    assert (
        "not a SQLite database" in shell.err
        and shell.db.read_text() == "not a database, but precious"
    )


def test_a_log_of_another_file_is_named_by_the_command_that_sets_it_aside_and_by_status_and_check(
    notes: Commands,
) -> None:
    leave_a_foreign_log(notes.db)
    listed = notes.invoke("list")
    aside = f"{notes.db}-wal-set-aside-1"
    assert f"it was set aside as {aside}\n" in listed.stderr and "late.md" not in listed.stdout
    for command in ("status", "check"):
        done = notes.invoke(command)
        assert f"mcpvectordb: {aside} is the log of a file" in done.stderr and not done.exit_code
        assert "set aside as" not in done.stderr
    assert aside in json.loads(notes.run("status", "--json"))["notes"][0]
    Path(aside).unlink()
    assert "log" not in notes.invoke("status").stderr
