"""Commands about libraries and the folders that they follow: library, sync, watch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.ingest import embed_pending, resumable
from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import (
    ask,
    check_library,
    dry_run_option,
    ignore_option,
    json_option,
    no_embed_option,
    pattern_option,
    verbose_option,
    yes_option,
)
from mcpvectordb.cli.output import (
    bar,
    complain,
    complain_files,
    counted,
    embedded_in,
    fail,
    library_line,
    print_json,
    quantity,
    show,
    show_planned,
    show_result,
    show_skipped,
    skipped_in,
)
from mcpvectordb.errors import MCPVectorDBError, Refused, Unreadable

if TYPE_CHECKING:
    from mcpvectordb import Database, Library, Synced


@click.group()
def library() -> None:
    """List libraries, and let them follow folders."""


@library.command()
@click.argument("name")
@click.argument("directory", metavar="DIR")
@pattern_option
@ignore_option
@click.option("--description", default="", metavar="TEXT", help="What the library is about.")
@yes_option
def add(name: str, directory: str, description: str, yes: bool, **chosen: Any) -> None:
    """Let a library follow a folder.

    .gitignore and .mcpvectordbignore files in it are obeyed. Run it again to change the options.
    If the library has documents already, this asks first: a sync will drop those of files in the
    folder that are not taken in.
    """
    with opened(make=True) as db:
        found = _library(db, name)
        if found and found.documents:
            dropped = db.documents.dropped_by(name, directory, **chosen)
            if dropped or not found.root:
                shown = ": " + ", ".join(each.path for each in dropped[:10]) if dropped else ""
                more = f" and {len(dropped) - 10} more" if len(dropped) > 10 else ""
                ask(
                    f"{name} has {quantity(found.documents, 'document')}. The next sync drops "
                    f"{len(dropped) or 'none'} of them, whose files are in this folder and not "
                    f"taken in{shown}{more}; those from elsewhere stay.",
                    yes,
                )
        db.documents.add_library(name, directory, description=description, **chosen)
        root = next(each.root for each in db.documents.libraries() if each.name == name)
    show(f"{name} follows {root}; bring its files in with: mcpvectordb sync {name}")


@library.command()
@click.argument("name")
@yes_option
def confirm(name: str, yes: bool) -> None:
    """Let a library of a file from elsewhere read its folder on this machine.

    Whoever wrote the file chose the folder. A file that was moved or copied, and a folder that was
    replaced, are confirmed again.
    """
    with opened(read_only=True) as db:
        chosen = _followed(db, name)[name]
        without = f", without {' '.join(chosen.ignore)}" if chosen.ignore else ""
        try:
            folder = Path(chosen.root).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:
            fail(f"{name} cannot read {chosen.root}: {getattr(error, 'strerror', None) or error}")
        show(f"{name} reads {folder} ({chosen.pattern}{without})", err=True)
        ask("It will do so on this machine.", yes)
        db.documents.confirm_library(name)
    show(f"confirmed; bring its files in with: mcpvectordb sync {name}")


@library.command()
@click.argument("name")
@click.argument("path", metavar="SUBPATH")
@click.argument("text")
def describe(name: str, path: str, text: str) -> None:
    """Describe a part of a library (SUBPATH / is all of it); an empty text removes it."""
    with opened() as db:
        db.documents.describe(name, path, text)


@library.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all libraries with their counts, and the folders that they follow."""
    with opened() as db:
        found = db.documents.libraries()
    show_result({"libraries": found}, map(library_line, found), as_json=as_json)


@library.command()
@click.argument("name")
@click.option(
    "--keep-documents",
    is_flag=True,
    help="Keep the documents; only stop following the folder.",
)
@yes_option
def remove(name: str, keep_documents: bool, yes: bool) -> None:
    """Remove a library and its documents from the database; the folder is not touched.

    Asks first if it has documents.
    """
    with opened() as db:
        found = _library(db, name)
        if found and found.documents and not keep_documents:
            ask(
                f"{name} and its {quantity(found.documents, 'document')} "
                f"({quantity(found.chunks, 'chunk')}) will be "
                "removed from the database.",
                yes,
            )
        removed = db.documents.remove_library(name, keep_documents=keep_documents)
    show(
        f"removed {name} with {quantity(removed, 'document')}"
        if not keep_documents
        else f"{name} no longer follows a folder"
    )


