"""TOML settings, changed in place: one table is put at the end or dropped, the rest is kept.

The result is parsed again and compared with what it should say, so a layout that these few lines
do not understand is refused instead of being damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from mcpvectordb import InvalidInput

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def put(text: str, path: Sequence[str], value: dict[str, Any]) -> str:
    """The text with the table `path` (two names) and this content."""
    section, name = path
    wanted = _parsed(text)
    rest = drop(text, path).rstrip()
    wanted.setdefault(section, {})[name] = value
    changed = f"{rest}\n\n" if rest else ""
    changed += f"[{section}.{name}]\n"
    changed += "".join(f"{key} = {_value(each)}\n" for key, each in value.items())
    return _confirmed(changed, wanted)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the table `path` and its subtables."""
    section, name = path
    wanted = _parsed(text)
    if not isinstance(wanted.get(section, {}), dict):
        raise InvalidInput(f"{section} is not a table in it")
    if name not in wanted.get(section, {}):
        return text
    del wanted[section][name]
    if not wanted[section]:
        del wanted[section]
    key = re.escape(name)
    own = re.compile(
        rf"""^[ \t]*\[[ \t]*{re.escape(section)}[ \t]*\.[ \t]*(?:{key}|"{key}"|'{key}')"""
        rf"""[ \t]*[.\]]""",
        re.MULTILINE,
    )
    while begin := own.search(text):
        following = _HEADER.search(text, begin.end())
        text = text[: begin.start()] + (text[following.start() :] if following else "")
    return _confirmed(text.rstrip() + "\n" if text.strip() else "", wanted)


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"it is not TOML: {error}") from None


def _confirmed(text: str, wanted: dict[str, Any]) -> str:
    if _without_empty(_parsed(text)) != _without_empty(wanted):
        raise InvalidInput("the server is not in a table of its own there; change it by hand")
    return text


def _without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value != {}}


def _value(value: Any) -> str:
    if isinstance(value, dict):
        members = (f"{json.dumps(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # A JSON string is a TOML string, except that DEL has to be escaped there.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
