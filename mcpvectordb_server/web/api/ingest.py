"""/api/files and /api/ingest: bring files, texts, web pages and folders in."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request

from mcpvectordb import Exists, Ingested, InvalidInput, Source
from mcpvectordb_server.grant import ProgressCallback
from mcpvectordb_server.shown import Shown, plain
from mcpvectordb_server.web.api.libraries import EVERYTHING, JobStarted, absolute, synced_reply
from mcpvectordb_server.web.route import Upload, body
from mcpvectordb_server.web.site import Site

MOST_UPLOADS = 16
"""Files that have arrived and wait to be ingested; further ones wait to be sent."""

LibraryName = Annotated[str, "The library to put it into"]
Metadata = Annotated[dict[str, Any] | None, "What else there is to say of it"]
IngestedReply = Annotated[Ingested, Shown(Ingested, only="status document pending note")]
Replace = Annotated[bool, "Whether it may take the place of another text of that name (or: 409)"]


async def take_upload(request: Request, site: Site) -> Upload:
    """The file in the body of a request, taken when there is room for it."""
    while site.jobs.unfinished("upload") >= MOST_UPLOADS:
        await asyncio.sleep(0.05)
    return await body(request, site.db.config.max_source_bytes, "file")


def upload_file(
    site: Site,
    file: Upload,
    *,
    path: Annotated[str, "Its relative path, which becomes the source", Field(max_length=4_096)],
    library: LibraryName = "default",
    modified: Annotated[str | None, "When it was changed last, as 2025-11-29T10:00:00Z"] = None,
    replace: Replace = False,
) -> JobStarted:
    """Ingest one file, sent as the body as it is; secrets are refused."""
    source = PurePosixPath(path.replace("\\", "/").lstrip("/"))
    if not source.name or ".." in source.parts or not path.isprintable():
        raise InvalidInput("path must be a relative path with a file name, such as notes/tea.md")
    changed = "" if modified is None else _time(modified)
    # Asked now, so that whoever sends it is told, and again when it is stored.
    where = [("source", "eq", str(source))]
    found = site.db.documents.browse(library=library, where=where, limit=100)
    known = set() if replace else {each.hash for each in found}
    if known and hashlib.sha256(file.content()).hexdigest() not in known:
        raise Exists(
            f"the library {library!r} has another file named {str(source)!r}: give this one "
            "another name, or let it replace the other"
        )

    def work(progress: ProgressCallback) -> Any:
        try:
            given = Source(
                source=str(source),
                name=source.name,
                raw=file.content(),
                file_type=source.suffix[1:].lower() or "unknown",
                modified=changed,
            )
            done = site.db.documents.ingest(
                given, library=library, guard=True, embed=False, replace=replace, progress=progress
            )
        finally:
            file.close()
        site.embed()
        return plain(IngestedReply, done)

    return {"job": site.jobs.add("upload", str(source), work).reply()}


def ingest_text(
    site: Site,
    *,
    text: Annotated[str, "The text, as Markdown"],
    source: Annotated[str | None, "Its name; otherwise note- and the time, a free one"] = None,
    title: Annotated[str | None, "Its title; otherwise its first heading"] = None,
    library: LibraryName = "default",
    metadata: Metadata = None,
    replace: Replace = False,
) -> IngestedReply:
    """Store a text as a document."""
    given: dict[str, Any] = {"title": title, "library": library, "metadata": metadata}
    if source is not None:
        return site.db.documents.ingest_text(text, source=source, replace=replace, **given)
    name = f"note-{datetime.now().astimezone():%Y-%m-%d-%H%M}"
    number = 1
    while True:  # who stores at the same time takes the next one
        free = f"{name}.md" if number == 1 else f"{name}-{number}.md"
        try:
            return site.db.documents.ingest_text(text, source=free, replace=False, **given)
        except Exists:
            number += 1


def ingest_url(
    site: Site,
    *,
    url: Annotated[str, "http or https; addresses of private networks are refused"],
    library: LibraryName = "default",
    metadata: Metadata = None,
) -> JobStarted:
    """Fetch a web page or a file, and ingest it."""
    if not url.lower().startswith(("http://", "https://")):
        raise InvalidInput("url must begin with http:// or https://")

    def work(progress: ProgressCallback) -> Any:
        done = site.db.documents.ingest(
            url, library=library, metadata=metadata, guard=True, embed=False, progress=progress
        )
        site.embed()
        return plain(IngestedReply, done)

    return {"job": site.jobs.add("url", url, work).reply()}


def ingest_folder(
    site: Site,
    *,
    folder: Annotated[str, "A folder of this machine, absolute or from ~", Field(min_length=1)],
    library: LibraryName = "default",
    pattern: Annotated[str, "Which files, relative to it"] = EVERYTHING,
    ignore: Annotated[list[str] | None, "Which not, as in a .gitignore"] = None,
    dry_run: Annotated[bool, "Only say what would be done"] = False,
) -> JobStarted:
    """Ingest the files of a folder once; secrets in it are never read."""
    folder = absolute(folder)

    def work(progress: ProgressCallback) -> Mapping[str, Any]:
        done = site.db.documents.ingest_folder(
            folder,
            library=library,
            pattern=pattern,
            ignore=ignore or (),
            guard=True,
            dry_run=dry_run,
            progress=progress,
        )
        return synced_reply(done)

    title = f"{folder} (dry run)" if dry_run else folder
    return {"job": site.jobs.add("folder", title, work).reply()}


def _time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        raise InvalidInput("modified must be a time such as 2025-11-29T10:00:00Z") from None