@click.command()
@click.argument("name", required=False)
@no_embed_option
@verbose_option
@dry_run_option
@json_option
def sync(
    name: str | None,
    no_embed: bool,
    verbose: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Update one library, or all that follow a folder, from its folder; safe to interrupt."""
    done: list[Synced] = []
    failed: dict[str, str] = {}
    with opened() as db, resumable(db):
        for each in _followed(db, name):
            synced, failures = _sync(db, each, embed=not no_embed, dry_run=dry_run)
            done += synced
            failed |= failures
            for one in [] if as_json else synced:
                if verbose:
                    show_skipped(one)
                show_planned(one.planned)
                show(_summary(one, hint=not verbose, dry_run=dry_run))
        if as_json:  # before the model is needed, which may be missing
            print_json({"libraries": done, "failed": failed})
        # A sync that was refused stores nothing, so it does not start on what waited before either.
        if done and not no_embed and not dry_run:
            embed_pending(db)
    if failed:
        raise SystemExit(1)


@click.command()
@click.argument("name", required=False)
def watch(name: str | None) -> None:
    """Sync now, and again whenever something changes in the folders; safe to interrupt.

    What waits for its embedding is embedded meanwhile: no change of a file waits for that.
    """
    from mcpvectordb.documents.follow import changes

    with opened() as db, resumable(db):
        followed = _followed(db, name)
        for each in followed.values():
            if not each.confirmed:
                fail(
                    f"{each.name!r} wants to read {each.root}, which was not confirmed on this "
                    f"machine; confirm it with: mcpvectordb library confirm {each.name}"
                )
        roots = {each.name: Path(each.root) for each in followed.values()}
        show(f"watching {', '.join(map(str, roots.values()))}; stop it with Ctrl-C")
        for changed in changes(roots, db.path):
            try:
                for library in changed:
                    for done in _sync(db, library, embed=False)[0]:
                        show(_summary(done))
                        db.embed_in_background()
                if changed and (note := db.documents.backlog().note):
                    complain(note)
            except MCPVectorDBError as error:
                complain(f"{error}; the watch continues")


def _library(db: Database, name: str) -> Library | None:
    return next((each for each in db.documents.libraries() if each.name == name), None)


def _followed(db: Database, name: str | None) -> dict[str, Library]:
    """The libraries that follow a folder, or only the one with this name, by their names."""
    found = {each.name: each for each in db.documents.libraries() if each.root}
    if name is not None and name not in found:
        check_library(db, name)
        fail(
            f"no library {name!r} follows a folder; `mcpvectordb library list` shows those that do"
        )
    if not found:
        fail("no library follows a folder yet: add one with `mcpvectordb library add NAME DIR`")
    return found if name is None else {name: found[name]}


def _sync(
    db: Database, name: str, *, embed: bool = True, dry_run: bool = False
) -> tuple[list[Synced], dict[str, str]]:
    """Sync a library, and print what failed; returns the report, if there is one, and failures."""
    try:
        with bar(f"syncing {name}", "files") as move:
            done = db.documents.sync(name, embed=embed, dry_run=dry_run, progress=move)
    except (Refused, Unreadable) as error:
        complain(error)
        return [], {name: str(error)}
    return done, complain_files(done[0])


def _summary(done: Synced, *, hint: bool = False, dry_run: bool = False) -> str:
    """What was done, or after a dry run what is to be: it opens no file, so it knows of no text."""
    counts = {
        what: getattr(done, what)
        for what in ("indexed", "replaced", "moved", "removed", "unchanged")
    }
    if dry_run:
        to_read = done.indexed + done.replaced
        counts = {"to read": to_read, "to remove": done.removed, "unchanged": done.unchanged}
    files = counted({**counts, "failed": len(done.failures)}) or "no files"
    skipped = skipped_in(done.skipped, hint=hint)
    return (
        f"{done.library}: {'; '.join(filter(None, [files, skipped, embedded_in(done.embedded)]))}"
    )
