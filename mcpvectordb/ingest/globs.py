"""Patterns for paths, as shells and .gitignore files write them, turned into regular expressions.
Pure.

`*` and `?` stay in their folder, `**/` crosses folders, `a/**` is all that lies below a, `[a-z]`
and `[!a-z]` are one character, `\\` takes the next character as it stands. Paths are relative and
have slashes, on every system.

The patterns may be someone else's, so the expressions cannot be made to backtrack for ages: where a
star has further stars behind it, the first place that fits is as good as any later one, and is kept
(an atomic group).
"""

from __future__ import annotations

import re
from itertools import groupby

from mcpvectordb.errors import InvalidInput

MOST_ALTERNATIVES = 1000


def compile_glob(pattern: str) -> re.Pattern[str]:
    """An expression whose `fullmatch` says whether a path fits a pattern, in which `{a,b}` is a or
    b.
    """
    return re.compile("|".join(map(translate, alternatives(pattern))), re.DOTALL)


def alternatives(pattern: str) -> list[str]:
    """The patterns that a pattern with `{a,b}` stands for; braces may be nested."""
    spread, before = [pattern], [""]
    while spread != before:
        before, spread = (
            spread,
            list(dict.fromkeys(choice for each in spread for choice in _choices(each))),
        )
        if len(spread) > MOST_ALTERNATIVES:
            raise InvalidInput(
                f"the pattern {pattern!r} stands for more than {MOST_ALTERNATIVES} patterns: write "
                f"it shorter"
            )
    return spread


def translate(pattern: str) -> str:
    """A pattern without braces as a regular expression for a whole path."""
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
    """A pattern with one pair of braces less."""
    braces = _innermost(pattern)
    if braces is None:
        return [pattern]
    start, end = braces
    return [
        pattern[:start] + choice + pattern[end + 1 :]
        for choice in pattern[start + 1 : end].split(",")
    ]


def _innermost(pattern: str) -> tuple[int, int] | None:
    """Where the first pair of braces without braces in it begins and ends."""
    start, escaped = None, False
    for position, character in enumerate(pattern):
        if escaped or character == "\\":
            escaped = not escaped
        elif character == "{":
            start = position
        elif character == "}" and start is not None:
            return start, position
    if start is not None:
        raise InvalidInput(f"the pattern {pattern!r} has a {{ without its }}")
    return None


def _segment(text: str, pattern: str) -> str:
    """The part of a pattern between two slashes."""
    tokens = _tokens(text, pattern)
    pieces = ["".join(group) for stars, group in groupby(tokens, key="*".__eq__) if not stars]
    if "*" not in tokens:
        return "".join(pieces)
    first = "" if tokens[0] == "*" else pieces.pop(0)
    last = "" if tokens[-1] == "*" else pieces.pop()
    return first + "".join(f"(?>[^/]*?{piece})" for piece in pieces) + f"[^/]*{last}"


def _tokens(text: str, pattern: str) -> list[str]:
    """Stars, and expressions for exactly one character each."""
    tokens, position = [], 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "[":
            expression, position = _one_of(text, position, pattern)
            tokens.append(expression)
        elif character == "\\":
            if position == len(text):
                raise InvalidInput(
                    f"the pattern {pattern!r} has a backslash with nothing behind it"
                )
            tokens.append(re.escape(text[position]))
            position += 1
        else:
            tokens.append({"*": "*", "?": "[^/]"}.get(character) or re.escape(character))
    return tokens


def _one_of(text: str, start: int, pattern: str) -> tuple[str, int]:
    """The expression for a [set], whose inside begins at `start`, and where it ends."""
    negated = text[start : start + 1] in ("!", "^")
    position = start + negated
    members: list[str] = []
    while position < len(text) and (text[position] != "]" or not members):
        low, position = _member(text, position)
        high = low
        if text[position : position + 1] == "-" and text[position + 1 : position + 2] not in (
            "",
            "]",
        ):
            high, position = _member(text, position + 1)
        members.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
    if position >= len(text):
        raise InvalidInput(f"the pattern {pattern!r} has a [ without its ]")
    inside = "".join(members)
    matching = f"[{'^' * negated}{inside}]" if inside else ("." if negated else "(?!)")
    return f"(?!/){matching}", position + 1


def _member(text: str, position: int) -> tuple[str, int]:
    if text[position] == "\\" and position + 1 < len(text):
        position += 1
    return text[position], position + 1
