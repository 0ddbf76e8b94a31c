"""Stores the records of our own export as they were: with their ids, times, chunks and embeddings.

Nothing that is here is changed. A document is known by its id, or by library, source and hash; a
memory by its content, whatever its id; a vector by its name. Those that are new keep their ids;
only a memory whose id is taken gets another one. Everything of a batch is written in one
transaction, long documents in their own, so that an import that was killed is continued.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import apsw

from mcpvectordb.config import Config
from mcpvectordb.documents import libraries
from mcpvectordb.documents.library_versions import LibraryVersions
from mcpvectordb.documents.unpublished import UnpublishedDocuments
from mcpvectordb.documents.write import FORMER_IDS, DocumentWriter
from mcpvectordb.errors import IngestError, InvalidInput
from mcpvectordb.importers import own_records
from mcpvectordb.importers.items import OwnRecord
from mcpvectordb.importers.kept_embeddings import KEPT
from mcpvectordb.importers.own_records import OwnDocument, OwnMemory, OwnModel
from mcpvectordb.importers.report import ImportReport
from mcpvectordb.index import arrays, models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.metadata_index import MetadataIndex
from mcpvectordb.index.models import ModelRow
from mcpvectordb.ingest.span import Span
from mcpvectordb.memories.write import MemoryWriter
from mcpvectordb.storage.file import File
from mcpvectordb.vectors.shelf import Vectors

OTHER_VERSION = "another version of it is here, which stays as it is"


class _Bounds(NamedTuple):
    """The last document and memory that were here before the import."""

    document: int
    memory: int


class Restore:
    """Stores records in batches, in their order."""

    def __init__(
        self,
        file: File,
        config: Config,
        encoder: Encoder,
        indexes: tuple[ChunkIndex, ChunkIndex],
        unpublished: UnpublishedDocuments,
        keys: MetadataIndex,
        document_writer: DocumentWriter,
        memory_writer: MemoryWriter,
        vectors: Vectors,
        report: ImportReport,
    ) -> None:
        self._file, self._config, self._encoder, self._indexes = file, config, encoder, indexes
        self._unpublished, self._keys, self._vectors = unpublished, keys, vectors
        self._document_writer, self._memory_writer = document_writer, memory_writer
        self._library_versions = LibraryVersions(file, unpublished.versions.history)
        self._report = report
        self._before = _Bounds(0, 0)
        self._model: ModelRow | None = None  # the file's, if the export has its embeddings
        self._metrics: dict[str, str] = {}  # of the stores of the export
        self._kinds: dict[str, Callable[[list[Mapping[str, Any]]], None]] = {
            "header": self._begin,
            "library": self._add_libraries,
            "document": self._add_documents,
            "context": self._add_memories,
            "store": self._add_stores,
            "vector": self._add_vectors,
        }

    def write(self, records: Sequence[OwnRecord]) -> None:
        """Store a batch and report what became of each record."""
        for kind, group in itertools.groupby(records, key=lambda record: record.kind):
            some = [record.fields for record in group]
            if kind in self._kinds:
                self._kinds[kind](some)
            else:
                self._report.skip(kind, "a kind of record that is not known")

    def _adopt(self, made_by: OwnModel) -> None:
        """Give a new file the model of the exported one, unless another was chosen for it."""
        model = ModelRow(0, made_by.name, made_by.digest, made_by.dimension)
        with self._file.writing() as sql:
            if models.active(sql) is None and self._encoder.accepts(model.name, model.digest):
                self._encoder.adopt(
                    sql, model, made_by.chunk_size, made_by.chunk_overlap, made_by.precision
                )

    def _begin(self, headers: list[Mapping[str, Any]]) -> None:
        """Give a file without texts the model and the settings of the exported one."""
        made_by = own_records.model(headers[0])
        if not self._report.dry_run:
            self._unpublished.clean()  # what a killed import left has ids that are to come again
            if made_by is not None:
                self._adopt(made_by)
                self._encoder.ensure_model()
            self._index_keys(headers[0].get("settings"))
        with self._file.reading(limited=False) as sql:
            active = models.active(sql)
            self._before = _Bounds(
                sql.execute("SELECT coalesce(max(key), 0) FROM published_documents").get,
                sql.execute("SELECT coalesce(max(id), 0) FROM contexts").get,
            )
        if active is not None and made_by is not None and active[1:] == made_by[:3]:
            self._model = active
        elif made_by is not None and not self._report.dry_run:
            here = active.name if active else "another one"
            self._report.notes.append(
                f"texts are embedded anew: the export was made with {made_by.name} "
                f"({made_by.dimension} d), the model here is {here}"
            )

    def _index_keys(self, settings: object) -> None:
        """Index the metadata keys of memories that the exported file indexed, in a new file."""
        names = settings.get("indexed_metadata") if isinstance(settings, Mapping) else None
        with self._file.writing() as sql:
            known = sql.execute("SELECT 1 FROM settings WHERE name = 'indexed_metadata'").fetchone()
            if isinstance(names, list) and not known:
                self._keys.use(sql, [str(name) for name in names])

    def _checked(
        self, records: list[Mapping[str, Any]], check: Callable[..., Any]
    ) -> Iterator[Any]:
        """The records that can be stored; others are reported."""
        for fields in records:
            try:
                yield check(fields)
            except (InvalidInput, IngestError) as error:
                self._report.skip(str(fields.get("id", fields.get("name", "")))[:200], str(error))

    # Libraries.

    def _add_libraries(self, records: list[Mapping[str, Any]]) -> None:
        for library in self._checked(records, own_records.library):
            with self._file.reading(limited=False) as sql:
                known = sql.execute(
                    "SELECT 1 FROM libraries WHERE name = ?", (library.name,)
                ).fetchone()
            self._report.count("libraries", "known" if known else "added")
            if known:
                continue
            if not self._report.dry_run:
                libraries.restore(self._file, self._library_versions, *library)
            self._report.notes.append(
                f"the library {library.name} is to follow {library.root}: if that folder may be "
                f"read, run `mcpvectordb library confirm {library.name}`"
            )

    # Documents.

    def _add_documents(self, records: list[Mapping[str, Any]]) -> None:
        check = partial(own_records.document, config=self._config)
        waiting: list[OwnDocument] = []
        for document in self._checked(records, check):
            if len(self._unpublished.slices(document.prepared.spans)) > 1:
                self._put_documents(waiting)
                waiting = []
                self._put_documents([document], long=True)
            else:
                waiting.append(document)
        self._put_documents(waiting)

    def _put_documents(self, documents: list[OwnDocument], *, long: bool = False) -> None:
        """Write documents in one transaction, or a long one in several."""
        if not documents:
            return
        if self._report.dry_run:
            with self._file.reading(limited=False) as sql:
                list(self._new(sql, documents))
        elif long:
            with self._file.reading(limited=False) as sql:
                new = list(self._new(sql, documents))
            self._document_writer.write_all([each.prepared for each in new], duplicate=True)
            with self._file.writing() as sql:
                self._complete_documents(sql, documents, new)
        else:
            self._encoder.ensure_model()
            with self._file.writing() as sql:
                new = list(self._new(sql, documents))
                self._document_writer.write_all([each.prepared for each in new], duplicate=True)
                self._complete_documents(sql, documents, new)

    def _new(self, sql: apsw.Connection, documents: list[OwnDocument]) -> Iterator[OwnDocument]:
        """The documents that are not here; the others are reported."""
        rows = sql.execute(
            "SELECT id FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps([each.prepared.id for each in documents]),),
        )
        ids = {id for (id,) in rows}
        here = {
            (library, source): hash
            for library, source, hash in sql.execute(
                "SELECT library, source, hash FROM published_documents WHERE key <= ? "
                "AND source IN (SELECT value FROM json_each(?))",
                (
                    self._before.document,
                    json.dumps([each.prepared.source.source for each in documents]),
                ),
            )
        }
        for each in documents:
            prepared = each.prepared
            hash = here.get((prepared.library, prepared.source.source))
            if prepared.id in ids or hash == prepared.hash:
                self._report.count("documents", "known")
            elif hash is not None:
                self._report.skip(prepared.source.source, OTHER_VERSION)
            else:
                self._report.count("documents", "added")
                ids.add(prepared.id)
                yield each

    def _complete_documents(
        self, sql: apsw.Connection, documents: list[OwnDocument], new: list[OwnDocument]
    ) -> None:
        """Add what belongs to documents that are here: former ids and embeddings.

        Also to known ones: an import that was killed may not have come so far.
        """
        for each in new:
            if not each.given:
                sql.execute("UPDATE documents SET given = NULL WHERE id = ?", (each.prepared.id,))
        for each in documents:
            row = sql.execute(
                "SELECT key FROM published_documents WHERE id = ? AND title = ? AND hash = ?",
                (each.prepared.id, each.prepared.title, each.prepared.hash),
            ).fetchone()
            if row is None:
                continue
            sql.executemany(
                "INSERT OR IGNORE INTO former_ids (id, document) VALUES (?, ?)",
                ((id, row[0]) for id in each.former_ids[-FORMER_IDS:]),
            )
            self._settle(sql, self._indexes[0], row[0], each.prepared.spans, each.embeddings)

    # Memories.

    def _add_memories(self, records: list[Mapping[str, Any]]) -> None:
        check = partial(own_records.memory, config=self._config)
        memories: list[OwnMemory] = list(self._checked(records, check))
        if self._report.dry_run:
            with self._file.reading(limited=False) as sql:
                for memory in memories:
                    known = self._memory_here(sql, memory)
                    self._report.count("memories", "known" if known else "added")
            return
        self._encoder.ensure_model()
        with self._file.writing() as sql:
            self._keys.settle(sql)
            for memory in memories:
                id = self._memory_here(sql, memory)
                self._report.count("memories", "known" if id else "added")
                if not id:
                    id = self._memory_writer.add_exported(
                        sql, memory.id, memory.uid, memory.entry, memory.spans
                    )
                self._settle(sql, self._indexes[1], id, memory.spans, memory.embeddings)

    def _memory_here(self, sql: apsw.Connection, memory: OwnMemory) -> int:
        """The id of the memory that is here already; 0 if there is none.

        That is the one with its id, if it has the same content, or one from before this import.
        """
        entry = memory.entry
        row = sql.execute(
            "SELECT id FROM contexts WHERE thread = ? AND source = ? AND created_at = ? AND "
            "hash = ? AND (id = ? OR id <= ?) ORDER BY id = ? DESC LIMIT 1",
            (
                entry.thread,
                entry.source,
                entry.created_at,
                hashlib.sha256(entry.text.encode()).digest(),
                memory.id,
                self._before.memory,
                memory.id,
            ),
        ).fetchone()
        return int(row[0]) if row else 0

    def _settle(
        self,
        sql: apsw.Connection,
        index: ChunkIndex,
        owner: int,
        spans: Sequence[Span],
        embeddings: Sequence[bytes | None],
    ) -> None:
        """Store the embeddings of an owner's chunks that wait for one, if the chunks are these."""
        model = self._model
        if model is None or not index.count_pending(sql, model.key, [owner]):
            return
        rows: list[Any] = sql.execute(
            f'SELECT id, start, "end" FROM {index.chunks} WHERE owner = ? ORDER BY position',
            (owner,),
        ).fetchall()
        if [row[1:] for row in rows] != [(span.start, span.end) for span in spans]:
            return
        kept = [
            (row[0], raw)
            for row, raw in zip(rows, embeddings, strict=True)
            if raw is not None and arrays.is_rankable(raw, model.dimension)
        ]
        self._report.embeddings[KEPT] += bool(index.settle(sql, model.key, kept))

    # Vectors.

    def _add_stores(self, records: list[Mapping[str, Any]]) -> None:
        for name, metric in self._checked(records, own_records.store):
            with self._file.reading(limited=False) as sql:
                known = sql.execute("SELECT metric FROM stores WHERE name = ?", (name,)).fetchone()
            self._metrics[name] = metric
            if known and known[0] != metric:
                self._report.notes.append(
                    f"the store {name} ranks by {known[0]} here, and by {metric} in the export: "
                    "its vectors are not imported"
                )
            elif not known and not self._report.dry_run:
                with self._file.writing() as sql:
                    sql.execute("INSERT INTO stores (name, metric) VALUES (?, ?)", (name, metric))

    def _add_vectors(self, records: list[Mapping[str, Any]]) -> None:
        vectors = list(self._checked(records, own_records.vector))
        if self._report.dry_run:
            with self._file.reading(limited=False) as sql:
                list(self._new_vectors(sql, vectors))
            return
        with self._file.writing() as sql:
            new = self._new_vectors(sql, vectors)
            # Runs of one namespace, so that all vectors stay in their order.
            for (store, namespace), run in itertools.groupby(new, key=lambda each: each[:2]):
                some = list(run)
                self._vectors.add_many(
                    [each.id for each in some],
                    [each.values for each in some],
                    store=store,
                    namespace=namespace,
                    metadata=[each.metadata for each in some],
                )

    def _new_vectors(
        self, sql: apsw.Connection, vectors: Sequence[own_records.OwnVector]
    ) -> Iterator[own_records.OwnVector]:
        """The vectors that are not here; the others are reported."""
        rows = sql.execute(
            "SELECT s.name, v.namespace, v.id, e.embedding, s.metric FROM vectors v "
            "JOIN stores s ON s.key = v.store JOIN vector_embeddings e ON e.vector = v.key "
            "WHERE v.id IN (SELECT value FROM json_each(?))",
            (json.dumps([each.id for each in vectors]),),
        )
        here = {row[:3]: row[3] for row in rows}
        metrics = dict(sql.execute("SELECT name, metric FROM stores"))
        for each in vectors:
            raw = here.get(each[:3])
            wanted = self._metrics.get(each.store)
            if wanted is None or metrics.get(each.store, wanted) != wanted:
                self._report.skip(each.id, "its store ranks by another metric here, or by none")
            elif raw is None:
                self._report.count("vectors", "added")
                here[each[:3]] = each.values.tobytes()
                yield each
            elif raw == each.values.tobytes():
                self._report.count("vectors", "known")
            else:
                self._report.skip(each.id, OTHER_VERSION)
