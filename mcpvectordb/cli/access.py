"""Commands about clients that come from elsewhere through OAuth: access."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.main import database_path, given_database
from mcpvectordb.cli.options import ask, json_option, yes_option
from mcpvectordb.cli.output import fail, quantity, show, show_result

if TYPE_CHECKING:
    from mcpvectordb import Access


@click.group()
def access() -> None:
    """Let web and phone assistants in at a server's --public-url, and out again.

    It is about one database (--db). The passphrase and the tokens are in your data folder, never in
    the database.
    """


@access.command()
def passphrase() -> None:
    """Set the passphrase with which you let clients in; it is asked for, or read from a pipe.

    Clients that were let in before stay so.
    """
    if sys.stdin.isatty():
        given = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline()
    here = _access()
    here.set_passphrase(given)
    stay = len(here.connected())
    show(
        f"set; {quantity(stay, 'client')} that you let in before can still come" if stay else "set"
    )


@access.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the clients that were let in and can still come, the last used first."""
    found = _access().connected()
    lines = (
        f"{each.id}  {each.name}  {each.host}  {' '.join(each.scopes)}  at {each.resource}  "
        f"since {each.created_at[:10]}  last token {each.last_at[:16]}"
        for each in found
    )
    note = "" if found else "no client was let in"
    show_result({"clients": found}, lines, [note], as_json=as_json)


@access.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=int)
@click.option("--all", "every", is_flag=True, help="Every client.")
@yes_option
def revoke(ids: tuple[int, ...], every: bool, yes: bool) -> None:
    """Let clients out by their ids of `access list`; a running server knows it at once."""
    here = _access()
    if every and not ids:
        ids = tuple(each.id for each in here.connected())
        ask(f"This lets {quantity(len(ids), 'client')} out.", yes)
    elif every or not ids:
        fail("name clients by their ids of `mcpvectordb access list`, or take --all", 2)
    here.revoke(*ids)
    show(f"revoked: {quantity(len(ids), 'client')}")


def _access() -> Access:
    from mcpvectordb import Access

    return Access(given_database() or database_path())
