"""Tools that change what is stored: remember, ingest, update and forget."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from mcpvectordb import Database, Hit, Ingested, InvalidInput, Memory, Refused, Synced
from mcpvectordb_server.grant import Grant
from mcpvectordb_server.replies import cut
from mcpvectordb_server.surfaces.desk import places
from mcpvectordb_server.surfaces.desk.optional import (
    NO_TEXTS,
    NOTHING,
    Flag,
    OptionalObject,
    OptionalText,
    OptionalTexts,
)
from mcpvectordb_server.surfaces.desk.places import Located

THREAD = "general"
# From this cosine on two memories say nearly the same, by a model whose cosines are known; by
# their words, from this share of them in common on.
NEAR_COSINE, NEAR_WORDS = 0.9, 0.6
_COMPARED = 2_000  # characters of a text that others are compared with
_FAILURES = 5  # files that could not be read which a reply names


def remember(
    db: Database,
    *,
    text: str,
    thread: Annotated[str, "Its topic or project"] = THREAD,
    tags: OptionalTexts = NO_TEXTS,
    metadata: OptionalObject = NOTHING,
    replace: Annotated[OptionalText, "memory:N that this corrects"] = "",
) -> str:
    """Keep a fact, decision or preference for later. Says if nearly the same is remembered."""
    if replace.strip():
        old = _memory(db, replace)
        done = db.memories.update(
            old.id, text=text, tags=tags or None, metadata_patch=metadata or None
        )
        return _changed("replaced", done.memory, done.note, f"It was: {cut(old.text, 200)}")
    near = _near(db, text)
    for each in near:
        if _plain(each.text) == _plain(text):
            return _changed(
                "known", each, "", f"It is remembered already, since {each.created_at[:10]}."
            )
    stored = db.memories.add(thread, "agent", text, tags=tags or None, metadata=metadata or None)
    remark = ""
    if near:
        remark = (
            "Nearly the same is remembered: "
            + "; ".join(f"{places.of(each)} ({cut(each.text, 120)})" for each in near)
            + ". If this corrects it, forget the old one."
        )
    return _changed("remembered", stored.memory, stored.note, remark)


def ingest(
    db: Database,
    *,
    source: Annotated[str, "File, folder or URL; with text, a name for it: notes/tea.md"],
    text: OptionalText = "",
    library: str = "default",
    title: OptionalText = "",
    metadata: OptionalObject = NOTHING,
    replace: Flag = False,
    grant: Grant = Grant(),  # noqa: B008 - immutable
) -> str:
    """Store a text, file, folder or web page for `search`: found by words at once, by meaning as
    embedding goes on. Unchanged sources are skipped, changed ones replaced; by `text` only with
    `replace`. What takes over ten seconds goes on as a job, shown by `status`.
    """
    source = source.strip()
    if not source:
        raise InvalidInput("source must not be blank: give a file, a folder, a URL, or a name")
    if text.strip():
        return _ingested(
            db.documents.ingest_text(
                text,
                source=source,
                title=title.strip() or None,
                library=library,
                metadata=metadata,
                replace=replace,
                progress=grant.progress,
            )
        )
    is_url = re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source) is not None
    if not is_url and grant.roots == ():
        raise Refused(
            "files can be ingested over HTTP only from folders the server was started with (--root "
            "DIR); give the text itself, or a URL"
        )
    # os.path answers False for names that cannot be, where Path raises.
    if not is_url and os.path.isdir(os.path.expanduser(source)):  # noqa: PTH111, PTH112
        done = db.documents.ingest_folder(
            source,
            library=library,
            metadata=metadata,
            embed=False,
            progress=grant.progress,
            roots=grant.roots or (),
            guard=True,
        )
        db.embed_in_background()
        return _synced(db, done)
    return _ingested(
        db.documents.ingest(
            source,
            library=library,
            metadata=metadata,
            guard=True,
            roots=grant.roots or (),
            progress=grant.progress,
            wait=False,
        )
    )


def update(
    db: Database,
    *,
    place: str,
    metadata: Annotated[OptionalObject, "Merged; null removes a key"] = NOTHING,
    tags: Annotated[list[str] | None, "Replace the old ones"] = None,
    title: OptionalText = "",
    library: Annotated[OptionalText, "Move it there"] = "",
) -> str:
    """Change metadata or tags, of a document also title or library. Texts are corrected by
    `remember` and `ingest`.
    """
    if not metadata and tags is None and not title and not library:
        raise InvalidInput("nothing to change: give metadata, tags, title or library")
    given = _only_one(db, place)
    if isinstance(given.item, Memory):
        if title or library:
            raise InvalidInput("a memory has no title and no library: give metadata or tags")
        done = db.memories.update(given.item.id, metadata_patch=metadata or None, tags=tags)
        return _changed("updated", done.memory, "", f"Written: {', '.join(done.fields)}.")
    patch = metadata if tags is None else {**metadata, "tags": tags}
    changed = db.documents.update(
        given.item.id,
        metadata_patch=patch or None,
        title=title or None,
        library=library or None,
    )
    return _ingested(changed)


def forget(db: Database, *, place: str) -> str:
    """Delete a document or memory; ask the user first, who can undo it: `mcpvectordb undo`. Its
    file stays.
    """
    given = _only_one(db, place)
    if isinstance(given.item, Memory):
        db.memories.delete([given.item.id])
        what = cut(given.item.text, 120)
    else:
        db.documents.delete(given.item.id)
        what = given.item.title
    return places.in_line(f"{given.place} was deleted: {what}")


def _only_one(db: Database, place: str) -> Located:
    """What a place names, if it can mean only one thing: it is to be changed."""
    given = places.locate(db, place)
    if isinstance(given.item, Memory):
        return given
    if given.former:
        raise InvalidInput(
            f"{cut(place, 200)} was replaced by {given.item.id} ({given.place}): name that one, if "
            "it is meant"
        )
    [meant] = db.documents.candidates([place.strip()])
    if len(meant) > 1:
        raise InvalidInput(
            f"{cut(place, 200)} may mean {len(meant)} documents, so nothing was changed; name one: "
            + ", ".join(f"{each.document.path} ({each.document.id})" for each in meant[:5])
        )
    if given.line is not None:
        raise InvalidInput("lines cannot be changed: name the whole document, without lines")
    return given


def _memory(db: Database, place: str) -> Memory:
    given = places.locate(db, place)
    if isinstance(given.item, Memory):
        return given.item
    raise InvalidInput(f"{given.place} is a document; replace takes a memory such as memory:7")


def _near(db: Database, text: str) -> list[Memory]:
    """Memories that say nearly the same as a text, best first."""
    if not text.strip():
        raise InvalidInput("text must not be blank: say what to remember")
    found = db.memories.search(text[:_COMPARED], limit=5)
    return [hit.item for hit in found if _is_near(hit, text)]


def _is_near(hit: Hit[Memory], text: str) -> bool:
    by_meaning = hit.relevance is not None and (hit.scores.vector or 0.0) >= NEAR_COSINE
    ours, theirs = (set(_plain(each).split()) for each in (text, hit.item.text))
    return by_meaning or len(ours & theirs) >= NEAR_WORDS * len(ours | theirs)


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.casefold()).strip()


def _changed(status: str, memory: Memory, note: str, remark: str) -> str:
    thread = places.in_line(cut(memory.thread, 60))
    told = f"{status}: {places.of(memory)} in {thread}."
    return " ".join(filter(None, [told, remark, note]))


def _ingested(done: Ingested) -> str:
    document = done.document
    told = places.in_line(
        f"{done.status}: {places.of(document)} · {document.title} · passages: {document.chunks:,}"
    )
    return "\n".join(filter(None, [told, done.note]))


def _synced(db: Database, done: Synced) -> str:
    counts = {
        "indexed": done.indexed,
        "replaced": done.replaced,
        "updated": done.updated,
        "unchanged": done.unchanged,
        "skipped": sum(done.skipped.values()),
        "failed": len(done.failures),
    }
    backlog = db.documents.backlog()
    lines = [
        f"ingested into {done.library}: "
        + ", ".join(
            f"{count:,} {name}" for name, count in counts.items() if count or name == "indexed"
        )
    ]
    if done.skipped:
        lines.append(
            "Skipped: " + ", ".join(f"{count:,} {why}" for why, count in done.skipped.items())
        )
    lines += [f"Failed: {Path(path).name}: {why}" for path, why in done.failures[:_FAILURES]]
    if (more := len(done.failures) - _FAILURES) > 0:
        lines.append(f"[{more} more failed]")
    lines += [f"{note}." for note in (backlog.note, done.note) if note]
    return "\n".join(lines)
