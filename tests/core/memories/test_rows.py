from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from mcpvectordb import Condition, Database, filters
from mcpvectordb.memories.rows import compile_filter


def calls(action: Callable[[], object]) -> Counter[CodeType]:
    """How often each Python function is called during an action, by its code."""
    found: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[frame.f_code] += 1

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    "read",
    [
        lambda memories, where: memories.browse(where=where),
        lambda memories, where: memories.count(where=where),
        lambda memories, where: memories.search("tea", where=where),
        lambda memories, where: memories.search("tea", thread="unknown", where=where),
    ],
    ids=["browse", "count", "search", "empty"],
)
def test_a_filter_is_checked_once_and_compiled_once_per_call(
    db: Database, read: Callable[..., object]
) -> None:
    db.memories.add("t", "user", "tea", metadata={"status": "open"})
    found = calls(lambda: read(db.memories, {"metadata.status": "open"}))
    assert found[filters.conditions.__code__] == 1
    assert found[filters.compile.__code__] == 1


def test_a_filter_without_arguments_allows_everything() -> None:
    everything = compile_filter(tags=[" "], where={})
    assert (everything.condition, everything.bindings) == ("TRUE", ())
    assert everything.memories.select == everything.chunks.select == ""
    assert everything.using_indexes(["status"]) == everything


def test_only_conditions_on_indexed_keys_are_narrowed() -> None:
    compiled = compile_filter(where=[Condition("metadata.status", "eq", "Open")])
    assert compiled.using_indexes(["project"]) is compiled
    narrowed = compiled.using_indexes(["project", "status"])
    assert narrowed.condition.endswith(compiled.condition) and narrowed.bindings[0] == "open"
    assert narrowed.bindings[1:] == compiled.bindings
