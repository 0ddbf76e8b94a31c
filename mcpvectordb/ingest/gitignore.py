"""What .gitignore files say, judged as git does while walking down: an ignored folder is never
entered. Pure.

The last pattern of a list that fits decides, and lists of deeper folders come before those above
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput
from mcpvectordb.ingest.globs import alternatives, translate


class IgnoreRule(NamedTuple):
    """One pattern; `by_name` ones look at the last part of a path only."""

    expression: str
    by_name: bool
    folders_only: bool
    ignores: bool


class IgnoreRules:
    """The patterns of one list, in its order; paths are relative to where the list stands."""

    def __init__(self, rules: Iterable[IgnoreRule]) -> None:
        rules = list(rules)
        self._files = _Matcher([rule for rule in rules if not rule.folders_only])
        self._folders = _Matcher(rules)

    def ignores(self, path: str, name: str, *, folder: bool) -> bool | None:
        """Whether a path, whose last part is `name`, is ignored; None when no pattern fits it."""
        return (self._folders if folder else self._files).verdict(path, name)


class _Matcher:
    """Most paths fit nothing, so all patterns are first tried as one expression."""

    def __init__(self, rules: list[IgnoreRule]) -> None:
        self._any_name = _joined(rule.expression for rule in rules if rule.by_name)
        self._any_path = _joined(rule.expression for rule in rules if not rule.by_name)
        self._last_first = [
            (_joined([rule.expression]), rule.by_name, rule.ignores) for rule in reversed(rules)
        ]

    def verdict(self, path: str, name: str) -> bool | None:
        if not (self._any_name.fullmatch(name) or self._any_path.fullmatch(path)):
            return None
        return next(
            ignores
            for expression, by_name, ignores in self._last_first
            if expression.fullmatch(name if by_name else path)
        )


def of_file(text: str) -> IgnoreRules:
    """The rules of a .gitignore file; like git, lines that cannot be understood ignore nothing."""
    lines = text.removeprefix("\ufeff").split("\n")
    return IgnoreRules(rule for line in lines if (rule := _understood(line.removesuffix("\r"))))


def of_patterns(patterns: Iterable[str]) -> IgnoreRules:
    """The rules of patterns that a person gave; `{a,b}` works, and what cannot be understood is an
    error.
    """
    rules = [_rule(each) for pattern in patterns for each in alternatives(pattern)]
    return IgnoreRules(rule for rule in rules if rule)


def _understood(line: str) -> IgnoreRule | None:
    try:
        return _rule(line)
    except InvalidInput:
        return None


def _rule(line: str) -> IgnoreRule | None:
    line = re.sub(r"(?<!\\)((?:\\\\)*) +$", r"\1", line)  # an escaped space at the end is meant
    if not line.strip() or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    by_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    # A name of stars alone is one segment, not a way down.
    expression = translate("*" if by_name and pattern == "**" else pattern)
    return IgnoreRule(expression, by_name, folders_only, ignores) if pattern else None


def _joined(expressions: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(expressions) or "(?!)", re.DOTALL)
