"""Commands about embedding models: list, pull, add, add-endpoint, use, remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.main import configured, database_path, opened
from mcpvectordb.cli.options import json_option
from mcpvectordb.cli.output import bar, show, show_result

if TYPE_CHECKING:
    from mcpvectordb.embedding.catalogue import Model, ModelKind


@click.group()
def model() -> None:
    """List, fetch, add, change and remove embedding models."""


@model.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Show the known models: which are on this machine, and how to get the others.

    The file's own is marked with *. Beside its size and languages stands how well a model finds
    what people judged relevant: nDCG@10 of hybrid searches in English and in Chinese.
    """
    from mcpvectordb.embedding import weights
    from mcpvectordb.embedding.catalogue import CATALOGUE, in_english

    folder, used = configured().models_folder(), _model_of_the_file()
    table = "{:1} {:<26} {:<8} {:>6} {:>4}  {:<9} {:>7} {:>7}  {}"
    heading = ("", "model", "kind", "size", "dim", "languages", "English", "Chinese", "")
    rows, lines = [], [table.format(*heading).rstrip()]
    for each in (*CATALOGUE.values(), *weights.added(folder)):
        installed = weights.installed(each, folder)
        endpoint = each.endpoint.url if each.endpoint else ""
        row = {
            "name": each.name,
            "kind": each.kind,
            "dimension": each.dimension,
            "max_tokens": each.max_tokens,
            "bytes": each.size,
            "languages": each.languages,
            "measured": dict(each.measured),
            "licence": each.licence,
            "installed": installed,
            "used": each.name == used,
            "get_it": "" if installed else each.command,
            "endpoint": endpoint,
        }
        cells = (
            "*" if each.name == used else "",
            each.name,
            each.kind,
            f"{each.size / 1e6:.0f} MB" if each.size else "",
            str(each.dimension) if each.kind == "embedder" else "",
            each.languages,
            figure(in_english(each.measured)),
            figure(each.measured.get("xquad-zh")),
            endpoint or ("installed" if installed else each.command),
        )
        rows.append(row)
        lines.append(table.format(*cells).rstrip())
    show_result({"models": rows}, lines, as_json=as_json)


def figure(value: float | None) -> str:
    """A measure between 0 and 1 as text; "" if it is not known."""
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def _model_of_the_file() -> str:
    """The name of the model that the file uses; "" without a file."""
    if not database_path().expanduser().exists():
        return ""
    with opened(read_only=True) as db:
        return db.stats().model


@model.command()
@click.argument("name")
def pull(name: str) -> None:
    """Download a model of the catalogue; an interrupted download is resumed."""
    from mcpvectordb.embedding import weights

    config = configured()
    with bar(f"pulling {name}", "bytes") as move:
        folder = config.models_folder()
        weights.pull(weights.find(name, folder), folder, hub=config.model_hub, progress=move)
    show(f"{name} is ready; use it with: mcpvectordb model use {name}")


@model.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it [default: the folder's name].")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="How token vectors become one.")
@click.option("--query-prefix", help="Text put in front of queries.")
@click.option("--document-prefix", help="Text put in front of passages.")
def add(directory: Path, **options: Any) -> None:
    """Add a model of your own: a folder with an ONNX encoder and its tokenizer.json."""
    from mcpvectordb.embedding.add_model import add as add_model

    _show_added(add_model(directory, configured().models_folder(), **options))


def _show_added(model: Model) -> None:
    use = f"mcpvectordb model use {model.name}"
    show(f"{model.name} is ready ({model.dimension} d); use it with: {use}")


@model.command("add-endpoint")
@click.argument("name")
@click.option("--url", required=True, help="The server's URL, such as http://localhost:11434/v1.")
@click.option("--model", required=True, help="What the server calls the model.")
@click.option("--kind", type=click.Choice(["embedder", "reranker"]), default="embedder")
@click.option("--key-variable", default="", help="The environment variable that has the key.")
@click.option("--query-prefix", help="Text put in front of queries [default: by the model].")
@click.option("--document-prefix", help="Text put in front of passages [default: by the model].")
@click.option("--max-tokens", type=int, help="The longest text of the model [default: 512].")
@click.option("--dimensions", type=int, help="Values per vector, of models that can give fewer.")
@click.option("--batch-size", type=int, help="Most texts in a request [default: 32].")
@click.option("--timeout", type=float, help="Seconds for passages, retries too [default: 120].")
@click.option("--query-timeout", type=float, help="Seconds for a query [default: 5].")
def add_endpoint(name: str, kind: ModelKind, **options: Any) -> None:
    """Use a model of a server you run or pay for: Ollama, LM Studio, llama.cpp, vLLM, TEI, OpenAI.

    The server embeds at URL/embeddings, or reranks at URL/rerank. Texts and queries are sent there.
    """
    from mcpvectordb.embedding.endpoint import add_endpoint as add

    given = {option: value for option, value in options.items() if value is not None}
    with bar("asking the server, which may have to load the model first", "answers"):
        added = add(name, kind=kind, config=configured(), **given)
    if kind == "reranker":
        show(f"{name} is ready; use it with: MCPVECTORDB_RERANKER={name}")
        return
    prefixes = f"{added.query_prefix!r} and {added.document_prefix!r}"
    show(f"queries and passages begin with {prefixes}")
    _show_added(added)


@model.command()
@click.argument("name")
def use(name: str) -> None:
    """Embed the whole file again with another model; until then searches use the old one."""
    with opened() as db, bar(f"embedding with {name}", "chunks") as move:
        db.use_model(name, progress=move)
    show(f"the file now uses {name}")


@model.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if it is the model of this file.")
def remove(name: str, force: bool) -> None:
    """Delete a model that was pulled or added; those of packages stay."""
    from mcpvectordb.embedding import weights

    used = _model_of_the_file()
    gone = weights.remove(name, configured().models_folder(), in_use=[used], force=force)
    show(f"removed {gone.folder} ({gone.bytes:,} bytes)")
