"""The surfaces: one module or package each, imported only when it is served."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpvectordb_server.surface import Surface

NAMES = ("mcpvectordb", "vector_store", "openrag", "context_server", "qmd", "desk")


def load(name: str) -> Surface:
    """The surface of this name."""
    surface: Surface = import_module(f"{__name__}.{name}").SURFACE
    return surface


def prose(name: str) -> str:
    """What a surface tells agents, from a file of this folder."""
    return (Path(__file__).parent / f"{name}.md").read_text(encoding="utf-8")
