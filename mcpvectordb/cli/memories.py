"""Commands about memories: remember, memories."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import ask, chosen_project, json_option
from mcpvectordb.cli.output import complain, fail, print_text, quantity, show, show_result
from mcpvectordb.cli.results import print_results
from mcpvectordb.projects.folders import AUTO

if TYPE_CHECKING:
    from mcpvectordb import Database, Memory

SHOWN = 200  # characters of a memory in a list

project_option = click.option(
    "--project",
    default=AUTO,
    metavar="NAME",
    help="The project; all: everything [environment: MCPVECTORDB_PROJECT; default: that of the "
    "folder you stand in].",
)
thread_option = click.option("--thread", default="", metavar="NAME", help="Only this thread.")
tag_option = click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="With one of these tags. Repeatable."
)
limit_option = click.option(
    "--limit", "-n", default=10, show_default=True, type=click.IntRange(min=0)
)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="TEXT")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag of it. Repeatable.")
@click.option("--thread", default="", metavar="NAME", help="Its topic inside of the project.")
@project_option
@json_option
def remember(
    words: tuple[str, ...], tags: tuple[str, ...], thread: str, project: str, as_json: bool
) -> None:
    """Keep a fact, decision or preference as a memory; - reads it from standard input.

    It says if nearly the same, or the contrary, is remembered in the project.
    """
    text = " ".join(words)
    if words == ("-",):
        from mcpvectordb.ingest.formats.charset import decode

        text = decode(sys.stdin.buffer.read())
    with opened(make=True) as db:
        scope = chosen_project(db, project, new=True)
        near = db.memories.near(text, project=scope and scope.name)
        place = scope.inside(thread) if scope else thread or "general"
        done = db.memories.add(place, "user", text, tags=tags or None)
    notes = [done.note, done.redacted]
    for each in near:
        if each.memory.id != done.memory.id:
            what = "it contradicts" if each.contradiction else "nearly the same is remembered:"
            notes.append(f"{what} {_line(each.memory)}")
    told = f"{'remembered' if done.status == 'added' else 'known'}: {_line(done.memory)}"
    result = {"status": done.status, "memory": done.memory, "redacted": done.redacted}
    show_result(result, [told], notes, as_json=as_json)


@click.group()
def memories() -> None:
    """List, search, show and forget memories of the project that you stand in."""


@memories.command("list")
@thread_option
@tag_option
@project_option
@limit_option
@click.option("--offset", default=0, type=click.IntRange(min=0))
@json_option
def list_(
    thread: str, tags: tuple[str, ...], project: str, limit: int, offset: int, as_json: bool
) -> None:
    """List memories, newest first."""
    with opened() as db:
        which = _which(db, project, thread, tags)
        found = db.memories.browse(limit=limit, offset=offset, **which)
        total = db.memories.count(**which)
    if not as_json:
        _tell(f"{len(found):,} of {_counted(total)}", which)
    result = {"memories": list(found), "total": total, "project": which["project"]}
    show_result(result, map(_line, found), as_json=as_json)


@memories.command()
@click.argument("words", nargs=-1, required=True, metavar="QUERY")
@thread_option
@tag_option
@project_option
@limit_option
@click.option(
    "--as-of", metavar="TIME", help="Those that held then; any: also those that were replaced."
)
@json_option
def search(
    words: tuple[str, ...],
    thread: str,
    tags: tuple[str, ...],
    project: str,
    limit: int,
    as_of: str | None,
    as_json: bool,
) -> None:
    """Find memories by words and by meaning."""
    query = " ".join(words)
    with opened() as db:
        which = _which(db, project, thread, tags)
        found = db.memories.search(query, limit=limit, as_of=as_of, **which)
    if as_json:
        show_result({**which, "hits": found.hits, "note": found.note}, (), as_json=True)
        return
    print_results(found, query, project=which["project"] or "all")
    if found.note:
        complain(found.note)


@memories.command("show")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@json_option
def show_(names: tuple[str, ...], as_json: bool) -> None:
    """Print memories, by their ids (7 or memory:7)."""
    with opened() as db:
        found = _named(db, names)
    if as_json:
        show_result({"memories": found}, (), as_json=True)
        return
    for each in found:
        tags = f"  tags {', '.join(each.tags)}" if each.tags else ""
        show(f"{each.place}  {each.thread}  {each.created_at[:19]}  {each.validity}{tags}")
        print_text(f"{each.text}\n")


@memories.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def forget(names: tuple[str, ...], yes: bool) -> None:
    """Delete memories, by their ids; `undo` brings them back. Asks first."""
    with opened() as db:
        found = _named(db, names)
        for each in found:
            show(_line(each), err=True)
        ask(f"{_counted(len(found))} will be deleted.", yes)
        db.memories.delete([each.id for each in found])
    show(f"deleted {_counted(len(found))}; `mcpvectordb undo` brings them back")


def _which(db: Database, project: str, thread: str, tags: tuple[str, ...]) -> dict[str, Any]:
    """The filters that the options mean."""
    scope = chosen_project(db, project)
    named = (scope.inside(thread) if scope else thread) if thread else None
    return {"project": scope and scope.name, "thread": named, "tags": tags or None}


def _named(db: Database, names: tuple[str, ...]) -> list[Memory]:
    ids = []
    for name in names:
        match = re.fullmatch(r"(?:memory:)?(\d{1,18})", name)
        if match is None:
            fail(f"{name} is no memory; write its id, for example 7 or memory:7", 2)
        ids.append(int(match[1]))
    found = db.memories.get(ids, images=False)
    if missing := set(ids) - {each.id for each in found}:
        fail(
            f"there is no memory:{min(missing)}; `mcpvectordb memories list` shows those there are"
        )
    return found


def _line(memory: Memory) -> str:
    text = " ".join(memory.text.split())
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]} […]"
    ended = f"  ({memory.validity})" if memory.validity else ""
    return f"{memory.place}  {memory.created_at[:10]}  {memory.thread}  {text}{ended}"


def _counted(count: int) -> str:
    return quantity(count, "memory")


def _tell(what: str, which: dict[str, Any]) -> None:
    within = f"in the project {which['project']}" if which["project"] else "in all projects"
    show(f"{what} {within}", err=True)
