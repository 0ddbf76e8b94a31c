"""JSON and JSON Lines: lines of "path: value" below headings for the outer keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown_writer
from mcpvectordb.ingest.formats.charset import text_of
from mcpvectordb.records import Parsed, Source

DEEPEST_HEADING = 2


def parse(source: Source) -> Parsed:
    """Return the values of a JSON document, or of one document per line."""
    value = load(text_of(source).lstrip("\ufeff"), source.name)
    named = value if isinstance(value, dict) else {}
    text = markdown_writer.blocks(_section(value, 1))
    title = {"title": named.get("title")}
    return markdown_writer.finish(source, text, title, title=named.get("name"), headings=0)


def load(text: str, name: str) -> Any:
    """Return the value of a document, or the list of values of JSON Lines."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ParseFailed(f"{name} is nested too deeply") from None
    except ValueError as error:
        if "\n" not in text.strip():
            raise ParseFailed(f"{name} is not valid JSON: {error}") from None
        return _load_lines(text, name, error)


def _load_lines(text: str, name: str, whole: ValueError) -> list[Any]:
    values = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except RecursionError:
            raise ParseFailed(f"{name} is nested too deeply in line {number}") from None
        except ValueError as error:
            reason = f"line {number}: {error}" if values else str(whole)
            raise ParseFailed(f"{name} is not valid JSON: {reason}") from None
    return values


def _section(value: Any, level: int) -> Iterator[str]:
    """Plain values first, then each nested value below a heading; records of a list separately."""
    if isinstance(value, dict) and level <= DEEPEST_HEADING:
        nested = {key: each for key, each in value.items() if _is_nested(each)}
        yield _lines({key: each for key, each in value.items() if key not in nested})
        for key, each in nested.items():
            yield markdown_writer.heading(level, key)
            yield from _section(each, level + 1)
    elif isinstance(value, list) and any(map(_is_nested, value)):
        yield from map(_lines, value)
    else:
        yield _lines(value)


def _is_nested(value: Any) -> bool:
    """Whether a value needs more than one line; a list of plain values does not."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    )


def _lines(value: Any) -> str:
    """Every plain value in it on a separate line, after its path."""
    lines = []
    pending = [("", value)]
    while pending:
        path, each = pending.pop()
        if isinstance(each, dict):
            pending += [
                (f"{path}.{key}" if path else key, inner) for key, inner in reversed(each.items())
            ]
        elif _is_nested(each):
            pending += [(f"{path}[{at}]", each[at]) for at in reversed(range(len(each)))]
        elif text := _plain(each):
            lines.append(f"{path}: {text}" if path else text)
    return markdown_writer.prose("\n".join(lines))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return markdown_writer.clean(value).strip() if isinstance(value, str) else json.dumps(value)
