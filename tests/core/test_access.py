from __future__ import annotations

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest

from mcpvectordb import Access, Database, InvalidInput, NewerFile, NotFound

WORDS = "four words nobody guesses"
ABOUT = {"client_name": "Test", "redirect_uris": ["https://client.test/back"]}


class Now:
    """A clock that stands still."""

    at = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def access(tmp_path: Path, now: Now) -> Access:
    return Access(tmp_path / "notes.db", folder=tmp_path, clock=now, work=16)


def let_in(access: Access, client: str = "c") -> tuple[str, str]:
    """The first access and refresh token of a client."""
    code = access.consent(client, ABOUT, ["read", "write"], "https://notes.test/mcp", {})
    issued = access.exchange(code, "code", ["read", "write"])
    assert issued is not None
    return issued


def test_the_passphrase_is_known_again_as_other_keyboards_write_it(access: Access) -> None:
    assert not access.has_passphrase()
    access.set_passphrase("vier wörter die keiner rät\n")
    assert access.has_passphrase()
    access.check_passphrase("vier wo\u0308rter die keiner ra\u0308t ")
    with pytest.raises(InvalidInput, match="not the passphrase"):
        access.check_passphrase("vier worter die keiner rat")


@pytest.mark.parametrize("given", ["", "eleven char", " " * 20, "x" * 1_001])
def test_a_passphrase_that_is_short_or_endless_is_refused(given: str, access: Access) -> None:
    with pytest.raises(InvalidInput, match="12 to 1,000 characters"):
        access.set_passphrase(given)
    assert not access.has_passphrase()


def test_without_a_passphrase_none_is_right(access: Access) -> None:
    with pytest.raises(InvalidInput, match="mcpvectordb access passphrase"):
        access.check_passphrase("")


def test_after_five_wrong_passphrases_each_attempt_waits_twice_as_long(
    access: Access, now: Now
) -> None:
    access.set_passphrase(WORDS)
    for wait in (0, 0, 0, 0, 30, 60, 120):
        with pytest.raises(InvalidInput, match="not the passphrase"):
            access.check_passphrase("wrong")
        if wait:
            now.at += wait - 1
            with pytest.raises(InvalidInput, match=r"too many .* in 2 seconds"):
                access.check_passphrase(WORDS)
            now.at += 1
    access.check_passphrase(WORDS)
    with pytest.raises(InvalidInput, match="not the passphrase"):
        access.check_passphrase("wrong")


def test_a_new_passphrase_ends_the_wait_and_leaves_clients_in(access: Access) -> None:
    access.set_passphrase(WORDS)
    let_in(access)
    for _ in range(5):
        with pytest.raises(InvalidInput):
            access.check_passphrase("wrong")
    access.set_passphrase("another one than before")
    access.check_passphrase("another one than before")
    assert [each.name for each in access.connected()] == ["Test"]


def test_nothing_secret_is_in_the_file_and_nobody_else_can_read_it(access: Access) -> None:
    access.set_passphrase(WORDS)
    code = access.consent("c", ABOUT, ["read"], "https://notes.test/mcp", {})
    first = access.exchange(code, "code", ["read"])
    assert first is not None
    kept = access.path.read_bytes()
    assert not [each for each in (WORDS, code, *first) if each.encode() in kept]
    if os.name == "posix":
        assert access.path.stat().st_mode & 0o777 == 0o600
        access.path.chmod(0o644)
        with pytest.raises(InvalidInput, match="chmod 600"):
            access.connected()


def test_nothing_of_it_is_in_the_database_or_in_a_copy_of_it(tmp_path: Path) -> None:
    path, copy = tmp_path / "notes.db", tmp_path / "copy.db"
    with Database(path) as db:
        before = path.read_bytes()
        tokens = let_in(Access(path))
        assert path.read_bytes() == before
        db.copy_to(copy)
    assert hashlib.sha256(tokens[0].encode()).digest() in Access(path).path.read_bytes()
    assert hashlib.sha256(tokens[0].encode()).digest() not in copy.read_bytes()
    assert Access(path).token(tokens[0], "access") is not None
    assert Access(copy).token(tokens[0], "access") is None
    assert Access(copy).connected() == []


def test_a_token_is_of_one_database_however_its_path_is_written(tmp_path: Path, now: Now) -> None:
    here = Access(tmp_path / "notes.db", folder=tmp_path, clock=now)
    token, _ = let_in(here)
    (tmp_path / "link.db").symlink_to(tmp_path / "notes.db")
    for name, known in (("x/../notes.db", True), ("link.db", True), ("other.db", False)):
        other = Access(tmp_path / name, folder=tmp_path, clock=now)
        assert (other.token(token, "access") is not None) is known
    urls = [
        Access(f"postgresql://me{secret}@host/db", folder=tmp_path).path
        for secret in ("", ":one", ":two:/@")
    ]
    assert urls[0] == urls[1]
    with pytest.raises(InvalidInput, match="in memory"):
        Access(":memory:")


def test_what_was_revoked_is_gone_and_its_id_is_not_used_again(access: Access) -> None:
    token, refresh = let_in(access)
    [known] = access.connected()
    access.revoke(known.id)
    assert (access.token(token, "access"), access.token(refresh, "refresh")) == (None, None)
    with pytest.raises(NotFound, match="access list"):
        access.revoke(known.id)
    let_in(access)
    assert access.connected()[0].id > known.id


def test_a_client_that_does_not_come_for_thirty_days_is_forgotten(access: Access, now: Now) -> None:
    _, refresh = let_in(access)
    now.at += 29 * 86_400
    issued = access.exchange(refresh, "refresh", ["read"])
    assert issued is not None
    now.at += 29 * 86_400
    assert len(access.connected()) == 1
    now.at += 2 * 86_400
    assert access.exchange(issued[1], "refresh", ["read"]) is None
    assert access.connected() == []


def test_a_file_of_a_newer_version_is_left_alone(access: Access) -> None:
    import apsw

    access.set_passphrase(WORDS)
    sql = apsw.Connection(str(access.path))
    sql.pragma("user_version", 2)
    sql.close()
    with pytest.raises(NewerFile):
        access.has_passphrase()


def _exchanged(folder: Path, refresh: str) -> bool:
    return (
        Access(folder / "notes.db", folder=folder).exchange(refresh, "refresh", ["read"])
        is not None
    )


def test_of_many_processes_one_gets_tokens_for_a_refresh_token(tmp_path: Path) -> None:
    here = Access(tmp_path / "notes.db", folder=tmp_path)
    _, refresh = let_in(here)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        done = pool.starmap(_exchanged, [(tmp_path, refresh)] * 6)
    assert done.count(True) == 1
    assert here.connected() == []
