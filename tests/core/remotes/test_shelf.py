from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Config, Database, InvalidInput, MCPVectorDBError, NotFound, ReadOnly
from mcpvectordb.remotes import shelf
from mcpvectordb.storage.lock import locked
from tests.core.remotes.conftest import Open
from tests.support import Letters

PATIENCE = 60.0
WORDS = "correct horse battery staple"


def until(done: Callable[[], object]) -> None:
    """Wait for something to become true; a machine that is slow fails no test."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_remotes_are_added_listed_and_removed(machine: Open, home: Path) -> None:
    db = machine("laptop")
    [listed] = db.remotes.browse()
    assert (listed.name, listed.target, listed.exchanged_at) == ("others", str(home / "shared"), "")
    with pytest.raises(InvalidInput, match="already"):
        db.remotes.add("others", home / "shared")
    db.remotes.sync()
    assert db.remotes.browse()[0].exchanged_at
    db.remotes.remove("others")
    assert db.remotes.browse() == db.remotes.sync() == []
    for call in (db.remotes.remove, db.remotes.sync):
        with pytest.raises(NotFound, match="known are: none"):
            call("others")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "..", ".x", "x" * 51])
def test_a_name_that_is_none_is_refused(machine: Open, home: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="is no name"):
        machine("laptop").remotes.add(name, home / "shared")


def test_a_target_that_cannot_be_reached_is_not_added(machine: Open, home: Path) -> None:
    db = machine("laptop")
    with pytest.raises(MCPVectorDBError, match="is its disk there"):
        db.remotes.add("disk", home / "missing")
    assert [each.name for each in db.remotes.browse()] == ["others"]


def test_one_remote_that_cannot_be_reached_does_not_keep_others_from_theirs(
    machine: Open, home: Path
) -> None:
    db = machine("laptop")
    (home / "disk").mkdir()
    db.remotes.add("disk", home / "disk")
    (home / "disk").rmdir()
    db.documents.ingest_text("apple", source="a.md")
    disk, others = db.remotes.sync()
    assert "is its disk there" in disk.problem and others.sent == 1
    assert "is its disk there" in db.remotes.browse()[0].problem
    with pytest.raises(MCPVectorDBError, match="is its disk there"):
        db.remotes.sync("disk")


def test_nothing_of_a_remote_is_in_the_file_but_a_random_text(machine: Open, home: Path) -> None:
    db = machine("laptop")
    db.documents.ingest_text("apple", source="a.md")
    db.remotes.sync()
    db.copy_to(home / "copy.db")
    db.close()
    assert b"shared" not in (home / "laptop.db").read_bytes()
    with Database(home / "copy.db", embedder=Letters()) as copy:
        assert copy.remotes.browse() == []
        copy.remotes.add("others", home / "shared")
        [done] = copy.remotes.sync()
        assert done.received == 1 and done.sent == 0  # it has all of that
    assert all(each.stat().st_mode & 0o077 == 0 for each in (home / "data").rglob("*.db"))


def test_files_that_cannot_be_written_exchange_nothing(machine: Open, home: Path) -> None:
    machine("laptop").close()
    with Database(home / "laptop.db", config=Config(read_only=True)) as db:
        with pytest.raises(ReadOnly):
            db.remotes.sync()
        db.remotes.follow()
        assert db.remotes._thread is None
    with Database(":memory:") as db, pytest.raises(InvalidInput, match="in memory"):
        db.remotes.add("others", home / "shared")


def test_one_process_of_a_machine_exchanges_at_a_time(machine: Open) -> None:
    db = machine("laptop")
    with locked(db.path, "exchanging"), pytest.raises(MCPVectorDBError, match="another process"):  # type: ignore[union-attr]
        db.remotes.sync()
    assert len(db.remotes.sync()) == 1


# Encrypted.


def test_whoever_has_the_folder_reads_nothing_of_what_is_encrypted(
    machine: Open, home: Path
) -> None:
    laptop = machine("laptop", encrypted=True, passphrase=WORDS)
    laptop.documents.ingest_text("zebra crossing " * 20, source="zebra.md")
    laptop.remotes.sync(passphrase=WORDS)
    [path] = (home / "shared").iterdir()
    content = path.read_bytes()
    assert len(path.name) == 64 + len(".bundle") and "zebra" not in path.name
    head, body = content[:31], content[31:]
    assert head == b"mcpvectordb bundle 1 encrypted\n"
    # As many different bytes as random ones have; compressed JSON begins with x.
    assert b"zebra" not in body and len(set(body)) > 180
    desktop = machine("desktop", encrypted=True, passphrase=WORDS)
    [done] = desktop.remotes.sync(passphrase=WORDS)
    assert desktop.documents.count() == 1 and done.refused == ()
    for folder in (home / "data", home / "shared"):
        for each in folder.rglob("*"):
            assert each.is_dir() or WORDS.encode() not in each.read_bytes()
    for db in (laptop, desktop):
        assert WORDS.encode() not in db.path.read_bytes()


def test_a_wrong_passphrase_is_refused(machine: Open, home: Path) -> None:
    laptop = machine("laptop", encrypted=True, passphrase=WORDS)
    laptop.documents.ingest_text("apple", source="a.md")
    laptop.remotes.sync(passphrase=WORDS)
    with pytest.raises(InvalidInput, match="cannot be read with this passphrase"):
        machine("desktop", encrypted=True, passphrase="Tr0ub4dor")
    with pytest.raises(InvalidInput, match="it is encrypted"):
        machine("tablet")
    with pytest.raises(InvalidInput, match="MCPVECTORDB_REMOTE_PASSPHRASE"):
        machine("phone", encrypted=True)
    [done] = laptop.remotes.sync()
    assert "MCPVECTORDB_REMOTE_PASSPHRASE" in done.problem
    laptop.documents.ingest_text("pear", source="b.md")
    before = list((home / "shared").iterdir())
    with pytest.raises(InvalidInput, match="passphrase"):
        laptop.remotes.sync("others", passphrase="Tr0ub4dor")
    assert list((home / "shared").iterdir()) == before


def test_the_owner_of_the_folder_can_neither_change_nor_add_bundles(
    machine: Open, home: Path
) -> None:
    import hashlib

    laptop = machine("laptop", encrypted=True, passphrase=WORDS)
    laptop.documents.ingest_text("apple", source="a.md")
    laptop.remotes.sync(passphrase=WORDS)
    desktop = machine("desktop", encrypted=True, passphrase=WORDS)
    [path] = (home / "shared").iterdir()
    content = path.read_bytes()
    plain = next((Path(__file__).parents[2] / "fixtures").glob("*.bundle")).read_bytes()
    for at in (40, 60, len(content) - 1):  # the salt, the nonce, the text
        changed = bytearray(content)
        changed[at] ^= 1
        name = f"{hashlib.sha256(changed).hexdigest()}.bundle"
        (home / "shared" / name).write_bytes(changed)
    (home / "shared" / f"{hashlib.sha256(plain).hexdigest()}.bundle").write_bytes(plain)
    [done] = desktop.remotes.sync(passphrase=WORDS)
    assert done.received == 1 and len(done.refused) == 4
    assert sum("not encrypted" in each for each in done.refused) == 1
    assert desktop.documents.count() == 1


def test_nothing_is_sent_where_no_bundle_of_others_can_be_read(machine: Open, home: Path) -> None:
    plain = machine("plain")
    other = machine("other", encrypted=True, passphrase="Tr0ub4dor")
    laptop = machine("laptop", encrypted=True, passphrase=WORDS)
    laptop.memories.add("t", "user", "of the laptop")
    laptop.remotes.sync("others", passphrase=WORDS)
    before = list((home / "shared").iterdir())
    for db, passphrase, reason in (
        (plain, "", "it is encrypted"),
        (other, "Tr0ub4dor", "it cannot be read with this passphrase"),
    ):
        db.memories.add("t", "user", "not for this folder")
        with pytest.raises(InvalidInput, match=f"{before[0].name}: {reason}"):
            db.remotes.sync("others", passphrase=passphrase)
        assert list((home / "shared").iterdir()) == before
    desktop = machine("desktop", encrypted=True, passphrase=WORDS)
    desktop.memories.add("t", "user", "of the desktop")
    assert desktop.remotes.sync("others", passphrase=WORDS)[0].sent == 1


def test_what_is_half_written_does_not_keep_a_remote_from_being_checked(
    machine: Open, home: Path
) -> None:
    laptop = machine("laptop", encrypted=True, passphrase=WORDS)
    laptop.memories.add("t", "user", "of the laptop")
    laptop.remotes.sync("others", passphrase=WORDS)
    [path] = (home / "shared").iterdir()
    (home / "shared" / f"{'a' * 64}.bundle").touch()
    with pytest.raises(InvalidInput, match=f"{path.name}: it is encrypted"):
        machine("desktop")


def test_a_passphrase_comes_from_a_file_that_only_its_owner_reads(
    machine: Open, home: Path
) -> None:
    secret = home / "passphrase"
    secret.write_text(f"{WORDS}\n")
    secret.chmod(0o644)
    if os.name == "posix":
        with pytest.raises(InvalidInput, match="chmod 600"):
            machine("laptop", passphrase_file=secret)
    secret.write_text("\n")
    secret.chmod(0o600)
    with pytest.raises(InvalidInput, match="its first line is empty"):
        machine("laptop", passphrase_file=secret)
    secret.write_text(f"{WORDS}\n")
    laptop = machine("laptop", passphrase_file=secret)
    laptop.documents.ingest_text("apple", source="a.md")
    assert laptop.remotes.sync()[0].sent == 1
    desktop = machine("desktop", encrypted=True, config=Config(remote_passphrase=WORDS))
    assert desktop.remotes.sync()[0].received == 1
    secret.unlink()
    assert "cannot be read" in laptop.remotes.sync()[0].problem


# In a server.


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits less."""
    for name, seconds in (("QUIET", 0.2), ("LONGEST", 1.0), ("LOOK", 0.05)):
        monkeypatch.setattr(shelf, name, seconds)


