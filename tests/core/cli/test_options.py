from __future__ import annotations

from typing import Any

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb.cli.options import conditions_from, metadata_pair


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
def test_what_has_no_key_or_sign_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="KEY=VALUE"):
        metadata_pair(text)
    with pytest.raises(InvalidInput, match="FIELD=VALUE"):
        conditions_from((text,))
