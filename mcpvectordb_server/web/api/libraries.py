"""/api/libraries, /api/passed_over, /api/directories: groups of documents, folders they follow."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mcpvectordb import Document, InvalidInput, Library, NotFound, PassedOver, Synced, Unreadable
from mcpvectordb_server.grant import ProgressCallback
from mcpvectordb_server.shown import JsonReply, Shown, rows, shows
from mcpvectordb_server.web.api.documents import UNDO, Limit, Offset
from mcpvectordb_server.web.jobs import JobReply
from mcpvectordb_server.web.site import Site

MOST_DIRECTORIES = 1_000
MOST_DROPPED = 100
EVERYTHING = "**/*"

Name = Annotated[str, "The name of the library"]
OneLibrary = Annotated[JsonReply, Shown(library=Library)]
JobStarted = Annotated[JsonReply, Shown(job=JobReply)]


@shows(libraries=list[Library])
def list_libraries(site: Site) -> JsonReply:
    """All libraries, with their counts and the folders they follow."""
    return {"libraries": site.db.documents.libraries()}


@shows(
    library=Library | None,
    job=JobReply | None,
    dropped=list[Document],
    planned=dict[str, int],
    skipped=dict[str, int],
)
def follow(
    site: Site,
    *,
    name: Name,
    root: Annotated[str, "The folder, absolute or from ~", Field(min_length=1)],
    pattern: Annotated[str, "Which files, relative to it"] = EVERYTHING,
    ignore: Annotated[list[str] | None, "Which not, as in a .gitignore"] = None,
    description: Annotated[str, "What is in it"] = "",
    dry_run: Annotated[bool, "Only say what would happen"] = False,
    sync: Annotated[bool, "Ingest its files now"] = True,
) -> JsonReply:
    """Let a library follow a folder; secrets in it are never read.

    `dropped` are documents that the first sync would remove, `planned` what it would do, and
    `skipped` what it would leave out, by reason.
    """
    documents, root = site.db.documents, absolute(root)
    # Refuses folders where secrets are kept, and those that are none, before anything is changed.
    plan = documents.ingest_folder(
        root, library=name, pattern=pattern, ignore=ignore or (), dry_run=True, guard=True
    )
    dropped = documents.dropped_by(name, root, pattern=pattern, ignore=ignore or ())
    job = None
    if not dry_run:
        documents.add_library(
            name, root, pattern=pattern, ignore=ignore or (), description=description
        )
        job = _sync(site, name) if sync else None
    return {
        "library": None if dry_run else _library(site, name),
        "job": job,
        "dropped": dropped[:MOST_DROPPED],
        "planned": Counter(what for what, _ in plan.planned),
        "skipped": dict(plan.skipped),
    }


def describe(
    site: Site,
    *,
    name: Name,
    description: Annotated[str, "What is in it; blank removes it"],
    path: Annotated[str, "A path in the library, or all of it"] = "",
) -> OneLibrary:
    """Describe a library that follows a folder, or a part of it, for agents and people."""
    site.db.documents.describe(name, path, description)
    return {"library": _library(site, name)}


def confirm(site: Site, *, name: Name) -> OneLibrary:
    """Let a library that was not added on this machine read its folder: ask a person first."""
    site.db.documents.confirm_library(name)
    return {"library": _library(site, name)}


def sync_library(
    site: Site, *, name: Name, dry_run: Annotated[bool, "Only say what would be done"] = False
) -> JobStarted:
    """Update a library from its folder."""
    if not _library(site, name).root:
        raise NotFound(f"the library {name!r} follows no folder")
    return {"job": _sync(site, name, dry_run=dry_run)}


@shows(dry_run=bool, documents=int, consequences=list[str])
def remove_library(
    site: Site,
    *,
    name: Name,
    keep_documents: Annotated[bool, "Only stop following the folder"] = False,
    dry_run: Annotated[bool, "Only say what would happen"] = False,
) -> JsonReply:
    """Remove a library with its documents, or stop following its folder."""
    library = _library(site, name)
    count = 0 if keep_documents else library.documents
    if not dry_run:
        count = site.db.documents.remove_library(name, keep_documents=keep_documents)
    said = []
    if library.root:
        said.append(f"{library.root} is followed no longer; the folder itself is not touched.")
    said.append(
        f"Its {library.documents:,} documents stay in this file."
        if keep_documents
        else f"{count:,} documents and {library.chunks:,} passages are removed from this file."
    )
    said.append(UNDO)
    return {"dry_run": dry_run, "documents": count, "consequences": said}


@shows(path=str, parent=str | None, directories=rows(name=str, path=str), truncated=bool)
def directories(
    site: Site, *, path: Annotated[str, "A folder, absolute or from ~"] = "~"
) -> JsonReply:
    """The folders of this machine but hidden ones, to choose one to follow."""
    try:
        folder = Path(absolute(path)).resolve(strict=True)
        with os.scandir(folder) as entries:
            names = sorted(
                each.name for each in entries if not each.name.startswith(".") and _is_folder(each)
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it is no folder"
        raise Unreadable(f"this folder cannot be listed: {reason}") from None
    return {
        "path": str(folder),
        "parent": None if folder.parent == folder else str(folder.parent),
        "directories": [
            {"name": name, "path": str(folder / name)} for name in names[:MOST_DIRECTORIES]
        ],
        "truncated": len(names) > MOST_DIRECTORIES,
    }


@shows(files=list[PassedOver], failures=rows(PassedOver, job=str), more=bool)
def passed_over(
    site: Site,
    *,
    library: Annotated[str | None, "Of this library"] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JsonReply:
    """Files that were not ingested, and why; failures are those since the server's start."""
    found = site.db.documents.passed_over(library, limit=limit, offset=offset)
    failures = [
        {"library": job.result["library"], "path": path, "reason": reason, "job": job.id}
        for job in site.jobs.newest_first()
        if job.result is not None and library in (None, job.result.get("library"))
        for path, reason in job.result.get("failures", ())
    ]
    return {"files": list(found), "failures": failures[:500], "more": len(found) == limit}


def absolute(folder: str) -> str:
    """A folder with its ~ expanded; one that is relative to nothing a page knows is refused."""
    try:
        path = Path(folder).expanduser()
    except RuntimeError:
        raise InvalidInput("there is no home folder here: give the whole path") from None
    if not path.is_absolute():
        raise InvalidInput("give the whole path of the folder, or one from ~")
    return str(path)


def synced_reply(done: Synced) -> dict[str, Any]:
    """The result of a sync or of the ingest of a folder, as a job shows it."""
    return {
        name: value for name, value in done.to_dict().items() if name not in ("embedded", "partial")
    }


def _sync(site: Site, name: str, *, dry_run: bool = False) -> JobReply:
    def work(progress: ProgressCallback) -> Mapping[str, Any]:
        [done] = site.db.documents.sync(name, dry_run=dry_run, progress=progress)
        return synced_reply(done)

    return site.jobs.add("sync", f"{name} (dry run)" if dry_run else name, work).reply()


def _library(site: Site, name: str) -> Library:
    for each in site.db.documents.libraries():
        if each.name == name:
            return each
    raise NotFound(f"there is no library {name!r}")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