def test_servers_exchange_by_themselves(machine: Open, at_once: None) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    desktop.remotes.follow()
    laptop.remotes.follow()
    laptop.documents.ingest_text("apple", source="a.md")
    until(lambda: laptop.remotes.browse()[0].bundles)
    until(lambda: desktop.documents.count() == 1)  # within the pause of a folder
    assert {each.actor for each in desktop.history()} == {"python"}
    assert "remote others" not in {each.actor for each in laptop.history()}
    thread = desktop.remotes._thread
    desktop.close()
    assert thread is not None and not thread.is_alive()


def test_a_remote_that_is_added_while_a_server_runs_is_found(
    machine: Open, home: Path, at_once: None
) -> None:
    db = machine("laptop")
    db.remotes.remove("others")
    db.remotes.follow()
    db.documents.ingest_text("apple", source="a.md")
    code = "import sys; from mcpvectordb import Database\nDatabase(sys.argv[1]).remotes.add('o', sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, db.path, home / "shared"], check=True)
    until(lambda: list((home / "shared").glob("*.bundle")))


def test_of_two_servers_one_exchanges(machine: Open, home: Path, at_once: None) -> None:
    db = machine("laptop")
    with locked(db.path, "remotes"):  # type: ignore[union-attr]
        db.remotes.follow()
        db.documents.ingest_text("apple", source="a.md")
        time.sleep(1)
        assert db.remotes.browse()[0].exchanged_at == ""
    until(lambda: list((home / "shared").glob("*.bundle")))  # the other one has ended


def test_a_server_without_writes_writes_nothing(machine: Open, home: Path, at_once: None) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("apple", source="a.md")
    for db in (laptop, desktop, laptop):
        db.remotes.sync()
    before = {each.name for each in (home / "shared").iterdir()}, laptop.data_version()
    laptop.remotes.follow()
    first = laptop.remotes.browse()[0].exchanged_at
    until(lambda: laptop.remotes.browse()[0].exchanged_at != first)
    assert before == ({each.name for each in (home / "shared").iterdir()}, laptop.data_version())
