from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import (
    Chunk,
    Config,
    Damaged,
    Database,
    Entry,
    Hit,
    InvalidInput,
    Memory,
    NotFound,
    Progress,
)
from mcpvectordb.memories import rows
from mcpvectordb.projects import folders, shelf
from tests.core.projects.test_folders import git, git_only, repository
from tests.support import Letters


@pytest.fixture
def db() -> Database:
    return Database(":memory:")


def settings(db: Database, prefix: str) -> dict[str, object]:
    with db._file.reading() as sql:
        rows = sql.execute("SELECT name, value FROM settings").fetchall()
    return {name: json.loads(value) for name, value in rows if name.startswith(prefix)}


def test_the_first_name_is_that_of_the_folder_unless_another_project_has_it(
    db: Database, tmp_path: Path
) -> None:
    for each in ("a/app", "b/app", "c/app"):
        (tmp_path / each).mkdir(parents=True)
    names = [db.projects.resolve(tmp_path / each / "app").name for each in "abc"]
    assert names == ["app", "app-2", "app-3"]
    assert [db.projects.resolve(tmp_path / each / "app").name for each in "abc"] == names


@git_only
def test_a_repository_keeps_its_project_when_it_is_moved_or_renamed(
    db: Database, tmp_path: Path
) -> None:
    first = repository(tmp_path / "app")
    before = db.projects.resolve(tmp_path / "app")
    assert (before.name, before.key) == ("app", f"git:{first}")
    (tmp_path / "app").rename(tmp_path / "renamed")
    after = db.projects.resolve(tmp_path / "renamed")
    assert (after.name, after.key) == ("app", before.key)
    assert after.folder == (tmp_path / "renamed").resolve()


