from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.server.web.support_web_server import Served
from tests.support import Letters


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my notes"
    (made / "sub").mkdir(parents=True)
    (made / "tea.md").write_text("# Tea\n\ngreen")
    (made / "sub" / "cup.md").write_text("# Cup\n\nwhite")
    (made / "empty.md").write_text("")
    (made / ".env").write_text("SECRET=1")
    return made


def test_a_folder_is_followed_after_it_was_told_what_will_happen(
    served: Served, folder: Path
) -> None:
    asked = {"name": "notes", "root": str(folder), "description": "mine"}
    told = served.post("/api/libraries", **asked, dry_run=True)
    assert told["library"] is None and told["job"] is None
    assert told["planned"] == {"index": 3} and told["skipped"]
    assert served.get("/api/libraries")["libraries"] == []
    done = served.post("/api/libraries", **asked)
    assert done["library"]["root"] == str(folder) and done["library"]["confirmed"] is True
    job = served.job(done)
    assert (job["kind"], job["title"], job["state"]) == ("sync", "notes", "done")
    assert job["result"]["indexed"] == 2
    [library] = served.get("/api/libraries")["libraries"]
    assert (library["documents"], library["description"]) == (2, "mine")
    passed = served.get("/api/passed_over")["files"]
    assert [Path(each["path"]).name for each in passed] == ["empty.md"] and passed[0]["reason"]
    assert "SECRET" not in str(served.post("/api/search", query="SECRET", text=True)["hits"])


def test_a_sync_takes_in_what_has_changed_and_can_be_tried_before(
    served: Served, folder: Path
) -> None:
    served.job(served.post("/api/libraries", name="a/b c", root=str(folder)))
    (folder / "new.md").write_text("# New")
    (folder / "tea.md").unlink()
    tried = served.job(served.post("/api/libraries/a%2Fb%20c/sync", dry_run=True))
    assert {Path(path).name: what for what, path in tried["result"]["planned"]} == {
        "new.md": "index",
        "tea.md": "remove",
    }
    done = served.job(served.post("/api/libraries/a%2Fb%20c/sync"))["result"]
    assert (done["indexed"], done["removed"]) == (1, 1)


def test_a_library_is_described_and_removed(served: Served, folder: Path) -> None:
    served.job(served.post("/api/libraries", name="notes", root=str(folder)))
    status, done = served.ask("PATCH", "/api/libraries/notes", {"description": "about tea"})
    assert status == 200 and done["library"]["description"] == "about tea"
    told = served.post("/api/libraries/notes/delete", dry_run=True)
    assert told["documents"] == 2 and any("followed no longer" in s for s in told["consequences"])
    kept = served.post("/api/libraries/notes/delete", keep_documents=True)
    assert kept["documents"] == 0 and served.db.documents.count() == 2
    assert served.post("/api/libraries/notes/delete")["documents"] == 2
    assert served.db.documents.count() == 0 and (folder / "tea.md").exists()
    assert served.ask("POST", "/api/libraries/notes/delete", {})[0] == 404
    assert served.ask("POST", "/api/libraries/notes/sync", {})[0] == 404


def test_a_folder_that_was_added_elsewhere_must_be_confirmed(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "sent.db"
    with Database(tmp_path / "first.db", embedder=Letters()) as db:
        db.documents.add_library("notes", folder)
        db.copy_to(path)
    with Database(path, embedder=Letters()) as db:
        served = Served(db)
        try:
            [library] = served.get("/api/libraries")["libraries"]
            assert library["confirmed"] is False
            job = served.job(served.post("/api/libraries/notes/sync"))
            assert (job["state"], job["error"]["code"]) == ("failed", "refused")
            assert served.post("/api/libraries/notes/confirm")["library"]["confirmed"] is True
            assert served.job(served.post("/api/libraries/notes/sync"))["state"] == "done"
        finally:
            served.stop()


@pytest.mark.parametrize(
    ("root", "status"),
    [
        ("/proc/self", 403),
        ("/nowhere/at/all", 422),
        ("", 400),
        ("notes", 400),
        ("{home}/.ssh", 403),
        ("/a\0b", 422),
    ],
)
def test_a_folder_that_may_not_be_read_is_refused(
    root: str, status: int, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"name": "n", "root": root.format(home=tmp_path)}
    assert served.ask("POST", "/api/libraries", given)[0] == status
    assert served.get("/api/libraries")["libraries"] == []


def test_folders_of_the_machine_are_listed_without_files_and_hidden_ones(
    served: Served, folder: Path
) -> None:
    (folder / ".hidden").mkdir()
    found = served.get(f"/api/directories?path={str(folder).replace(' ', '%20')}")
    assert found["directories"] == [{"name": "sub", "path": str(folder / "sub")}]
    assert found["parent"] == str(folder.parent)
    status, answer = served.ask("GET", "/api/directories?path=/nowhere/at/all")
    assert (status, answer["error"]["code"]) == (422, "unreadable")
    assert served.get("/api/directories?path=/")["parent"] is None
