"""JSON with comments and trailing commas, as in settings of editors, changed in place.

Comments, order and layout of everything else are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from mcpvectordb import InvalidInput

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<mark>[{}\[\]:,])"
    r'|(?P<word>[^\s"{}\[\]:,/]+)',
    re.DOTALL,
)


class _JsonToken(NamedTuple):
    text: str
    start: int
    end: int


class _JsonMember(NamedTuple):
    """One `key: value` of an object, by positions in the text.

    `comma` is the end of the comma after it, or 0 when there is none.
    """

    key: str
    start: int
    value: int
    end: int
    comma: int


def parse(text: str) -> Any:
    """The value of a text of JSON with comments; a text that is not raises InvalidInput."""
    tokens = list(_tokens(text))
    following = [token.text for token in tokens[1:]]
    kept = [
        token.text
        for token, after in zip_longest(tokens, following)
        if token.text != "," or after not in ("}", "]")
    ]
    try:
        return json.loads(" ".join(kept) or "{}")
    except ValueError as error:
        raise InvalidInput(f"it is not JSON, with or without comments: {error}") from None


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with `value` at `path`; objects on the path are made as needed."""
    wanted = _object(text)
    inner = wanted
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise InvalidInput(f"{key!r} in it is not an object")
    if path[-1] in inner and inner[path[-1]] == value:
        return text
    inner[path[-1]] = value
    return _checked(
        _put(text, path, value) if text.strip() else json.dumps(wanted, indent=2) + "\n", wanted
    )


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the member at `path`; the same text when there is none."""
    wanted = inner = _object(text)
    for key in path[:-1]:
        inner = inner.get(key, {})
        if not isinstance(inner, dict):
            return text
    if path[-1] not in inner:
        return text
    del inner[path[-1]]
    return _checked(_drop(text, path), wanted)


def _object(text: str) -> dict[str, Any]:
    value = parse(text)
    if not isinstance(value, dict):
        raise InvalidInput("it does not hold an object")
    return value


def _checked(text: str, wanted: dict[str, Any]) -> str:
    if parse(text) != wanted:
        raise InvalidInput("it is written in a way that cannot be changed safely")
    return text


def _tokens(text: str) -> Iterator[_JsonToken]:
    position = 1 if text.startswith("\ufeff") else 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise InvalidInput(
                f"it is not JSON, with or without comments: line {line} cannot be read"
            )
        if match.lastgroup != "space":
            yield _JsonToken(match[0], match.start(), match.end())
        position = match.end()


def _members(tokens: list[_JsonToken], start: int) -> tuple[list[_JsonMember], int]:
    """The members of the object that begins at `start`, and the position of its closing brace."""
    at = next(index for index, token in enumerate(tokens) if token.start >= start) + 1
    found = []
    while tokens[at].text != "}":
        key, value = tokens[at], tokens[at + 2]
        last = _last_of_value(tokens, at + 2)
        at = last + 1
        comma = tokens[at].end if tokens[at].text == "," else 0
        at += bool(comma)
        found.append(
            _JsonMember(json.loads(key.text), key.start, value.start, tokens[last].end, comma)
        )
    return found, tokens[at].start


def _last_of_value(tokens: list[_JsonToken], at: int) -> int:
    depth = 0
    while True:
        depth += (tokens[at].text in "{[") - (tokens[at].text in "}]")
        if depth == 0:
            return at
        at += 1


def _put(text: str, path: Sequence[str], value: Any) -> str:
    tokens = list(_tokens(text))
    start, unit, newline = tokens[0].start, _indent(text), "\r\n" if "\r\n" in text else "\n"
    for depth, key in enumerate(path, 1):
        members, closing = _members(tokens, start)
        same = [each for each in members if each.key == key]
        if not same:
            for outer in reversed(path[depth:]):
                value = {outer: value}
            member = _written(key, value, unit, depth).replace("\n", newline)
            return _append(text, members, start, closing, member, newline + unit * (depth - 1))
        known = same[0]
        start = known.value
    shown = _written(path[-1], value, unit, len(path)).partition(": ")[2].replace("\n", newline)
    return text[: known.value] + shown + text[known.end :]


def _append(
    text: str, members: list[_JsonMember], start: int, closing: int, member: str, ending: str
) -> str:
    """The text with one more member in an object.

    `ending` is the line break and indent in front of its closing brace.
    """
    newline = ending.rstrip(" \t")
    if not members:
        return f"{text[: start + 1]}{newline}{member}{ending}{text[closing:]}"
    last = members[-1]
    at, comma = (last.comma, "") if last.comma else (last.end, ",")
    end = "" if newline in text[at:closing] else ending
    return f"{text[:at]}{comma}{newline}{member}{end}{text[at:]}"


def _drop(text: str, path: Sequence[str]) -> str:
    tokens = list(_tokens(text))
    start = tokens[0].start
    for key in path:
        members, _ = _members(tokens, start)
        index = next(i for i, each in enumerate(members) if each.key == key)
        start = members[index].value
    member = members[index]
    begin = len(text[: member.start].rstrip(" \t\r\n"))
    if member.comma or index == 0:
        return text[:begin] + text[member.comma or member.end :]
    before = members[index - 1]
    return text[: before.end] + text[before.comma : begin] + text[member.end :]


def _written(key: str, value: Any, unit: str, depth: int) -> str:
    lines = json.dumps({key: value}, indent=unit, ensure_ascii=False).splitlines()[1:-1]
    return "\n".join(unit * (depth - 1) + line for line in lines)


def _indent(text: str) -> str:
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else "  "
