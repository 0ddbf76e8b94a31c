from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.server import (
    requirements_context_server,
    requirements_mcpvectordb,
    requirements_openrag,
    requirements_qmd,
    requirements_vector_store,
)

ROWS = (
    *requirements_mcpvectordb.REQUIREMENTS,
    *requirements_vector_store.REQUIREMENTS,
    *requirements_openrag.REQUIREMENTS,
    *requirements_context_server.REQUIREMENTS,
    *requirements_qmd.REQUIREMENTS,
)
HERE = Path(__file__).parent


def marks() -> Iterator[str]:
    """The ids in `@pytest.mark.requirement(...)` of every test of the server."""
    for path in HERE.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if (
                        isinstance(decorator, ast.Call)
                        and ast.unparse(decorator.func) == "pytest.mark.requirement"
                    ):
                        yield from (ast.literal_eval(argument) for argument in decorator.args)


def test_every_requirement_has_a_test_and_every_mark_a_requirement() -> None:
    assert set(marks()) == {row.id for row in ROWS}


def test_ids_are_unique_and_rows_complete() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert all(row.behaviour and row.source for row in ROWS)
