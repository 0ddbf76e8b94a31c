from __future__ import annotations

import json

from mcpvectordb import Access
from tests.support_cli import Shell


def client(shell: Shell) -> tuple[Access, str]:
    """A client with a token, let in beside the shell."""
    access = Access(shell.db, folder=shell.folder / "data" / "mcpvectordb")
    about = {"client_name": "Phone\x1b[31m", "redirect_uris": ["https://phone.test/back"]}
    code = access.consent("c", about, ["read", "write"], "https://notes.test/mcp", {})
    issued = access.exchange(code, "code", ["read"])
    assert issued is not None
    return access, issued[0]


def test_the_passphrase_is_read_from_a_pipe_and_checked(shell: Shell) -> None:
    shell.run("access", "passphrase", stdin="short\n", code=1)
    assert "12 to 1,000 characters" in shell.err
    assert shell.run("access", "passphrase", stdin="four words nobody guesses\n") == "set\n"
    access, token = client(shell)
    access.check_passphrase("four words nobody guesses")
    told = shell.run("access", "passphrase", stdin="another one than before\n")
    assert "1 client that you let in before can still come" in told
    assert access.token(token, "access") is not None


def test_clients_are_listed_and_let_out(shell: Shell) -> None:
    assert shell.run("access", "list") == ""
    assert "no client was let in" in shell.err
    access, token = client(shell)
    line = shell.run("access", "list")
    assert "phone.test  read write  at https://notes.test/mcp" in line
    assert "\x1b" not in line
    [listed] = json.loads(shell.run("access", "list", "--json"))["clients"]
    assert shell.run("access", "revoke", str(listed["id"])) == "revoked: 1 client\n"
    assert access.token(token, "access") is None
    shell.run("access", "revoke", str(listed["id"]), code=1)
    assert "no client has the id" in shell.err


def test_all_are_let_out_after_asking(shell: Shell) -> None:
    access, token = client(shell)
    shell.run("access", "revoke", code=2)
    shell.run("access", "revoke", "--all", code=1)
    assert "say --yes" in shell.err
    assert access.token(token, "access") is not None
    assert shell.run("access", "revoke", "--all", "--yes") == "revoked: 1 client\n"
    assert access.token(token, "access") is None
