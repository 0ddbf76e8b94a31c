from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcpvectordb import Database, UnsupportedFormat


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    root = tmp_path / "My Vault"
    (root / ".obsidian").mkdir(parents=True)
    (root / ".obsidian" / "app.json").write_text("{}")
    (root / ".trash").mkdir()
    (root / ".trash" / "old.md").write_text("Deleted.")
    (root / "drinks").mkdir()
    (root / "drinks" / "Tea.md").write_text(
        "---\naliases: [Sencha]\ntags: drink/hot\n---\n# Tea\n\nBetter than [[Milk|that]]. #green\n"
    )
    (root / "Milk.md").write_text("Cold. See [[drinks/Tea#Tea]].\n")
    (root / "Alone.md").write_text("Nothing links here.\n")
    (root / "cup.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return root


def linking_to(db: Database, note: str) -> set[str]:
    """The backlinks of a note."""
    found = db.documents.browse(where={"metadata.links": {"array_contains": note}})
    return {Path(each.source).name for each in found}


def test_a_vault_becomes_a_library_with_links_and_tags(db: Database, vault: Path) -> None:
    done = db.import_from(vault)
    assert done.kind == "obsidian" and done.added == {"libraries": 1, "documents": 3}
    assert linking_to(db, "Tea") == {"Milk.md"} and linking_to(db, "Milk") == {"Tea.md"}
    [tea] = db.documents.browse(library="My Vault", where={"metadata.aliases": ["Sencha"]})
    assert tea.metadata["tags"] == ["drink/hot", "drink", "green"] and not db.stats().pending
    again = db.import_from(vault)
    assert again.known == {"libraries": 1, "documents": 3} and not again.added


def test_links_stay_right_when_the_vault_is_synced_later(db: Database, vault: Path) -> None:
    db.import_from(vault, library="notes")
    (vault / "Alone.md").write_text("Now it links to [[Milk]] and [[Tea]].\n")
    (vault / "Milk.md").write_text("Cold, without a link.\n")
    (vault / "drinks" / "New.md").write_text("[[Tea]] again.\n")
    [done] = db.documents.sync("notes")
    assert done.replaced == 2 and done.indexed == 1
    assert linking_to(db, "Tea") == {"Alone.md", "New.md"}
    assert linking_to(db, "Milk") == {"Alone.md", "Tea.md"}


def test_a_dry_run_tells_what_would_come(db: Database, vault: Path) -> None:
    done = db.import_from(vault, dry_run=True)
    # The picture counts as well: no file is opened, so that it has no text is not known.
    assert done.added == {"libraries": 1, "documents": 4}
    assert not db.documents.libraries()


def test_another_folder_does_not_take_over_a_library(db: Database, vault: Path) -> None:
    db.import_from(vault, library="notes")
    other = shutil.copytree(vault, vault.parent / "Other")
    done = db.import_from(other, library="notes")
    assert "choose another library" in done.notes[0] and db.documents.count() == 3


def test_a_folder_that_is_no_vault_is_named_as_such(db: Database, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(UnsupportedFormat, match=r"it has no folder \.obsidian"):
        db.import_from(tmp_path / "plain", "obsidian")
