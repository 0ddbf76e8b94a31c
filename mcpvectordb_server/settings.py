"""Settings of hosts (JSON with comments, TOML, YAML), changed in place: all but one entry stays.

A few lines for each format insert or cut out the entry. The result is parsed again and compared
with what it should say, so a layout that they do not understand is refused, not damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from mcpvectordb import InvalidInput

Entry = dict[str, Any]


class SettingsFormat(NamedTuple):
    """A format: how a text is parsed, an entry put into a section of it, and cut out again."""

    name: str
    parse: Callable[[str], Any]
    put: Callable[[str, str, str, Any], str]
    cut: Callable[[str, str, str], str]

    def changed(self, text: str, section: str, name: str, entry: Any) -> str:
        """The text with this entry in the section, or with None without the one that it has."""
        wanted = self._parsed(text)
        inner = wanted[section] = wanted.get(section) or {}
        if not isinstance(inner, dict):
            raise InvalidInput(f"{section!r} in it is not an object")
        if inner.get(name) == entry:
            return text
        if inner.pop(name, None) is not None:
            text = self.cut(text, section, name)
        if entry is not None:
            inner[name] = entry
            text = self.put(text, section, name, entry)
        if _without_empty(self._parsed(text)) != _without_empty(wanted):
            raise InvalidInput("its layout cannot be changed safely; change it by hand")
        return text

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            found = self.parse(text) or {}
        except ValueError as error:
            said = " ".join(str(error).split())
            raise InvalidInput(f"it is not {self.name}: {said}") from None
        if not isinstance(found, dict):
            raise InvalidInput("it does not hold an object")
        return found


def _without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value not in ({}, None)}


_JSON_TOKEN = re.compile(
    r'\ufeff|\s+|//[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,/]+)|(?P<bad>.)',
    re.DOTALL,
)


def _json_tokens(text: str) -> list[re.Match[str]]:
    """What is neither space nor comment."""
    found = list(_JSON_TOKEN.finditer(text))
    if bad := next((each for each in found if each["bad"]), None):
        line = text.count("\n", 0, bad.start()) + 1
        raise ValueError(f"line {line} cannot be read, with or without comments")
    return [each for each in found if each[1]]


def _json(text: str) -> Any:
    tokens = [each[1] for each in _json_tokens(text)]
    return json.loads(
        " ".join(
            each
            for each, after in pairwise([*tokens, ""])
            if each != "," or after not in ("}", "]")  # a comma after the last one
        )
        or "{}"
    )


def _end(tokens: list[re.Match[str]], at: int) -> int:
    """The index of the last token of the value that begins at an index."""
    depth = 0
    while True:
        depth += (tokens[at][1] in "{[") - (tokens[at][1] in "}]")
        if not depth:
            return at
        at += 1


def _key(tokens: list[re.Match[str]], at: int, key: str) -> int | None:
    """The index of a key of the object that begins at an index."""
    at += 1
    while tokens[at][1] != "}":
        if json.loads(tokens[at][1]) == key:
            return at
        at = _end(tokens, at + 2) + 1
        at += tokens[at][1] == ","
    return None


def _put_json(text: str, section: str, name: str, entry: Any) -> str:
    """The text with the entry in front of the others in its section."""
    if not text.strip("\ufeff \t\r\n"):
        return json.dumps({section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    tokens = _json_tokens(text)
    member: Entry = {section: {name: entry}}
    brace, depth = 0, 1
    if (outer := _key(tokens, 0, section)) is not None:
        member, brace, depth = {name: entry}, outer + 2, 2
        if tokens[brace][1] != "{":  # null
            raise InvalidInput(f"{section!r} in it is not an object")
    found = re.search(r"\n([ \t]+)\S", text)
    unit = found[1] if found else "  "
    pad = "\n" + unit * (depth - 1)
    lines = json.dumps(member, indent=unit, ensure_ascii=False).splitlines()[1:-1]
    shown, after = "".join(pad + each for each in lines), text[tokens[brace].end() :]
    if tokens[brace + 1][1] != "}":
        shown += "," if after[0] in "\r\n" else f",{pad}{unit}"
    elif "\n" not in text[tokens[brace].end() : tokens[brace + 1].start()]:
        shown += pad
    if "\r\n" in text:
        shown = shown.replace("\n", "\r\n")
    return text[: tokens[brace].end()] + shown + after


def _cut_json(text: str, section: str, name: str) -> str:
    tokens = _json_tokens(text)
    outer = _key(tokens, 0, section)
    key = None if outer is None else _key(tokens, outer + 2, name)
    if key is None:
        return text
    last = _end(tokens, key + 2)
    begin = len(text[: tokens[key].start()].rstrip())
    if tokens[last + 1][1] == ",":
        return text[:begin] + text[tokens[last + 1].end() :]
    if tokens[key - 1][1] == ",":
        comma = tokens[key - 1]
        return text[: comma.start()] + text[comma.end() : begin] + text[tokens[last].end() :]
    return text[:begin] + text[tokens[last].end() :]


def _put_toml(text: str, section: str, name: str, entry: Entry) -> str:
    """The text with the entry as a table of its own at the end."""
    before = f"{text.rstrip()}\n\n" if text.strip() else ""
    lines = [f"{key} = {_toml_value(each)}\n" for key, each in entry.items()]
    return f"{before}[{section}.{name}]\n{''.join(lines)}"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        members = (f"{json.dumps(key)} = {_toml_value(each)}" for key, each in value.items())
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    # A JSON string is a TOML string, except that DEL has to be escaped there.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _cut_toml(text: str, section: str, name: str) -> str:
    """The text without the table of the entry and its subtables."""
    key = rf"""(?:{name}|"{name}"|'{name}')"""
    table = rf"^[ \t]*\[[ \t]*{section}[ \t]*\.[ \t]*{key}[ \t]*[.\]].*\n?(?:(?![ \t]*\[).*\n?)*"
    left = re.sub(table, "", text, flags=re.MULTILINE).rstrip()
    return f"{left}\n" if left else ""


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _put_yaml(text: str, section: str, name: str, entry: Entry) -> str:
    """The text with the entry as a block in front of the others in its section."""
    lines = text.splitlines()
    head = re.compile(rf"""["']?{section}["']?[ \t]*:[ \t]*(?:\{{[ \t]*\}}|null|~)?[ \t]*(?:#|$)""")
    at = next((number for number, line in enumerate(lines) if head.match(line)), len(lines))
    lines[at : at + 1] = [f"{section}:"]
    others = (line for line in lines[at + 1 :] if line.strip() and line.lstrip()[0] != "#")
    indent = re.match(" *", next(others, ""))[0] or "  "  # type: ignore[index]
    block = [f"{indent * 2}{key}: {_yaml_value(each)}" for key, each in entry.items()]
    lines[at + 1 : at + 1] = [f"{indent}{name}:", *block]
    return "".join(f"{line}\n" for line in lines)


def _yaml_value(value: Any) -> str:
    """A value as JSON on one line, which is YAML too if a few characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    unprintable = "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
    return re.sub(unprintable, lambda found: f"\\u{ord(found[0]):04x}", text)


def _cut_yaml(text: str, section: str, name: str) -> str:
    """The text without the block of the entry; blank lines after it belong to what follows."""
    block = rf"""^( +)["']?{name}["']?[ \t]*:.*\n(?:(?:[ \t]*\n)*\1 .*\n?)*"""
    return re.sub(block, "", text if text.endswith("\n") else f"{text}\n", flags=re.MULTILINE)


JSON = SettingsFormat("JSON", _json, _put_json, _cut_json)
TOML = SettingsFormat("TOML", tomllib.loads, _put_toml, _cut_toml)
YAML = SettingsFormat("YAML", _yaml, _put_yaml, _cut_yaml)
