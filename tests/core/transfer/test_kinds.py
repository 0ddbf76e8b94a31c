"""Kinds of sources are recognised by their content, whatever is in them; and vaults of Obsidian."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpvectordb import Database, MCPVectorDBError, UnsupportedFormat
from mcpvectordb.transfer import kinds
from mcpvectordb.transfer.items import ImportOptions
from mcpvectordb.transfer.source import ImportSource
from tests.core.transfer.conftest import Unpacked
from tests.support import scaled


def test_what_is_no_source_is_said(db: Database, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(UnsupportedFormat, match="none of the sources that can be recognised"):
        db.import_from(tmp_path / "picture.png")
    with pytest.raises(
        UnsupportedFormat, match=r"mcpvectordb itself: export it .* and import that"
    ):
        db.import_from(db.path)
    with pytest.raises(OSError, match="does not exist"):
        db.import_from(tmp_path / "missing.db")


def test_a_kind_that_the_source_is_not_is_refused(db: Database, unpacked: Unpacked) -> None:
    path = unpacked("llm-0.36") / "embeddings.db"
    with pytest.raises(
        ValueError, match=r"is not the index of qmd: it has the tables .*embeddings"
    ):
        db.import_from(path, "qmd")
    with pytest.raises(ValueError, match="'qmdd' is no kind of source; did you mean qmd"):
        db.import_from(path, "qmdd")


# Importers of JSON report what they cannot read, and never fail with a foreign error.

KEYS = (
    "mapping current_node conversation_id id title create_time message author role content parts "
    "content_type text parent metadata recipient chat_messages uuid name sender created_at "
    "attachments extracted_content files type sessionId timestamp summary leafUuid isSidechain "
    "embedding values kind mcpvectordb chunks model settings language"
).split()
WORDS = ("user", "assistant", "human", "text", "code", "a", "all", "1.5", "2025-01-01", "\ud83d")
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.sampled_from(WORDS), inner, max_size=6)
    ),
    max_leaves=30,
)
NAMES = ["chatgpt", "claude", "claude-code", "jsonl", "mcpvectordb"]


@pytest.mark.parametrize("kind", NAMES)
@settings(deadline=None, max_examples=scaled(60), suppress_health_check=list(HealthCheck))
@given(st.lists(values, min_size=1, max_size=4))
def test_any_json_is_read_or_refused(kind: str, content: list[Any]) -> None:
    lines = "\n".join(json.dumps(each) for each in content)
    found = kinds.named(kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.jsonl"
        path.write_text(lines if kind in NAMES[2:] else json.dumps(content))
        source = ImportSource(path, Path(folder))
        assert found.recognises(source) in (True, False)
        try:
            for _ in found.read(source, ImportOptions()):
                pass
        except MCPVectorDBError:
            pass


# A vault of Obsidian.


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    root = tmp_path / "My Vault"
    for name, text in {
        ".obsidian/app.json": "{}",
        ".trash/old.md": "Deleted.",
        "drinks/Tea.md": "---\naliases: [Sencha]\ntags: drink/hot\n---\n# Tea\n\n"
        "Better than [[Milk|that]]. #green\n",
        "Milk.md": "Cold. See [[drinks/Tea#Tea]].\n",
        "Alone.md": "Nothing links here.\n",
        "cup.png": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def linking_to(db: Database, note: str) -> set[str]:
    """The backlinks of a note."""
    found = db.documents.browse(where={"metadata.links": {"array_contains": note}})
    return {Path(each.source).name for each in found}


def test_a_vault_becomes_a_library_with_links_and_tags(db: Database, vault: Path) -> None:
    # The picture counts as well: no file is opened, so that it has no text is not known.
    assert db.import_from(vault, dry_run=True).added == {"libraries": 1, "documents": 4}
    assert not db.documents.libraries()
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


def test_another_folder_does_not_take_over_a_library(db: Database, vault: Path) -> None:
    db.import_from(vault, library="notes")
    other = shutil.copytree(vault, vault.parent / "Other")
    done = db.import_from(other, library="notes")
    assert "choose another library" in done.notes[0] and db.documents.count() == 3
    with pytest.raises(UnsupportedFormat, match=r"it has no folder \.obsidian"):
        db.import_from(vault / "drinks", "obsidian")
