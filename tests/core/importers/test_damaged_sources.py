"""Real databases of other programs with random bytes in them: what comes is sound."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvectordb import Database, MCPVectorDBError
from tests.support import Letters

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
    unpacked: Callable[[str], Path], archive: str, file: str, seed: int
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


def test_a_kind_that_the_source_is_not_is_refused(
    db: Database, unpacked: Callable[[str], Path]
) -> None:
    path = unpacked("llm-0.36") / "embeddings.db"
    with pytest.raises(
        ValueError, match=r"is not the index of qmd: it has the tables .*embeddings"
    ):
        db.import_from(path, "qmd")
    with pytest.raises(ValueError, match="'qmdd' is no kind of source; did you mean qmd"):
        db.import_from(path, "qmdd")
