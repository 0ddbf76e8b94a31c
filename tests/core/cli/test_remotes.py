from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.support_cli import Commands


@pytest.fixture
def two(notes: Commands, tmp_path: Path) -> Commands:
    """A file with a remote, and a copy of the file, which has none."""
    (tmp_path / "shared").mkdir()
    notes.run("copy", "copy.db")
    notes.run("remote", "add", "cloud", str(tmp_path / "shared"))
    return notes


def test_two_files_meet_in_a_folder(two: Commands, tmp_path: Path) -> None:
    assert "0 bundles" in two.run("remote", "list")
    sent = two.run("remote", "sync")
    assert "cloud: 0 bundles received, 4 versions sent in 1 bundle" in sent
    two.run("--db", "copy.db", "remote", "add", "cloud", str(tmp_path / "shared"))
    two.run("--db", "copy.db", "delete", "tea.md")
    two.run("--db", "copy.db", "remote", "sync", "cloud")
    done = json.loads(two.run("remote", "sync", "--json"))["exchanged"]
    assert done[0]["deleted"] == ["notes/tea.md"] and done[0]["problem"] == ""
    assert "tea.md" not in two.run("list")
    [listed] = json.loads(two.run("remote", "list", "--json"))["remotes"]
    assert listed["bundles"] == 2 and len(listed["machines"]) == 1
    assert "what lies there stays" in two.run("remote", "remove", "cloud")
    assert len(list((tmp_path / "shared").iterdir())) == 2


def test_a_problem_is_an_exit_code_and_a_torn_bundle_a_note(two: Commands, tmp_path: Path) -> None:
    two.run("remote", "sync")
    (tmp_path / "shared" / f"{'a' * 64}.bundle").write_bytes(b"half")
    torn = two.invoke("remote", "sync")
    assert torn.exit_code == 0 and "refused aaaa" in torn.stderr
    assert "problem: aaaa" in two.run("remote", "list")
    shutil.rmtree(tmp_path / "shared")
    gone = two.invoke("remote", "sync")
    assert gone.exit_code == 1 and "is its disk there?" in gone.stderr


def test_a_bundle_that_is_none_is_an_exit_code(two: Commands, tmp_path: Path) -> None:
    name = f"{hashlib.sha256(b'').hexdigest()}.bundle"
    (tmp_path / "shared" / name).touch()
    refused = two.invoke("remote", "sync")
    assert refused.exit_code == 1 and "cloud: 1 bundle refused" in refused.stderr
    assert f"refused {name}: it is no bundle" in refused.stderr and "1 bundle (" in refused.stdout


def test_a_remote_that_cannot_be_added_makes_no_database(two: Commands, tmp_path: Path) -> None:
    add = ("--db", "new.db", "remote", "add", "cloud")
    refused = two.invoke(*add, str(tmp_path / "missing"))
    assert refused.exit_code == 1 and "is its disk there?" in str(refused.exception)
    assert not list(tmp_path.rglob("new.db"))
    assert "added cloud" in two.run(*add, str(tmp_path / "shared"))
    assert list(tmp_path.rglob("new.db"))


def test_a_passphrase_is_asked_for_only_where_somebody_is(
    two: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    place = str(tmp_path / "secret")
    refused = two.invoke("remote", "add", "secret", place, "--encrypted")
    assert refused.exit_code == 1 and "MCPVECTORDB_REMOTE_PASSPHRASE" in refused.stderr
    monkeypatch.setenv("MCPVECTORDB_REMOTE_PASSPHRASE", "correct horse")
    assert "(encrypted)" in two.run("remote", "add", "secret", place, "--encrypted")
    two.run("remote", "sync", "secret")
    monkeypatch.delenv("MCPVECTORDB_REMOTE_PASSPHRASE")
    assert two.invoke("remote", "sync", "secret").exit_code == 1
    assert two.invoke("remote", "sync", "cloud").exit_code == 0
