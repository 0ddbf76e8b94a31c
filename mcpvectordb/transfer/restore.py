"""Stores the records of our own export as they were: with their ids, times, chunks and embeddings.

Nothing that is here is changed. A document is known by its id, or by library, source and hash; a
memory by its content, whatever its id; a vector by its name. Those that are new keep their ids;
only a memory whose id is taken gets another one. An import that was killed is continued by the
next one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mcpvectordb.config import PRECISIONS
from mcpvectordb.documents.items import DocumentItems
from mcpvectordb.documents.libraries import FOLDERS_KEPT, LibraryVersions
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.documents.write import FORMER_IDS, PreparedDocument
from mcpvectordb.errors import Damaged, IngestError, InvalidInput, quoted
from mcpvectordb.history.versions import Version
from mcpvectordb.index.arrays import MAX_DIMENSION, METRICS
from mcpvectordb.index.chunks import ChunkIndex, ModelRow, active_model
from mcpvectordb.index.spans import ReceivedItem
from mcpvectordb.memories.items import MemoryItems
from mcpvectordb.memories.shelf import Memories
from mcpvectordb.metadata import decode, storable
from mcpvectordb.projects import shelf as projects
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore
from mcpvectordb.transfer.items import ImportReport, OwnRecord
from mcpvectordb.transfer.kept_embeddings import KEPT
from mcpvectordb.vectors.shelf import Vectors
from mcpvectordb.vectors.store import MAX_NAME, VectorStore
from mcpvectordb.vectors.vector import numbers

OTHER_VERSION = "another version of it is here, which stays as it is"
Line = Mapping[str, Any]
Checked = TypeVar("Checked")


class ImportTarget(NamedTuple):
    """What an import writes to."""

    store: OpenStore
    documents: Documents
    memories: Memories
    vectors: Vectors


class Restore:
    """Stores records in batches, in their order."""

    def __init__(self, target: ImportTarget, report: ImportReport) -> None:
        self._target, self._store, self._report = target, target.store, report
        self._file, self._encoder = self._store.file, self._store.encoder
        self._stamps: set[int] = set()  # of the import's own transactions
        self._model: ModelRow | None = None  # the file's, if the export has its embeddings
        self._metrics: dict[str, str] = {}  # of the stores of the export
        self._kinds: dict[str, Callable[[list[Line]], None]] = {
            "header": self._begin,
            "library": self._add_libraries,
            "document": self._add_documents,
            "context": self._add_memories,
            "store": self._add_stores,
            "vector": self._add_vectors,
        }

    def write(self, records: Sequence[OwnRecord]) -> None:
        """Store a batch and report what became of each record."""
        lines = [record.fields for record in records]
        for kind, group in itertools.groupby(lines, key=lambda line: str(line.get("kind"))):
            if kind in self._kinds:
                self._kinds[kind](list(group))
            else:
                self._report.skip(kind, "a kind of record that is not known")

    def _begin(self, headers: list[Line]) -> None:
        """Give a file without texts the model and the settings of the exported one."""
        made_by, *settings = model_of_header(headers[0])
        if not self._report.dry_run:
            # What a killed import left has ids that are to come again.
            self._target.documents.unpublished.clean()
            if made_by is not None:
                with self._file.writing() as sql:
                    accepted = self._encoder.accepts(made_by.name, made_by.digest)
                    if active_model(sql) is None and accepted:
                        self._encoder.adopt(sql, made_by, *settings)
                self._encoder.ensure_model()
            # What the exported file settled and a new one has not: the metadata keys of memories
            # that it indexed, and the folders from which libraries were ingested. Projects are
            # known by what either file knows them by.
            settled = headers[0].get("settings")
            known = "SELECT 1 FROM settings WHERE name = ?"
            with self._file.writing() as sql:
                for name, said in settled.items() if isinstance(settled, Mapping) else ():
                    if name.startswith(projects.PROJECT) and isinstance(said, Mapping):
                        try:
                            projects.unite(sql, name.removeprefix(projects.PROJECT), said)
                        except (InvalidInput, Damaged) as error:
                            self._report.skip(name[:200], str(error))
                    if not isinstance(said, list) or sql.execute(known, (name,)).fetchone():
                        continue
                    if name == "indexed_metadata":
                        self._store.metadata_index.use(sql, [str(each) for each in said])
                    elif storable(name, "settings").startswith("folders:"):
                        folders = [storable(each, name) for each in said[:FOLDERS_KEPT]]
                        insert = "INSERT INTO settings (name, value) VALUES (?, ?)"
                        sql.execute(insert, (name, json.dumps(folders)))
        with self._file.reading(limited=False) as sql:
            active = active_model(sql)
        if active is not None and made_by is not None and active[1:] == made_by[1:]:
            self._model = active
        elif made_by is not None and not self._report.dry_run:
            here = active.name if active else "another one"
            self._report.notes.append(
                f"texts are embedded anew: the export was made with {made_by.name} "
                f"({made_by.dimension} d), the model here is {here}"
            )

    def _checked(self, records: list[Line], read: Callable[[Line], Checked]) -> Iterator[Checked]:
        """The items of records that can be stored; others are reported."""
        for line in records:
            try:
                yield read(line)
            except (InvalidInput, IngestError, Damaged, TypeError) as error:
                self._report.skip(str(line.get("id", line.get("name", "")))[:200], str(error))

    @contextlib.contextmanager
    def _sql(self) -> Iterator[Sql]:
        """A transaction: one that writes, unless nothing is to be stored."""
        dry = self._report.dry_run
        with self._file.reading(limited=False) if dry else self._file.writing() as sql:
            yield sql

    # Libraries.

    def _add_libraries(self, records: list[Line]) -> None:
        for library in self._checked(records, LibraryVersions.of_line):
            name = library.item.name
            with self._sql() as sql:
                known = LibraryVersions.find(sql, library.item) is not None
                self._report.count("known" if known else "added", "libraries")
                if known:
                    continue
                if not self._report.dry_run:
                    self._target.documents.library_versions.restore(library)
            self._report.notes.append(
                f"the library {name} is to follow {(library.fields or {})['root']}: if that folder "
                f"may be read, run `mcpvectordb library confirm {name}`"
            )

    # Documents.

    def _add_documents(self, records: list[Line]) -> None:
        documents = list(
            self._checked(records, lambda line: DocumentItems.of_line(line, self._store.config))
        )
        outcomes: dict[int, str] = {}

        def known(place: int, sql: Sql) -> int | None:
            """The key of the document because of which one is not stored; it notes the outcome."""
            key, outcomes[place] = self._document_here(sql, documents[place])
            return key

        if self._report.dry_run:
            with self._file.reading(limited=False) as sql:
                for place in range(len(documents)):
                    known(place, sql)
        else:
            self._encoder.ensure_model()
            # What is here is seen in the transaction that writes.
            prepared = (
                PreparedDocument(*each[:2], duplicate=True, known=partial(known, place))
                for place, each in enumerate(documents)
            )
            self._target.documents.writer.write_all(list(prepared))
            with self._file.writing() as sql:
                self._complete_documents(sql, documents)
        for place, each in enumerate(documents):
            self._report.settle("documents", each.version.item.name, outcomes[place])

    def _document_here(self, sql: Sql, document: ReceivedItem) -> tuple[int | None, str]:
        """The document that is here in the place of one, and what becomes of that."""
        item, fields = document.version.item, document.version.fields or {}
        taken = sql.execute("SELECT key FROM documents WHERE id = ?", (item.twin,)).get
        rows = sql.execute(
            "SELECT key, hash, stamp FROM published_documents WHERE library = ? AND source = ? "
            "ORDER BY +key DESC",
            (item.place, item.name),
        )
        here = [(key, hash) for key, hash, stamp in rows if stamp not in self._stamps][:1]
        if taken or not here:
            return taken, "known" if taken else self._added(sql)
        [(key, hash)] = here
        return key, "known" if hash == fields["hash"] else OTHER_VERSION

    def _added(self, sql: Sql) -> str:
        """The outcome of an item that this transaction adds, whose stamp is one of the import's."""
        if not self._report.dry_run:
            self._stamps.add(self._store.history.stamp(sql))
        return "added"

    def _complete_documents(self, sql: Sql, documents: list[ReceivedItem]) -> None:
        """Add what belongs to documents that are here: former ids and embeddings.

        Also to known ones: an import that was killed may not have come so far.
        """
        for each in documents:
            fields = each.version.fields or {}
            row = sql.execute(
                "SELECT key FROM published_documents WHERE id = ? AND title = ? AND hash = ?",
                (each.version.local["id"], fields["title"], fields["hash"]),
            ).fetchone()
            if row is None:
                continue
            sql.executemany(
                "INSERT OR IGNORE INTO former_ids (id, document) VALUES (?, ?)",
                ((id, row[0]) for id in each.former_ids[-FORMER_IDS:]),
            )
            self._settle(sql, self._store.documents, row[0], each)

    # Memories.

    def _add_memories(self, records: list[Line]) -> None:
        config = self._store.config
        memories = list(
            self._checked(records, lambda line: MemoryItems.of_line(line, uuid.uuid4().hex, config))
        )
        if not self._report.dry_run:
            self._encoder.ensure_model()
        with self._sql() as sql:
            if not self._report.dry_run:
                self._store.metadata_index.settle(sql)
            for memory in memories:
                id = self._memory_here(sql, memory)
                self._report.count("known" if id else self._added(sql), "memories")
                if self._report.dry_run:
                    continue
                version = memory.version
                if not id and MemoryItems.find(sql, version.item):  # of another content
                    version = version._replace(item=version.item._replace(name=uuid.uuid4().hex))
                id = id or self._target.memories.versioned.put(sql, version, memory.content)
                self._settle(sql, self._store.memories, id, memory)

    def _memory_here(self, sql: Sql, memory: ReceivedItem) -> int:
        """The id of the memory that is here already; 0 if there is none.

        That is the one with its id, if it has the same content, or one that the import did not add.
        """
        fields, wanted = memory.version.fields or {}, memory.version.local["id"]
        rows = sql.execute(
            "SELECT id, stamp FROM contexts WHERE thread = :thread AND source = :source AND "
            "created_at = :created_at AND hash = :bytes ORDER BY id = :id DESC",
            {**fields, "bytes": bytes.fromhex(fields["hash"]), "id": wanted},
        )
        found = (id for id, stamp in rows if id == wanted or stamp not in self._stamps)
        return int(next(found, 0))

    def _settle(self, sql: Sql, index: ChunkIndex, owner: int, item: ReceivedItem) -> None:
        """Store the embeddings of an owner's chunks that wait for one, if the chunks are these."""
        model = self._model
        if model is None or not index.count_pending(sql, model.key, [owner]):
            return
        rows: list[Any] = sql.execute(
            f'SELECT start, "end" FROM {index.chunks} WHERE owner = ? ORDER BY position', (owner,)
        ).fetchall()
        if rows != [(span.start, span.end) for span in item.content.spans]:
            return
        kept = bool(index.settle_positions(sql, model, owner, item.embeddings))
        self._report.count("embeddings", KEPT, kept)

    # Vectors.

    def _add_stores(self, records: list[Line]) -> None:
        for name, metric in self._checked(records, _store):
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

    def _add_vectors(self, records: list[Line]) -> None:
        with self._sql() as sql:
            new = list(self._new_vectors(sql, records))
            if self._report.dry_run:
                return
            # Runs of one namespace, so that all vectors stay in their order.
            for (store, namespace), run in itertools.groupby(
                new, key=lambda each: (each[0].item.place, each[0].item.twin)
            ):
                some = [(version.item, version.fields or {}, raw) for version, raw in run]
                self._target.vectors.add_many(
                    [item.name for item, _, _ in some],
                    [numbers(raw, fields["dimension"]) for _, fields, raw in some],
                    store=store,
                    namespace=namespace,
                    metadata=[decode(fields["metadata"]) for _, fields, _ in some],
                )

    def _new_vectors(self, sql: Sql, records: list[Line]) -> Iterator[tuple[Version, bytes]]:
        """The vectors that are not here; the others are reported."""
        metrics = dict(sql.execute("SELECT name, metric FROM stores"))
        new: dict[Any, str] = {}
        vectors = self._checked(records, lambda line: VectorStore.of_line(line, self._metrics))
        for version, raw in vectors:
            item, fields = version.item, version.fields or {}
            here = VectorStore.find(sql, item)
            hash = new.get(item) if here is None else (here.fields or {})["hash"]
            if metrics.get(item.place, wanted := self._metrics[item.place]) != wanted:
                self._report.skip(item.name, "its store ranks by another metric here")
            elif hash is None:
                self._report.count("added", "vectors")
                new[item] = fields["hash"]
                yield version, raw
            elif hash == fields["hash"]:
                self._report.count("known", "vectors")
            else:
                self._report.skip(item.name, OTHER_VERSION)


