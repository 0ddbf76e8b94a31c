"""The façade: one file, its shelves, and what is done to the file as a whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from mcpvectordb import maintenance
from mcpvectordb.config import Config
from mcpvectordb.documents import rows
from mcpvectordb.documents.search import DocumentSearch
from mcpvectordb.documents.shelf import Documents
from mcpvectordb.documents.unpublished import UnpublishedDocuments
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.memory import Memory
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.joint.shelves import JointShelves
from mcpvectordb.records import Exported, ProgressCallback, Stats
from mcpvectordb.search.expansion import QueryExpander
from mcpvectordb.search.rerank import CachedReranker
from mcpvectordb.storage.cache import Cache
from mcpvectordb.storage.file import File

if TYPE_CHECKING:
    from mcpvectordb.contexts.fulltext import ContextFulltext
    from mcpvectordb.contexts.metadata_index import MetadataIndex
    from mcpvectordb.contexts.shelf import Contexts
    from mcpvectordb.export.write import ExportFormat
    from mcpvectordb.importers.items import Imported, Into
    from mcpvectordb.maintenance import MaintainedIndex
    from mcpvectordb.vectors.shelf import Vectors
    from mcpvectordb.vectors.store import VectorStore


class Database(JointShelves):
    """One SQLite file with everything in it, created if it does not exist.

    `":memory:"` is a database without a file. Any number of threads and processes may use a file at
    once. Use it as a context manager, or call `close`. `embedder` is an embedder of your own;
    without it the file's model is looked for on this machine.
    """

    documents: Documents

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: Config | None = None,
        embedder: Embedder | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.config = config or Config()
        self._file = File(
            path,
            read_only=self.config.read_only,
            busy_timeout=self.config.busy_timeout,
            read_timeout=self.config.read_timeout,
        )
        self._tuning, self._memory = tuning or Tuning(), Memory(self.config.resident_bytes)
        documents = ChunkIndex(
            "document",
            "(SELECT title FROM documents WHERE key = c.owner)",
            memory=self._memory,
            filtered=rows.FILTERED,
            unpublished="SELECT document FROM unpublished_documents",
            tuning=self._tuning,
        )
        contexts = ChunkIndex(
            "context", "''", words=False, memory=self._memory, tuning=self._tuning
        )
        self._indexes = (documents, contexts)
        self._unpublished = UnpublishedDocuments(self._file, documents, self._tuning)
        self._encoder = Encoder(self._file, self.config, embedder, self._indexes)
        self._cache = Cache()
        self._reranker = CachedReranker(self.config, self._cache)
        search = DocumentSearch(
            self._file, documents, QueryExpander(documents, self._cache), self._reranker
        )
        self.documents = Documents(
            self._file, self.config, self._encoder, documents, self._unpublished, search
        )
        self._file.register_check(self.check)
        self._encoder.complete()

    # Made, and their modules loaded, on first use: most processes need one shelf.

    @cached_property
    def vectors(self) -> Vectors:
        """The vectors shelf: embeddings of your own."""
        from mcpvectordb.vectors.shelf import Vectors

        return Vectors(self._file, self._vector_store)

    @cached_property
    def contexts(self) -> Contexts:
        """The contexts shelf: what agents remember."""
        from mcpvectordb.contexts.shelf import Contexts

        return Contexts(
            self._file,
            self.config,
            self._encoder,
            self._indexes[1],
            self._fulltext,
            self._metadata_index,
            self._reranker,
        )

    @cached_property
    def _vector_store(self) -> VectorStore:
        from mcpvectordb.vectors.store import VectorStore

        return VectorStore(self._memory, self._tuning)

    @cached_property
    def _fulltext(self) -> ContextFulltext:
        from mcpvectordb.contexts.fulltext import ContextFulltext

        return ContextFulltext(self._indexes[1])

    @cached_property
    def _metadata_index(self) -> MetadataIndex:
        from mcpvectordb.contexts.metadata_index import MetadataIndex

        return MetadataIndex(self.config.indexed_metadata)

    @property
    def _maintained(self) -> tuple[MaintainedIndex, ...]:
        """Everything that can be checked and made again."""
        return (
            self._unpublished,
            *self._indexes,
            self._vector_store,
            self._fulltext,
            self._metadata_index,
            self._cache,
        )

    def __repr__(self) -> str:
        mode = ", read-only" if self.read_only else ""
        return f"<Database {str(self.path)!r}{mode}{', closed' if self._file.closed else ''}>"

    @property
    def path(self) -> Path:
        """The path of the file; ":memory:" for a database in memory."""
        return self._file.path

    @property
    def read_only(self) -> bool:
        """Whether the file is open for reading only, by request or because it is not writable."""
        return self._file.read_only

    def embed_pending(self, *, progress: ProgressCallback | None = None) -> int:
        """Embed every chunk that waits for it; returns how many were embedded.

        After an interruption it goes on where it was; several processes share the work.
        """
        return self._encoder.embed(progress=progress).chunks

    def embed_in_background(self, *, wait: float = 10.0, start: bool = True) -> None:
        """Embed what waits in a thread, now and after each ingest, until the database is closed.

        `documents.ingest`, `documents.ingest_text` and the methods that store contexts then reply
        within `wait` seconds, reading a source not included: what is not embedded by then is found
        by words, and by meaning later, as their `note` says. With `start=False` the thread begins
        with the first ingest or with `warm`. Of several processes one at a time embeds what is
        left. A database that is open for reading only stays as it is.
        """
        self._encoder.embed_in_background(wait)
        if start and self._encoder.background is not None:
            self._encoder.background.ask()

    def use_model(self, name: str, *, progress: ProgressCallback | None = None) -> None:
        """Embed everything by another model; until that is done, searches use the old one."""
        self._encoder.use(name, progress)

    def warm(self) -> None:
        """Load the model in a thread; what waits is embedded then, after `embed_in_background`.

        Until it is loaded, hybrid searches use words alone, and their results say so.
        """
        self._encoder.warm()

    @property
    def loading(self) -> bool:
        """Whether `warm` is still loading the model."""
        return self._encoder.loading

    def deadline(self) -> AbstractContextManager[object]:
        """Give all reads of a block one `Config.read_timeout` together; otherwise each has its own.

        Of two blocks, one inside of the other, the outer one counts. Past the deadline a read
        raises ReadTimeout. Writes, and waiting for a model, are not limited.
        """
        return self._file.deadline()

    def copy_to(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a complete copy into a file, also while others write to this one.

        An existing file is an error or, with `overwrite`, replaced when the copy is complete; a
        database that is open in some process is never replaced.
        """
        return maintenance.copy(self._file, Path(path), self._unpublished, overwrite=overwrite)

    def export_to(
        self,
        path: str | os.PathLike[str],
        *,
        format: ExportFormat | None = None,
        library: str | None = None,
        overwrite: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Exported:
        """Write everything, or the documents of one library, in a format that others read.

        jsonl     all that is in the file: `import_from` makes an equal one of it
        markdown  a folder with a file for each document and context, with front matter
        csv       passages and vectors as one table
        parquet   the same, with embeddings as lists; needs the extra `parquet`

        Without `format` the name decides: .jsonl, .csv, .parquet, or no ending for a folder of
        Markdown; with .gz after it, JSONL and CSV are packed. It is one snapshot, also while others
        write, and appears complete or not at all. An existing file is an error or, with
        `overwrite`, replaced; a folder never is.
        """
        from mcpvectordb.export.write import export

        return export(
            self._file,
            self._encoder,
            Path(path),
            format=format,
            library=library,
            overwrite=overwrite,
            progress=progress,
        )

    def compact(self) -> int:
        """Give unused space back to the file system; returns the number of bytes."""
        return maintenance.compact(self._file, self._maintained)

    def check(self) -> list[str]:
        """All problems of the file, one sentence each; an empty list if it is sound."""
        return maintenance.check(self._file, self._maintained)

    def rebuild(self) -> None:
        """Create the indexes again from the tables that are the truth."""
        maintenance.rebuild(self._file, self._maintained)

    def stats(self) -> Stats:
        """Counts, sizes and the model of the file."""
        return maintenance.stats(self._file, self._encoder)

    def import_from(
        self,
        path: str | os.PathLike[str],
        kind: str | None = None,
        *,
        library: str = "",
        into: Into | Literal[""] = "",
        table: str = "",
        text: Sequence[str] = (),
        id: str = "",
        title: str = "",
        embedding: str = "",
        metadata: Sequence[str] = (),
        model: str = "",
        embed: bool = True,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Imported:
        """Import what another program has stored; the report says what came and what did not.

        `kind` is one of `importers.KINDS`; without it the source is recognised by its content. The
        source is only read, and may be in use. Importing again brings what is new and what changed;
        items that were changed here stay as they are. After a kill, the same call continues.
        `dry_run` only reports. Embeddings are kept where they are those of the file's model;
        everything else is embedded at the end, or with `embed=False` by `embed_pending`.

        library    the library of all documents; otherwise the source decides
        into       "documents" or "vectors", for items that have a text and an embedding
        table, text, id, title, embedding, metadata   columns or fields of tables, JSON Lines, CSV
        model      the name of the model that made the embeddings, where the source does not say it
        """
        from mcpvectordb.importers.items import ImportOptions
        from mcpvectordb.importers.run import ImportTarget, run

        target = ImportTarget(
            self._file,
            self.config,
            self._encoder,
            self._indexes,
            self._unpublished,
            self._fulltext,
            self._metadata_index,
            self.documents,
            self.vectors,
        )
        options = ImportOptions(
            library=library,
            into=into,
            table=table,
            text=text,
            id=id,
            title=title,
            embedding=embedding,
            metadata=metadata,
            model=model,
        )
        return run(
            target, Path(path), kind, options, embed=embed, dry_run=dry_run, progress=progress
        )

    def space(self) -> dict[str, int]:
        """The bytes that each kind of content takes in the file, and those that are unused.

        Every page of the file is read for it, so it takes seconds in a large one.
        """
        return maintenance.space(self._file)

    def version(self) -> int:
        """A number that is another one after any other thread or process has changed the file.

        Ask again in the same thread: the numbers of two threads do not compare.
        """
        with self._file.reading() as sql:
            return int(sql.execute("PRAGMA data_version").get)

    def close(self) -> None:
        """Close the file; the last process to close it leaves a single file without a log."""
        self._encoder.close()
        self.documents.close()
        self._reranker.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
