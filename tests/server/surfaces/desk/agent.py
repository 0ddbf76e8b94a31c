"""An agent for tests: calls tools of the surface desk, and checks what holds for every reply."""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonschema

from mcpvectordb import Database
from mcpvectordb_server.surfaces.desk import SURFACE
from tests.server.clients import ask, service


class Answer(NamedTuple):
    """What an agent reads, and what a program gets."""

    text: str
    data: dict[str, Any]

    @property
    def places(self) -> list[str]:
        return [each["place"] for each in self.data["hits"]]


class Agent:
    """Calls tools through a client in memory."""

    def __init__(self, db: Database, **options: Any) -> None:
        self.made = service(db, SURFACE, **options)

    def __call__(self, tool: str, **arguments: Any) -> Answer:
        result = ask(self.made, tool, arguments)
        assert not result.is_error, result.content[0].text
        [block] = result.content
        schema = next(each.arguments.output for each in SURFACE.tools if each.name == tool)
        jsonschema.validate(result.structured_content, schema)
        return Answer(block.text, result.structured_content)

    def refused(self, tool: str, **arguments: Any) -> str:
        result = ask(self.made, tool, arguments)
        assert result.is_error, result.content[0].text
        assert result.structured_content is None
        return str(result.content[0].text)