def model_of_header(header: Line) -> tuple[ModelRow | None, Any, Any, Any]:
    """The model of an exported file, None if it had none; its chunk sizes and precision."""
    found, settings = header.get("model"), header.get("settings")
    if found is None:
        return None, None, None, None
    if not isinstance(found, Mapping) or not isinstance(settings, Mapping):
        raise InvalidInput("the header of the export does not describe its model")
    sizes = settings.get("chunk_size"), settings.get("chunk_overlap"), found.get("dimension")
    size, overlap, dimension = (each if type(each) is int else -1 for each in sizes)
    if not (16 <= size <= 2000 and 0 <= overlap <= size // 2 and 1 <= dimension <= MAX_DIMENSION):
        raise InvalidInput("the header of the export has sizes that are none of a model")
    precision = settings.get("embeddings", PRECISIONS[0])
    if precision not in PRECISIONS:
        raise InvalidInput(
            f"the header of the export has embeddings of {quoted(precision)}, which is not known"
        )
    name = storable(found.get("name"), "name", blank=False)
    row = ModelRow(0, name, storable(found.get("digest"), "digest"), dimension)
    return row, size, overlap, precision


def _store(line: Line) -> tuple[str, str]:
    """Name and metric of a store of vectors; raises InvalidInput."""
    name, metric = (storable(line.get(each), each, blank=False) for each in ("name", "metric"))
    if metric not in METRICS:
        raise InvalidInput(f"metric must be {', '.join(METRICS)}, not {quoted(metric)}")
    if len(name) > MAX_NAME:
        raise InvalidInput(f"name has more than {MAX_NAME} characters")
    return name, metric
