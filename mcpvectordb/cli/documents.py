"""Commands that read: get, multi-get, ls, status."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.ingest import json_option
from mcpvectordb.cli.main import opened
from mcpvectordb.cli.output import complain, fail, print_json
from mcpvectordb.errors import NotFound

if TYPE_CHECKING:
    from mcpvectordb import Database, Document, Place

lines_option = click.option(
    "--lines", type=click.IntRange(min=0), metavar="N", help="At most so many lines."
)
numbers_option = click.option(
    "--line-numbers", is_flag=True, help="Put its number before every line."
)


@click.command()
@click.argument("name", metavar="ID|PATH[:LINE]")
@lines_option
@numbers_option
@json_option
@click.pass_context
def get(
    context: click.Context, name: str, lines: int | None, line_numbers: bool, as_json: bool
) -> None:
    """Print a document's text: by its path or the end of it, its id, or #hash; PATH:LINE starts at
    that line.
    """
    with opened(context) as db:
        place = _place(db, name)
        most = lines if lines is not None else place.lines
        text = _part(db.documents.text(place.document.id), place.line, most, line_numbers)
    if as_json:
        print_json({"document": place.document, "text": text})
    else:
        click.echo(text, nl=False)


@click.command("multi-get")
@click.argument("pattern")
@lines_option
@click.option(
    "--max-bytes",
    default=10240,
    show_default=True,
    type=click.IntRange(min=0),
    help="Leave larger ones out.",
)
@numbers_option
@json_option
@click.pass_context
def multi_get(
    context: click.Context,
    pattern: str,
    lines: int | None,
    max_bytes: int,
    line_numbers: bool,
    as_json: bool,
) -> None:
    """Print several documents: those that fit a pattern ('notes/**/*.md'), or a list with
    commas.
    """
    with opened(context) as db:
        documents = _several(db, pattern)
        large = [each for each in documents if db.documents.text_bytes(each.id) > max_bytes]
        for each in large:
            complain(
                f"{each.path} is left out: it has more than {max_bytes} bytes; get it by itself, "
                "or raise --max-bytes"
            )
        texts = {
            each.path: _part(db.documents.text(each.id), None, lines, line_numbers)
            for each in documents
            if each not in large
        }
    if as_json:
        print_json({"documents": [{"path": path, "text": text} for path, text in texts.items()]})
    else:
        click.echo("\n".join(f"==> {path} <==\n{text}" for path, text in texts.items()), nl=False)


@click.command()
@click.argument("path", default="")
@json_option
@click.pass_context
def ls(context: click.Context, path: str, as_json: bool) -> None:
    """List the libraries, or the documents of a library or of a folder in one."""
    with opened(context) as db:
        if not path.strip("/"):
            found = db.documents.libraries()
            lines = [f"{each.name}/  {each.documents} documents" for each in found]
            as_data: object = {"libraries": found}
        else:
            inside = re.sub(r"([*?\[\]{}\\])", r"\\\1", path.strip("/"))
            documents = db.documents.matching(f"{inside}/**") or db.documents.matching(inside)
            lines = [
                f"{each.size:>10,}  {each.modified[:16] or '-':<16}  {each.path}"
                for each in documents
            ]
            as_data = {"documents": documents}
    if as_json:
        print_json(as_data)
    elif lines:
        click.echo("\n".join(lines))
    else:
        fail(f"nothing is in {path!r}; `mcpvectordb ls` lists the libraries")


@click.command()
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show the libraries, and how much of them is found by meaning."""
    with opened(context) as db:
        libraries, coverage = db.documents.libraries(), db.documents.coverage()
    if as_json:
        print_json(
            {
                "documents": sum(each.documents for each in libraries),
                "embedded": coverage.embedded,
                "waiting": coverage.waiting,
                "libraries": libraries,
            }
        )
        return
    click.echo(
        f"{sum(each.documents for each in libraries)} documents in {len(libraries)} libraries; "
        f"found by meaning: {coverage.embedded}, waiting for it: {coverage.waiting}"
    )
    for each in libraries:
        click.echo(
            "  ".join(
                filter(
                    None,
                    [
                        f"  {each.name}",
                        f"{each.documents} documents",
                        each.root,
                        each.pattern,
                        each.description,
                    ],
                )
            )
        )


def _several(db: Database, pattern: str) -> list[Document]:
    if any(sign in pattern for sign in "*?[{"):
        documents = db.documents.matching(pattern)
    else:
        documents = list(
            {
                (document := _place(db, name.strip()).document).id: document
                for name in pattern.split(",")
                if name.strip()
            }.values()
        )
    if not documents:
        fail(f"no document fits {pattern!r}; `mcpvectordb ls` shows what there is")
    return documents


def _place(db: Database, name: str) -> Place:
    """A document by name; a file that is here is meant before one elsewhere whose path ends like
    that.
    """
    here = Path(name).expanduser()
    for each in (str(here.resolve()), name) if here.exists() else (name,):
        try:
            return db.documents.lookup(each)
        except NotFound:
            continue
    similar = db.documents.similar(name)
    hint = (
        f"did you mean {', '.join(similar)}?"
        if similar
        else "`mcpvectordb list` shows what there is"
    )
    raise NotFound(f"no document has the id or path {name}; {hint}")


def _part(text: str, line: int | None, most: int | None, numbers: bool) -> str:
    """A text from a line on, up to so many lines, each with its end."""
    if line is None and most is None and not numbers:
        return text
    first = max(1, line or 1)
    chosen = re.findall(r"[^\n]*\n|[^\n]+", text)[first - 1 :][:most]
    return "".join(
        f"{number}: {each}" if numbers else each for number, each in enumerate(chosen, first)
    )
