from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb_server.replies import MAX_REPLY
from mcpvectordb_server.surfaces.qmd import SURFACE
from tests.server.clients import VERSIONS, ask, exchange, service, talk, valid
from tests.support import Letters, search_documents

NOTES = {
    "tea.md": "# Green tea\n\nWater at 80 degrees.\nPour it over the leaves.\nWait for two "
    "minutes.\nDrink.\n",
    "2025/meeting one.md": "# Meeting (one)\n\nWe spoke about the budget and about tea.\n",
    "2025/plan.md": "# Plan\n\nVersion 1.0.21 of the multi-agent snake_case module; E-4021.\n",
    "chinese.md": "# 数据库\n\n数据库很快。\n",
    "untitled.md": "nothing but a line about kettles\n",
}


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "My Notes"
    write(folder, **NOTES)
    return folder


@pytest.fixture
def notes(db: Database, root: Path) -> Database:
    """A database with the collection `notes`."""
    db.documents.add_library("notes", root, pattern="**/*.md", description="my notes")
    db.documents.describe("notes", "2025", "what happened in 2025")
    db.documents.sync()
    return db


class Calls:
    """Calls tools through a client in memory, and checks what holds for every reply."""

    def __init__(self, db: Database) -> None:
        self.made = service(db, SURFACE)

    def raw(self, name: str, **arguments: Any) -> Any:
        result = ask(self.made, name, arguments)
        schema = next(tool.arguments.output for tool in SURFACE.tools if tool.name == name)
        if result.is_error or schema is None:
            assert set(result.structured_content or ()) <= {"note"}
        else:
            valid(result.structured_content, schema)
        return result

    def texts(self, name: str, **arguments: Any) -> list[str]:
        result = self.raw(name, **arguments)
        assert result.is_error is False
        return [
            block.text if block.type == "text" else block.resource.text for block in result.content
        ]

    def results(self, name: str, **arguments: Any) -> list[dict[str, Any]]:
        result = self.raw(name, **arguments)
        assert result.is_error is False
        found: list[dict[str, Any]] = result.structured_content["results"]
        return found

    def files(self, name: str, **arguments: Any) -> list[str]:
        return [each["file"] for each in self.results(name, **arguments)]

    def error(self, name: str, **arguments: Any) -> str:
        result = self.raw(name, **arguments)
        assert result.is_error is True
        (block,) = result.content
        return str(block.text)


@pytest.fixture
def calls(notes: Database) -> Calls:
    return Calls(notes)


# What all three searches answer


def test_min_score_is_compared_before_rounding_where_scores_are_similarities(
    calls: Calls, notes: Database
) -> None:
    for name, mode in (("search", "text"), ("vsearch", "vector")):
        exact = search_documents(notes, "tea", mode=mode)[-1].score
        found = [
            len(calls.results(name, query="tea", minScore=least))
            for least in (0, exact, exact + 1e-9)
        ]
        assert found[0] == found[1] > found[2]
    last = calls.results("query", query="tea")[-1]
    assert calls.results("query", query="tea", minScore=last["score"])[-1] == last
    assert last not in calls.results("query", query="tea", minScore=last["score"] + 0.01)


# vsearch


def test_without_a_vector_index_there_is_the_specified_error(path: Path, root: Path) -> None:
    text = "Vector index not found. Run 'qmd embed' first to create embeddings."
    with Database(path, embedder=Letters()) as db:
        result = Calls(db).raw("vsearch", query="tea")
        assert result.is_error
        assert [block.text for block in result.content] == [text]
        assert "`mcpvectordb embed`" in result.structured_content["note"]
        db.documents.add_library("notes", root)
        db.documents.sync(embed=False)
        assert Calls(db).raw("vsearch", query="tea").content[0].text == text
        db.embed_pending()
        assert Calls(db).results("vsearch", query="tea")
    with Database(path) as db:  # whose model this machine does not have
        assert "letters" in Calls(db).error("vsearch", query="tea")


# query


