"""Documents that no reader sees: those that are being written in slices, or removed in slices.

A short document is written, or removed, in one transaction. A long one would keep other writers
waiting, so it takes several, and the table unpublished_documents hides it meanwhile: all readers go
by the view published_documents, searches exclude its chunks, and one last row decides. A writer
that died leaves a document that nobody publishes; the next writer removes it. Chunks are added and
removed at the end, so what there is of a document is always a sound beginning of it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apsw

from mcpvectordb.documents.items import DocumentVersions
from mcpvectordb.errors import Busy, Unwritable
from mcpvectordb.ingest.span import Span
from mcpvectordb.store import OpenStore

NOTHING: Mapping[int, bytes] = {}


class UnpublishedDocuments:
    """The table unpublished_documents of a file; methods with `sql` work in its transaction."""

    def __init__(self, store: OpenStore) -> None:
        self._file, self._index, self._tuning = store.file, store.documents, store.tuning
        self.versions = DocumentVersions(store.history, store.tuning.slice_chunks)

    def slices(self, spans: Sequence[Span]) -> list[tuple[int, list[Span]]]:
        """The spans that one transaction may write each, with the position of the first."""
        found: list[tuple[int, list[Span]]] = []
        characters = 0
        for position, span in enumerate(spans):
            characters += span.end - span.start
            if (
                not found
                or len(found[-1][1]) == self._tuning.slice_chunks
                or characters > self._tuning.slice_characters
            ):
                found.append((position, []))
                characters = span.end - span.start
            found[-1][1].append(span)
        return found

    def begin(self, sql: apsw.Connection, key: int) -> None:
        """Hide a document that this process is about to write, until it is published."""
        sql.execute(
            "INSERT INTO unpublished_documents (document, process, leased) VALUES (?, ?, ?)",
            (key, this_process(), time.time() + self._tuning.writer_seconds),
        )

    def renew(self, sql: apsw.Connection, key: int) -> None:
        """Keep others from removing a document for some more time; raises Busy if they have begun.

        They have if this process stood still for so long that it seemed to have ended.
        """
        sql.execute(
            "UPDATE unpublished_documents SET leased = ? WHERE document = ? AND leased > 0",
            (time.time() + self._tuning.writer_seconds, key),
        )
        if not sql.changes():
            raise Busy(
                "this process was interrupted for so long that others have removed what it had "
                "written of the document; nothing was changed: ingest it again"
            )

    def publish(self, sql: apsw.Connection, key: int) -> None:
        """Show a complete document to all readers."""
        sql.execute("DELETE FROM unpublished_documents WHERE document = ?", (key,))
        stamp = self.versions.history.stamp(sql)
        sql.execute("UPDATE documents SET stamp = ? WHERE key = ?", (stamp, key))

    def give_up(self, key: int) -> None:
        """Let the document that this process was writing be removed."""
        with self._file.writing() as sql:
            sql.execute("UPDATE unpublished_documents SET leased = 0 WHERE document = ?", (key,))

    def pack_long(self, keys: Sequence[int]) -> dict[int, bytes]:
        """What the history will keep of long documents: packed here, before `withdraw`.

        Of short ones it is packed in the transaction, which takes less than removing them.
        """
        with self._file.reading(limited=False) as sql:
            return self.versions.packed_long(sql, keys)

    def withdraw(
        self, sql: apsw.Connection, keys: Sequence[int], packed: Mapping[int, bytes] = NOTHING
    ) -> int:
        """Remove documents with their chunks; the number of chunks.

        The history keeps them. Readers see nothing of them from this transaction on. If there are
        many chunks, `clean` must remove them afterwards.
        """
        keys = list(dict.fromkeys(keys))
        items = self.versions.keep_whole(sql, keys, packed)
        chunks = self._hide(sql, keys)
        self.versions.bury_missing(sql, items)
        return chunks

    def _hide(self, sql: apsw.Connection, keys: Sequence[int]) -> int:
        chunks = sum(self._index.count(sql, key) for key in keys)
        if chunks <= self._tuning.slice_chunks:
            self._remove(sql, keys)
        else:
            sql.executemany(
                "INSERT INTO unpublished_documents (document, process, leased) VALUES (?, '', 0)",
                ((key,) for key in keys),
            )
        return chunks

    def clean(self) -> None:
        """Remove what nobody is writing, in short transactions; call it after each write.

        What cannot be removed now stays invisible, and the next writer tries again.
        """
        with contextlib.suppress(Busy, Unwritable):
            while self._any_abandoned():
                with self._file.writing() as sql:
                    self._remove_slice(sql)
            with self._file.reading(limited=False) as sql:
                steps = self._index.merge_steps(sql)
            for _ in range(steps):
                with self._file.writing() as sql:
                    if not self._index.merge(sql):
                        break

    def _remove(self, sql: apsw.Connection, keys: Sequence[int]) -> None:
        for key in keys:
            self._index.remove(sql, key)
            sql.execute("DELETE FROM documents WHERE key = ?", (key,))

    def _any_abandoned(self) -> bool:
        with self._file.reading(limited=False) as sql:
            return any(True for _ in self._abandoned(sql))

    def _remove_slice(self, sql: apsw.Connection) -> None:
        """Remove documents until as many chunks are removed as one transaction may."""
        left = self._tuning.slice_chunks
        for key in list(self._abandoned(sql)):
            removed = self._index.remove(sql, key, left)
            left -= removed
            if not left:
                # Its writer, if there is one after all, gives up when it sees this.
                sql.execute(
                    "UPDATE unpublished_documents SET leased = 0 WHERE document = ?", (key,)
                )
                return
            sql.execute("DELETE FROM documents WHERE key = ?", (key,))

    def _abandoned(self, sql: apsw.Connection) -> Iterator[int]:
        """The documents that no process is writing any more."""
        # A lease that ends later than a new one would is invalid: the clock was set back.
        now = time.time()
        for key, process, leased in sql.execute(
            "SELECT document, process, leased FROM unpublished_documents ORDER BY document"
        ):
            if not now <= leased <= now + self._tuning.writer_seconds or has_ended(process):
                yield key

    def remove_all(self, sql: apsw.Connection) -> None:
        """Remove all unpublished documents; for a copy, in which nobody goes on writing them."""
        keys = [int(key) for (key,) in sql.execute("SELECT document FROM unpublished_documents")]
        self._remove(sql, keys)

    # The interface for `compact`, `rebuild` and `check`, as every index has it.

    def optimize(self, sql: apsw.Connection) -> None:
        """Remove what nobody is writing."""
        self._remove(sql, list(self._abandoned(sql)))

    def rebuild(self, sql: apsw.Connection) -> None:
        """Nothing: this is no index."""

    def problems(self, sql: apsw.Connection) -> Iterator[str]:
        """Nothing: an unpublished document is no problem, and its chunks are checked like all."""
        return iter(())


def this_process() -> str:
    """A name of this process, by which others can tell whether it has ended."""
    return f"{_namespace()}:{os.getpid()}"


def has_ended(process: str) -> bool:
    """Whether a process certainly has ended; where that cannot be known, its lease decides."""
    namespace, _, number = process.partition(":")
    if os.name != "posix" or namespace != _namespace() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def _namespace() -> str:
    """The PID namespace: the same number is another process in another container."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""