@git_only
def test_worktrees_and_clones_are_of_one_project(db: Database, tmp_path: Path) -> None:
    repository(tmp_path / "app")
    git(tmp_path / "app", "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    git(tmp_path, "clone", "-q", str(tmp_path / "app"), str(tmp_path / "fork"))
    names = {db.projects.resolve(tmp_path / each).name for each in ("tree", "app", "fork")}
    assert names == {"app"}
    (tmp_path / "fork" / folders.NAME_FILE).write_text('project = "fork"')
    assert db.projects.resolve(tmp_path / "fork").name == "fork"


@git_only
def test_git_is_asked_once(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path / "app")
    known = db.projects.resolve(tmp_path / "app")
    monkeypatch.setenv("PATH", "")
    assert folders.first_commit(tmp_path / "app/.git") is None
    assert db.projects.resolve(tmp_path / "app") == known
    (tmp_path / "app").rename(tmp_path / "moved")  # unknown, and git cannot be asked
    assert db.projects.resolve(tmp_path / "moved").key.startswith("path:")


@git_only
def test_another_repository_at_the_same_place_is_another_project(
    db: Database, tmp_path: Path
) -> None:
    repository(tmp_path / "app")
    assert db.projects.resolve(tmp_path / "app").name == "app"
    (tmp_path / "app").rename(tmp_path / "gone")
    repository(tmp_path / "app", "something else")
    assert db.projects.resolve(tmp_path / "app").name == "app-2"
    assert db.projects.resolve(tmp_path / "gone").name == "app"


@git_only
def test_a_folder_that_becomes_a_repository_stays_the_same_project(
    db: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (tmp_path / "first").mkdir()
    (tmp_path / "first/app").mkdir()
    assert db.projects.resolve(tmp_path / "first/app").name == "app"
    assert db.projects.resolve(folder).name == "app-2"
    git(folder, "init", "-q")
    assert db.projects.resolve(folder).name == "app-2"
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    now = db.projects.resolve(folder)
    assert now.name == "app-2" and now.key.startswith("git:")
    shutil.rmtree(folder)
    folder.mkdir()
    assert db.projects.resolve(folder).name == "app-3", "another folder is not that repository"


@git_only
def test_a_broken_repository_is_known_by_its_folder_and_git_is_not_asked_again(
    db: Database, tmp_path: Path
) -> None:
    repository(tmp_path / "app")
    (tmp_path / "app/.git/HEAD").write_text("0" * 40 + "\n")
    found = db.projects.resolve(tmp_path / "app")
    assert found.key == folders.path_key((tmp_path / "app").resolve())
    [known] = settings(db, "repository:").values()
    assert isinstance(known, dict) and known["first"] == ""


def test_the_configuration_wins_over_the_file_and_the_file_over_the_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / folders.NAME_FILE).write_text('project = "said"')
    assert Database(":memory:").projects.resolve(tmp_path).name == "said"
    for project, name in (("given", "given"), ("auto", "said")):
        db = Database(":memory:", config=Config(project=project))
        assert db.projects.resolve(tmp_path).name == name
    with pytest.raises(InvalidInput, match="MCPVECTORDB_PROJECT"):
        Database(":memory:", config=Config(project="a/b")).projects.resolve(tmp_path)


def test_a_file_that_is_read_only_remembers_nothing(tmp_path: Path) -> None:
    path, folder = tmp_path / "a.db", tmp_path / "app"
    folder.mkdir()
    with Database(path):
        pass
    with Database(path, config=Config(read_only=True)) as db:
        assert db.projects.resolve(folder).name == "app"
        assert not settings(db, "project:")


def test_resolving_is_no_change_of_the_history(db: Database, tmp_path: Path) -> None:
    db.projects.resolve(tmp_path)
    assert db.history() == []


def test_merged_files_know_the_folders_of_both_in_either_order(tmp_path: Path) -> None:
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
    for path, folder in (("a.db", "one"), ("b.db", "two")):
        with Database(tmp_path / path) as db:
            db.projects.resolve(tmp_path / folder)
    with Database(tmp_path / "a.db") as db:
        db.sync_with(tmp_path / "b.db")
        known = settings(db, "project:")
        assert len(known) == 2
        db.merge(tmp_path / "b.db")
        assert settings(db, "project:") == known
    with Database(tmp_path / "b.db") as db:
        assert settings(db, "project:") == known
        assert db.projects.resolve(tmp_path / "one").name == "one"


@pytest.mark.parametrize("value", [{"a/b": 1}, {"a": "x"}, {"a": -1}, {"a": 2**62}])
def test_a_file_with_projects_that_nobody_wrote_is_not_merged(
    tmp_path: Path, value: dict[str, object]
) -> None:
    with Database(tmp_path / "bad.db") as db, db._file.writing() as sql:
        sql.execute("INSERT INTO settings VALUES ('project:path:/x', ?)", (json.dumps(value),))
    with Database(tmp_path / "a.db") as db, pytest.raises(Damaged, match="not merged"):
        db.merge(tmp_path / "bad.db")


def remember(db: Database, thread: str, text: str) -> int:
    return db.memories.add(thread, "user", text).memory.id


def texts(found: Iterable[Hit[Memory | Chunk]]) -> set[str]:
    return {hit.item.text for hit in found}


@pytest.fixture
def two(db: Database) -> Database:
    """Memories and documents of the projects app and app-2, whose names begin alike."""
    for project in ("app", "app-2", "app 2", "apple"):
        for thread in (project, f"{project}/claude-code 1"):
            remember(db, thread, f"The pump of {thread} is blue.")
        for library in (project, f"{project}/docs"):
            db.documents.ingest_text(f"The valve of {library}.", source="v", library=library)
    remember(db, "app0", "The pump of app0 is blue.")
    return db


OF_APP = {"The pump of app is blue.", "The pump of app/claude-code 1 is blue."}
DOCUMENTS_OF_APP = {"The valve of app.", "The valve of app/docs."}


def test_a_scope_has_the_threads_and_libraries_of_one_project_alone(two: Database) -> None:
    assert {each.text for each in two.memories.browse(limit=50, project="app")} == OF_APP
    assert two.memories.count(project="app") == 2
    assert texts(two.memories.search("pump", limit=50, project="app")) == OF_APP
    found = two.search("pump or valve", limit=50, project="app")
    assert texts(found) == OF_APP | DOCUMENTS_OF_APP
    lines = two.grep("pump|valve", project="app")
    assert {each.text for each in lines} == OF_APP | DOCUMENTS_OF_APP
    shown = two.context("pump", project="app", budget=4000).text
    assert "app/claude-code 1" in shown and "apple" not in shown
    assert two.verify("The pump of apple is blue.", project="app").status == "absent"
    assert two.verify("The pump of apple is blue.").status == "exact"
    assert {
        each.memory.thread for each in two.memories.near("The pump is blue.", project="app")
    } <= {
        "app",
        "app/claude-code 1",
    }


def test_a_prefix_of_threads_is_looked_up_in_the_index(two: Database) -> None:
    explained = two.memories.browse(project="app", explain=True).explained
    assert explained is not None
    plan = str(explained)
    assert "SCAN x" not in plan and "contexts_by_thread" in plan


def test_a_library_that_follows_a_folder_of_a_project_belongs_to_it(
    db: Database, tmp_path: Path
) -> None:
    for each in ("app/docs", "app/inner/docs", "apple"):
        (tmp_path / each).mkdir(parents=True)
    db.projects.resolve(tmp_path / "app")
    db.projects.resolve(tmp_path / "app/inner")
    for name, folder in (("manuals", "app/docs"), ("deep", "app/inner/docs"), ("fruit", "apple")):
        db.documents.add_library(name, tmp_path / folder)
    assert db.projects.scope("app").libraries == ["app", "manuals"]
    assert db.projects.scope("inner").libraries == ["inner", "deep"]


def test_projects_are_listed_with_what_belongs_to_them(two: Database, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    two.projects.resolve(tmp_path / "app")
    [found] = two.projects.browse()
    assert (found.name, found.memories, found.threads, found.documents) == ("app", 2, 2, 2)
    assert found.keys == (folders.path_key((tmp_path / "app").resolve()),)


def test_an_empty_answer_says_that_nothing_belongs_to_the_project(two: Database) -> None:
    told = "nothing is remembered in the project 'nowhere'"
    assert two.memories.search("pump", project="nowhere").note == told
    assert two.memories.why_empty(project="nowhere") == told
    assert two.memories.why_empty(project="app") == ""


def test_a_name_means_a_project_that_there_is(two: Database, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert two.projects.chosen("app") == "app"
    assert two.projects.chosen() is None
    assert two.projects.chosen("all") is None
    assert two.projects.chosen("auto", folder=tmp_path / "folder") == "folder"
    assert two.projects.chosen("fresh", new=True) == "fresh"
    assert [each.name for each in two.projects.browse()] == ["fresh"], "reading makes no project"
    with pytest.raises(NotFound, match="fresh"):
        two.projects.chosen("frsh")
    with pytest.raises(InvalidInput, match="slashes"):
        two.projects.chosen("a/b")


def test_a_rename_takes_threads_and_libraries_along_and_can_be_undone(
    two: Database, tmp_path: Path
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.md").write_text("# A\n\nThe hose.\n")
    two.documents.add_library("app/files", tmp_path / "files")
    two.documents.sync()
    two.projects.resolve(tmp_path / "app")
    before = two.memories.browse(project="app", limit=50).items
    seen: list[int] = []
    moved = two.projects.rename("app", "engine", progress=lambda each: seen.append(each.done or 0))
    assert moved == 5 and seen[-1] == 5
    assert two.projects.resolve(tmp_path / "app").name == "engine"
    assert two.memories.count(project="app") == 0
    after = two.memories.browse(project="engine", limit=50).items
    assert [each.updated_at for each in after] == [each.updated_at for each in before]
    assert {each.thread for each in after} == {"engine", "engine/claude-code 1"}
    assert "engine/files" in two.projects.scope("engine").libraries
    [synced] = two.documents.sync()
    assert (synced.library, synced.unchanged, synced.indexed) == ("engine/files", 1, 0)
    assert two.projects.chosen("app") == "engine", "the former name still means it"

    two.undo()
    assert two.projects.resolve(tmp_path / "app").name == "app"
    assert {each.text for each in two.memories.browse(limit=50, project="app")} == OF_APP
    assert two.documents.count(library="app/files") == 1
    two.redo()
    assert two.projects.resolve(tmp_path / "app").name == "engine"


def test_merged_projects_are_one_and_an_undo_parts_them(two: Database, tmp_path: Path) -> None:
    for each in ("app", "apple"):
        (tmp_path / each).mkdir()
        two.projects.resolve(tmp_path / each)
    two.documents.delete(library="apple")
    two.documents.delete(library="apple/docs")
    with pytest.raises(InvalidInput, match="merge them"):
        two.projects.rename("apple", "app")
    two.projects.merge("apple", "app")
    assert two.projects.resolve(tmp_path / "apple").name == "app"
    assert two.memories.count(project="app") == 4
    two.undo()
    assert two.projects.resolve(tmp_path / "apple").name == "apple"
    assert two.memories.count(project="app") == 2


def test_projects_with_the_same_document_are_not_merged(two: Database) -> None:
    for each in ("app", "apple"):
        two.projects.chosen(each)
    with pytest.raises(InvalidInput, match="already has a document"):
        two.projects.merge("app", "apple")
    assert two.memories.count(project="app") == 2
    assert two.documents.count(library="app") == 1


def test_a_folder_that_was_moved_is_given_to_its_project(db: Database, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    db.projects.resolve(tmp_path / "app")
    remember(db, "app", "It is green.")
    (tmp_path / "app").rename(tmp_path / "moved")
    assert db.projects.resolve(tmp_path / "moved").name == "moved"
    assert db.projects.move("app", tmp_path / "moved").name == "app"
    assert db.projects.resolve(tmp_path / "moved").name == "app"
    assert len(settings(db, "project:")) == 1, "the old folder is forgotten"
    with pytest.raises(InvalidInput, match="no folder"):
        db.projects.move("app", tmp_path / "nowhere")
    with pytest.raises(NotFound):
        db.projects.move("other", tmp_path / "moved")


def test_an_export_has_the_projects_and_an_import_unites_them(
    two: Database, tmp_path: Path
) -> None:
    (tmp_path / "app").mkdir()
    two.projects.resolve(tmp_path / "app")
    two.export_to(tmp_path / "all.jsonl")
    with Database(tmp_path / "new.db") as db:
        db.import_from(tmp_path / "all.jsonl", embed=False)
        assert [each.name for each in db.projects.browse()] == ["app"]
        assert db.projects.resolve(tmp_path / "app", remember=False).key.startswith("path:")
    header, *lines = (tmp_path / "all.jsonl").read_text().splitlines()
    hostile = json.loads(header)
    hostile["settings"]["project:name:x"] = {"a/b": 1}
    (tmp_path / "hostile.jsonl").write_text("\n".join([json.dumps(hostile), *lines, ""]))
    with Database(tmp_path / "other.db") as db:
        report = db.import_from(tmp_path / "hostile.jsonl", embed=False)
        assert "project:name:x" in str(report)
        assert [each.name for each in db.projects.browse()] == ["app"]


@given(
    st.lists(st.text("ap/-.0 é", min_size=1, max_size=4).filter(str.strip), max_size=8),
    st.text("ap-.0é", min_size=1, max_size=2),
)
def test_a_project_has_the_thread_of_its_name_and_those_below_it_however_it_is_read(
    threads: list[str], project: str
) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        db.memories.add_many(
            [Entry(thread=each, source="user", text=f"pump {n}") for n, each in enumerate(threads)]
        )
        expected = {
            number
            for number, each in enumerate(threads, 1)
            if each.strip() == project or each.strip().startswith(f"{project}/")
        }
        with db._file.reading() as sql:
            for wide in (False, True):
                chosen = rows.compile_filter(project=project, wide=wide)
                found = sql.execute(
                    f"SELECT x.id FROM contexts x WHERE {chosen.condition}", chosen.bindings
                )
                assert {id for (id,) in found} == expected
                ids = np.arange(1, len(threads) + 1)
                assert set(ids[chosen.memories.mask(sql, ids)]) == expected
        assert {each.id for each in db.memories.browse(limit=50, project=project)} == expected
        hits = db.memories.search("pump", limit=50, project=project)
        assert {hit.item.id for hit in hits} == expected


def test_a_rename_that_was_killed_is_finished_by_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    with Database(":memory:", embedder=Letters()) as db:
        db.projects.resolve(tmp_path / "app")
        entries = [Entry(thread=f"app/{n}", source="user", text=f"pump {n}") for n in range(600)]
        db.memories.add_many(entries)

        def killed(progress: Progress) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            db.projects.rename("app", "engine", progress=killed)
        assert db.memories.count(project="engine") == 500
        assert db.projects.resolve(tmp_path / "app").name == "app"
        db.projects.rename("app", "engine")
        assert db.memories.count(project="engine") == 600
        assert db.projects.resolve(tmp_path / "app").name == "engine"


NAMED = st.dictionaries(st.sampled_from(["app", "engine", "works"]), st.integers(0, 9), min_size=1)


@given(st.lists(NAMED, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_names_of_a_key_are_united_in_any_order_and_however_often(
    files: list[dict[str, int]], chance: random.Random
) -> None:
    united = []
    for _ in range(2):
        with Database(":memory:") as db, db._file.writing() as sql:
            for each in [*files, chance.choice(files)]:
                shelf.unite(sql, "git:0", each)
            united.append(shelf._names(sql, "git:0"))
        chance.shuffle(files)
    assert united[0] == united[1]
