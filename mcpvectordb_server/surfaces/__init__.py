"""The surfaces: one module or package each, imported only when it is served."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpvectordb_server.surface import Surface

NAMES = ("mcpvectordb", "vector_store", "openrag", "context_server", "qmd", "desk")


def load(name: str) -> Surface:
    """The surface of this name."""
    surface: Surface = import_module(f"{__name__}.{name}").SURFACE
    return surface
