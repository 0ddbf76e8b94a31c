"""Stores imported documents: known ones are left alone, changed ones take the place of the old."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mcpvectordb import metadata
from mcpvectordb.config import Config
from mcpvectordb.documents import texts
from mcpvectordb.documents.libraries import checked_name
from mcpvectordb.documents.texts import GivenText
from mcpvectordb.documents.write import DocumentWriter
from mcpvectordb.errors import IngestError, InvalidInput, NoText
from mcpvectordb.importers.items import ImportedDocument
from mcpvectordb.importers.kept_embeddings import KeptEmbeddings
from mcpvectordb.importers.report import ANOTHER, ImportMark, ImportReport, Marker, Outcome
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.storage.file import File

SHELF = "documents"


class _DocumentHere(NamedTuple):
    """The row of a document that has the library and source of an imported one."""

    key: int
    hash: str
    metadata: Mapping[str, object]


class DocumentImport:
    """Stores documents in batches."""

    def __init__(
        self,
        file: File,
        config: Config,
        writer: DocumentWriter,
        index: ChunkIndex,
        kept: KeptEmbeddings,
        marker: Marker,
        report: ImportReport,
    ) -> None:
        self._file, self._config, self._writer, self._index = file, config, writer, index
        self._kept, self._marker, self._report = kept, marker, report

    def write(self, items: Sequence[ImportedDocument]) -> None:
        """Store a batch and report what became of each item."""
        by_library: defaultdict[str, dict[str, ImportedDocument]] = defaultdict(dict)
        for item in items:
            if item.id in by_library[item.library]:
                self._report.skip(item.id, "an item of the same id came before it")
            else:
                by_library[item.library][item.id] = item
        for library, by_id in by_library.items():
            self._write(library, list(by_id.values()))

    def _write(self, library: str, items: Sequence[ImportedDocument]) -> None:
        here = self._here(library, [item.id for item in items])
        to_write: list[tuple[ImportedDocument, GivenText]] = []
        owners = {}
        for item in items:
            try:
                checked_name(library)
                given = self._given(item)
            except NoText:
                self._report.skip(item.id, "it has no text")
                continue
            except (InvalidInput, IngestError) as error:
                self._report.skip(item.id, str(error))
                continue
            found = here.get(item.id)
            outcome = self._outcome(item, given, found)
            if outcome is None:
                self._report.skip(item.id, ANOTHER)
                continue
            self._report.count(SHELF, outcome)
            if outcome == "known" and found is not None:
                owners[found.key] = item  # a killed import may not have stored its embedding
            else:
                to_write.append((item, given))
        self._report.embedded(
            self._kept.plan(item for item, _ in to_write)
            if self._report.dry_run
            else self._kept.keep(self._index, owners | self._stored(library, to_write))
        )

    def _stored(
        self, library: str, items: Sequence[tuple[ImportedDocument, GivenText]]
    ) -> dict[int, ImportedDocument]:
        """Write documents in short transactions; each item by the key of its document."""
        places = texts.store([given for _, given in items], library, self._writer)
        keys = [key for batch in places for _, key in batch]
        return dict(zip(keys, (item for item, _ in items), strict=True))

    def _given(self, item: ImportedDocument) -> GivenText:
        """The item as a text that can be stored; InvalidInput or IngestError."""
        values = self._marker.mark(item).added_to(item.metadata)
        given = texts.checked_text(
            item.text, item.id, item.title.strip() or None, values, self._config.max_source_bytes
        )
        return given._replace(
            source=replace(given.source, modified=item.modified), created_at=item.created_at
        )

    def _outcome(
        self, item: ImportedDocument, given: GivenText, here: _DocumentHere | None
    ) -> Outcome | None:
        """What is to be done with an item; None if its place is taken by another document."""
        if here is None:
            return "added"
        mark, before = self._marker.mark(item), ImportMark.read(here.metadata)
        if before is not None and mark.of_same_item(before):
            return "known" if mark.hash == before.hash else "changed"
        return "known" if given.hash == here.hash else None

    def _here(self, library: str, sources: Sequence[str]) -> dict[str, _DocumentHere]:
        """The documents of a library that have these sources."""
        with self._file.reading(limited=False) as sql:
            rows = sql.execute(
                "SELECT source, key, hash, metadata FROM published_documents "
                "WHERE library = ? AND source IN (SELECT value FROM json_each(?))",
                (library, json.dumps(sources)),
            )
            return {
                source: _DocumentHere(key, hash, metadata.decode(values))
                for source, key, hash, values in rows
            }
