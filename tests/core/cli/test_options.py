from __future__ import annotations

from typing import Any

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb.cli.options import conditions_from, metadata_pair
from tests.support_cli import Shell


def test_conditions_are_written_with_comparison_signs(filled: Shell) -> None:
    assert "apple.md" in filled.run("list", "--where", "metadata.year>=2024")
    assert "apple.md" not in filled.run("list", "--where", "metadata.year>2024")
    assert "pear.txt" in filled.run("list", "-w", "title^=pear", "-w", "metadata.n=3")
    filled.run("list", "--where", "nonsense", code=1)
    assert "FIELD=VALUE" in filled.err


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("title=Tea", ("title", "eq", "Tea")),
        ("size >= 10", ("size", "gte", "10")),
        ("metadata.size >= 10", ("metadata.size", "gte", 10)),
        ("metadata.done!=true", ("metadata.done", "ne", True)),
        ("title*=a=b", ("title", "contains", "a=b")),
        ("=x=1", ("=x", "eq", "1")),
        ("title=2024", ("title", "eq", "2024")),
        ('title="a b"', ("title", "eq", "a b")),
        ("metadata.name*=2024", ("metadata.name", "contains", "2024")),
        ("created_at>=2026-11", ("created_at", "gte", "2026-11")),
    ],
)
def test_a_condition_ends_its_field_at_the_first_sign(
    text: str, condition: tuple[str, str, Any]
) -> None:
    assert [tuple(each)[:3] for each in conditions_from((text,))] == [condition]


@pytest.mark.parametrize("text", ["year", "=2026"])
def test_metadata_without_key_or_sign_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="KEY=VALUE"):
        metadata_pair(text)
