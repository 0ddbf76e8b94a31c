"""The engines that are measured, each in the module of its name.

They run in processes of their own (`python -m benchmarks.engines`) with the interpreter of their
own environment, so nothing here imports anything but this package, numpy and, when it is opened,
the engine. An `Engine(folder)` opens what is in a folder, or makes it. Of the verbs it has those
that it can do:

add_vectors(rows)           store the rows of a matrix under their numbers, each in the group
                            `number % GROUPS`
nearest(query, group)       the numbers of the rows nearest to a vector by cosine; of one group,
                            unless it is None
add_texts(texts)            store passages under their numbers
matching(query)             the numbers of the passages that fit a query by words (see `Words`) best
remember(thread, turns)     store the turns of a conversation under their numbers
recall(thread, question)    the numbers of the turns of a conversation that answer a question best,
                            and whether it was said that none does (see `Recalled`)
close()

Every answer has up to NEAREST numbers, best first. An engine may be named with a setting, which is
the second argument of its class: one that searches a graph with the entries that it keeps while it
does (`hnswlib@400`, its `ef`), this library with a model (`mcpvectordb@bge-small-en-v1.5`),
mcp-memory-service with the mode of its search (`mcp-memory-service@hybrid`).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

NEAREST = 10
GROUPS = 100
NAMES = (
    "mcpvectordb",
    "chroma",
    "lancedb",
    "sqlite-vec",
    "tantivy",
    "qdrant",
    "hnswlib",
    "fts5",
    "mcp-memory-service",
    "mem0",
    "basic-memory",
)


class Words(TypedDict):
    """A query by words: any of some, or all of some and none of others."""

    any: list[str]
    all: list[str]
    none: list[str]


class Recalled(TypedDict):
    """The turns that were found, and whether it was said that nothing relevant was."""

    found: list[int]
    nothing: bool


def load(name: str) -> Any:
    """The class of an engine; the engine itself is imported when one is opened."""
    return import_module(f"{__name__}.{base(name).replace('-', '_')}").Engine


def opened(name: str, folder: Path) -> Any:
    """An engine on a folder, with the setting of its name if it has one."""
    setting = name.partition("@")[2]
    return load(name)(folder, setting) if setting else load(name)(folder)


def base(name: str) -> str:
    """The name of an engine without its setting."""
    return name.partition("@")[0]


def can(name: str, verb: str) -> bool:
    """Whether an engine has a verb."""
    return hasattr(load(name), verb)
