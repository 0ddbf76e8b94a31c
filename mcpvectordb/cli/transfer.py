"""Commands that bring data in and out as a whole: import, export, publish, grant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.ingest import resumable
from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import dry_run_option, json_option, library_option, no_embed_option
from mcpvectordb.cli.output import bar, busy, embedded_in, quantity, show, show_result

if TYPE_CHECKING:
    from mcpvectordb import Imported

_NOUNS = {
    "documents": "document",
    "memories": "memory",
    "vectors": "vector",
    "libraries": "library",
}


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
def import_(
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
        opened(make=True, dry_run=dry_run) as db,
        resumable(db),
        bar(f"importing {path}", "items") as move,
    ):
        given = {name: value for name, value in options.items() if value}
        done = db.import_from(
            Path(str(path)), kind, embed=not no_embed, dry_run=dry_run, progress=move, **given
        )
    skipped = [f"  skipped {id}: {reason}" for id, reason in done.skipped_items if verbose]
    unread = (f"not read: {each}" for each in done.unread)
    show_result(done, [*_imported(done), *skipped], unread, as_json=as_json)


def _imported(done: Imported) -> Iterator[str]:
    """The report of an import."""
    yield f"{'would import' if done.dry_run else 'imported'} {done.path} ({done.kind})"
    for what, counts in (("new", done.added), ("changed", done.changed), ("known", done.known)):
        if counts:
            listed = ", ".join(quantity(number, _NOUNS[shelf]) for shelf, number in counts.items())
            yield f"  {what}: {listed}"
    for heading, reasons in (("skipped", done.skipped), ("not kept", done.not_kept)):
        for reason, number in reasons.items():
            yield f"  {heading}: {number:,} × {reason}"
    for outcome, number in done.embeddings.items():
        anew = "" if outcome == "kept" or done.dry_run else "made anew: "
        yield f"  embeddings: {number:,} × {anew}{outcome}"
    if done.embedded.chunks:
        yield f"  {embedded_in(done.embedded)}"
    if done.pending:
        yield f"  {quantity(done.pending, 'passage')} still to be embedded: `mcpvectordb embed`"
    for note in done.notes:
        yield f"  note: {note}"


@click.command()
@click.argument("target", metavar="PATH", type=click.Path(path_type=Path))
@click.option(
    "--format",
    type=click.Choice(["jsonl", "markdown", "csv", "parquet"]),
    help="The format; otherwise the name decides: .jsonl, .csv, .parquet, or a folder of Markdown.",
)
@library_option
@click.option("--overwrite", is_flag=True, help="Replace an existing file by the complete export.")
@json_option
def export(target: Path, as_json: bool, **options: Any) -> None:
    """Write everything as JSONL, Markdown, CSV or Parquet.

    JSONL holds all of the file, and `import` makes an equal one of it. A folder gets a Markdown
    file for each document and memory. CSV and Parquet are one table of passages and vectors, with
    their embeddings. Safe while other processes use the database.
    """
    with opened(read_only=True) as db, bar("exporting", "items") as progress:
        done = db.export_to(target, progress=progress, **options)
    shelves = ("documents", "memories", "vectors")
    counts = [quantity(n, _NOUNS[each]) for each in shelves if (n := getattr(done, each))]
    line = f"exported to {done.path} ({done.format}): {', '.join(counts) or 'nothing'}"
    left_out = (f"not in it: {each}" for each in done.left_out)
    show_result(done, [line], left_out, as_json=as_json)


@click.command()
@click.argument("url", metavar="URL")
@click.option("--origin", metavar="NAME", help="The name under which this file is published.")
@click.option(
    "--library",
    "-l",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Publish the documents of this library and nothing else. Repeatable.",
)
@json_option
def publish(url: str, origin: str | None, libraries: tuple[str, ...], as_json: bool) -> None:
    """Bring the database into PostgreSQL, where many can search it.

    URL is postgresql://user:password@host/name; without a password, PGPASSWORD and ~/.pgpass are
    asked. The first time everything is sent, later what changed. After an interruption the same
    command goes on.
    """
    with opened() as db, bar("publishing", "items") as progress:
        done = db.publish(url, origin=origin, libraries=libraries or None, progress=progress)
    waiting = (
        f"{done.waiting:,} passages wait for their embedding and are found by words: run `embed`, "
        "then publish again"
    )
    lines = [f"published as {done.origin} in {done.seconds:.1f} s"]
    for noun, each in (
        ("document", done.documents),
        ("memory", done.memories),
        ("vector", done.vectors),
    ):
        if each.changes or each.unchanged:
            total = each.changes + each.unchanged - each.deleted
            lines.append(
                f"  {quantity(total, noun)}: {each.added:,} added, {each.updated:,} updated, "
                f"{each.deleted:,} deleted, {each.unchanged:,} unchanged"
            )
    notes = (waiting if done.waiting else "", done.notice)
    show_result(done, lines, notes, as_json=as_json)


@click.command()
@click.argument("url", metavar="URL")
@click.argument("role")
@click.option(
    "--publish", "right", flag_value="publish", default=None, help="Publish, and not only read."
)
@click.option("--none", "right", flag_value="none", help="Take back all that was granted.")
@click.option(
    "--origin", "only", multiple=True, metavar="NAME", help="Only this origin. Repeatable."
)
def grant(url: str, role: str, right: str | None, only: tuple[str, ...]) -> None:
    """Let a role of PostgreSQL read what is published at URL, or publish there.

    The role must exist, and you must own the schema mcpvectordb. Without --origin it is about all
    origins, also later ones; with it, row-level security hides the others. What was granted to the
    role before is replaced.
    """
    from mcpvectordb.postgres import require_driver

    require_driver()
    from mcpvectordb.postgres import origins

    with busy("granting"):
        if right == "none":
            origins.revoke(url, role)
        else:
            origins.grant(url, role, "publish" if right else "read", only or None)
    what = {"none": "may do nothing", "publish": "may read and publish"}.get(
        right or "", "may read"
    )
    show(f"{role} {what}" + ("" if right == "none" else f": {', '.join(only) or 'all origins'}"))
