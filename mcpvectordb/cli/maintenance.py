"""Commands about the file itself: stats, check, rebuild, compact, copy, salvage."""

from __future__ import annotations

from pathlib import Path

import click

from mcpvectordb.cli.ingest import json_option
from mcpvectordb.cli.main import opened
from mcpvectordb.cli.output import busy, plain, print_json


@click.command()
@json_option
@click.pass_context
def stats(context: click.Context, as_json: bool) -> None:
    """Show counts, sizes and what the file was made with."""
    with opened(context) as db:
        found = db.stats()
    if as_json:
        print_json(found)
        return
    for name, value in plain(found).items():
        click.echo(
            f"{name:<14} {value:,}" if isinstance(value, int) else f"{name:<14} {value or '-'}"
        )


@click.command()
@json_option
@click.pass_context
def check(context: click.Context, as_json: bool) -> None:
    """Verify the whole file; exit code 1 if anything is wrong."""
    with opened(context) as db, busy("checking"):
        problems = db.check()
    if as_json:
        print_json({"sound": not problems, "problems": problems})
    else:
        click.echo("\n".join(problems) if problems else "sound")
    if problems:
        raise SystemExit(1)


@click.command()
@click.pass_context
def rebuild(context: click.Context) -> None:
    """Make the indexes again from the stored texts and embeddings."""
    with opened(context) as db, busy("rebuilding"):
        db.rebuild()
    click.echo("rebuilt")


@click.command()
@click.pass_context
def compact(context: click.Context) -> None:
    """Give unused space back to the disk."""
    with opened(context) as db, busy("compacting"):
        freed = db.compact()
    click.echo(f"{freed:,} bytes freed")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.pass_context
def copy(context: click.Context, target: Path) -> None:
    """Write a complete copy as one file; safe while others use the database (never use cp on an
    open one).
    """
    with opened(context) as db, busy("copying"):
        written = db.copy_to(target)
    click.echo(f"copied to {written}")


@click.command()
@click.argument("damaged", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@json_option
def salvage(damaged: Path, target: Path, as_json: bool) -> None:
    """Save what can still be read of a damaged FILE into the new file OUT; FILE stays as it is."""
    from mcpvectordb.recovery.salvage import salvage

    with busy("saving what is left"):
        done = salvage(damaged, target)
    if as_json:
        print_json(done)
        return
    saved = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in done.rows.items() if count
    )
    click.echo(f"saved into {done.path}: {saved or 'nothing'}")
    for line in (
        *(f"lost: {each}" for each in done.lost),
        *(f"not sure to be whole: {each}" for each in done.incomplete),
    ):
        click.echo(line)
    if done.incomplete:
        click.echo("ingest those again to make them whole")
