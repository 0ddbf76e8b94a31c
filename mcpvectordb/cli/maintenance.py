"""Commands about the file as a whole: status, check, rebuild, compact, copy, salvage."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path

import click

from mcpvectordb import dates
from mcpvectordb.cli.main import database_path, opened
from mcpvectordb.cli.options import ask, json_option, yes_option
from mcpvectordb.cli.output import busy, fail, library_line, show, show_result
from mcpvectordb.config import Config

# What people are told of a file, by the names of its facts.
_TOLD = {
    "path": "file",
    "bytes": "bytes",
    "history_bytes": "bytes of history",
    "documents": "documents",
    "embedded": "  embedded",
    "partly_embedded": "  partly embedded",
    "waiting": "  to be embedded",
    "empty": "  without text",
    "identical": "  same as another one",
    "chunks": "passages",
    "pending": "  to be embedded",
    "libraries": "libraries",
    "memories": "memories",
    "vectors": "vectors",
    "stores": "stores of vectors",
    "model": "model",
    "embeddings": "embeddings",
    "parser": "parser",
}
SLOW_BYTES = 10**9  # of a file whose space takes about a second to be measured


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show counts, the model, what takes the space, and what is not embedded yet.

    A document that is embedded is found by meaning, every other one by words only. What is 0 is
    left out; --json has everything, under the names that Python has.
    """
    with opened() as db:
        stats, coverage, libraries = db.stats(), db.documents.coverage(), db.documents.libraries()
        with busy("measuring") if stats.bytes > SLOW_BYTES else contextlib.nullcontext():
            space = {what: size for what, size in db.space().items() if size}
        backlogs = {"documents": db.documents.backlog(), "memories": db.memories.backlog()}
        not_embedded = {"pending": {"gt": 0}}
        waiting = {
            each.name: db.documents.count(library=each.name, where=not_embedded)
            if stats.pending
            else 0
            for each in libraries
        }
    facts = {**stats.to_dict(), **coverage.to_dict(), "parser": _confinement()}
    per_library = [{**each.to_dict(), "waiting": waiting[each.name]} for each in libraries]
    result = {**facts, "space": space, "backlogs": backlogs, "libraries": per_library}
    told = [(label, facts[name]) for name, label in _TOLD.items() if facts[name] not in ("", 0, [])]
    if stats.origins:
        told.append(("published from", ", ".join(stats.origins)))
    total = sum(space.values())
    lines = [
        *(
            f"{name:<22} {value:,}" if isinstance(value, int) else f"{name:<22} {value}"
            for name, value in told
        ),
        *(f"  {what:<24} {size:>15,} bytes {size / total:6.1%}" for what, size in space.items()),
        *(f"  {library_line(each, waiting[each.name])}" for each in libraries),
    ]
    waits = [f"{shelf}: {each.note}" for shelf, each in backlogs.items() if each.note]
    show_result(result, lines, [*waits, *stats.notes], as_json=as_json)


def _confinement() -> str:
    """Whether the process that parses files is confined on this machine, and why it is not."""
    from mcpvectordb.ingest import sandbox

    if not Config.from_env().parse_sandbox:
        return "not confined: parse_sandbox is false"
    reason = sandbox.lacking()
    if reason:
        return f"not wholly confined: {reason}"
    return "confined: a process per file; no network, no writes, no other processes"


@click.command()
@json_option
def check(as_json: bool) -> None:
    """Verify the whole file; exit code 1 if anything is wrong."""
    with opened() as db, busy("checking"):
        problems = db.check()
        notes = () if problems else db.stats().notes
    parser = _confinement()
    facts = {"sound": not problems, "problems": problems, "notes": list(notes), "parser": parser}
    unconfined = "" if parser.startswith("confined") else f"the parser of files is {parser}"
    show_result(facts, problems or ["sound"], [*notes, unconfined], as_json=as_json)
    if problems:
        fail(
            "`mcpvectordb rebuild` makes the indexes again; if that does not help, `mcpvectordb "
            f"salvage {database_path()} NEW` saves what can be read into a new file"
        )


@click.command()
@click.option(
    "--clock", is_flag=True, help="Also set back the history's clock, if one was ahead; asks first."
)
@yes_option
def rebuild(clock: bool, yes: bool) -> None:
    """Rebuild the indexes from the stored texts and embeddings."""
    if clock:
        ask(
            f"It is {dates.now()[:19]} UTC by this machine's clock. What the file says was changed "
            "days after that gets the time of the last change before.",
            yes,
        )
    with opened() as db, busy("rebuilding"):
        db.rebuild(clock=clock)
    show("rebuilt")


@click.command()
def compact() -> None:
    """Return unused space to the disk."""
    with opened() as db, busy("compacting"):
        freed = db.compact()
    show(f"{freed:,} bytes freed")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an existing file by the complete copy.")
@click.option(
    "--no-history", is_flag=True, help="Leave out what was replaced or deleted, to give it away."
)
def copy(target: Path, overwrite: bool, no_history: bool) -> None:
    """Write a complete copy as one file.

    Safe while other processes use the database; cp is not.
    """
    with opened() as db, busy("copying"):
        written = db.copy_to(target, overwrite=overwrite, history=not no_history)
    show(f"copied to {written}")


@click.command()
@click.argument("damaged", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@json_option
def salvage(damaged: Path, target: Path, as_json: bool) -> None:
    """Save what is still readable of a damaged FILE into the new file OUT; FILE is not changed."""
    from mcpvectordb.recovery.salvage import salvage

    with busy("salvaging"):
        done = salvage(damaged, target)
    names = {"contexts": "memories"}  # as only the table is called
    rows = [f"{n:,} {names.get(t, t.replace('_', ' '))}" for t, n in done.rows.items() if n]
    lines = [
        f"saved into {done.path}: {', '.join(rows) or 'nothing'}",
        *(f"lost: {each}" for each in done.lost),
        *(f"not sure to be whole: {each}" for each in done.incomplete),
        *(["ingest those again to make them whole"] if done.incomplete else []),
    ]
    show_result(asdict(done), lines, as_json=as_json)
