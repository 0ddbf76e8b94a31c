from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb.storage.lock import locked


def test_a_database_is_locked_by_what_it_is_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "data"))
    path, other = tmp_path / "notes.db", tmp_path / "copy.db"
    path.touch()
    other.hardlink_to(path)  # one file where letters of either case are the same
    first = locked(path, "work")
    assert first is not None and locked(other, "work") is None
    with first, locked(other, "other work") as beside:  # type: ignore[union-attr]
        assert beside
    again = locked(other, "work")
    assert again is not None
    again.close()
