"""Glob patterns, as in shells and .gitignore files, and the ignore rules that are made of them.

`*` and `?` match within a folder, `**/` crosses folders, `a/**` is everything below a, `[a-z]` and
`[!a-z]` match one character, `\\` escapes the next character. Paths are relative, with slashes.

Patterns may be hostile, so the expressions must not backtrack exponentially (ReDoS). A glob needs
no backtracking into an earlier star: if the text between two stars matches at several places, the
first place leaves the most text for the rest, so it is at least as good as any later one. Each
literal part between two stars is therefore a lazy match in an atomic group, `(?>[^/]*?part)`, which
keeps the first place; only the last star is greedy. `**` between folders works in the same way with
whole segments. Matching time is then polynomial (term: greedy wildcard matching).

Ignore rules have git's semantics: the last matching pattern of a list decides, and lists of deeper
folders win over those above. An ignored folder is never entered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from mcpvectordb.errors import InvalidInput, quoted

EVERYTHING = "**/*"
LONGEST_PATTERN = 4_096  # characters, as many as a path may have
MOST_BRACES = 100
MOST_ALTERNATIVES = 1_000
LONGEST_EXPANSION = 50_000  # characters of all alternatives, which are compiled into one expression
# A set in brackets, whose first member may be a bracket; an escaped character; any other one.
_TOKEN = re.compile(r"\[([!^]?+)((?:\\.|[^\\])(?:\\.|[^]\\])*)\]|\\(.)|(.)", re.DOTALL)
_MEMBER = re.compile(r"(\\.|.)(?:-(\\.|.))?", re.DOTALL)


def compile_glob(pattern: str, most: int = MOST_ALTERNATIVES) -> re.Pattern[str]:
    """Return an expression whose `fullmatch` tests a path; `{a,b}` in the pattern means a or b.

    Every path is compared with each alternative, of which there may be at most `most`.
    """
    return re.compile("|".join(map(translate, alternatives(pattern, most))), re.DOTALL)


def alternatives(pattern: str, most: int = MOST_ALTERNATIVES) -> list[str]:
    """Expand the braces of a pattern with `{a,b}`, which may be nested, into several patterns."""
    if len(pattern) > LONGEST_PATTERN or pattern.count("{") > MOST_BRACES:
        raise InvalidInput(
            f"the pattern {quoted(pattern)} has {len(pattern):,} characters and "
            f"{pattern.count('{'):,} braces; at most {LONGEST_PATTERN:,} and {MOST_BRACES} are "
            "allowed"
        )
    expanded, before = [pattern], [""]
    while expanded != before:
        before = expanded
        expanded = list(dict.fromkeys(choice for each in before for choice in _choices(each)))
        if len(expanded) > most or sum(map(len, expanded)) > LONGEST_EXPANSION:
            raise InvalidInput(
                f"the pattern {quoted(pattern)} expands to more than {most:,} patterns or "
                f"{LONGEST_EXPANSION:,} characters; shorten it"
            )
    return expanded


def translate(pattern: str) -> str:
    """Return the regular expression, for a whole path, of a pattern without braces."""
    # Segments between two `**`; each group but the first and last may match at any depth.
    groups: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            groups.append([])
        else:
            groups[-1].append(_segment(segment, pattern))
    first, *middle = ["".join(f"{segment}/" for segment in group) for group in groups[:-1]] or [""]
    crossed = "".join(f"(?>(?:[^/]+/)*?{group})" for group in middle if group)
    anywhere = "(?:[^/]+/)*" if len(groups) > 1 else ""
    return first + crossed + (anywhere + "/".join(groups[-1]) if groups[-1] else ".+")


def _choices(pattern: str) -> list[str]:
    """The patterns with the first innermost pair of braces replaced by each of its choices."""
    start, escaped = None, False
    for end, character in enumerate(pattern):
        if escaped or character == "\\":
            escaped = not escaped
        elif character == "{":
            start = end
        elif character == "}" and start is not None:
            choices = pattern[start + 1 : end].split(",")
            return [pattern[:start] + choice + pattern[end + 1 :] for choice in choices]
    if start is not None:
        raise InvalidInput(f"the pattern {quoted(pattern)} has a {{ without its }}")
    return [pattern]


def _segment(text: str, pattern: str) -> str:
    """The expression for the part of a pattern between two slashes."""
    tokens = _tokens(text, pattern)
    pieces = ["".join(group) for stars, group in groupby(tokens, key="*".__eq__) if not stars]
    if "*" not in tokens:
        return "".join(pieces)
    first = "" if tokens[0] == "*" else pieces.pop(0)
    last = "" if tokens[-1] == "*" else pieces.pop()
    return first + "".join(f"(?>[^/]*?{piece})" for piece in pieces) + f"[^/]*{last}"


def _tokens(text: str, pattern: str) -> list[str]:
    """The part as a list of stars and of expressions for one character each."""
    tokens = []
    for negated, members, escaped, plain in _TOKEN.findall(text):
        if members:
            ranges = [(low[-1], (high or low)[-1]) for low, high in _MEMBER.findall(members)]
            inside = "".join(f"{re.escape(a)}-{re.escape(b)}" for a, b in ranges if a <= b)
            matching = f"[{'^' if negated else ''}{inside}]"
            tokens.append(f"(?!/){matching if inside else '.' if negated else '(?!)'}")
        elif plain == "[":
            raise InvalidInput(f"the pattern {quoted(pattern)} has a [ without its ]")
        elif plain == "\\":
            raise InvalidInput(
                f"the pattern {quoted(pattern)} ends with a backslash that escapes nothing"
            )
        else:
            tokens.append({"*": "*", "?": "[^/]"}.get(plain) or re.escape(escaped or plain))
    return tokens


# --- ignore rules


class IgnoreRule(NamedTuple):
    """One pattern; with `by_name` it is matched against the last part of a path only."""

    expression: re.Pattern[str]
    by_name: bool
    folders_only: bool
    ignores: bool


class IgnoreRules:
    """The patterns of one list in their order; paths are relative to the list's folder."""

    def __init__(self, rules: Iterable[IgnoreRule | None]) -> None:
        self._rules = [rule for rule in rules if rule]
        # All patterns are matched as one expression first, because most paths match none.
        self._any_name = _any_of(rule.expression for rule in self._rules if rule.by_name)
        self._any_path = _any_of(rule.expression for rule in self._rules if not rule.by_name)

    def ignores(self, path: str, name: str, *, folder: bool) -> bool | None:
        """Whether a path with the last part `name` is ignored; None if no pattern matches."""
        if self._any_name.fullmatch(name) or self._any_path.fullmatch(path):
            for rule in reversed(self._rules):
                if (folder or not rule.folders_only) and rule.expression.fullmatch(
                    name if rule.by_name else path
                ):
                    return rule.ignores
        return None


def _any_of(expressions: Iterable[re.Pattern[str]]) -> re.Pattern[str]:
    return re.compile("|".join(each.pattern for each in expressions) or "(?!)", re.DOTALL)


def rules_of_file(text: str) -> IgnoreRules:
    """The rules of a .gitignore file; as in git, invalid lines are without effect."""
    rules: list[IgnoreRule | None] = []
    for line in text.removeprefix("\ufeff").split("\n"):
        with suppress(InvalidInput):
            rules.append(_rule(line.removesuffix("\r")))
    return IgnoreRules(rules)


def rules_of_patterns(patterns: Iterable[str]) -> IgnoreRules:
    """The rules of given patterns; `{a,b}` is allowed, and an invalid pattern is an error."""
    return IgnoreRules(_rule(each) for pattern in patterns for each in alternatives(pattern))


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
    expression = re.compile(translate("*" if by_name and pattern == "**" else pattern), re.DOTALL)
    return IgnoreRule(expression, by_name, folders_only, ignores) if pattern else None
