from __future__ import annotations

import json

import pytest

from tests.support_cli import Shell
from tests.support_endpoint import EndpointServer, serving


def test_the_list_says_size_languages_quality_and_how_to_get_a_model(shell: Shell) -> None:
    rows = {
        each["name"]: each for each in json.loads(shell.run("model", "list", "--json"))["models"]
    }
    e5 = rows["multilingual-e5-small"]
    assert (e5["bytes"], e5["languages"], e5["measured"]["xquad-zh"]) == (71_622_400, "100", 0.98)
    nomic = rows["nomic-embed-text-v1.5"]
    assert (nomic["installed"], nomic["get_it"]) == (
        False,
        "mcpvectordb model pull nomic-embed-text-v1.5",
    )
    lines = shell.run("model", "list").splitlines()
    assert lines[0].split() == "model kind size dim languages English Chinese".split()
    assert len(lines) == len(rows) + 1 and max(map(len, lines)) < 140


def test_a_new_file_takes_the_model_and_the_embeddings_that_ingest_names(shell: Shell) -> None:
    (shell.folder / "a.md").write_text("apples")
    chosen = ("--model", "all-MiniLM-L6-v2", "--embeddings", "float16", "--no-embed")
    shell.run("ingest", "a.md", *chosen)
    shell.run("ingest", "a.md", *chosen)
    status = json.loads(shell.run("status", "--json"))
    assert (status["model"], status["embeddings"]) == ("all-MiniLM-L6-v2", "float16")
    shell.run("ingest", "a.md", "--model", "multilingual-e5-small", code=1)
    assert "is embedded with all-MiniLM-L6-v2" in shell.err or "pip install" in shell.err
    shell.run("ingest", "a.md", "--embeddings", "float32", code=1)
    assert "stores embeddings as float16; to change that, export it" in shell.err
    shell.run("ingest", "a.md", "--embeddings", "int8", code=2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonsense", "there is no model"),
        ("nomic-embed-text-v1.5", "run: mcpvectordb model pull nomic-embed-text-v1.5"),
        ("ms-marco-MiniLM-L-12-v2", "cannot embed"),
    ],
)
def test_a_model_that_cannot_be_had_makes_no_file(shell: Shell, name: str, message: str) -> None:
    (shell.folder / "a.md").write_text("apples")
    shell.run("ingest", "a.md", "--model", name, code=1)
    assert message in shell.err and not shell.db.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pull", "nonsense"], "there is no model"),
        (["pull", "all-MiniLM-L6-v2"], "not pulled"),
        (["add", "nowhere"], "nowhere"),
    ],
)
def test_a_model_that_cannot_be_fetched_or_added_is_one_line(
    shell: Shell, arguments: list[str], message: str
) -> None:
    shell.run("model", *arguments, code=1)
    assert message in shell.err and shell.err.startswith("mcpvectordb: ")


KEY = "sk-secret-0123456789abcdef"


def test_a_file_is_embedded_and_searched_by_the_server_that_was_added(filled: Shell) -> None:
    filled.environment["A_KEY"] = KEY
    with serving(EndpointServer(key=KEY)) as server:
        options = ("--url", server.url, "--model", "nomic-embed-text", "--key-variable", "A_KEY")
        said = filled.run("model", "add-endpoint", "mine", *options)
        assert "'search_query: ' and 'search_document: '" in said
        assert "mine is ready (32 d); use it with: mcpvectordb model use mine" in said
        assert server.url in filled.run("model", "list")
        filled.run("model", "use", "mine")
        filled.run("search", "red apples", "--mode", "vector")
        assert server.asked[-1][2]["input"][-1] == "search_query: red apples"
        (filled.folder / "new.md").write_text("# Plums\n\nPlums are blue.\n")
    assert "1 indexed" in filled.run("ingest", "new.md", code=1)
    assert "1 passage still to be embedded: `mcpvectordb embed` continues" in filled.err
    assert "refuses connections; perhaps the server is not running" in filled.err
    assert "new.md" in filled.run("search", "blue plums")
    assert "refuses connections" in filled.out + filled.err
    filled.run("embed", code=1)
    assert "refuses connections" in filled.err
    port = int(server.url.rsplit(":", 1)[1].split("/")[0])
    with serving(server, port):
        filled.run("embed")
        assert json.loads(filled.run("status", "--json"))["pending"] == 0
    filled.run("model", "remove", "mine", code=1)
    assert "mine is the model of this file" in filled.err
    assert " bytes)" in filled.run("model", "remove", "mine", "--force")
    assert server.url not in filled.run("model", "list")
    kept = [path for path in filled.folder.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in kept)


def test_an_endpoint_that_cannot_be_added_is_one_line(shell: Shell) -> None:
    options = ("--url", "http://127.0.0.1:1/v1", "--model", "m")
    shell.run("model", "add-endpoint", "mine", *options, code=1)
    assert shell.err.startswith("mcpvectordb: the endpoint mine (http://127.0.0.1:1/v1) refuses")
    shell.run("model", "add-endpoint", "mine", *options, "--key-variable", KEY, code=1)
    assert "never the key itself" in shell.err and KEY not in shell.err


def test_a_reranker_is_used_by_its_variable(shell: Shell) -> None:
    with serving(EndpointServer()) as server:
        options = ("--url", server.url, "--model", "judge-1", "--kind", "reranker")
        said = shell.run("model", "add-endpoint", "judge", *options)
        assert "use it with: MCPVECTORDB_RERANKER=judge" in said
        (shell.folder / "tea.md").write_text("Green tea is steeped for three minutes, not ten.\n")
        shell.run("ingest", "tea.md", "--no-embed")
        shell.run("model", "use", "judge", code=1)
        assert "MCPVECTORDB_RERANKER=judge" in shell.err
        shell.environment["MCPVECTORDB_RERANKER"] = "judge"
        server.asked.clear()
        shell.run("search", "green tea", "--rerank")
        assert [path for path, _, _ in server.asked] == ["/v1/rerank"]
