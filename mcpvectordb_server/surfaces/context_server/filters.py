"""The filters of the tools of context_server, and their validation with a message for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from mcpvectordb import Condition, Database

OPERATORS = (
    "eq",
    "ne",
    "gt",
    "gte",
    "lt",
    "lte",
    "in",
    "not_in",
    "exists",
    "not_exists",
    "contains",
    "starts_with",
    "ends_with",
    "is_null",
    "is_not_null",
    "array_contains",
)
# Operators without a value; one that a client sends is ignored.
VALUELESS = ("exists", "not_exists", "is_null", "is_not_null")
_KEY = re.compile(r"[A-Za-z0-9_.-]+")

Name = Annotated[str, Field(min_length=1)]
Source = Literal["user", "agent"]
Ids = Annotated[list[int], Field(min_length=1)]

InThread = Annotated[Name | None, "Only entries of this thread"]
BySource = Annotated[Source | None, "Only entries by 'user' or by 'agent'"]
WithTags = Annotated[list[str] | None, "Only entries that have at least one of these tags"]
OfType = Annotated[
    Literal["text", "multimodal"] | None,
    "'multimodal' entries have images, 'text' entries have none",
]
Since = Annotated[
    str | None,
    "Created on or after this ISO 8601 date or time, such as 2025-11-29 or 2025-11-29T10:00:00Z",
]
Until = Annotated[
    str | None, "Created on or before this ISO 8601 date or time; a date means the end of that day"
]
Equal = Annotated[
    dict[str, Any] | None,
    (
        "Metadata that must be equal, all of it, case-sensitive; a dot in a key descends. Example: "
        '{"status": "active"}'
    ),
]
_SCALARS = [{"type": kind} for kind in ("string", "number", "boolean", "null")]
Filter = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "required": ["key"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": "Metadata key; a dot descends into an object",
                },
                "operator": {"type": "string", "enum": list(OPERATORS), "default": "eq"},
                "value": {
                    "anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}],
                    "description": "What to compare with; a list for in and not_in, none for "
                    "exists, is_null …",
                },
                "case_sensitive": {"type": "boolean", "default": False},
            },
        }
    ),
]
Filters = Annotated[
    list[Filter] | None,
    (
        'Metadata conditions, all of which must hold. Example: [{"key": "priority", "operator": '
        '"gte", "value": 7}]'
    ),
]
PageSize = Annotated[int, Field(ge=1, le=100), "Most entries to return"]
Offset = Annotated[int, Field(ge=0), "How many entries to skip, for the next page"]


@dataclass(frozen=True, slots=True)
class RequestedFilters:
    """The filters of one call.

    which          keyword arguments for the library
    problems       one message for each filter that cannot be used
    metadata_count how many of the filters are on metadata
    count          how many filters there are
    """

    which: dict[str, Any]
    problems: list[str]
    metadata_count: int
    count: int


def requested_filters(
    db: Database,
    *,
    thread_id: str | None,
    source: str | None,
    tags: list[str] | None,
    content_type: str | None,
    start_date: str | None,
    end_date: str | None,
    metadata: dict[str, Any] | None,
    metadata_filters: list[dict[str, Any]] | None,
) -> RequestedFilters:
    """The filters that all four search tools have, validated."""
    read = [*_equalities(metadata or {}), *_conditions(metadata_filters or [])]
    conditions = [condition for _, condition in read if isinstance(condition, Condition)]
    problems = [
        f"{place}: {problem}" for place, condition in read for problem in _problems(db, condition)
    ]
    which = {
        "thread": thread_id,
        "source": source,
        "tags": [tag for tag in tags or () if tag.strip()] or None,
        "content_type": content_type,
        "start": start_date,
        "end": end_date,
    }
    return RequestedFilters(
        which={**which, "where": conditions},
        problems=problems or db.memories.problems(conditions),
        metadata_count=len(read),
        count=len(read) + sum(value is not None for value in which.values()),
    )


def _equalities(metadata: dict[str, Any]) -> Iterator[tuple[str, Condition | str]]:
    for key, value in metadata.items():
        yield "metadata", _condition(key, "eq", value, True)


def _conditions(filters: list[dict[str, Any]]) -> Iterator[tuple[str, Condition | str]]:
    for place, item in enumerate(filters):
        given = {"operator": "eq", "case_sensitive": False} | {
            name: each for name, each in item.items() if each is not None
        }
        value = None if given["operator"] in VALUELESS else given.get("value")
        yield (
            f"metadata_filters[{place}]",
            _condition(given.get("key"), given["operator"], value, given["case_sensitive"]),
        )


def _condition(key: Any, operator: Any, value: Any, case_sensitive: Any) -> Condition | str:
    """The condition, or a message that says why its key cannot be used."""
    if key is None:
        return "key is required"
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        shown = repr(key[:80]) if isinstance(key, str) else f"a {type(key).__name__}"
        return f"key must be made of letters, digits, _ . and -, not {shown}"
    return Condition(f"metadata.{key}", operator, value, case_sensitive)


def _problems(db: Database, condition: Condition | str) -> list[str]:
    return [condition] if isinstance(condition, str) else db.memories.problems([condition])


def possible(ids: list[int]) -> list[int]:
    """The ids that an entry can have; unknown ids are no error for these tools."""
    return [id for id in ids if id > 0]
