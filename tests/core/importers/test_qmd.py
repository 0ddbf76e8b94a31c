"""Indexes of qmd, made by two of its versions: see tests/fixtures/importers/make.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mcpvectordb import Database, Refused
from tests.core.importers.conftest import execute, state

MADE_IN = "/tmp/qmd-fixture"  # the folder in which qmd was when it made them
VERSIONS = ("qmd-1.1.6", "qmd-2.8.3")


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


@pytest.mark.parametrize("version", VERSIONS)
def test_collections_become_libraries_that_follow_their_folders(
    db: Database, unpacked: Callable[[str], Path], version: str
) -> None:
    folder = unpacked(version)
    index = moved(folder)
    before = state(folder)
    done = db.import_from(index)
    assert (done.kind, done.added) == ("qmd", {"libraries": 1, "documents": 3})
    assert done.embeddings == {"kept": 3}
    [library] = db.documents.libraries()
    assert (library.root, library.pattern) == (str(folder / "notes"), "**/*.md")
    assert db.documents.descriptions("notes", "green/sencha.md") == [
        "Everything about tea",
        "Teas that are not fermented",
    ]
    assert state(folder) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_that_only_the_index_names_must_be_confirmed(
    db: Database,
    unpacked: Callable[[str], Path],
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    done = db.import_from(moved(unpacked(version)))
    assert "mcpvectordb library confirm notes" in done.notes[0]
    with pytest.raises(Refused, match="not confirmed on this machine"):
        db.documents.sync("notes")
    db.documents.confirm_library("notes")
    [synced] = db.documents.sync("notes")
    assert (synced.indexed, synced.removed, synced.unchanged) == (0, 0, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_documents_come_without_the_folder_too(
    db: Database, unpacked: Callable[[str], Path], version: str
) -> None:
    done = db.import_from(unpacked(version) / ".cache" / "qmd")
    assert done.added == {"documents": 3}
    assert "not a folder here" in done.notes[0]
    [hit] = db.documents.search("fermented black", mode="text", limit=1)
    assert hit.item.document.source == str(Path(MADE_IN, "notes", "oolong.md"))


def test_a_document_that_is_not_embedded_yet_comes_too(
    db: Database, unpacked: Callable[[str], Path]
) -> None:
    index = moved(unpacked("qmd-2.8.3"))
    execute(
        index,
        "DELETE FROM content_vectors WHERE hash = "
        "(SELECT hash FROM documents WHERE path = 'assam.md')",
    )
    done = db.import_from(index)
    assert done.embeddings == {"kept": 2, "the source has none": 1}


def test_a_deleted_file_is_left_out(db: Database, unpacked: Callable[[str], Path]) -> None:
    index = moved(unpacked("qmd-2.8.3"))
    execute(index, "UPDATE documents SET active = 0 WHERE path = 'assam.md'", triggers=False)
    done = db.import_from(index)
    assert done.skipped == {"its file was deleted, as qmd noticed": 1}
    assert db.documents.count() == 2
