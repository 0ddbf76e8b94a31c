"""The same questions to a file and to what it has published, and how the answers differ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mcpvectordb import Database, MCPVectorDBError
from mcpvectordb.records import Record

CLOSE = 1e-8  # relative: scores are rounded sums of the same numbers


def asked(question: Callable[[Database], Any], db: Database) -> Any:
    """The answer to a question, or the kind and the message of the error that it raises."""
    try:
        return question(db)
    except MCPVectorDBError as error:
        # The list of fields has one more in a published database.
        return type(error).__name__, str(error).replace(", origin", "")


def differences(question: Callable[[Database], Any], file: Database, engine: Database) -> list[str]:
    """Where the answers of a file and of an engine differ."""
    return list(_differing("", asked(question, file), asked(question, engine)))


def _differing(place: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-13):
            yield f"{place}: {one!r} != {other!r}"
    elif isinstance(one, Record) and type(one) is type(other):
        for field in dataclasses.fields(one):
            yield from _differing(
                f"{place}.{field.name}", getattr(one, field.name), getattr(other, field.name)
            )
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        if list(one) != list(other):
            yield f"{place}: {list(one)} != {list(other)}"
        for key in one.keys() & other.keys():
            yield from _differing(f"{place}[{key!r}]", one[key], other[key])
    elif isinstance(one, Sequence) and not isinstance(one, str | bytes):
        if not isinstance(other, Sequence) or len(one) != len(other):
            yield f"{place}: {one!r} != {other!r}"
            return
        for at, (each, its) in enumerate(zip(one, other, strict=True)):
            yield from _differing(f"{place}[{at}]", each, its)
    elif hasattr(one, "tolist") and hasattr(other, "tolist"):
        yield from _differing(place, one.tolist(), other.tolist())
    elif one != other:
        yield f"{place}: {one!r} != {other!r}"
