from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from mcpvectordb import Database
from mcpvectordb.cli.ingest import resumable
from tests.support import Letters
from tests.support_cli import Shell


def test_a_folder_is_ingested_without_hidden_and_ignored_files_and_links_out_of_it(
    shell: Shell,
) -> None:
    notes = shell.folder / "notes"
    (notes / "d").mkdir(parents=True)
    for name in ("a.md", "b.log", "d/c.md", ".hidden"):
        (notes / name).write_text(name)
    (notes / ".gitignore").write_text("*.log\n")
    (notes / "out").symlink_to("/")
    assert shell.run("ingest", "notes", "--no-embed").strip() == (
        "2 indexed; skipped: 1 hidden, 1 ignored, 1 link out of the root (--verbose lists them)"
    )
    listed = shell.run("ingest", "notes", "--no-embed", "--verbose").splitlines()
    assert listed == [
        f"skipped {notes / '.hidden'}: hidden",
        f"skipped {notes / 'b.log'}: ignored",
        f"skipped {notes / 'out'}: link out of the root",
        "2 unchanged; skipped: 1 hidden, 1 ignored, 1 link out of the root",
    ]


def test_standard_input_replaces_another_text_of_its_name_only_when_asked(shell: Shell) -> None:
    given = ("ingest", "-", "--source", "thought.md", "--no-embed")
    shell.run(*given, stdin="first")
    assert shell.run(*given, stdin="first").strip() == "1 unchanged"
    shell.run(*given, stdin="second", code=1)
    assert "has another text named 'thought.md'" in shell.err and "(--replace)" in shell.err
    assert shell.run("get", "thought.md") == "first"
    assert shell.run(*given, "--replace", stdin="second").strip() == "1 replaced"
    assert shell.run("get", "thought.md") == "second"


def test_two_texts_from_standard_input_are_two_documents(shell: Shell) -> None:
    for text in ("one thought", "another thought", "one thought"):
        shell.run("ingest", "-", "--no-embed", stdin=text)
    assert shell.out.strip() == "1 unchanged"
    names = shell.run("list").split()
    sources = [each for each in names if each.startswith("default/stdin-")]
    assert len(sources) == len(set(sources)) == 2
    assert shell.run("get", sources[0]) == "another thought"


def test_metadata_of_a_known_file_is_updated(shell: Shell) -> None:
    (shell.folder / "a.txt").write_text("apple")
    (shell.folder / "more").mkdir()
    (shell.folder / "more" / "b.txt").write_text("banana")
    sources = ("ingest", "a.txt", "more", "--no-embed")
    shell.run(*sources)
    assert shell.run(*sources, "-m", "year=2024").strip() == "2 metadata updated"
    assert shell.run(*sources, "-m", "year=2024").strip() == "2 unchanged"
    assert "a.txt" in shell.run("list", "--where", "metadata.year=2024")


def test_ctrl_c_leaves_a_sound_file_and_the_same_command_continues(shell: Shell) -> None:
    folder = shell.folder / "many"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number}.txt").write_text(f"note {number} about something or other\n" * 3)
    process = shell.start("--db", str(shell.db), "ingest", str(folder))
    log = Path(f"{shell.db}-wal")
    while not log.exists() or log.stat().st_size < 300_000:  # some are in, and most are not
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and "sound" in err
    with Database(shell.db) as db:
        assert db.check() == []
    shell.run("ingest", str(folder))
    status = json.loads(shell.run("status", "--json"))
    assert (status["documents"], status["pending"]) == (300, 0)


def test_an_interrupt_says_how_much_waits_and_what_continues(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.ingest_text("apple", source="a", embed=False)
        with pytest.raises(KeyboardInterrupt), resumable(db):
            raise KeyboardInterrupt
    assert capsys.readouterr().err == (
        "mcpvectordb: 1 passage still to be embedded: `mcpvectordb embed` continues, and so does "
        "the next server\n"
    )


def test_a_dry_run_says_what_would_be_read_and_makes_no_file(shell: Shell) -> None:
    folder = shell.folder / "notes"
    folder.mkdir()
    for name in ("a.md", "b.txt", ".hidden.md"):
        (folder / name).write_text(name)
    planned = shell.run("ingest", str(folder), "https://a.example/", "--dry-run")
    assert planned.splitlines() == [
        f"read  {folder / 'a.md'}",
        f"read  {folder / 'b.txt'}",
        "read  https://a.example/",
        "3 files to read; skipped: 1 hidden (--verbose lists them)",
    ]
    assert not shell.db.exists()


def test_patterns_choose_files_of_a_folder_and_json_says_what_was_done(shell: Shell) -> None:
    folder = shell.folder / "notes"
    (folder / "drafts").mkdir(parents=True)
    for name in ("a.md", "b.txt", "drafts/c.md"):
        (folder / name).write_text(name)
    options = ("--pattern", "**/*.md", "--ignore", "drafts/", "--no-embed", "--json")
    done = json.loads(shell.run("ingest", str(folder), "missing.md", *options, code=1))
    assert done["counts"]["indexed"] == done["counts"]["failed"] == 1
    assert "missing.md" in done["failures"][0]
    assert "mcpvectordb: " in shell.err
    (folder / "a.md").write_text("other")
    planned = shell.run("ingest", str(folder), "--pattern", "*.md", "--dry-run")
    assert planned.splitlines()[0] == f"read  {folder / 'a.md'}"
    assert json.loads(shell.run("list", "--json"))["total"] == 1


def test_a_file_in_another_language_is_told_of_the_multilingual_model_once(shell: Shell) -> None:
    for name in ("a", "b"):
        (shell.folder / f"{name}.md").write_text(
            f"Die Feuerwehr löschte den Brand in der Stadt. {name}"
        )
    shell.run("ingest", "a.md", "--no-embed")
    assert "a.md: most of it is not in English" in shell.err
    shell.run("ingest", "b.md", ".", "--no-embed")
    assert shell.err == ""
