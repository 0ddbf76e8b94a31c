"""The rules of .gitignore files, with git's semantics: an ignored folder is never entered.

The last matching pattern of a list decides, and lists of deeper folders win over those above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput
from mcpvectordb.ingest.globs import alternatives, translate


class IgnoreRule(NamedTuple):
    """One pattern; with `by_name` it is matched against the last part of a path only."""

    expression: str
    by_name: bool
    folders_only: bool
    ignores: bool


class IgnoreRules:
    """The patterns of one list in their order; paths are relative to the list's folder."""

    def __init__(self, rules: Iterable[IgnoreRule]) -> None:
        rules = list(rules)
        self._files = _Matcher([rule for rule in rules if not rule.folders_only])
        self._folders = _Matcher(rules)

    def ignores(self, path: str, name: str, *, folder: bool) -> bool | None:
        """Whether a path with the last part `name` is ignored; None if no pattern matches."""
        return (self._folders if folder else self._files).verdict(path, name)


class _Matcher:
    """Matches all patterns as one expression first, because most paths match none."""

    def __init__(self, rules: list[IgnoreRule]) -> None:
        self._any_name = _joined(rule.expression for rule in rules if rule.by_name)
        self._any_path = _joined(rule.expression for rule in rules if not rule.by_name)
        self._reversed = [
            (_joined([rule.expression]), rule.by_name, rule.ignores) for rule in reversed(rules)
        ]

    def verdict(self, path: str, name: str) -> bool | None:
        if not (self._any_name.fullmatch(name) or self._any_path.fullmatch(path)):
            return None
        return next(
            ignores
            for expression, by_name, ignores in self._reversed
            if expression.fullmatch(name if by_name else path)
        )


def of_file(text: str) -> IgnoreRules:
    """The rules of a .gitignore file; as in git, invalid lines are without effect."""
    lines = text.removeprefix("\ufeff").split("\n")
    return IgnoreRules(rule for line in lines if (rule := _rule_or_none(line.removesuffix("\r"))))


def of_patterns(patterns: Iterable[str]) -> IgnoreRules:
    """The rules of given patterns; `{a,b}` is allowed, and an invalid pattern is an error."""
    rules = [_rule(each) for pattern in patterns for each in alternatives(pattern)]
    return IgnoreRules(rule for rule in rules if rule)


def _rule_or_none(line: str) -> IgnoreRule | None:
    try:
        return _rule(line)
    except InvalidInput:
        return None


def _rule(line: str) -> IgnoreRule | None:
    # Trailing spaces are dropped unless they are escaped.
    line = re.sub(r"(?<!\\)((?:\\\\)*) +$", r"\1", line)
    if not line.strip() or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    by_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    # As a whole name, ** matches one segment and does not cross folders.
    expression = translate("*" if by_name and pattern == "**" else pattern)
    return IgnoreRule(expression, by_name, folders_only, ignores) if pattern else None


def _joined(expressions: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(expressions) or "(?!)", re.DOTALL)
