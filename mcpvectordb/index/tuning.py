"""Thresholds that trade speed for memory or exactness, in one object: measured, rarely changed."""

from __future__ import annotations

from mcpvectordb.records import Record
from mcpvectordb.storage.file import IDLE_SECONDS


class Tuning(Record):
    """Pass another one to `Database(tuning=...)` to measure or to test; answers stay the same.

    file_rows         rows that the first question of a process may make FTS5 score; from the second
                      question on, and for more rows, postings are kept in memory
    exact_rows        up to so many embeddings are compared exactly, without their codes
    engine_rows       up to so many are all compared in PostgreSQL; of more, a graph chooses some
    sign_rows         up to so many codes are all compared; of more, sign bits choose candidates
    sign_candidates   how many candidates sign bits choose at least
    uncoded_chunks    a shelf with more embedded chunks gets a vec0 table; the codes of fewer are
                      made of their embeddings when they are needed
    coded_rows        a part of a vector store with more rows gets a vec0 table
    column_values     a filter column with more different values is not kept in memory
    column_characters nor one whose values have more characters
    slice_chunks      chunks that one transaction writes or removes; longer documents take several
    slice_characters  characters that one transaction writes, likewise
    slice_pages       pages of the keyword index that one transaction merges
    deleted_rows      deleted rows whose words may stay in the keyword index; or a tenth of all rows
    writer_seconds    for how long after its last transaction others leave an unfinished document to
                      its writer, if they cannot see that it has ended
    lease_seconds     for how long a process that embeds chunks keeps others from them
    idle_seconds      how long after the last transaction the log is written into the file
    documents_per_write, chunks_per_write, seconds_per_write
                      a batch of new documents is written when it reaches one of these, so that a
                      transaction keeps other writers waiting for some tens of milliseconds
    removals_per_write   documents that one transaction removes
    notes_per_write      small updates that one transaction writes
    rows_per_page        stored rows that are read at once
    mtime_tick_ns        two changes of a file within this time may get the same modification time
    coarse_mtime_tick_ns the same on file systems that store whole seconds
    """

    file_rows: int = 250_000
    exact_rows: int = 5_000
    engine_rows: int = 20_000
    sign_rows: int = 5_000
    sign_candidates: int = 1_000
    uncoded_chunks: int = 4_096
    coded_rows: int = 500
    column_values: int = 20_000
    column_characters: int = 2_000_000
    slice_chunks: int = 512
    slice_characters: int = 500_000
    slice_pages: int = 256
    deleted_rows: int = 256
    writer_seconds: float = 600.0
    lease_seconds: float = 15.0
    idle_seconds: float = IDLE_SECONDS
    documents_per_write: int = 32
    chunks_per_write: int = 64
    seconds_per_write: float = 0.5
    removals_per_write: int = 50
    notes_per_write: int = 500
    rows_per_page: int = 1000
    mtime_tick_ns: int = 20_000_000
    coarse_mtime_tick_ns: int = 2_000_000_000


DEFAULT = Tuning()
