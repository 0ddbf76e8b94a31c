"""Commands about what is in the file: ingest, search, get, list, libraries, delete, embed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.console import bar, complain, counted, print_json
from mcpvectordb.cli.main import opened
from mcpvectordb.errors import IngestError, InvalidInput, NoText, NotFound, UnsupportedFormat
from mcpvectordb.ingest.folders import Walk
from mcpvectordb.ingest.formats.decoding import decode
from mcpvectordb.records import Condition, Progress

if TYPE_CHECKING:
    from mcpvectordb import Database, Ingested

# Longest first: ">=" must not be read as ">".
_SIGNS = {"!=": "ne", ">=": "gte", "<=": "lte", "^=": "starts_with", "*=": "contains", "=": "eq", ">": "gt", "<": "lt"}

library_option = click.option("--library", "-l", metavar="NAME", help="Only this library.")
where_option = click.option("--where", "-w", "conditions", multiple=True, metavar="FIELD=VALUE",
                            help="A condition on a field or metadata.KEY: = != > >= < <= *= (contains) ^= (starts with). "
                                 "Repeatable.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="PATH|URL|- ...")
@click.option("--library", "-l", default="default", show_default=True, metavar="NAME", help="Where to put it.")
@click.option("--metadata", "-m", multiple=True, metavar="KEY=VALUE", help="Metadata to keep with it. Repeatable.")
@click.option("--no-embed", is_flag=True, help="Store now, found by words; run `embed` later.")
@click.option("--source", "name", metavar="NAME", help="The name of what comes on standard input (-).")
@click.pass_context
def ingest(context: click.Context, sources: tuple[str, ...], library: str, metadata: tuple[str, ...], no_embed: bool,
           name: str | None) -> None:
    """Put files, folders, web pages or standard input into the database."""
    kept = dict(_pair(each) for each in metadata)
    with opened(context, make=True) as db:
        counts = _store_all(db, sources, library, kept, name)
        if not no_embed:
            embed_waiting(db)
    click.echo(counted(counts) or "nothing to do")
    if counts["failed"]:
        raise SystemExit(1)


@click.command("list")
@library_option
@where_option
@click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(min=0))
@click.option("--offset", default=0, type=click.IntRange(min=0))
@json_option
@click.pass_context
def list_(context: click.Context, library: str | None, conditions: tuple[str, ...], limit: int, offset: int,
          as_json: bool) -> None:
    """List documents, newest first."""
    with opened(context) as db:
        documents = db.documents.browse(library=library, where=conditions_from(conditions), limit=limit, offset=offset)
        total = db.documents.count(library=library, where=conditions_from(conditions))
    if as_json:
        print_json({"documents": documents, "total": total})
        return
    for document in documents:
        click.echo(f"{document.id}  {document.library}  {document.chunks:>4} chunks  {document.title}  ({document.source})")
    click.echo(f"{len(documents)} of {total} documents", err=True)


@click.command()
@json_option
@click.pass_context
def libraries(context: click.Context, as_json: bool) -> None:
    """List the libraries with their counts."""
    with opened(context) as db:
        found = db.documents.libraries()
    if as_json:
        print_json({"libraries": found})
        return
    for library in found:
        click.echo(f"{library.name}  {library.documents} documents  {library.chunks} chunks")


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID|PATH ...")
@click.pass_context
def delete(context: click.Context, ids: tuple[str, ...]) -> None:
    """Remove documents, by id or path."""
    with opened(context) as db:
        for id in [_resolved(db, each) for each in ids]:
            click.echo(f"deleted {id} with {db.documents.delete(id)} chunks")


@click.command()
@click.pass_context
def embed(context: click.Context) -> None:
    """Embed what is not yet found by meaning; safe to stop, and to run several times at once."""
    with opened(context) as db:
        click.echo(f"{embed_waiting(db)} chunks embedded, {db.stats().pending} still waiting")


def embed_waiting(db: Database) -> int:
    """Embed what waits, under a progress bar; how many chunks."""
    if not db.stats().pending:
        return 0
    with bar("embedding", "chunks") as move:
        return db.embed_pending(progress=move)


def _store_all(db: Database, sources: tuple[str, ...], library: str, metadata: dict[str, Any],
               name: str | None) -> dict[str, int]:
    """Store every source without embedding; a failure is one line and does not stop the others."""
    counts = dict.fromkeys(("indexed", "replaced", "skipped", "of no readable type", "failed"), 0)
    found = [each for source in sources for each in _files(db, source, counts)]
    with bar("reading", "files") as move:
        for number, (source, in_folder) in enumerate(found):
            move(Progress(step="ingest", done=number, total=len(found)))
            try:
                counts[_store(db, source, library, metadata, name).status] += 1
            except (UnsupportedFormat, NoText) as error:
                if in_folder:
                    counts["of no readable type"] += 1
                else:
                    counts["failed"] += 1
                    complain(error)
            except IngestError as error:
                counts["failed"] += 1
                complain(error)
        move(Progress(step="ingest", done=len(found), total=len(found)))
    return counts


def _store(db: Database, source: str, library: str, metadata: dict[str, Any], name: str | None) -> Ingested:
    if source == "-":
        text = decode(sys.stdin.buffer.read())
        return db.documents.ingest_text(text, source=name or "standard input", library=library, metadata=metadata, embed=False)
    return db.documents.ingest(source, library=library, metadata=metadata, embed=False)


def _files(db: Database, source: str, counts: dict[str, int]) -> list[tuple[str, bool]]:
    """A source, or the files of a folder, with a line about what is passed over in it."""
    folder = Path(source).expanduser()
    if source == "-" or "://" in source or not folder.is_dir():
        return [(source, False)]
    walk = Walk(folder.resolve(), limit=db.config.max_source_bytes, databases=[db.path])
    found = [(path, True) for path, _ in walk]
    for message in walk.failures.values():
        counts["failed"] += 1
        complain(message)
    if walk.skipped:
        complain(f"in {source} passed over: {counted(dict(sorted(walk.skipped.items())))}")
    return found


def _resolved(db: Database, name: str) -> str:
    """The id of a document named by id or by path."""
    try:
        return db.documents.get(name).id
    except NotFound:
        for source in (name, str(Path(name).expanduser().resolve())):
            if found := db.documents.browse(where={"source": source}, limit=1):
                return found[0].id
        raise NotFound(f"no document has the id or path {name}; `mcpvectordb list` shows what there is") from None


def conditions_from(conditions: tuple[str, ...]) -> list[Condition]:
    """What `--where` said."""
    return [_condition(each) for each in conditions]


def _condition(text: str) -> Condition:
    for position in range(len(text)):
        for sign, operator in _SIGNS.items():
            if text.startswith(sign, position) and position:
                return Condition(text[:position].strip(), operator, _value(text[position + len(sign):]))
    raise InvalidInput(f"{text!r} is no condition; write FIELD=VALUE, for example metadata.year>=2024")


def _pair(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InvalidInput(f"{text!r} is no metadata; write KEY=VALUE, for example year=2026")
    return key, _value(value)


def _value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, lists), else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
