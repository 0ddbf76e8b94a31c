"""Databases of mcp-context-server: one that version 2.2.2 made, and one of version 3 by hand.

Version 3 is not on PyPI; its tables are those of version 2 with UUIDs for ids.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np

from mcpvectordb import Database
from mcpvectordb.storage import vec0
from tests.core.importers.conftest import execute, state
from tests.support import Letters

IDS = ("0193a1b2-0000-7000-8000-000000000001", "0193a1b2-0000-7000-8000-000000000002")


def test_entries_come_with_times_tags_metadata_and_images(
    db: Database, unpacked: Callable[[str], Path]
) -> None:
    folder = unpacked("mcp-context-server-2.2.2")
    execute(
        folder / "context_storage.db",
        "UPDATE context_entries SET created_at = '2025-02-03 04:05:06' WHERE id = 1",
    )
    before = state(folder)
    done = db.import_from(folder)
    assert (done.kind, done.added) == ("mcp-context-server", {"memories": 3})
    first, second, third = sorted(db.memories.browse(images=True), key=lambda each: each.id)
    assert (first.thread, first.source, first.tags) == ("tea", "user", ("green", "water"))
    assert first.metadata is not None
    assert (first.metadata["status"], first.metadata["priority"]) == ("done", 3)
    assert first.created_at == "2025-02-03T04:05:06.000000+00:00"
    assert [image.mime_type for image in second.images] == ["image/png"]
    assert second.images[0].data.startswith(b"\x89PNG")
    assert third.thread == "other"
    assert state(folder) == before


def test_ids_of_version_3_are_uuids(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "context_storage.db"
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute(
        """
        CREATE TABLE context_entries (id TEXT PRIMARY KEY, thread_id TEXT NOT NULL,
            source TEXT NOT NULL, content_type TEXT NOT NULL, text_content TEXT, metadata JSON,
            summary TEXT, content_hash TEXT, created_at TIMESTAMP, updated_at TIMESTAMP);
        CREATE TABLE tags (id INTEGER PRIMARY KEY, context_entry_id TEXT, tag TEXT);
        CREATE TABLE image_attachments (id INTEGER PRIMARY KEY, context_entry_id TEXT,
            image_data BLOB, mime_type TEXT, image_metadata JSON, position INTEGER);
        CREATE TABLE context_entry_versions (id INTEGER PRIMARY KEY, context_entry_id TEXT,
            text_content TEXT);
        CREATE TABLE embedding_metadata (context_id TEXT PRIMARY KEY, model_name TEXT);
        CREATE TABLE embedding_chunks (id INTEGER PRIMARY KEY, context_id TEXT,
            vec_rowid INTEGER, start_index INTEGER, end_index INTEGER);
        CREATE VIRTUAL TABLE vec_context_embeddings USING vec0(embedding float[32]);
        INSERT INTO context_entry_versions (context_entry_id, text_content) VALUES ('x', 'old');
        """
    )
    texts = ("Sencha is green.", "Assam is black.")
    for number, (id, text) in enumerate(zip(IDS, texts, strict=True), 1):
        sql.execute(
            "INSERT INTO context_entries VALUES (?, 'tea', 'agent', 'text', ?, '{\"n\": 1}', "
            "'a tea', '', '2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z')",
            (id, text),
        )
        sql.execute("INSERT INTO tags (context_entry_id, tag) VALUES (?, 'leaf')", (id,))
        sql.execute("INSERT INTO embedding_metadata VALUES (?, 'letters')", (id,))
        sql.execute(
            "INSERT INTO embedding_chunks (context_id, vec_rowid, start_index, end_index) "
            "VALUES (?, ?, 0, ?)",
            (id, number, len(text)),
        )
        vector = np.asarray(Letters().embed([text])[0], "<f4").tobytes()
        sql.execute("INSERT INTO vec_context_embeddings (rowid, embedding) VALUES (?, ?)",
                    (number, vector))  # fmt: skip
    sql.close()
    done = db.import_from(path)
    assert (done.added, done.embeddings) == ({"memories": 2}, {"kept": 2})
    assert done.not_kept == {"an earlier version of an entry": 1}
    [entry] = db.memories.search("sencha", mode="text")
    assert entry.item.metadata is not None
    assert (entry.item.metadata["imported"]["id"], entry.item.metadata["summary"]) == (
        IDS[0],
        "a tea",
    )
    assert entry.item.updated_at.startswith("2026-01-02")
    assert not db.check()
