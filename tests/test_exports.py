from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import mcpvectordb
from mcpvectordb.index.arrays import METRICS
from mcpvectordb.memories.memory import CONTENT_TYPES, SOURCES, ContentType, MemorySource
from mcpvectordb.memories.rows import FilterArguments
from mcpvectordb.memories.search import PARSERS
from tests.support import python


def test_all_is_the_public_namespace() -> None:
    assert dir(mcpvectordb) == sorted(mcpvectordb.__all__)
    for name in mcpvectordb.__all__:
        value = getattr(mcpvectordb, name)
        assert name == "__version__" or value.__module__.startswith("mcpvectordb."), name
    extra = {
        name
        for name, value in vars(mcpvectordb).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("mcpvectordb.")
    }
    assert extra <= set(mcpvectordb.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Databse'"):
        mcpvectordb.Databse  # noqa: B018


def test_every_public_name_is_documented() -> None:
    for name in mcpvectordb.__all__:
        value = getattr(mcpvectordb, name)
        if inspect.isclass(value):
            assert value.__doc__, name
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_"):
                    assert function.__doc__, f"{name}.{method}"


def test_importing_the_library_loads_nothing_heavy() -> None:
    done = python(
        "import sys, json; from mcpvectordb import Database; print(json.dumps(sorted(sys.modules)))"
    )
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {
        "mcp",
        "onnxruntime",
        "numpy",
        "pymupdf",
        "fitz",
        "bs4",
        "lxml",
        "tokenizers",
        "rich",
        "click",
        "asyncio",
        "concurrent",
        "zipfile",
    }


def test_opening_and_searching_by_words_loads_no_model() -> None:
    done = python("""
import sys, json
from mcpvectordb import Database
with Database(":memory:") as db:
    db.documents.search("x", mode="text")
print(json.dumps(sorted(sys.modules)))
""")
    assert not {name.split(".")[0] for name in json.loads(done.stdout)} & {
        "onnxruntime",
        "numpy",
        "tokenizers",
    }, done.stderr


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_loads_no_command_and_nothing_that_they_need(option: str) -> None:
    done = python(
        """
import sys, json
from mcpvectordb.cli.main import program
try: program([sys.argv[1]])
except SystemExit: pass
print(json.dumps(sorted(sys.modules)))
""",
        option,
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    ours = {name for name in loaded if name.startswith("mcpvectordb")}
    assert ours == {
        "mcpvectordb",
        "mcpvectordb.errors",
        "mcpvectordb.cli",
        "mcpvectordb.cli.main",
        "mcpvectordb.cli.output",
    }
    assert not loaded & {
        "apsw",
        "rich",
        "numpy",
        "mcp",
        "mcpvectordb_server",
        "importlib.metadata",
        "subprocess",
        "asyncio",
    }


def test_the_versions_agree() -> None:
    assert mcpvectordb.__version__ == importlib.metadata.version("mcpvectordb")


def test_every_error_has_a_code_of_its_own() -> None:
    public = [getattr(mcpvectordb, name) for name in mcpvectordb.__all__]
    classes = [
        value
        for value in public
        if inspect.isclass(value) and issubclass(value, mcpvectordb.MCPVectorDBError)
    ]
    codes = [each.code for each in classes]
    assert len(codes) == len(set(codes)) > 20
    # Programs compare them, so a class that is renamed keeps its code.
    assert {"error", "invalid_filter", "database", "not_our_file", "no_text"} <= set(codes)
    assert type("SecretFile", (mcpvectordb.Refused,), {}).code == "refused"


CHOICES = {
    ("documents", "search", "mode"): {"hybrid", "text", "vector"},
    ("documents", "search", "unit"): {"passage", "document"},
    ("memories", "search", "mode"): {"hybrid", "text", "vector"},
    ("memories", "search", "words"): {"any", *PARSERS},
    ("memories", "add", "source"): set(SOURCES),
    ("memories", "delete", "source"): set(SOURCES),
    ("vectors", "add", "metric"): set(METRICS),
    ("vectors", "add_many", "metric"): set(METRICS),
}


@pytest.mark.parametrize("place", CHOICES, ids=".".join)
def test_a_type_checker_knows_the_values_of_a_choice(place: tuple[str, str, str]) -> None:
    shelf, method, name = place
    with mcpvectordb.Database(":memory:") as db:
        function = getattr(type(getattr(db, shelf)), method)
    # The other hints may need what is imported for type checkers only.
    hint = eval(function.__annotations__[name], function.__globals__)
    kinds = get_args(hint) if type(None) in get_args(hint) else (hint,)
    literal = next(each for each in kinds if get_origin(each) is Literal)
    assert set(get_args(literal)) == CHOICES[place]


def test_a_type_checker_knows_every_public_name_and_no_other() -> None:
    """A misspelt import is an error: mypy would take any name from a `__getattr__` that it sees."""
    tree = ast.parse(Path(mcpvectordb.__file__).read_text("utf-8"))
    seen, unseen = set(), set()
    for node in tree.body:
        runtime_only = isinstance(node, ast.If) and isinstance(node.test, ast.UnaryOp)
        for each in ast.walk(node):
            if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("mcpvectordb."):
                seen |= {alias.asname or alias.name for alias in each.names}
            elif isinstance(each, ast.FunctionDef):
                (unseen if runtime_only else seen).add(each.name)
    assert seen - {"__dir__"} == set(mcpvectordb.__all__) - {"__version__"}
    assert unseen == {"__getattr__"}


def test_a_type_checker_knows_the_values_of_the_filters_of_memories() -> None:
    hints = get_type_hints(FilterArguments)
    assert hints["source"] == MemorySource | None
    assert hints["content_type"] == ContentType | None
    assert set(get_args(ContentType)) == set(CONTENT_TYPES)
