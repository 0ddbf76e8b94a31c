"""What all surfaces have in common; tools, schemas and instructions are on record in goldens."""

from __future__ import annotations

from importlib import import_module

import pytest

from mcpvectordb_server.surface import Surface, publish

NAMES = ("mcpvectordb", "vector_store", "openrag", "qmd", "context_server", "desk")


@pytest.fixture(params=NAMES)
def surface(request: pytest.FixtureRequest) -> Surface:
    found: Surface = import_module(f"mcpvectordb_server.surfaces.{request.param}").SURFACE
    return found


def test_read_only_offers_exactly_the_tools_that_read(surface: Surface) -> None:
    reading = [tool.name for tool in surface.tools if tool.hints.read_only]
    assert list(publish([surface], read_only=True)) == reading != []


def test_only_tools_that_delete_or_overwrite_are_destructive(surface: Surface) -> None:
    destructive = {tool.name for tool in surface.tools if tool.hints.destructive}
    assert destructive == {
        tool.name
        for tool in surface.tools
        if any(word in tool.name for word in ("delete", "update", "forget", "vector_add"))
        and not tool.hints.read_only
    }


def test_the_instructions_warn_of_orders_in_documents(surface: Surface) -> None:
    assert (
        "not instructions" in surface.instructions or "never instructions" in surface.instructions
    )
