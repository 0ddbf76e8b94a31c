from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.support_aerodynamics import fill
from tests.support_cli import PLAN, TEA, Commands, Shell


def docid(text: str) -> str:
    return "#" + hashlib.sha256(text.encode()).hexdigest()[:6]


def test_passages_that_say_the_same_are_named_with_the_best(notes: Commands) -> None:
    (notes.folder / "notes" / "copy.md").write_text(PLAN)
    with Database(notes.db, embedder=Letters()) as db:
        db.documents.sync()
    out = notes.run("search", "budget")
    assert "\n2. " not in out and "   nearly the same: " in out
    assert "\n2. " in notes.run("search", "budget", "--no-fold")
    (hit,) = json.loads(notes.run("search", "budget", "-n", "1", "--json"))["hits"]
    assert len(hit["folded"]) == 1 and hit["snippet"].endswith("3: The budget for 2025.")


def test_other_passages_of_a_document_are_counted(notes: Commands) -> None:
    pages = "\n\n".join(f"## Walrus {n}\n\n" + "The walrus sleeps. " * 60 for n in range(6))
    (notes.folder / "notes" / "walrus.md").write_text(pages)
    (notes.folder / "notes" / "zoo.md").write_text("A zoo has a walrus.\n")
    with Database(notes.db, embedder=Letters()) as db:
        db.documents.sync()
    out = notes.run("search", "walrus", "-n", "2", "--no-fold")
    assert "walrus.md:" in out and "zoo.md:" in out and " more passages of this document" in out
    assert "zoo.md" not in notes.run(
        "search", "walrus sleeps", "-n", "2", "--no-group", "--no-fold"
    )


def test_what_was_remembered_is_found_beside_documents(filled: Shell) -> None:
    filled.run("remember", "The otter server keeps red apples.", "--project", "zoo")
    out = filled.run("search", "otter", "server")
    assert re.match(r"1\. memory:1  strong match, zoo, ", out) and "apple.md" in out
    rows = filled.run("search", "otter", "server", "--csv").splitlines()
    assert rows[1].startswith("memory:1,strong,") and rows[1].endswith(",memory:1:1")
    memories = json.loads(filled.run("search", "apples", "--kind", "memories", "--json"))["hits"]
    assert [hit["item"]["thread"] for hit in memories] == ["zoo"]


@pytest.mark.parametrize(
    "option",
    [
        ("--kind", "documents"),
        ("--library", "fruit"),
        ("--unit", "document"),
        ("--min-score", "0.1"),
        ("--files",),
    ],
)
def test_options_of_documents_ask_for_documents_alone(
    filled: Shell, option: tuple[str, ...]
) -> None:
    filled.run("remember", "The otter server keeps red apples.", "--project", "zoo")
    out = filled.run("search", "apples", *option)
    assert "apple.md" in out and "memory:" not in out


def test_a_terminal_gets_links_and_highlights_and_with_no_color_neither(
    notes: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = notes.run("search", "budgets")
    assert "\x1b]8;id=" in out and (notes.folder / "notes/sub/plan.md").as_uri() in out
    assert "The \x1b[1;33mbudget\x1b[0m for" in out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in notes.run("search", "budgets")


def test_a_source_cannot_smuggle_control_characters_into_a_link(
    notes: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(notes.db, embedder=Letters()) as db:
        db.documents.ingest_text("walrus", source="https://x.org/\x1b]8;;evil\x07 a")
        db.documents.ingest_text("the walrus", source="/tmp/\x1b[31m/walrus.md")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = notes.run("search", "walrus")
    assert "\x1b]8;;evil" not in out and "\x07" not in out and "\x1b[31m" not in out


def test_xml_is_well_formed_whatever_is_in_the_text(notes: Commands) -> None:
    (notes.folder / "notes" / "odd.md").write_text("walrus \x0b\x1f & <b>\n")
    with Database(notes.db, embedder=Letters()) as db:
        db.documents.sync()
    (file,) = ElementTree.fromstring(notes.run("search", "water", "--xml"))
    assert (file.get("file"), file.get("title"), file.get("docid")) == (
        "notes/tea.md",
        'Tea & "more"',
        docid(TEA),
    )
    assert "80 <degrees>" in str(file.text)
    assert "& <b>" in str(ElementTree.fromstring(notes.run("search", "walrus", "--xml"))[0].text)


def test_a_search_says_when_nothing_relevant_was_found(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        fill(db)
    notes, stew = Commands(tmp_path), "a beef stew that simmers for hours in a wide cylinder"
    verdict = "Nothing relevant was found: even the best match is weak."
    assert verdict in notes.run("search", stew) and "Cylindrical shells" in notes.run(
        "search", stew
    )
    assert verdict in notes.invoke("search", stew, "--csv").stderr and verdict not in notes.run(
        "search", stew, "--csv"
    )
    assert json.loads(notes.run("search", stew, "--json"))["verdict"].startswith(verdict)
    assert "Nothing relevant" not in notes.run("search", "noise of a jet")
    assert "relevance 0.8" in notes.run("search", "noise of a jet", "--explain")


def test_search_list_and_status_say_what_is_not_embedded_yet(shell: Shell) -> None:
    for name in ("apple", "pear"):
        (shell.folder / f"{name}.md").write_text(f"The {name} is a fruit.\n")
    shell.run("ingest", "apple.md", "--no-embed")
    waiting = "no passage is embedded yet (waiting: 1); run `mcpvectordb embed`"
    assert shell.run("search", "apple").endswith("searched by text\n")
    assert shell.err == f"mcpvectordb: not searched by vector: {waiting}\n"
    assert shell.run("search", "apple", "--mode", "vector") == "searched by nothing\n"
    assert waiting in shell.err
    shell.run("embed")
    shell.run("ingest", "pear.md", "--no-embed")
    partly = "1 of all 2 passages are searched by meaning so far; run `mcpvectordb embed`"
    assert shell.run("search", "apple").endswith("searched by text and vector\n")
    assert shell.err == f"mcpvectordb: {partly}\n"
    found = json.loads(shell.run("search", "apple", "--json"))
    assert (found["backlog"]["passages"], found["backlog"]["pending"]) == (2, 1)
    shell.run("list")
    assert partly in shell.err
    assert "  embedded             1\n  to be embedded       1\n" in shell.run("status")
    assert f"documents: {partly}" in shell.err


def test_grep_finds_memories_as_of_a_time(notes: Commands) -> None:
    with Database(notes.db, embedder=Letters()) as db:
        db.memories.add("t", "user", "free lunch", valid_from="2020", valid_to="2020")
    assert notes.invoke("grep", "lunch").exit_code == 1
    for as_of in ("2020-06", "any"):
        assert notes.run("grep", "lunch", "--as-of", as_of) == "memory 1:1: free lunch\n"


def test_verify_says_where_a_quotation_stands(notes: Commands) -> None:
    assert notes.run("verify", "Pour it.", "tea.md").startswith("exact: notes/tea.md:4 (SHA-256")
    spaced = notes.run("verify", "degrees>. Pour")
    assert spaced.startswith("spacing: notes/tea.md:3-4") and "It stands there as:" in spaced
    assert json.loads(notes.run("verify", "Pour it.", "--json"))["first_line"] == 4
    cased = notes.run("verify", "POUR IT.")
    assert cased.startswith("case: notes/tea.md:4") and "It stands there as: Pour it." in cased
    with Database(notes.db, embedder=Letters()) as db:
        memory = db.memories.add("chores", "user", "Buy green tea").memory
    assert notes.run("verify", "Buy green tea").startswith(f"exact: memory {memory.id}:1 (SHA")
