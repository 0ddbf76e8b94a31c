"""Databases that qmd, llm, mcp-memory-service and mcp-context-server made: see
tests/fixtures/importers/make.py.
"""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import numpy as np
import pytest

from mcpvectordb import Database, MCPVectorDBError, Refused
from mcpvectordb.storage import vec0
from tests.core.transfer.conftest import Unpacked, execute, state
from tests.support import Letters

# qmd.

MADE_IN = "/tmp/qmd-fixture"  # the folder in which qmd was when it made them
QMD = pytest.mark.parametrize("version", ["qmd-1.1.6", "qmd-2.8.3"])


def moved(folder: Path) -> Path:
    """The index of an unpacked fixture, with the folder of its notes where it is now."""
    index = folder / ".cache" / "qmd" / "index.sqlite"
    settings = folder / ".config" / "qmd" / "index.yml"
    settings.write_text(settings.read_text().replace(MADE_IN, str(folder)))
    sql = apsw.Connection(str(index))
    if sql.execute("SELECT 1 FROM sqlite_schema WHERE name = 'store_collections'").get:
        sql.execute(
            "UPDATE store_collections SET path = replace(path, ?, ?)", (MADE_IN, str(folder))
        )
    sql.close()
    return index


@QMD
def test_collections_of_qmd_follow_their_folders_once_they_are_confirmed(
    db: Database,
    unpacked: Unpacked,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    folder = unpacked(version)
    index = moved(folder)
    before = state(folder)
    done = db.import_from(index)
    assert state(folder) == before
    assert (done.kind, done.added) == ("qmd", {"libraries": 1, "documents": 3})
    assert done.embeddings == {"kept": 3}
    [library] = db.documents.libraries()
    assert (library.root, library.pattern) == (str(folder / "notes"), "**/*.md")
    assert db.documents.descriptions("notes", "green/sencha.md") == [
        "Everything about tea",
        "Teas that are not fermented",
    ]
    assert "mcpvectordb library confirm notes" in done.notes[0]
    with pytest.raises(Refused, match="not confirmed on this machine"):
        db.documents.sync("notes")
    db.documents.confirm_library("notes")
    [synced] = db.documents.sync("notes")
    assert (synced.indexed, synced.removed, synced.unchanged) == (0, 0, 3)


@QMD
def test_documents_of_qmd_come_without_the_folder_too(
    db: Database, unpacked: Unpacked, version: str
) -> None:
    done = db.import_from(unpacked(version) / ".cache" / "qmd")
    assert done.added == {"documents": 3}
    assert "not a folder here" in done.notes[0]
    [hit] = db.documents.search("fermented black", mode="text", limit=1)
    assert hit.item.document.source == str(Path(MADE_IN, "notes", "oolong.md"))


def test_what_is_deleted_in_qmd_is_left_out_and_what_is_not_embedded_comes(
    db: Database, unpacked: Unpacked
) -> None:
    index = moved(unpacked("qmd-2.8.3"))
    execute(
        index,
        "DELETE FROM content_vectors WHERE hash = "
        "(SELECT hash FROM documents WHERE path = 'assam.md');"
        "UPDATE documents SET active = 0 WHERE path = 'oolong.md';"
        "UPDATE store_collections SET update_command = 'git pull'",
        triggers=False,
    )
    done = db.import_from(index)
    assert done.embeddings == {"kept": 1, "the source has none": 1}
    assert done.skipped == {"its file was deleted, as qmd noticed": 1}
    assert done.not_kept == {"the update command of a collection": 1}


# llm.

LLM = pytest.mark.parametrize("version", ["llm-0.26", "llm-0.36"])


@LLM
def test_stored_texts_of_llm_become_documents_and_others_vectors(
    db: Database, unpacked: Unpacked, version: str
) -> None:
    folder = unpacked(version)
    before = state(folder)
    done = db.import_from(folder / "embeddings.db")
    assert (done.kind, done.added) == ("llm", {"documents": 4, "vectors": 1})
    assert done.embeddings == {"kept": 4}
    [hit] = db.documents.search("malty", mode="text")
    assert (hit.item.document.library, hit.item.document.source) == ("teas", "assam")
    assert hit.item.document.metadata["length"] == 47
    mate = db.vectors.get("mate", store="teas")
    assert mate.dimension == 32 and mate.metadata["model"]
    assert state(folder) == before


@LLM
def test_conversations_of_llm_become_threads(
    db: Database, unpacked: Unpacked, version: str
) -> None:
    done = db.import_from(unpacked(version) / "logs.db")
    talks: dict[str, list[tuple[str, str]]] = {}
    for each in sorted(db.memories.browse(images=True), key=lambda each: each.id):
        talks.setdefault(each.thread, []).append((each.source, each.text))
        assert bool(each.images) == (each.text == "And this one?")
        assert each.metadata is not None and each.metadata["model"] == "echo"
    system = [("user", "Be brief")] if version == "llm-0.36" else []
    prompt = "Assam is malty and strong, and takes milk well.\nWhich one takes milk?"
    assert list(talks.values()) == [
        [
            *system,
            ("user", "How hot is the water for sencha?"),
            ("agent", "You said: How hot is the water for sencha?"),
            ("user", "And this one?"),
            ("agent", "You said: And this one?"),
        ],
        [("user", prompt), ("agent", f"You said: {prompt}")],
    ]
    assert done.added == {"memories": sum(map(len, talks.values()))}


def test_a_fork_brings_only_what_its_origin_has_not(db: Database, unpacked: Unpacked) -> None:
    path = unpacked("llm-0.36") / "logs.db"
    execute(
        path,
        """
        CREATE TEMP TABLE first AS SELECT id, tip_message_hash AS tip FROM threads ORDER BY id
            LIMIT 1;
        INSERT INTO messages SELECT 'new', tip, 'user', NULL FROM first;
        INSERT INTO parts (message_hash, position, type, text)
            VALUES ('new', 0, 'text', 'Why?'), ('new', 1, 'reasoning', 'Hm');
        INSERT INTO threads SELECT 'fork', 'Fork', 'new', id, '2026-12-01' FROM first;
        INSERT INTO turns (id, thread_id, tip_message_hash, model, datetime_utc)
            VALUES ('z', 'fork', 'new', 'echo', '2026-12-01T00:00:00');
        """,
    )
    done = db.import_from(path)
    assert [each.text for each in db.memories.browse(thread="llm-fork")] == ["Why?"]
    assert done.not_kept == {"the reasoning of a model": 1}


def test_messages_that_form_a_circle_end(db: Database, unpacked: Unpacked) -> None:
    path = unpacked("llm-0.36") / "logs.db"
    execute(
        path,
        "UPDATE messages SET parent_hash = (SELECT tip_message_hash FROM threads LIMIT 1) "
        "WHERE parent_hash IS NULL",
    )
    assert db.import_from(path).added == {"memories": 12}


# mcp-memory-service.


def test_memories_come_with_their_embeddings_and_again_when_they_changed(
    db: Database, unpacked: Unpacked
) -> None:
    folder = unpacked("mcp-memory-service-12.2.0")
    before = state(folder)
    done = db.import_from(folder)
    assert (done.kind, done.added) == ("mcp-memory-service", {"memories": 4})
    assert (done.skipped, done.embeddings) == ({"it is deleted": 1}, {"kept": 4})
    [hit] = db.memories.search("malty", mode="text")
    memory = hit.item
    assert (memory.thread, memory.source) == ("mcp-memory-service", "agent")
    assert memory.tags == ("assam", "tea") and memory.metadata is not None
    assert (memory.metadata["memory_type"], memory.metadata["place"]) == ("note", 0)
    assert memory.created_at == "2023-11-14T22:13:20.500000+00:00"
    assert not db.check()
    assert state(folder) == before
    execute(
        folder / "sqlite_vec.db",
        """UPDATE memories SET tags = '["tea", "strong"]' WHERE content LIKE 'Assam%'""",
        triggers=False,
    )
    done = db.import_from(folder)
    assert (done.changed, done.known) == ({"memories": 1}, {"memories": 3})
    [hit] = db.memories.search("malty", mode="text")
    assert (hit.item.tags, hit.item.created_at) == (("strong", "tea"), memory.created_at)


# mcp-context-server: its version 3 is not on PyPI; its tables are those of version 2 with UUIDs.


def test_entries_come_with_times_tags_metadata_and_images(db: Database, unpacked: Unpacked) -> None:
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
    path, id = tmp_path / "context_storage.db", "0193a1b2-0000-7000-8000-000000000001"
    text = "Sencha is green."
    sql = apsw.Connection(str(path))
    vec0.load(sql)
    sql.execute(
        """
        CREATE TABLE context_entries (id TEXT PRIMARY KEY, thread_id TEXT, source TEXT,
            text_content TEXT, metadata JSON, summary TEXT, created_at TIMESTAMP,
            updated_at TIMESTAMP);
        CREATE TABLE tags (id INTEGER PRIMARY KEY, context_entry_id TEXT, tag TEXT);
        CREATE TABLE context_entry_versions (id INTEGER PRIMARY KEY, text_content TEXT);
        CREATE TABLE embedding_metadata (context_id TEXT PRIMARY KEY, model_name TEXT);
        CREATE TABLE embedding_chunks (id INTEGER PRIMARY KEY, context_id TEXT,
            vec_rowid INTEGER, start_index INTEGER, end_index INTEGER);
        CREATE VIRTUAL TABLE vec_context_embeddings USING vec0(embedding float[32]);
        INSERT INTO context_entry_versions (text_content) VALUES ('old');
        INSERT INTO context_entries VALUES ('x', 'tea', 'tool', 'Neither.', '', '', '', '');
        INSERT INTO context_entries VALUES (:id, 'tea', 'agent', :text, '{"n": 1}',
            'a tea', '2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z');
        INSERT INTO tags (context_entry_id, tag) VALUES (:id, 'leaf');
        INSERT INTO embedding_metadata VALUES (:id, 'letters');
        INSERT INTO embedding_chunks (context_id, vec_rowid, start_index, end_index)
            VALUES (:id, 5, 0, length(:text));
        INSERT INTO vec_context_embeddings (rowid, embedding) VALUES (5, :raw);
        """,
        {"id": id, "text": text, "raw": np.asarray(Letters().embed([text])[0], "<f4").tobytes()},
    )
    sql.close()
    done = db.import_from(path)
    assert (done.added, done.embeddings) == ({"memories": 1}, {"kept": 1})
    assert done.not_kept == {"an earlier version of an entry": 1}
    assert done.skipped == {"its source is neither user nor agent": 1}
    [entry] = db.memories.search("sencha", mode="text")
    assert entry.item.metadata is not None and entry.item.tags == ("leaf",)
    assert (entry.item.metadata["imported"]["id"], entry.item.metadata["summary"]) == (id, "a tea")
    assert entry.item.updated_at.startswith("2026-01-02")


# Random bytes in real databases: what comes is sound.

SOURCES = (
    ("qmd-2.8.3", ".cache/qmd/index.sqlite"),
    ("chroma-1.5.9", "chroma.sqlite3"),
    ("llm-0.36", "logs.db"),
    ("llm-0.36", "embeddings.db"),
    ("mcp-memory-service-12.2.0", "sqlite_vec.db"),
    ("mcp-context-server-2.2.2", "context_storage.db"),
)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("archive", "file"), SOURCES)
@pytest.mark.long
def test_what_can_be_read_comes_once_and_is_sound(
    unpacked: Unpacked, archive: str, file: str, seed: int
) -> None:
    path, chance = unpacked(archive) / file, random.Random(seed)
    raw = bytearray(path.read_bytes())
    for _ in range((1, 5, 30, 200)[seed]):
        raw[chance.randrange(100, len(raw))] = chance.randrange(256)
    path.write_bytes(raw)
    with Database(":memory:", embedder=Letters()) as db:
        try:
            db.import_from(path)
            again = db.import_from(path)
        except MCPVectorDBError as error:
            assert str(path) in str(error) or "--table" in str(error)
        else:
            assert (again.added, again.changed) == ({}, {})
        assert not db.check()
