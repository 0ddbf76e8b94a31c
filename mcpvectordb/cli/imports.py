"""The command import: what another program has stored, into the database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.ingest import resumable
from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import dry_run_option, json_option, no_embed_option
from mcpvectordb.cli.output import bar, complain, embedded_in, print_json, quantity, show

if TYPE_CHECKING:
    from mcpvectordb import Imported


def _columns(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The names of an option that takes several, divided by commas or given several times."""
    return tuple(name.strip() for each in given for name in each.split(",") if name.strip())


@click.command("import")
@click.argument("kind_and_path", nargs=-1, required=True, metavar="[KIND] PATH")
@click.option("--library", "-l", default="", metavar="NAME", help="The library of all documents.")
@click.option(
    "--into",
    type=click.Choice(["documents", "vectors"]),
    help="The shelf for what has a text and an embedding.",
)
@click.option("--table", default="", metavar="NAME", help="The table of a SQLite database.")
@click.option(
    "--text", multiple=True, callback=_columns, metavar="A,B", help="Columns that make up the text."
)
@click.option("--id", default="", metavar="COLUMN", help="The column that identifies an item.")
@click.option("--title", default="", metavar="COLUMN", help="The column that has the title.")
@click.option("--embedding", default="", metavar="COLUMN", help="The column of embeddings.")
@click.option(
    "--metadata",
    multiple=True,
    callback=_columns,
    metavar="A,B",
    help="Columns that become metadata [default: all others].",
)
@click.option(
    "--model", default="", metavar="NAME", help="The model that made the embeddings, if known."
)
@no_embed_option
@dry_run_option
@json_option
@click.option("--verbose", "-v", is_flag=True, help="List the items that are skipped.")
@click.pass_context
def import_(
    context: click.Context,
    /,
    kind_and_path: tuple[str, ...],
    no_embed: bool,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Bring in what another program has stored.

    The kind of the source is recognised by its content if it is left out. Importing again brings
    only what is new or changed. The source is never changed.
    """
    if len(kind_and_path) > 2:
        raise click.UsageError("name one source: import [KIND] PATH")
    kind, path = (None, *kind_and_path) if len(kind_and_path) == 1 else kind_and_path
    with (
        opened(context, make=True, dry_run=dry_run) as db,
        resumable(db),
        bar(f"importing {path}", "items") as move,
    ):
        given = {name: value for name, value in options.items() if value}
        done = db.import_from(
            Path(str(path)), kind, embed=not no_embed, dry_run=dry_run, progress=move, **given
        )
    if as_json:
        print_json(done)
        return
    show_imported(done)
    for id, reason in done.skipped_items if verbose else ():
        show(f"  skipped {id}: {reason}")


_NOUNS = {
    "documents": "document",
    "memories": "memory",
    "vectors": "vector",
    "libraries": "library",
}


def show_imported(done: Imported) -> None:
    """Print the report of an import."""
    show(f"{'would import' if done.dry_run else 'imported'} {done.path} ({done.kind})")
    for what, counts in (("new", done.added), ("changed", done.changed), ("known", done.known)):
        if counts:
            listed = ", ".join(quantity(number, _NOUNS[shelf]) for shelf, number in counts.items())
            show(f"  {what}: {listed}")
    for heading, reasons in (("skipped", done.skipped), ("not kept", done.not_kept)):
        for reason, number in reasons.items():
            show(f"  {heading}: {number:,} × {reason}")
    for outcome, number in done.embeddings.items():
        anew = "" if outcome == "kept" or done.dry_run else "made anew: "
        show(f"  embeddings: {number:,} × {anew}{outcome}")
    if done.embedded.chunks:
        show(f"  {embedded_in(done.embedded)}")
    if done.pending:
        show(f"  {quantity(done.pending, 'passage')} still to be embedded: `mcpvectordb embed`")
    for each in done.unread:
        complain(f"not read: {each}")
    for note in done.notes:
        show(f"  note: {note}")
