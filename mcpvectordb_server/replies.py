"""Replies of tools and the limit on their length; a reply that was cut says so.

A value is encoded to JSON once: that text gives its size, is the text block that is sent, and shows
whether every character of it can be sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcpvectordb_server.shown import JsonReply

MAX_REPLY = 200_000
"""Most characters of text in one reply, about 50,000 tokens."""

MAX_REFUSAL = 4_000
"""Most characters of an error message: it need not repeat everything that it refuses."""

MAX_ECHO = 200
"""Most characters of a name that an error message repeats."""

UNTRUSTED = {"mcpvectordb/untrusted": True}
"""The metadata of every result that holds what is stored: data from outside, never instructions."""

# Strings are never cut below this length; a reply that is still too long loses items instead.
_SHORTEST_CUT = 200
# Characters reserved for the note that says what is missing.
_NOTE = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A text block."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """A document embedded in a reply; `name` and `title` are sent beside its URI."""

    uri: str
    name: str
    title: str
    text: str
    media_type: str = "text/markdown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What is sent to the client: content blocks, structured content, and MCP's error flag.

    Most tools return a plain dict or list, which becomes both a text block and structured content,
    or a text. A tool whose specification asks for another text returns a Reply.

    Many hosts give a model the structured content alone, where there is any: it has to hold all
    that the text blocks say. Advice that a specification does not have is in its `note` alone.
    `view` is what a view shows (`apps.py`): it is sent in the metadata, which no model reads.
    """

    content: tuple[Text | Resource, ...]
    structured: dict[str, Any] | None = None
    failed: bool = False
    view: dict[str, Any] | None = None


def reply_of(value: Any, *, more: str = "ask for less") -> Reply:
    """The Reply for a tool's return value, at most MAX_REPLY long; `more` says how to get the rest.

    `value` is a Reply, a text, a dict or a list.
    """
    if isinstance(value, str):
        value = Reply(content=(Text(text=value),))
    if isinstance(value, Reply):
        return _bounded(value, more)
    if not isinstance(value, list):
        fitted, text = fit(value, MAX_REPLY, more)
        return Reply(content=(Text(text=text),), structured=fitted)
    encoded = [_encode(item) for item in value]
    count = _count_that_fits([len(text) for _, text in encoded], MAX_REPLY)
    kept = encoded[:count]
    blocks = [Text(text=f"[{', '.join(text for _, text in kept)}]")]
    # MCP's structured content must be an object, so a list is put into one.
    structured: dict[str, Any] = {"result": [each for each, _ in kept]}
    if count < len(value):
        left_out = f"[only the first {count} of {len(value)} are here]; {more}"
        blocks.append(Text(text=left_out))
        structured["truncated"] = left_out
    return Reply(content=tuple(blocks), structured=structured)


def failed(*texts: str) -> Reply:
    """A Reply with MCP's error flag."""
    return Reply(content=tuple(Text(text=each) for each in texts), failed=True)


def noted(reply: JsonReply, *notes: str, by: str = "; ") -> JsonReply:
    """The object with `note`: those of the notes that are not empty, if there are any."""
    if note := by.join(filter(None, notes)):
        reply["note"] = note
    return reply


def with_note(reply: Reply, note: str) -> Reply:
    """The Reply with a note in its structured content; in a text block, where it has none.

    Specifications fix how many blocks of text there are, and what they say.
    """
    if not note:
        return reply
    if reply.structured is None:
        return replace(reply, content=(*reply.content, Text(text=note)))
    known = str(reply.structured.get("note", "")).rstrip(".")
    return replace(
        reply, structured={**reply.structured, "note": "; ".join(filter(None, [known, note]))}
    )


def refusal_of(value: Any) -> Reply:
    """The Reply for a surface's error, a Reply or a dict, with its long texts abridged."""
    if isinstance(value, Reply):
        blocks = tuple(replace(each, text=abridged(each.text)) for each in value.content)
        return reply_of(replace(value, content=blocks))
    return reply_of(
        {key: abridged(each) if isinstance(each, str) else each for key, each in value.items()}
    )


