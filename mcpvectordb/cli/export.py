"""The command export."""

from __future__ import annotations

from pathlib import Path

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import json_option, library_option
from mcpvectordb.cli.output import bar, complain, print_json, quantity, show


@click.command()
@click.argument("target", metavar="PATH", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format",
    type=click.Choice(["jsonl", "markdown", "csv", "parquet"]),
    help="The format; otherwise the name decides: .jsonl, .csv, .parquet, or a folder of Markdown.",
)
@library_option
@click.option("--overwrite", is_flag=True, help="Replace an existing file by the complete export.")
@json_option
@click.pass_context
def export(
    context: click.Context,
    target: Path,
    format: str | None,
    library: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write everything as JSONL, Markdown, CSV or Parquet.

    JSONL holds all of the file, and `import` makes an equal one of it. A folder gets a Markdown
    file for each document and memory. CSV and Parquet are one table of passages and vectors, with
    their embeddings. Safe while other processes use the database.
    """
    with opened(context, read_only=True) as db, bar("exporting", "items") as progress:
        done = db.export_to(
            target,
            format=format,  # type: ignore[arg-type]  # click has checked it
            library=library,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json(done)
        return
    parts = (("document", done.documents), ("memory", done.memories), ("vector", done.vectors))
    counts = ", ".join(quantity(count, noun) for noun, count in parts if count)
    show(f"exported to {done.path} ({done.format}): {counts or 'nothing'}")
    for each in done.left_out:
        complain(f"not in it: {each}")
