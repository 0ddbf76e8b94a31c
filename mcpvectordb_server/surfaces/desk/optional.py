"""Types of arguments that need not be given: their empty value means that.

The schema leaves the empty default out, because every client pays for it in tokens.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


EMPTY = Field(json_schema_extra=_without_default)

OptionalText = Annotated[str, EMPTY]
OptionalNumber = Annotated[int, EMPTY]
OptionalFraction = Annotated[float, EMPTY]
Flag = Annotated[bool, EMPTY]
OptionalTexts = Annotated[list[str], EMPTY]
OptionalObject = Annotated[dict[str, Any], EMPTY]

NO_TEXTS: list[str] = []
NOTHING: dict[str, Any] = {}
