"""The engines that are measured, each in the module of its name.

They run in processes of their own (`python -m benchmarks.engines`) with the interpreter of their
own environment, so nothing here imports anything but this package, numpy and, when it is opened,
the engine. An `Engine(folder)` opens what is in a folder, or makes it. Of the verbs it has those
that it can do:

add_vectors(rows)          store the rows of a matrix under their numbers, each in the group `number
% GROUPS` nearest(query, group)      the numbers of the rows nearest to a vector by cosine; of one
group, unless it is None add_texts(texts)           store passages under their numbers
matching(query)            the numbers of the passages that fit a query by words (see `Words`) best
close()

Every answer has up to NEAREST numbers, best first. An engine that searches a graph may be named
with the number of entries that it keeps while it does: `hnswlib@400` (`ef`).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

NEAREST = 10
GROUPS = 100
NAMES = ("mcpvectordb", "chroma", "lancedb", "sqlite-vec", "tantivy", "qdrant", "hnswlib", "fts5")


class Words(TypedDict):
    """A query by words: any of some, or all of some and none of others."""

    any: list[str]
    all: list[str]
    none: list[str]


def load(name: str) -> Any:
    """The class of an engine; the engine itself is imported when one is opened."""
    return import_module(f"{__name__}.{base(name).replace('-', '_')}").Engine


def opened(name: str, folder: Path) -> Any:
    """An engine on a folder, with the `ef` of its name if it has one."""
    ef = name.partition("@")[2]
    return load(name)(folder, ef=int(ef)) if ef else load(name)(folder)


def base(name: str) -> str:
    """The name of an engine without its `ef`."""
    return name.partition("@")[0]


def can(name: str, verb: str) -> bool:
    """Whether an engine has a verb."""
    return hasattr(load(name), verb)
