"""YAML settings, changed in place: one block is put into a section or dropped, the rest is kept.

The result is parsed again and compared with what it should say, so a layout that these few lines
do not understand is refused instead of being damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mcpvectordb import InvalidInput

_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def put(text: str, path: Sequence[str], value: dict[str, Any]) -> str:
    """The text with this block at `path` (a section and a name)."""
    section, name = path
    wanted = _parsed(text)
    if not isinstance(wanted.get(section) or {}, dict):
        raise InvalidInput(f"{section} is not a mapping in it")
    wanted[section] = {**(wanted.get(section) or {}), name: value}
    lines = drop(text, path).splitlines()
    at = _section(lines, section)
    if at is None:
        lines.append(f"{section}:")
        at = len(lines) - 1
    else:
        lines[at] = re.sub(r":[ \t]*(?:\{[ \t]*\}|null|~)?[ \t]*$", ":", lines[at])
    indent = _indent(lines, at)
    block = [f"{indent}{name}:"] + [
        f"{indent * 2}{key}: {_value(each)}" for key, each in value.items()
    ]
    return _confirmed([*lines[: at + 1], *block, *lines[at + 1 :]], wanted)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the block at `path`."""
    section, name = path
    wanted = _parsed(text)
    if not isinstance(wanted.get(section), dict) or name not in wanted[section]:
        return text
    del wanted[section][name]
    lines = text.splitlines()
    at = _section(lines, section)
    indent = _indent(lines, at) if at is not None else "  "
    own = re.compile(rf"""{indent}(?:{re.escape(name)}|"{re.escape(name)}")[ \t]*:""")
    begin = next((each for each, line in enumerate(lines) if own.match(line)), None)
    if begin is not None:
        end = begin + 1
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(f"{indent} ")):
            end += 1
        while not lines[end - 1].strip():  # blank lines belong to what follows
            end -= 1
        del lines[begin:end]
    return _confirmed(lines, wanted)


def _value(value: Any) -> str:
    """A value as JSON on one line, which is YAML too if a few characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_PRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _section(lines: list[str], section: str) -> int | None:
    own = re.compile(rf"""(?:{re.escape(section)}|"{re.escape(section)}")[ \t]*:""")
    return next((each for each, line in enumerate(lines) if own.match(line)), None)


def _indent(lines: list[str], at: int) -> str:
    """The indentation of what is listed in the section at this line."""
    for line in lines[at + 1 :]:
        if line.strip() and not line.lstrip().startswith("#"):
            return line[: len(line) - len(line.lstrip(" "))] or "  "
    return "  "


def _parsed(text: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InvalidInput(f"it is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise InvalidInput("it is not a mapping of settings")
    return found


def _confirmed(lines: list[str], wanted: dict[str, Any]) -> str:
    text = "".join(f"{line}\n" for line in lines)
    if _without_empty(_parsed(text)) != _without_empty(wanted):
        raise InvalidInput("its layout is not understood; change it by hand")
    return text


def _without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value not in ({}, None)}
