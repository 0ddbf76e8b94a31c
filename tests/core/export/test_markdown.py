from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpvectordb import Database
from mcpvectordb.export.markdown import _page
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.records import Source
from tests.support import Letters


def test_documents_and_memories_become_files_with_front_matter(
    db: Database, tmp_path: Path
) -> None:
    db.export_to(tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.rglob("out/**/*.*")}
    assert {
        "documents/notes/tea.md",
        "documents/code/tools/a.py.md",
        "documents/default/example.org/a_b.md",
        "contexts/plans/1.md",
        "contexts/plans/1.1.png",
        "contexts/plans/2.md",
    } <= found
    tea = (tmp_path / "out/documents/notes/tea.md").read_text("utf-8")
    assert tea.startswith("---\ntitle: Tea\nmcpvectordb:\n")
    assert tea.endswith("\nyear: 2024\n---\n# Tea\n\nWater at 80 degrees.\n")
    code = (tmp_path / "out/documents/code/tools/a.py.md").read_text("utf-8")
    assert code.endswith("---\n```py\nprint('a')\n```")
    memory = (tmp_path / "out/contexts/plans/1.md").read_text("utf-8")
    assert memory.startswith("---\ntags:\n- keys\nmcpvectordb:\n") and "- 1.1.png" in memory
    assert memory.endswith("\nstatus: open\n---\nRotate the signing keys in May.")


def test_the_folder_can_be_ingested_again(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out")
    with Database(tmp_path / "again.db", embedder=Letters()) as again:
        done = again.documents.ingest_folder(tmp_path / "out")
        assert done.indexed == 5 and not done.failures
        [tea] = again.documents.browse(where={"title": "Tea"})
        assert tea.metadata["year"] == 2024 and tea.metadata["mcpvectordb"]["library"] == "notes"
        [page] = again.documents.browse(where={"metadata.mcpvectordb.library": "default"})
        assert page.metadata["tags"] == ["x", "y"]
        assert again.documents.search("signing keys May", mode="text")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), values))
def test_front_matter_is_read_as_it_was_written(metadata: dict[str, Any]) -> None:
    raw = _page({"mcpvectordb": {"id": "1"}, **metadata}, "Text.").encode()
    parsed = markdown.parse(Source(source="a.md", name="a.md", raw=raw, file_type="md"))
    assert parsed.metadata == {"mcpvectordb": {"id": "1"}, **metadata}
