"""An agent for tests: calls tools of the surface desk, and has only the text of a reply to go by."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mcpvectordb import Database
from mcpvectordb_server.surfaces.desk import SURFACE
from tests.server.clients import ask, service

_HIT = re.compile(r"^\[\d+\] (\S+)", re.MULTILINE)
_LINE = re.compile(r"^(\S+:\d+): ", re.MULTILINE)
_CHANGE = re.compile(r"(\w+): (?:not there, but at )?([^\s,]+)")


class Answer(NamedTuple):
    """What an agent reads, and what it takes from that."""

    text: str

    @property
    def places(self) -> list[str]:
        """The places of hits, or of lines that match."""
        return _HIT.findall(self.text) or _LINE.findall(self.text)

    @property
    def status(self) -> str:
        """The word that the reply of `verify` or of a change begins with."""
        return self._change[1]

    @property
    def place(self) -> str:
        """The place that follows it."""
        return self._change[2]

    @property
    def _change(self) -> re.Match[str]:
        match = _CHANGE.match(self.text)
        assert match, self.text
        return match


class Agent:
    """Calls tools through a client in memory."""

    def __init__(self, db: Database, **options: Any) -> None:
        self.made = service(db, SURFACE, **options)

    def __call__(self, tool: str, **arguments: Any) -> Answer:
        result = ask(self.made, tool, arguments)
        assert not result.is_error, result.content[0].text
        return Answer(_only_text(result))

    def refused(self, tool: str, **arguments: Any) -> str:
        result = ask(self.made, tool, arguments)
        assert result.is_error, result.content[0].text
        return _only_text(result)


def _only_text(result: Any) -> str:
    [block] = result.content
    assert result.structured_content is None
    return str(block.text)
