"""Commands about embedding models: list, pull, add, use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.main import configured, database_path, opened
from mcpvectordb.cli.options import json_option
from mcpvectordb.cli.output import bar, print_json, show

if TYPE_CHECKING:
    from mcpvectordb.embedding.catalogue import Pooling


@click.group()
def model() -> None:
    """List, fetch, add and change embedding models."""


@model.command("list")
@json_option
@click.pass_context
def list_(context: click.Context, as_json: bool) -> None:
    """Show the known models, which are on this machine, and with * which one the file uses."""
    from mcpvectordb.embedding import weights
    from mcpvectordb.embedding.catalogue import CATALOGUE

    folder, used = configured().models_folder(), _model_of_the_file(context)
    models = [*CATALOGUE.values(), *weights.added(folder)]
    rows = [
        {
            "name": each.name,
            "kind": each.kind,
            "dimension": each.dimension,
            "max_tokens": each.max_tokens,
            "licence": each.licence,
            "installed": weights.installed(each, folder),
            "used": each.name == used,
            "get_it": "" if weights.installed(each, folder) else each.command,
        }
        for each in models
    ]
    if as_json:
        print_json({"models": rows})
        return
    for row in rows:
        show(
            f"{'*' if row['used'] else ' '} {row['name']:<28} {row['kind']:<9} "
            f"{row['dimension']:>4} d  "
            f"{'installed' if row['installed'] else row['get_it']}"
        )


def _model_of_the_file(context: click.Context) -> str:
    """The name of the model that the file uses; "" without a file."""
    if not database_path(context).expanduser().exists():
        return ""
    with opened(context, read_only=True) as db:
        return db.stats().model


@model.command()
@click.argument("name")
def pull(name: str) -> None:
    """Download a model of the catalogue; an interrupted download is resumed."""
    from mcpvectordb.embedding import weights
    from mcpvectordb.embedding.catalogue import PROVISIONAL

    config = configured()
    with bar(f"pulling {name}", "bytes") as move:
        folder = config.models_folder()
        weights.pull(weights.find(name, folder), folder, hub=config.model_hub, progress=move)
    if name == PROVISIONAL:
        show("what waits for a file's own model is now found by meaning at once")
    show(f"{name} is ready; use it with: mcpvectordb model use {name}")


@model.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it [default: the folder's name].")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="How token vectors become one.")
@click.option("--query-prefix", help="Text put in front of queries.")
@click.option("--document-prefix", help="Text put in front of passages.")
def add(
    directory: Path,
    name: str | None,
    pooling: Pooling | None,
    query_prefix: str | None,
    document_prefix: str | None,
) -> None:
    """Add a model of your own: a folder with an ONNX encoder and its tokenizer.json."""
    from mcpvectordb.embedding.add_model import add as add_model

    added = add_model(
        directory,
        configured().models_folder(),
        name=name,
        pooling=pooling,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
    )
    show(
        f"{added.name} is ready ({added.dimension} d); use it with: mcpvectordb model use "
        f"{added.name}"
    )


@model.command()
@click.argument("name")
@click.pass_context
def use(context: click.Context, name: str) -> None:
    """Embed the whole file again with another model; until then searches use the old one."""
    with opened(context) as db, bar(f"embedding with {name}", "chunks") as move:
        db.use_model(name, progress=move)
    show(f"the file now uses {name}")