def test_without_vectors_a_query_goes_by_words(path: Path, root: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        db.documents.add_library("notes", root)
        db.documents.sync(embed=False)
    with Database(path) as db:
        result = Calls(db).raw("query", query="budget")
        assert result.structured_content["results"][0]["file"] == "notes/2025/meeting one.md"
        assert "vector" not in result.structured_content["steps"]
        assert "letters" in result.structured_content["skipped"]["vector"]


# get


def body(calls: Calls, **arguments: Any) -> str:
    (text,) = calls.texts("get", **arguments)
    return text.removeprefix("<!-- Context: my notes -->\n\n")


def test_uris_are_encoded_as_in_javascript_and_can_be_read_again(
    db: Database, tmp_path: Path
) -> None:
    name = "a b (1)!'*~/ü #100%&?+:=@$,;.md"
    write(tmp_path / "n", **{name: "odd\n"})
    db.documents.add_library("n", tmp_path / "n")
    db.documents.sync(embed=False)
    calls = Calls(db)
    (block,) = calls.raw("get", file=f"n/{name}").content
    assert (
        block.resource.uri
        == "qmd://n/a%20b%20(1)!'*~/%C3%BC%20%23100%25%26%3F%2B%3A%3D%40%24%2C%3B.md"
    )
    assert calls.texts("get", file=str(block.resource.uri)) == ["odd\n"]
    read = talk(calls.made, lambda client: client.read_resource(block.resource.uri))
    assert read.contents[0].text == "1: odd"


def test_a_very_long_document_comes_in_parts(calls: Calls, notes: Database, root: Path) -> None:
    lines = [f"Line {number} of a long, long text." for number in range(1, 12_001)]
    write(root, **{"long.md": "\n".join(lines) + "\n"})
    notes.documents.sync(embed=False)
    parts, line = [], 1
    while line:
        text = body(calls, file="notes/long.md", fromLine=line)
        assert len(text) < MAX_REPLY
        text, _, rest = text.partition("\n\n[... ")
        parts += text.split("\n")
        line = int(rest.rpartition("=")[2].removesuffix("]")) if rest else 0
    assert parts == lines


# multi_get


def test_a_list_of_too_many_names_is_refused_before_any_lookup(calls: Calls) -> None:
    names = ",".join(f"{number}.md" for number in range(201))
    said = calls.error("multi_get", pattern=names)
    assert said == "pattern lists 201 names; at most 200 are read at once"
    said = calls.error("multi_get", pattern=names + ",*")
    assert said.startswith(f"No files matched pattern: {names[:150]}")
    said = calls.error("multi_get", pattern="te.md,tee.md,tea.m,ta.md,tea.d,tex.md")
    assert said.count("Did you mean") == 5
    assert calls.texts("multi_get", pattern="tea.md," * 300)[0].endswith(NOTES["tea.md"])


def test_a_pattern_that_matches_nothing_is_taken_as_a_name(
    calls: Calls, notes: Database, root: Path
) -> None:
    write(root, **{"[draft].md": "draft\n"})
    notes.documents.sync(embed=False)
    assert "draft" in calls.texts("multi_get", pattern="notes/[draft].md")[0]


def test_large_documents_are_named_first_and_not_read(
    calls: Calls, notes: Database, root: Path
) -> None:
    write(root, **{"big/a.md": "x" * 10_240, "big/b.md": "x" * 10_241, "big/c.md": "ä" * 7_680})
    notes.documents.sync(embed=False)
    skipped, second, document = calls.texts("multi_get", pattern="big/*.md")
    assert skipped.startswith("[SKIPPED: notes/big/b.md - File too large (10KB). Use 'qmd get'")
    assert second.startswith("[SKIPPED: notes/big/c.md - File too large (15KB).")
    assert document == "<!-- Context: my notes -->\n\n" + "x" * 10_240
    assert len(calls.texts("multi_get", pattern="big/*.md", maxBytes=100_000)) == 3
    assert all(
        text.startswith("[SKIPPED")
        for text in calls.texts("multi_get", pattern="big/*.md", maxBytes=0)
    )


def test_files_that_do_not_fit_into_a_reply_are_counted(
    calls: Calls, notes: Database, root: Path
) -> None:
    write(root, **{f"many/{number:02}.md": f"{number} " + "x" * 9_000 for number in range(40)})
    notes.documents.sync(embed=False)
    first, *others = calls.texts("multi_get", pattern="many/*.md")
    assert (
        first
        == f"[SKIPPED: {40 - len(others)} more files, to keep this reply short. Ask for fewer.]"
    )
    assert sum(map(len, others)) > MAX_REPLY * 0.9


# status


def test_an_empty_collection_was_updated_when_it_was_made(db: Database, tmp_path: Path) -> None:
    assert Calls(db).texts("status") == [
        "QMD Index Status:\n  Total documents: 0\n  Needs embedding: 0\n  Vector index: no\n  "
        "Collections: 0"
    ]
    before = datetime.now(UTC)
    (tmp_path / "empty").mkdir()
    db.documents.add_library("empty", tmp_path / "empty")
    (collection,) = Calls(db).raw("status").structured_content["collections"]
    assert abs((datetime.fromisoformat(collection["lastUpdated"]) - before).total_seconds()) < 60
    assert collection["documents"] == 0


# The resource template and the prompt


def test_the_template_is_published_and_nothing_is_listed(notes: Database) -> None:
    _, templates, listed = exchange(
        service(notes, SURFACE),
        VERSIONS[-1],
        ("resources/templates/list", {}),
        ("resources/list", {}),
    )
    assert templates["resourceTemplates"] == [
        {
            "uriTemplate": "qmd://{+path}",
            "name": "document",
            "title": "QMD Document",
            "mimeType": "text/markdown",
            "description": "A markdown document from your QMD knowledge base. Use search tools to "
            "discover documents.",
        }
    ]
    assert listed["resources"] == []


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (
            "qmd://notes/2025/meeting%20one.md",
            "1: # Meeting (one)\n2: \n3: We spoke about the budget and about tea.",
        ),
        ("qmd://notes%2F2025%2Fmeeting%20one.md", "1: # Meeting (one)"),
        ("qmd://notes/2025/meeting%2520one.md", "1: # Meeting (one)"),
        ("qmd://meeting%20one.md", "1: # Meeting (one)"),
        ("qmd://notes/te.md", "Document not found: notes/te.md"),
        ("qmd://", "Document not found: "),
    ],
)
def test_documents_are_read_by_uri(uri: str, expected: str, notes: Database) -> None:
    read = talk(service(notes, SURFACE), lambda client: client.read_resource(uri))
    (content,) = read.contents
    assert content.mime_type == "text/markdown"
    context = "<!-- Context: my notes\n\nwhat happened in 2025 -->\n\n"
    assert content.text.startswith(("Document not found: ", context + "1: "))
    assert expected in content.text


def test_the_guide_names_all_tools_and_says_that_no_resources_are_listed(db: Database) -> None:
    _, listed, prompt = exchange(
        service(db, SURFACE), VERSIONS[-1], ("prompts/list", {}), ("prompts/get", {"name": "query"})
    )
    assert [each["name"] for each in listed["prompts"]] == ["query"]
    (message,) = prompt["messages"]
    text = message["content"]["text"]
    assert message["role"] == "user"
    for name in ("search", "vsearch", "query", "get", "multi_get", "status"):
        assert f"`{name}`" in text
    assert "resources/list" not in text and "{plan,budget}" in text and "{{" not in text
