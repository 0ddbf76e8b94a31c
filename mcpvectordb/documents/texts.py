"""Texts that callers give instead of files: checked, parsed in this process, and stored."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from mcpvectordb import metadata
from mcpvectordb.config import how_to_allow
from mcpvectordb.documents.overrides import DocumentChange
from mcpvectordb.documents.write import DocumentWriter, PreparedDocument
from mcpvectordb.errors import InvalidInput, NoText, TooLarge, quoted
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.formats import code, markdown
from mcpvectordb.metadata import storable
from mcpvectordb.records import Parsed, Source, Status


class GivenText(NamedTuple):
    """A text that can be stored, its hash, and what people say of it.

    `created_at` is "" for a document that is new, `parsed` None for a text that is not parsed yet.
    """

    source: Source
    hash: str
    said: DocumentChange
    created_at: str = ""
    parsed: Parsed | None = None

    def parse(self) -> Parsed:
        """The text as code, if its source has the name of a code file, or else as Markdown."""
        if self.parsed is not None:
            return self.parsed
        written_in = formats.by_name(self.source.name)
        if written_in and written_in.module == "code":
            return code.parse(self.source)
        return markdown.parse(self.source)


def checked_text(
    text: str, source: str, title: str | None, given: Mapping[str, Any] | None, max_bytes: int
) -> GivenText:
    """A text with its source, title and metadata; refuses what cannot be stored."""
    storable(text, "text")
    storable(source, "source", blank=False)
    if not text.strip():
        raise NoText(f"the text of {quoted(source)} is blank: there is nothing to search in it")
    raw = text.encode()
    if len(raw) > max_bytes:
        raise TooLarge(
            f"the text of {quoted(source)} is {len(raw):,} bytes; at most {max_bytes:,} are "
            f"ingested {how_to_allow('max_source_bytes')}"
        )
    metadata.encode(given)
    named = None if title is None else storable(title, "title", blank=False)
    path = PurePosixPath(source)
    return GivenText(
        Source(
            source=source,
            name=path.name or source,
            raw=raw,
            file_type=path.suffix[1:].lower() or "unknown",
            media_type="text/plain; charset=utf-8",  # nothing is to be guessed
        ),
        hashlib.sha256(raw).hexdigest(),
        DocumentChange(keys=given or None, title=named),
    )


def checked_texts(
    texts: Iterable[str],
    sources: Iterable[str],
    titles: Sequence[str | None] | None,
    metadatas: Sequence[Mapping[str, Any] | None] | None,
    max_bytes: int,
) -> list[GivenText]:
    """Texts with as many different sources and, where they are given, titles and metadata."""
    if isinstance(texts, str) or isinstance(sources, str):
        raise InvalidInput("texts and sources must be lists of strings, not one string")
    bodies, names = list(texts), list(sources)
    for what, count in (
        ("sources", len(names)),
        ("titles", len(bodies if titles is None else titles)),
        ("metadata", len(bodies if metadatas is None else metadatas)),
    ):
        if count != len(bodies):
            raise InvalidInput(f"there are {len(bodies)} texts, but {count} {what}")
    nothing = [None] * len(bodies)
    given = [
        checked_text(*each, max_bytes)
        for each in zip(bodies, names, titles or nothing, metadatas or nothing, strict=True)
    ]
    [(most, count)] = Counter(names).most_common(1) or [("", 0)]
    if count > 1:
        raise InvalidInput(
            f"the source {quoted(most)} is given {count} times: each text needs its own"
        )
    return given


def store(
    given: Sequence[GivenText], library: str, writer: DocumentWriter, replaces: bool = True
) -> Iterator[list[tuple[Status, int]]]:
    """Write texts in short transactions; the statuses and keys of each batch when it is stored.

    Of those that are known, only what people say of them is stored. Without `replaces` one whose
    source has another text raises Exists.
    """
    tuning = writer.store.tuning
    for start in range(0, len(given), tuning.documents_per_write):
        texts = given[start : start + tuning.documents_per_write]
        known = writer.known_all(library, [(text.source.source, text.hash) for text in texts])
        batch: list[tuple[DocumentChange, PreparedDocument | int]] = []
        chunks = 0
        for text, key in zip(texts, known, strict=True):
            document = key or writer.prepare(
                text.source,
                text.parse(),
                hash=text.hash,
                library=library,
                given=text.said.keys,
                title=text.said.title,
                created_at=text.created_at,
                replaces=replaces,
            )
            batch.append((text.said, document))
            chunks += 0 if isinstance(document, int) else len(document.spans)
            if chunks >= tuning.chunks_per_write:
                yield _write(batch, writer)
                batch, chunks = [], 0
        if batch:
            yield _write(batch, writer)


def _write(
    batch: Sequence[tuple[DocumentChange, PreparedDocument | int]], writer: DocumentWriter
) -> list[tuple[Status, int]]:
    """Write documents, and what is said of those that were there, given by their keys."""
    new = [each for _, each in batch if not isinstance(each, int)]
    written = iter(writer.write_all(new) if new else ())
    stored: list[tuple[Status, int]] = []
    place: tuple[Status, int]
    for said, each in batch:
        place = ("skipped", each) if isinstance(each, int) else next(written)
        stored.append(writer.say(place[1], said) if place[0] == "skipped" else place)
    return stored


def read_by(reader: Callable[[Source], str], source: Source) -> Parsed:
    """What a reader of the caller makes of a source, as plain text."""
    text = storable(reader(source), "text")
    if not text.lstrip("\ufeff").strip():
        raise NoText(f"No text found in {source.name}")
    return Parsed(text=text, title=source.name)
