"""Commands about what was, and about copies: history, undo, redo, forget, merge, sync-with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import ask, json_option, yes_option
from mcpvectordb.cli.output import (
    bar,
    busy,
    fail,
    print_json,
    quantity,
    show,
    show_block,
    show_result,
)

if TYPE_CHECKING:
    from mcpvectordb import Exchanged, HistoryEntry, Merged

_SHOWN = 10  # items of a change that are listed; --json has up to a hundred


@click.command()
@click.argument("name", required=False)
@click.option("--since", metavar="TIME", help="Since 2026-11-29, today, 2d (ago) …")
@click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(min=0))
@click.option(
    "--diff", is_flag=True, help="Show what each change did to texts and metadata (of NAME)."
)
@json_option
@yes_option
def history(
    name: str | None,
    since: str | None,
    limit: int,
    diff: bool,
    as_json: bool,
    yes: bool,
) -> None:
    """List what was changed, by whom and when, newest first: all, or what concerns NAME.

    NAME is a document's path, source or id, memory:7 or a memory's uid, the id of a vector, or a
    library. `history off` deletes the history and keeps none from now on; `history on` keeps it
    again.
    """
    with opened() as db:
        if name in ("on", "off"):
            if name == "off":
                ask("What was replaced or deleted can no longer be undone.", yes)
            db.keep_history(name == "on")
            show(f"history is {name}")
            return
        entries = db.history(name, since=since, limit=limit)
        diffs = {each.number: db.diff(each.number, name) for each in entries} if diff else {}
    if as_json:
        print_json({"changes": entries, **({"diffs": diffs} if diff else {})})
        return
    for each in entries:
        _show_entry(each)
        if diff:
            show_block(diffs[each.number])
    show(quantity(len(entries), "change"), err=True)


def _show_entry(entry: HistoryEntry, *, err: bool = False) -> None:
    by = f"{entry.actor}, {entry.action}" if entry.action else entry.actor
    show(f"{entry.number}  {entry.time[:19].replace('T', ' ')}  {by}", err=err)
    for each in entry.items[:_SHOWN]:
        title = f"  {each.title}" if each.title and not each.name.endswith(each.title) else ""
        show(f"    {each.kind} {each.name}{title}", err=err)
    if (more := entry.count - _SHOWN) > 0:
        show(f"    and {more:,} more", err=err)


@click.command()
@click.argument("change", required=False, type=click.IntRange(min=1))
@yes_option
@json_option
def undo(change: int | None, yes: bool, as_json: bool) -> None:
    """Take back CHANGE, a number of `history`, or the latest not yet undone; asks first.

    Without CHANGE, each undo steps further back, and `redo` steps forward again.
    """
    _take_back(change, yes, as_json)


@click.command()
@yes_option
@json_option
def redo(yes: bool, as_json: bool) -> None:
    """Take the last undo back; asks first.

    Each redo takes back one undo more, until something else is changed.
    """
    _take_back(None, yes, as_json, redo=True)


def _take_back(change: int | None, yes: bool, as_json: bool, *, redo: bool = False) -> None:
    with opened() as db:
        if change is None:
            latest = db.next_undo(redo=redo)
            _show_entry(latest, err=True)
            change = latest.number
        ask(f"Change {change} will be taken back.", yes)
        with busy("restoring"):
            done = db.redo() if redo else db.undo(change)
    outcomes = (
        ("restored", done.restored),
        ("removed", done.removed),
        ("kept, because it was changed again since:", done.kept),
    )
    lines = (f"{what} {name}" for what, names in outcomes for name in names)
    show_result(done, lines, [done.note], as_json=as_json)


@click.command()
@click.argument("name")
@click.option("--for-good", is_flag=True, help="Say that nothing of it shall stay.")
@yes_option
@json_option
def forget(name: str, for_good: bool, yes: bool, as_json: bool) -> None:
    """Delete NAME so that nothing of it stays in the file: no text, no history, no free page.

    The file is written anew, which takes as long as `compact`. To delete something that can be
    undone, use `delete`.
    """
    if not for_good:
        fail(f"to delete {name} so that it can be undone, use `delete`; otherwise say --for-good")
    with opened() as db:
        ask(f"{name} and its history will be gone for good.", yes)
        with busy("forgetting"):
            done = db.forget(name)
    line = f"forgotten {name} with {quantity(done.versions, 'former version')}"
    show_result(done, [line], as_json=as_json)


other_argument = click.argument("other", metavar="OTHER", type=click.Path(path_type=Path))


@click.command()
@other_argument
@json_option
def merge(other: Path, as_json: bool) -> None:
    """Take everything from the file OTHER that is not here, or is newer there.

    Of two changes of the same thing the later wins; the other one is in the history. OTHER is not
    changed. If this is interrupted, nothing is merged.
    """
    with opened(make=True) as db, bar("merging", "items") as move:
        done = db.merge(other, progress=move)
    show_result(done, merged_lines(done), [_unembedded(done)], as_json=as_json)


@click.command("sync-with")
@other_argument
@json_option
def sync_with(other: Path, as_json: bool) -> None:
    """Merge the file OTHER into this one and this one into OTHER: both hold the same then."""
    with opened() as db, bar("merging", "items") as move:
        done = db.sync_with(other, progress=move)
        here = db.path
    lines = [f"{here}:", *merged_lines(done[0]), f"{other}:", *merged_lines(done[1])]
    both = {"here": done[0], "other": done[1]}
    show_result(both, lines, map(_unembedded, done), as_json=as_json)


def merged_lines(done: Merged | Exchanged) -> Iterator[str]:
    """What a merge did."""
    for what, names in (
        ("added", done.added),
        ("updated", done.updated),
        ("deleted", done.deleted),
        ("changed in both, the earlier change is in the history:", done.lost),
    ):
        yield from (f"{what} {name}" for name in names[:_SHOWN])
        if (more := len(names) - _SHOWN) > 0:
            yield f"{what} {more:,} more"
    counts = (len(done.added), len(done.updated), len(done.deleted), len(done.lost))
    yield "{:,} added, {:,} updated, {:,} deleted, {:,} changed in both".format(*counts)


def _unembedded(done: Merged) -> str:
    return f"{done.note}: run `mcpvectordb embed`" if done.note else ""