def to_json(value: Any) -> str:
    """JSON as it is sent: Unicode characters unescaped; NaN and infinity raise ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def prefix_that_fits(text: str, room: int) -> str:
    """A prefix of `text` whose JSON form has at most `room` characters, at most 10 % too short."""
    length = min(len(text), room)
    while len(to_json(text[:length])) - 2 > room:
        length = length * 9 // 10
    return text[:length]


def fit(value: dict[str, Any], cap: int, more: str) -> tuple[dict[str, Any], str]:
    """`value` and its JSON text, cut to at most `cap` characters.

    The end of its longest list is left out first, then the ends of its strings are cut.
    """
    value, text = _encode(value)
    room = cap - _NOTE
    if len(text) > cap:
        value, text = _with_shorter_list(value, text, cap, room, more)
    if len(text) <= cap:
        return value, text
    shorter = _with_shorter_strings(value, room)
    shorter.setdefault(
        "truncated", f"long texts were cut to keep this reply under {cap:,} characters; {more}"
    )
    return shorter, to_json(shorter)


def cut(text: str, longest: int) -> str:
    """`text`, or its first `longest` characters and how many more there are."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]} [… {len(text) - longest:,} more characters]"


def _encode(value: Any) -> tuple[Any, str]:
    """`value` as it is sent, and its JSON text.

    Lone surrogates, which a file name can contain and UTF-8 cannot carry, are replaced by "?".
    """
    text = to_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        value = json.loads(text.encode("utf-8", "replace"))
        text = to_json(value)
    return value, text


def _count_that_fits(lengths: Sequence[int], room: int) -> int:
    """How many items from the front fit into a JSON list of `room` characters, but at least one."""
    used = 2
    for count, length in enumerate(lengths):
        used += length + 2
        if used > room and count:
            return count
    return len(lengths)


def _with_shorter_list(
    value: dict[str, Any], text: str, cap: int, room: int, more: str
) -> tuple[dict[str, Any], str]:
    """The object without the end of its longest list, if it has a list of several items."""
    lengths = {
        key: [len(to_json(item)) for item in each]
        for key, each in value.items()
        if isinstance(each, list) and len(each) > 1
    }
    if not lengths:
        return value, text
    # A list of n items has n - 1 separators of two characters and two brackets.
    totals = {key: sum(each) + 2 * len(each) for key, each in lengths.items()}
    key = max(totals, key=totals.__getitem__)
    rest = len(text) - totals[key]
    items = value[key]
    kept = items[: _count_that_fits(lengths[key], room - rest)]
    shorter = {**value, key: kept}
    for counted in ("count", "total_results"):
        if value.get(counted) == len(items):
            shorter[counted] = len(kept)
    shorter["truncated"] = (
        f"only the first {len(kept)} of {len(items)} {key} are here, to keep this reply under "
        f"{cap:,} characters; {more}"
    )
    return shorter, to_json(shorter)


def _with_shorter_strings(value: dict[str, Any], room: int) -> dict[str, Any]:
    longest = room
    while longest > _SHORTEST_CUT:
        shorter: dict[str, Any] = _cut_strings(value, longest)
        if len(to_json(shorter)) <= room:
            return shorter
        longest = longest * 3 // 4
    return {
        key: each if isinstance(each, str | int | float | bool | None) else type(each)()
        for key, each in _cut_strings(value, _SHORTEST_CUT).items()
    }


def _cut_strings(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return cut(value, longest)
    if isinstance(value, list):
        return [_cut_strings(each, longest) for each in value]
    if isinstance(value, dict):
        return {key: _cut_strings(each, longest) for key, each in value.items()}
    return value


def _bounded(reply: Reply, more: str) -> Reply:
    """The Reply with at most MAX_REPLY characters in all its blocks, and as many of structured."""
    room = MAX_REPLY
    blocks: list[Text | Resource] = []
    for block in reply.content:
        if room <= 0:
            left_out = len(reply.content) - len(blocks)
            blocks.append(Text(text=f"[… {left_out} more parts were left out; {more}]"))
            break
        text = block.text.encode("utf-8", "replace").decode()
        if len(text) > room:
            text = f"{text[:room]}\n\n[… {len(text) - room:,} more characters; {more}]"
        blocks.append(replace(block, text=text))
        room -= len(text)
    structured = None if reply.structured is None else fit(reply.structured, MAX_REPLY, more)[0]
    view = None if reply.view is None else fit(reply.view, MAX_REPLY, more)[0]
    return replace(reply, content=tuple(blocks), structured=structured, view=view)


def abridged(text: str) -> str:
    """`text`; of a long one the beginning and the end: a quoted value stands in the middle."""
    if len(text) <= MAX_REFUSAL:
        return text
    begins, ends = text[: MAX_REFUSAL * 3 // 4], text[-MAX_REFUSAL // 4 :]
    return f"{begins} [… {len(text) - MAX_REFUSAL:,} more characters …] {ends}"
