"""Commands about other machines: remote."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.history import merged_lines
from mcpvectordb.cli.main import database_path, given_database, opened
from mcpvectordb.cli.options import json_option
from mcpvectordb.cli.output import bar, fail, quantity, show, show_result

if TYPE_CHECKING:
    from mcpvectordb import Database, Exchanged, Remote


@click.group()
def remote() -> None:
    """Let copies of this file on other machines exchange what changed, through a common place.

    A server exchanges by itself, after writes and now and then. Remotes belong to this machine:
    they are not in the file.
    """


@remote.command()
@click.argument("name")
@click.argument("target")
@click.option("--encrypted", is_flag=True, help="Ask for a passphrase; whoever has it can read.")
@click.option(
    "--passphrase-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encrypt with the passphrase in FILE, which servers read, too. Otherwise "
    "MCPVECTORDB_REMOTE_PASSPHRASE has it, or you are asked.",
)
def add(name: str, target: str, encrypted: bool, passphrase_file: Path | None) -> None:
    """Add a remote NAME, and exchange with it for the first time by `remote sync`.

    TARGET is a folder that Dropbox, Syncthing or a share brings to other machines, git+URL of a
    repository, or host:path of a folder that is reached by ssh. git and ssh are the programs of
    this machine, with the keys that they have.
    """
    file = given_database() or database_path()
    if isinstance(file, Path) and not file.expanduser().exists():
        _check_target(target)  # before there is a database
    with opened(make=True) as db:
        passphrase = ""
        if encrypted and not passphrase_file and not db.config.remote_passphrase:
            passphrase = _asked(confirm=True)
        done = db.remotes.add(
            name,
            target,
            encrypted=encrypted or passphrase_file is not None,
            passphrase=passphrase,
            passphrase_file=passphrase_file or "",
        )
    show(f"added {_line(done)}: `mcpvectordb remote sync {name}` exchanges with it")


def _check_target(target: str) -> None:
    """Raise an error for a target that cannot be reached."""
    from mcpvectordb.remotes.targets import target_of

    with tempfile.TemporaryDirectory(prefix="mcpvectordb-") as cache:
        target_of(target, Path(cache)).names()


@remote.command()
@click.argument("name")
def remove(name: str) -> None:
    """Exchange with the remote NAME no more; what lies there stays."""
    with opened() as db:
        db.remotes.remove(name)
    show(f"removed {name}; what lies there stays")


@remote.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List remotes: where they are, the last exchange, and what was wrong with it."""
    with opened() as db:
        found = db.remotes.browse()
    note = "" if found else "no remote yet: `mcpvectordb remote add NAME TARGET`"
    show_result({"remotes": found}, map(_line, found), [note], as_json=as_json)


@remote.command()
@click.argument("name", required=False)
@json_option
def sync(name: str | None, as_json: bool) -> None:
    """Exchange with the remote NAME, or with all: take what is new there, send what is new here.

    What came is merged as `merge` does it: of two changes of the same thing the later wins, and
    deletions count as changes. A bundle that is half-written or not sound is refused, and tried
    again the next time; the exit code is then 1, unless it may only be on its way.
    """
    from mcpvectordb.remotes.records import NOT_WHOLE

    with opened() as db:
        passphrase = _passphrase(db, name)
        with bar("merging", "items") as move:
            done = db.remotes.sync(name, passphrase=passphrase, progress=move)
    lines = [line for each in done for line in _exchanged(each)]
    notes = [f"{each.name}: {note}" for each in done for note in _notes(each)]
    if not done:
        notes = ["no remote yet: `mcpvectordb remote add NAME TARGET`"]
    show_result({"exchanged": done}, lines, notes, as_json=as_json)
    problems = [f"{each.name}: {each.problem}" for each in done if each.problem]
    for each in done:
        if refused := sum(not reason.endswith(NOT_WHOLE) for reason in each.refused):
            problems.append(f"{each.name}: {quantity(refused, 'bundle')} refused")
    if problems:
        fail("; ".join(problems))


def _passphrase(db: Database, name: str | None) -> str:
    """What a person types, if a remote is encrypted and nothing else says the passphrase."""
    asked = any(
        each.encrypted and not each.passphrase_file and name in (None, each.name)
        for each in db.remotes.browse()
    )
    return _asked() if asked and not db.config.remote_passphrase else ""


def _asked(*, confirm: bool = False) -> str:
    if not sys.stdin.isatty():
        fail(
            "the remote is encrypted, and nobody can be asked for its passphrase: set "
            "MCPVECTORDB_REMOTE_PASSPHRASE, or add it with --passphrase-file"
        )
    return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True))


def _line(remote: Remote) -> str:
    facts = [
        remote.name,
        remote.target + (" (encrypted)" if remote.encrypted else ""),
        quantity(remote.bundles, "bundle"),
        f"with {', '.join(remote.machines)}" if remote.machines else "",
        f"last {remote.exchanged_at[:19].replace('T', ' ')}" if remote.exchanged_at else "",
        remote.problem and f"problem: {remote.problem}",
    ]
    return "  ".join(filter(None, facts))


def _exchanged(done: Exchanged) -> Iterator[str]:
    if not done.problem:
        yield from merged_lines(done)
        received = f"{quantity(done.received, 'bundle')} received"
        sent = f"{quantity(done.items, 'version')} sent in {quantity(done.sent, 'bundle')}"
        yield f"{done.name}: {received}, {sent} ({done.bytes:,} bytes)"


def _notes(done: Exchanged) -> Iterator[str]:
    if done.forgotten:
        yield f"forgotten for good, as on another machine: {quantity(done.forgotten, 'item')}"
    yield from (f"refused {each}" for each in done.refused)
    yield from (f"not there yet: {each}" for each in done.missing)
    if done.note:
        yield done.note + (": run `mcpvectordb embed`" if "embeddings" in done.note else "")
