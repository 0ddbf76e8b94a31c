"""Commands that bring documents in: ingest, embed."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.main import configured, opened
from mcpvectordb.cli.options import (
    chosen_project,
    dry_run_option,
    ignore_option,
    json_option,
    metadata_option,
    metadata_pair,
    no_embed_option,
    pattern_option,
    project_option,
    verbose_option,
)
from mcpvectordb.cli.output import (
    bar,
    complain,
    complain_files,
    counted,
    embedded_in,
    print_json,
    quantity,
    show,
    show_planned,
    show_skipped,
    skipped_in,
)
from mcpvectordb.config import PRECISIONS
from mcpvectordb.errors import Exists, IngestError, InvalidInput, ModelError
from mcpvectordb.ingest.formats.charset import decode
from mcpvectordb.records import Embedded, Progress, counted_passages

if TYPE_CHECKING:
    from mcpvectordb import Database, Synced


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="PATH|URL|- ...")
@click.option(
    "--library",
    "-l",
    default="default",
    show_default=True,
    metavar="NAME",
    help="The library to ingest into.",
)
@project_option
@metadata_option
@pattern_option
@ignore_option
@click.option(
    "--model",
    metavar="NAME",
    help="The embedding model of a new database [default: the best one installed].",
)
@click.option(
    "--embeddings",
    type=click.Choice(PRECISIONS),
    help="How a new database stores embeddings; float16 takes half the space [default: float32].",
)
@no_embed_option
@verbose_option
@dry_run_option
@json_option
@click.option(
    "--source",
    "name",
    metavar="NAME",
    help="The source name of standard input (-) [default: stdin- and a part of its hash].",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Let standard input take the place of another text that has its source name.",
)
def ingest(
    sources: tuple[str, ...],
    library: str,
    project: str | None,
    metadata: tuple[str, ...],
    pattern: str,
    ignore: tuple[str, ...],
    model: str | None,
    embeddings: str | None,
    no_embed: bool,
    verbose: bool,
    dry_run: bool,
    as_json: bool,
    name: str | None,
    replace: bool,
) -> None:
    """Put files, folders, web pages or standard input into the database.

    The metadata of what is known already is updated.
    """
    given: dict[str, Any] = {
        "library": library,
        "metadata": dict(metadata_pair(each) for each in metadata),
    }
    chosen = {"pattern": pattern, "ignore": ignore, "dry_run": dry_run, "embed": not no_embed}
    done = _Outcomes(verbose, as_json)
    if model:
        from mcpvectordb.embedding import weights

        # Refuses a model for a new database that is not an embedder on this machine.
        folder = configured().models_folder()
        weights.locate(weights.embedder(model, folder), folder)
    with (
        opened(make=True, dry_run=dry_run, model=model, embeddings=embeddings) as db,
        resumable(db),
    ):
        _check_used(db, model, embeddings)
        if (scope := chosen_project(db, project, new=True)) is not None:
            given["library"] = scope.inside("" if library == "default" else library)
        for source in sources:
            _ingest_source(db, source, done, given, chosen, {"source": name, "replace": replace})
        try:
            # What failed stores nothing, so it does not start on what waited before either.
            stored = any(count for what, count in done.counts.items() if what != "failed")
            if stored and not no_embed and not dry_run:
                done.embedded += embed_pending(db)
        finally:  # what is stored is stored, whether the model works or not
            done.show(dry_run)
    if done.counts["failed"]:
        raise SystemExit(1)


def _check_used(db: Database, model: str | None, embeddings: str | None) -> None:
    """Refuse a model, or a type of embeddings, for a database that has another one already."""
    if not (model or embeddings):
        return
    stats = db.stats()
    if model and stats.model != model:
        raise InvalidInput(
            f"this database is embedded with {stats.model}; to change that, run: mcpvectordb model "
            f"use {model}"
        )
    if embeddings and stats.embeddings != embeddings:
        raise InvalidInput(
            f"this database stores embeddings as {stats.embeddings}; to change that, export it and "
            f"import it into a new one with MCPVECTORDB_EMBEDDINGS={embeddings}"
        )


@click.command()
def embed() -> None:
    """Embed the chunks that have no embedding yet.

    Safe to interrupt, and to run in several processes at once.
    """
    with opened() as db, resumable(db):
        done = embed_pending(db)
        show(f"{embedded_in(done) or '0 chunks embedded'}, {db.stats().pending} still waiting")


@contextlib.contextmanager
def resumable(db: Database) -> Iterator[None]:
    """Say after an interrupt, or without a model, how much waits, and what continues with it."""
    try:
        yield
    except (KeyboardInterrupt, ModelError):
        if pending := db.stats().pending:
            complain(
                f"{counted_passages(pending)} still to be embedded: `mcpvectordb embed` continues, "
                "and so does the next server"
            )
        raise


def embed_pending(db: Database) -> Embedded:
    """Embed the chunks that have no embedding yet, with a progress bar."""
    if not db.stats().pending:
        return Embedded()
    began, last = time.monotonic(), [Progress(step="embed", done=0, total=None)]
    with bar("embedding", "chunks") as move:

        def listen(progress: Progress) -> None:
            last[0] = progress
            move(progress)

        chunks = db.embed_pending(progress=listen)
    return Embedded(chunks=chunks, tokens=last[0].tokens, seconds=time.monotonic() - began)


_OUTCOMES = {"updated": "metadata updated"}


class _Outcomes:
    """The outcomes of an ingest of several sources."""

    def __init__(self, verbose: bool, as_json: bool) -> None:
        self.verbose, self.as_json = verbose, as_json
        self.counts = dict.fromkeys(
            ("indexed", "replaced", "metadata updated", "unchanged", "failed"), 0
        )
        self.skipped: Counter[str] = Counter()
        self.skipped_paths: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.planned: list[tuple[str, str]] = []
        self.embedded = Embedded()

    def show(self, dry_run: bool) -> None:
        """Print the outcomes: in one line, after those of a dry run, or as JSON."""
        if self.as_json:
            names = ("counts", "skipped", "skipped_paths", "failures", "planned", "embedded")
            print_json({name: getattr(self, name) for name in names})
            return
        show_planned(self.planned)
        skipped = skipped_in(self.skipped, hint=not self.verbose)
        files = (
            f"{quantity(len(self.planned), 'file')} to read" if dry_run else counted(self.counts)
        )
        told = filter(None, [files, skipped, embedded_in(self.embedded)])
        show("; ".join(told) or "nothing to do")

    def failed(self, message: object) -> None:
        """Count a failure and print it."""
        self.counts["failed"] += 1
        self.failures.append(str(message))
        complain(message)

    def add(self, synced: Synced) -> None:
        """Count what was done with a folder, and print what is wrong with its files."""
        for what in ("indexed", "replaced", "unchanged"):
            self.counts[what] += getattr(synced, what)
        self.counts["metadata updated"] += synced.updated
        if self.verbose and not self.as_json:
            show_skipped(synced)
        for path in synced.vanished:
            complain(f"{path} is no longer in the folder; its document stays")
        failures = complain_files(synced).values()
        self.counts["failed"] += len(failures)
        self.failures += failures
        self.skipped.update(synced.skipped)
        self.skipped_paths += synced.skipped_paths
        self.planned += synced.planned
        self.embedded += synced.embedded


def _ingest_source(
    db: Database,
    source: str,
    done: _Outcomes,
    given: Mapping[str, Any],
    of_folders: Mapping[str, Any],
    of_stdin: Mapping[str, Any],
) -> None:
    """Ingest a folder, or without embedding it a file, URL or standard input.

    A failure is printed and does not stop the others.
    """
    try:
        if source != "-" and "://" not in source and Path(source).expanduser().is_dir():
            with bar(f"reading {source}", "files") as move:
                folder = db.documents.ingest_folder(source, progress=move, **given, **of_folders)
                done.add(folder)
            return
        if of_folders["dry_run"]:
            done.planned.append(("read", source))
            return
        if source == "-":
            raw = sys.stdin.buffer.read()
            name = of_stdin["source"] or f"stdin-{hashlib.sha256(raw).hexdigest()[:8]}"
            options = {**given, **of_stdin, "source": name}
            stored = db.documents.ingest_text(decode(raw), embed=False, **options)
        else:
            stored = db.documents.ingest(source, embed=False, **given)
        done.counts[_OUTCOMES.get(stored.status, stored.status)] += 1
        if stored.note:
            complain(f"{source}: {stored.note}")
    except Exists as error:
        done.failed(f"{error} (--replace)")
    except IngestError as error:
        done.failed(error)
