"""Commands about projects: project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import ask, json_option, yes_option
from mcpvectordb.cli.output import bar, quantity, show, show_result

if TYPE_CHECKING:
    from mcpvectordb import ListedProject


@click.group()
def project() -> None:
    """List, rename, merge and move projects.

    A folder belongs to the project of its repository, wherever that is moved to, else to one of its
    own. MCPVECTORDB_PROJECT, or a file .mcpvectordb.toml with project = "name", names another one.
    """


@project.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List projects with what belongs to them and their folders, the last used first."""
    with opened() as db:
        found, here = db.projects.browse(), db.projects.resolve(remember=False)
    lines = (_line(each, here=each.name == here.name) for each in found)
    note = "" if found else "no project yet: `remember`, or a hook of a host, makes the first one"
    show_result({"projects": found, "here": here.name}, lines, [note], as_json=as_json)


@project.command()
@click.argument("name")
@click.argument("new")
def rename(name: str, new: str) -> None:
    """Give the project NAME the name NEW, with its threads and libraries; `undo` takes it back."""
    with opened() as db, bar("renaming", "items") as move:
        moved = db.projects.rename(name, new, progress=move)
    show(f"{name} is {new} now: {quantity(moved, 'item')} moved")


@project.command()
@click.argument("name")
@click.argument("into")
@yes_option
def merge(name: str, into: str, yes: bool) -> None:
    """Put all of the project NAME into the project INTO; asks first, and `undo` takes it back."""
    with opened() as db:
        ask(f"What belongs to {name} will belong to {into}.", yes)
        with bar("merging", "items") as move:
            moved = db.projects.merge(name, into, progress=move)
    show(f"{name} is a part of {into} now: {quantity(moved, 'item')} moved")


@project.command()
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path))
def move(name: str, folder: Path) -> None:
    """Let FOLDER belong to the project NAME, as after a folder was moved.

    A git repository that was moved needs nothing: it is known by its first commit.
    """
    with opened() as db:
        done = db.projects.move(name, folder)
    show(f"{done.folder} belongs to {done.name} now")


def _line(project: ListedProject, *, here: bool) -> str:
    facts = [
        f"{project.name}{' (here)' if here else ''}",
        f"{quantity(project.memories, 'memory')} in {quantity(project.threads, 'thread')}",
        quantity(project.documents, "document"),
        project.last_at[:10],
        ", ".join(key if key[:4] != "git:" else key[:12] for key in project.keys),
    ]
    return "  ".join(filter(None, facts))
