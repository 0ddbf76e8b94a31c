from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from mcpvectordb import Database, NotFound
from mcpvectordb.cli.main import program
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.embedding.reranker import DEFAULT
from tests.support import Letters
from tests.support_aerodynamics import fill

TEA = '# Tea & "more"\n\nWater at 80 <degrees>.\nPour it.\n'
PLAN = "# Plan\n\nThe budget for 2025.\n"


class Shell:
    """Runs commands in this process, on a file of its own whose model this machine does not have:
    by words.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.db = folder, folder / "notes.db"

    def invoke(self, *arguments: str) -> Result:
        env = {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder / "data")}
        return CliRunner(env=env).invoke(program, ["--db", str(self.db), *arguments])

    def run(self, *arguments: str) -> str:
        result = self.invoke(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    for name, text in (("tea.md", TEA), ("sub/plan.md", PLAN), ("sub/big.md", "x" * 20_000)):
        (tmp_path / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / name).write_text(text)
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        db.documents.add_library("notes", tmp_path / "notes", description="my notes")
        db.documents.sync()
    return Shell(tmp_path)


def docid(text: str) -> str:
    return "#" + hashlib.sha256(text.encode()).hexdigest()[:6]


def test_files_are_one_line_each(shell: Shell) -> None:
    (row,) = csv.reader(io.StringIO(shell.run("search", "budget", "--files")))
    assert (row[0], row[2], row[3]) == (docid(PLAN), "notes/sub/plan.md", "my notes")
    assert 0 <= float(row[1]) <= 1


def test_csv_has_a_header_and_a_row_for_each_hit(shell: Shell) -> None:
    (row,) = csv.DictReader(io.StringIO(shell.run("search", "water", "--csv")))
    assert list(row) == ["docid", "score", "file", "title", "context", "line", "snippet"]
    assert (row["file"], row["title"], row["line"]) == ("notes/tea.md", 'Tea & "more"', "1")
    assert row["snippet"] == "2: \n3: Water at 80 <degrees>.\n4: Pour it."


def test_xml_is_well_formed_whatever_is_in_the_text(shell: Shell) -> None:
    (shell.folder / "notes" / "odd.md").write_text("walrus \x0b\x1f & <b>\n")
    with Database(shell.db, embedder=Letters()) as db:
        db.documents.sync()
    (file,) = ElementTree.fromstring(shell.run("search", "water", "--xml"))
    assert (file.get("file"), file.get("title"), file.get("docid")) == (
        "notes/tea.md",
        'Tea & "more"',
        docid(TEA),
    )
    assert "80 <degrees>" in str(file.text)
    assert "& <b>" in str(ElementTree.fromstring(shell.run("search", "walrus", "--xml"))[0].text)


def test_markdown_quotes_the_lines(shell: Shell) -> None:
    assert shell.run("search", "budget", "--md").startswith(
        f"## notes/sub/plan.md:1\n\n**Plan** ({docid(PLAN)}, "
    )
    assert "> 3: The budget for 2025.\n" in shell.run("search", "budget", "--md")


def test_json_has_everything(shell: Shell) -> None:
    found = json.loads(shell.run("search", "budget", "--json"))
    assert found["hits"][0]["item"]["document"]["path"] == "notes/sub/plan.md"
    assert found["legs"] == ["text"] and "letters" in found["reasons"]["vector"]


def test_explain_shows_what_each_leg_said(shell: Shell) -> None:
    assert "BM25 " in shell.run("search", "budget", "--explain") and "(rank 1)" in shell.run(
        "search", "budget", "--explain"
    )
    assert "BM25" not in shell.run("search", "budget")
    assert "sum of ranks " in shell.run("query", "budget", "--explain", "--no-rerank")


def test_query_finds_whole_documents(shell: Shell) -> None:
    found = json.loads(shell.run("query", "water pour", "--mode", "text", "--json"))
    assert [hit["item"]["document"]["path"] for hit in found["hits"]] == ["notes/tea.md"]
    found = json.loads(shell.run("query", "budget", "--no-rerank", "--no-expand", "--json"))
    assert found["legs"] == ["text"] and found["hits"][0]["score"] == 1.0


@pytest.mark.skipif(
    not weights.installed(CATALOGUE[DEFAULT], Path("nowhere")),
    reason="the extra quality is not installed",
)
def test_a_search_can_be_reranked(shell: Shell) -> None:
    found = json.loads(shell.run("search", "budget", "--rerank", "--json"))
    assert "rerank" in found["legs"] and found["hits"][0]["scores"]["rerank"] is not None


def test_a_search_says_when_nothing_relevant_was_found(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        fill(db)
    shell, stew = Shell(tmp_path), "a beef stew that simmers for hours in a wide cylinder"
    told = "Nothing relevant was found: the best of these results has a chance of"
    assert told in shell.run("search", stew) and "Cylindrical shells" in shell.run("search", stew)
    assert told in shell.invoke("search", stew, "--csv").stderr and told not in shell.run(
        "search", stew, "--csv"
    )
    assert json.loads(shell.run("search", stew, "--json"))["verdict"].startswith(told)
    assert "Nothing relevant" not in shell.run("search", "noise of a jet")
    assert "relevance 0.6" in shell.run("search", "noise of a jet", "--explain")


def test_a_search_can_leave_out_what_is_not_relevant_enough(tmp_path: Path) -> None:
    with Database(tmp_path / "notes.db", embedder=Letters()) as db:
        fill(db)
    shell = Shell(tmp_path)
    assert "the best result has a chance of" in shell.run(
        "search", "a stew in a cylinder", "--min-relevance", "0.5"
    )
    found = json.loads(
        shell.run("search", "heat transfer to a blunt nose", "--min-relevance", "0.3", "--json")
    )
    assert [hit["item"]["document"]["source"] for hit in found["hits"]] == ["blunt"] and found[
        "hits"
    ][0]["relevance"] > 0.3
    assert (
        "relevance is not known: "
        in shell.invoke("search", "数据库很快 jet", "--min-relevance", "0.3").stderr
    )
    assert shell.invoke("search", "jet", "--min-relevance", "2").exit_code == 2


def test_nothing_found_is_empty_in_every_format(shell: Shell) -> None:
    assert shell.run("search", "zebra", "--files") == shell.run("search", "zebra", "--md") == ""
    assert shell.run("search", "zebra", "--xml") == "<results>\n</results>\n"
    assert shell.run("search", "zebra", "--csv").count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["notes/tea.md"], TEA),
        (["tea.md:3"], "Water at 80 <degrees>.\nPour it.\n"),
        ([docid(PLAN)], PLAN),
        (["notes/tea.md:3:1"], "Water at 80 <degrees>.\n"),
        (["tea.md:3", "--lines", "1", "--line-numbers"], "3: Water at 80 <degrees>.\n"),
        (["sub/plan.md", "--lines", "1"], "# Plan\n"),
        (["plan.md:99"], ""),
        (["tea.md", "--lines", "0"], ""),
    ],
)
def test_get_reads_from_a_line_on(shell: Shell, arguments: list[str], expected: str) -> None:
    assert shell.run("get", *arguments) == expected


def test_get_means_the_file_that_is_here(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "notes" / "deeper").mkdir()
    (shell.folder / "notes" / "deeper" / "tea.md").write_text("the deeper one\n")
    with Database(shell.db, embedder=Letters()) as db:
        db.documents.sync(embed=False)
    assert shell.run("get", "tea.md") == TEA
    monkeypatch.chdir(shell.folder / "notes" / "deeper")
    assert shell.run("get", "tea.md") == "the deeper one\n"


def test_a_misspelt_name_is_answered_with_similar_ones(shell: Shell) -> None:
    for command in ("get", "multi-get"):
        error = shell.invoke(command, "plam.md").exception
        assert isinstance(error, NotFound) and "did you mean notes/sub/plan.md?" in str(error)


def test_several_documents_are_read_at_once(shell: Shell) -> None:
    result = shell.invoke("multi-get", "**/*.md", "--lines", "1")
    assert (
        result.stdout
        == '==> notes/sub/plan.md <==\n# Plan\n\n==> notes/tea.md <==\n# Tea & "more"\n'
    )
    assert "notes/sub/big.md is left out" in result.stderr
    assert len(shell.run("multi-get", "sub/*.md", "--max-bytes", "30000")) > 20_000
    listed = json.loads(shell.run("multi-get", "tea.md, plan.md,tea.md", "--json"))["documents"]
    assert listed == [
        {"path": "notes/tea.md", "text": TEA},
        {"path": "notes/sub/plan.md", "text": PLAN},
    ]
    assert shell.invoke("multi-get", "*.txt").exit_code == 1


def test_ls_lists_libraries_folders_and_documents(shell: Shell) -> None:
    assert shell.run("ls") == "notes/  3 documents\n"
    listed = [line.split()[-1] for line in shell.run("ls", "notes/sub/").splitlines()]
    assert listed == ["notes/sub/big.md", "notes/sub/plan.md"]
    assert len(shell.run("ls", "notes").splitlines()) == 3
    assert shell.run("ls", "notes/tea.md").split()[-1] == "notes/tea.md"
    assert (
        json.loads(shell.run("ls", "notes/sub", "--json"))["documents"][0]["path"]
        == "notes/sub/big.md"
    )
    assert shell.invoke("ls", "nowhere*").exit_code == 1


def test_status_tells_what_is_found_by_meaning(shell: Shell) -> None:
    out = shell.run("status")
    assert out.startswith("3 documents in 1 libraries; found by meaning: 3, waiting for it: 0\n")
    assert f"notes  3 documents  {shell.folder / 'notes'}  **/*  my notes" in out
    assert json.loads(shell.run("status", "--json"))["waiting"] == 0
