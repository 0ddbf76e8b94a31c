"""How much of a folder one transaction takes."""

from __future__ import annotations

from mcpvectordb.records import Record


class FolderTuning(Record):
    """Sizes of transactions and pages when folders are ingested, and clock ticks of file systems.

    With the defaults a transaction keeps other writers waiting for some tens of milliseconds.

    documents_per_write, chunks_per_write, seconds_per_write
                          a batch of new documents is written when it reaches one of these
    removals_per_write    documents that are removed in one transaction
    notes_per_write       small updates that are written in one transaction
    rows_per_page         stored rows that are read at once
    mtime_tick_ns         two changes within this time may get the same modification time
    coarse_mtime_tick_ns  the same on file systems that store whole seconds
    """

    documents_per_write: int = 32
    chunks_per_write: int = 64
    seconds_per_write: float = 0.5
    removals_per_write: int = 50
    notes_per_write: int = 500
    rows_per_page: int = 1000
    mtime_tick_ns: int = 20_000_000
    coarse_mtime_tick_ns: int = 2_000_000_000


DEFAULT_TUNING = FolderTuning()
