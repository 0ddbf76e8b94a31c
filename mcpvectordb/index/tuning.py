"""Thresholds that trade speed for memory or exactness, in one object: measured, rarely changed."""

from __future__ import annotations

from mcpvectordb.records import Record
from mcpvectordb.storage.file import IDLE_SECONDS


class Tuning(Record):
    """Pass another one to `Database(tuning=...)` to measure or to test; answers stay the same."""

    # Rows that the first question of a process may make FTS5 score; from the second question on,
    # and for more rows, postings are kept in memory.
    file_rows: int = 250_000
    exact_rows: int = 5_000  # up to so many embeddings are compared exactly, without their codes
    engine_rows: int = 20_000  # as many in PostgreSQL; of more, a graph chooses some
    sign_rows: int = 5_000  # up to so many codes are all compared; of more, sign bits choose
    sign_candidates: int = 1_000  # that sign bits choose at least
    # A shelf with more embedded chunks gets a vec0 table; the codes of fewer are made of their
    # embeddings when they are needed.
    uncoded_chunks: int = 4_096
    coded_rows: int = 500  # a part of a vector store with more rows gets a vec0 table
    column_values: int = 20_000  # a filter column with more different ones is not kept in memory
    column_characters: int = 2_000_000  # nor one whose values have more of them
    slice_chunks: int = 512  # that one transaction writes or removes; longer documents take several
    slice_characters: int = 500_000  # that one transaction writes, likewise
    slice_pages: int = 256  # of the keyword index that one transaction merges
    deleted_rows: int = 256  # whose words may stay in the keyword index; or a tenth of all rows
    # For how long after its last transaction others leave an unfinished document to its writer, if
    # they cannot see that it has ended.
    writer_seconds: float = 600.0
    lease_seconds: float = 15.0  # for which a process that embeds chunks keeps others from them
    idle_seconds: float = IDLE_SECONDS  # after a transaction, until the log goes into the file
    # A batch of new documents is written when it reaches one of these, so that a transaction keeps
    # other writers waiting for some tens of milliseconds.
    documents_per_write: int = 32
    chunks_per_write: int = 64
    seconds_per_write: float = 0.5
    removals_per_write: int = 50  # documents that one transaction removes
    notes_per_write: int = 500  # small updates that one transaction writes
    rows_per_page: int = 1000  # stored rows that are read at once
    bundle_bytes: int = 16_000_000  # of JSON in a bundle for other machines, or one item
    bundles: int = 32  # of one machine, until they become fewer
    mtime_tick_ns: int = 20_000_000  # two changes of a file within it may get the same time
    coarse_mtime_tick_ns: int = 2_000_000_000  # the same where whole seconds are stored


DEFAULT = Tuning()
