"""Commands about what is in the file: ingest, search, get, list, libraries, delete, embed."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.output import bar, complain, counted, embedded_in, print_json
from mcpvectordb.errors import IngestError, InvalidInput, NotFound
from mcpvectordb.ingest.formats.charset import decode
from mcpvectordb.records import Condition, Embedded, Progress

if TYPE_CHECKING:
    from mcpvectordb import Database

# Longest first: ">=" must not be read as ">".
_SIGNS = {
    "!=": "ne",
    ">=": "gte",
    "<=": "lte",
    "^=": "starts_with",
    "*=": "contains",
    "=": "eq",
    ">": "gt",
    "<": "lt",
}

library_option = click.option("--library", "-l", metavar="NAME", help="Only this library.")
where_option = click.option(
    "--where",
    "-w",
    "conditions",
    multiple=True,
    metavar="FIELD=VALUE",
    help="A condition on a field or metadata.KEY: = != > >= < <= *= (contains) ^= (starts with). "
    "Repeatable.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="PATH|URL|- ...")
@click.option(
    "--library", "-l", default="default", show_default=True, metavar="NAME", help="Where to put it."
)
@click.option(
    "--metadata",
    "-m",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata to keep with it. Repeatable.",
)
@click.option("--no-embed", is_flag=True, help="Store now, found by words; run `embed` later.")
@click.option(
    "--source", "name", metavar="NAME", help="The name of what comes on standard input (-)."
)
@click.pass_context
def ingest(
    context: click.Context,
    sources: tuple[str, ...],
    library: str,
    metadata: tuple[str, ...],
    no_embed: bool,
    name: str | None,
) -> None:
    """Put files, folders, web pages or standard input into the database."""
    kept = dict(_pair(each) for each in metadata)
    done = _Done()
    with opened(context, make=True) as db:
        for source in sources:
            if source != "-" and "://" not in source and Path(source).expanduser().is_dir():
                _bring_folder(db, source, done, library=library, metadata=kept, embed=not no_embed)
            else:
                _bring(db, source, done, library=library, metadata=kept, name=name)
        if not no_embed:
            done.embedded += embed_waiting(db)
    click.echo(done.told())
    if done.counts["failed"]:
        raise SystemExit(1)


@click.command("list")
@library_option
@where_option
@click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(min=0))
@click.option("--offset", default=0, type=click.IntRange(min=0))
@json_option
@click.pass_context
def list_(
    context: click.Context,
    library: str | None,
    conditions: tuple[str, ...],
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List documents, newest first."""
    with opened(context) as db:
        documents = db.documents.browse(
            library=library, where=conditions_from(conditions), limit=limit, offset=offset
        )
        total = db.documents.count(library=library, where=conditions_from(conditions))
    if as_json:
        print_json({"documents": documents, "total": total})
        return
    for document in documents:
        click.echo(
            f"{document.id}  {document.library}  {document.chunks:>4} chunks  {document.title}  "
            f"({document.source})"
        )
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
        done = embed_waiting(db)
        click.echo(
            f"{embedded_in(done) or '0 chunks embedded'}, {db.stats().pending} still waiting"
        )


def embed_waiting(db: Database) -> Embedded:
    """Embed what waits, under a progress bar."""
    if not db.stats().pending:
        return Embedded()
    began, last = time.monotonic(), [Progress(step="embed", done=0, total=None)]
    with bar("embedding", "chunks") as move:

        def listen(progress: Progress) -> None:
            last[0] = progress
            move(progress)

        chunks = db.embed_pending(progress=listen)
    return Embedded(chunks=chunks, tokens=last[0].tokens, seconds=time.monotonic() - began)


class _Done:
    """What became of the sources of an ingest."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("indexed", "replaced", "unchanged", "failed"), 0)
        self.skipped: Counter[str] = Counter()
        self.embedded = Embedded()

    def told(self) -> str:
        """All of it in one line."""
        skipped = f"passed over: {counted(self.skipped)}" if self.skipped else ""
        return (
            "; ".join(filter(None, [counted(self.counts), skipped, embedded_in(self.embedded)]))
            or "nothing to do"
        )

    def failed(self, message: object) -> None:
        """Count a failure and tell it."""
        self.counts["failed"] += 1
        complain(message)


def _bring_folder(
    db: Database, folder: str, done: _Done, library: str, metadata: dict[str, Any], embed: bool
) -> None:
    """Ingest what is in a folder; a failure is one line and does not stop the others."""
    try:
        with bar(f"reading {folder}", "files") as move:
            synced = db.documents.ingest_folder(
                folder, library=library, metadata=metadata, embed=embed, progress=move
            )
    except IngestError as error:
        done.failed(error)
        return
    for what in ("indexed", "replaced", "unchanged"):
        done.counts[what] += getattr(synced, what)
    for path, message in synced.failures:
        done.failed(message if path in message else f"{path}: {message}")
    done.skipped.update(synced.skipped)
    done.embedded += synced.embedded


def _bring(
    db: Database, source: str, done: _Done, library: str, metadata: dict[str, Any], name: str | None
) -> None:
    """Store a file, a page or standard input without embedding it; a failure is one line."""
    try:
        if source == "-":
            stored = db.documents.ingest_text(
                decode(sys.stdin.buffer.read()),
                source=name or "standard input",
                library=library,
                metadata=metadata,
                embed=False,
            )
        else:
            stored = db.documents.ingest(source, library=library, metadata=metadata, embed=False)
        done.counts["unchanged" if stored.status == "skipped" else stored.status] += 1
    except IngestError as error:
        done.failed(error)


def _resolved(db: Database, name: str) -> str:
    """The id of a document named by id or by path."""
    try:
        return db.documents.get(name).id
    except NotFound:
        for source in (name, str(Path(name).expanduser().resolve())):
            if found := db.documents.browse(where={"source": source}, limit=1):
                return found[0].id
        raise NotFound(
            f"no document has the id or path {name}; `mcpvectordb list` shows what there is"
        ) from None


def conditions_from(conditions: tuple[str, ...]) -> list[Condition]:
    """What `--where` said."""
    return [_condition(each) for each in conditions]


def _condition(text: str) -> Condition:
    for position in range(len(text)):
        for sign, operator in _SIGNS.items():
            if text.startswith(sign, position) and position:
                return Condition(
                    text[:position].strip(), operator, _value(text[position + len(sign) :])
                )
    raise InvalidInput(
        f"{text!r} is no condition; write FIELD=VALUE, for example metadata.year>=2024"
    )


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
