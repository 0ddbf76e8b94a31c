"""Files of every earlier version, opened and listed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from mcpvectordb import Database
from tests.goldens.recorded import Recorded
from tests.support import Letters

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_files_of_earlier_versions_hold_what_they_held(tmp_path: Path, recorded: Recorded) -> None:
    recorded("old_files", {path.stem: listed(path, tmp_path) for path in FIXTURES.glob("*.db")})


def listed(fixture: Path, folder: Path) -> dict[str, Any]:
    path = folder / fixture.name
    shutil.copy(fixture, path)
    with Database(path, embedder=Letters()) as db:
        assert db.check() == []
        return {
            "documents": [
                {**each.to_dict(), "text": db.documents.text(each.id)}
                for each in db.documents.browse(limit=1000)
            ],
            "memories": [each.to_dict() for each in db.memories.browse(limit=1000)],
            "vectors": [
                each.to_dict()
                for store in db.vectors.stores()
                for each in db.vectors.browse(store=store.name, limit=1000)
            ],
            "changes": len(db.history(limit=1000)),
        }
