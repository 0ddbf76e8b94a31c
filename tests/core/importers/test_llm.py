"""Databases of llm, made by two of its versions: see tests/fixtures/importers/make.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.core.importers.conftest import execute, state

VERSIONS = ("llm-0.26", "llm-0.36")


@pytest.mark.parametrize("version", VERSIONS)
def test_stored_texts_become_documents_and_others_vectors(
    db: Database, unpacked: Callable[[str], Path], version: str
) -> None:
    folder = unpacked(version)
    before = state(folder)
    done = db.import_from(folder / "embeddings.db")
    assert (done.kind, done.added) == ("llm", {"documents": 4, "vectors": 1})
    assert done.embeddings == {"kept": 4}
    [hit] = db.documents.search("malty", mode="text")
    assert (hit.item.document.library, hit.item.document.source) == ("teas", "assam")
    assert hit.item.document.metadata["length"] == 47
    assert db.vectors.get("mate", store="teas").dimension == 32
    assert state(folder) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_conversations_become_threads(
    db: Database, unpacked: Callable[[str], Path], version: str
) -> None:
    done = db.import_from(unpacked(version) / "logs.db")
    talks: dict[str, list[tuple[str, str]]] = {}
    for each in sorted(db.memories.browse(images=True), key=lambda each: each.id):
        talks.setdefault(each.thread, []).append((each.source, each.text))
        assert bool(each.images) == (each.text == "And this one?")
        assert each.metadata is not None
        assert each.metadata["model"] == "echo"
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


def test_a_fork_brings_only_what_its_origin_has_not(
    db: Database, unpacked: Callable[[str], Path]
) -> None:
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


def test_messages_that_form_a_circle_end(db: Database, unpacked: Callable[[str], Path]) -> None:
    path = unpacked("llm-0.36") / "logs.db"
    execute(
        path,
        "UPDATE messages SET parent_hash = (SELECT tip_message_hash FROM threads LIMIT 1) "
        "WHERE parent_hash IS NULL",
    )
    assert db.import_from(path).added == {"memories": 12}
