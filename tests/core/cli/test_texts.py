from __future__ import annotations

import json

from tests.support_cli import Commands


def test_grep_prints_lines_with_their_places(notes: Commands) -> None:
    assert notes.run("grep", "Pour|budget") == (
        "notes/sub/plan.md:3: The budget for 2025.\nnotes/tea.md:4: Pour it.\n"
    )
    assert notes.run("grep", "-F", "-i", "pour IT.") == "notes/tea.md:4: Pour it.\n"


def test_grep_says_how_many_more_there_are(notes: Commands) -> None:
    done = notes.invoke("grep", ".", "--limit", "1")
    assert len(done.stdout.splitlines()) == 1 and "more lines match" in done.stderr
    found = json.loads(notes.run("grep", ".", "--limit", "1", "--json"))
    assert len(found["items"]) == 1 and found["total"] > 1


def test_grep_without_a_match_exits_with_one(notes: Commands) -> None:
    done = notes.invoke("grep", "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")


def test_verify_says_where_a_quotation_stands(notes: Commands) -> None:
    assert notes.run("verify", "Pour it.", "tea.md").startswith("exact: notes/tea.md:4-4 (SHA-256")
    spaced = notes.run("verify", "degrees>. Pour")
    assert spaced.startswith("spacing: notes/tea.md:3-4") and "It stands there as:" in spaced
    assert json.loads(notes.run("verify", "Pour it.", "--json"))["first_line"] == 4


def test_verify_exits_with_one_where_it_does_not_stand(notes: Commands) -> None:
    elsewhere = notes.invoke("verify", "Pour it.", "plan.md")
    assert elsewhere.exit_code == 1 and elsewhere.stdout.startswith("elsewhere: notes/tea.md")
    absent = notes.invoke("verify", "Pour them.")
    assert absent.exit_code == 1 and absent.stdout == "absent (3 texts were read)\n"
