"""What a tool answers, and the bound on it: no reply floods a client, and none hides that it was
cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

MAX_REPLY = 200_000
"""Characters of text in one reply, about 50,000 tokens. What is cut says so, and how to get the
rest.
"""

MAX_REFUSAL = 4_000
"""Characters of what a refusal says: it need not repeat all of what it refuses."""

# strings are never cut below this; a reply that is long without long strings loses items instead
_SHORTEST_CUT = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A text block."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """A document embedded in a reply; `name` and `title` travel beside its URI."""

    uri: str
    name: str
    title: str
    text: str
    media_type: str = "text/markdown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What goes back to the client: blocks to read, the same as data, and whether MCP should call
    it an error.

    Most tools return a plain dict or list, which becomes both. A tool whose spec asks for other
    text returns a Reply.
    """

    content: tuple[Text | Resource, ...]
    structured: dict[str, Any] | None = None
    failed: bool = False


def reply_of(value: Any, *, more: str = "ask for less") -> Reply:
    """The Reply for what a tool function returned, kept under MAX_REPLY; `more` says how to get the
    rest.
    """
    if isinstance(value, Reply):
        return _bounded(value, more)
    if isinstance(value, list):
        kept, note = _front(_sendable(value), MAX_REPLY)
        blocks = (Text(text=to_json(kept)), *([Text(text=f"{note}; {more}")] if note else []))
        return Reply(content=blocks, structured={"result": kept})
    fitted = fit(_sendable(value), MAX_REPLY, more)
    return Reply(content=(Text(text=to_json(fitted)),), structured=fitted)


def refusal_of(value: Any) -> Reply:
    """The Reply for what a surface says when it says no, kept short."""
    if isinstance(value, Reply):
        return reply_of(
            replace(
                value,
                content=tuple(replace(each, text=_abridged(each.text)) for each in value.content),
            )
        )
    return reply_of(
        {key: _abridged(each) if isinstance(each, str) else each for key, each in value.items()}
    )


def _abridged(text: str) -> str:
    """`text` without its middle if it is long: what is quoted stands there, and at the end what to
    do about it.
    """
    if len(text) <= MAX_REFUSAL:
        return text
    begins, ends = text[: MAX_REFUSAL * 3 // 4], text[-MAX_REFUSAL // 4 :]
    return f"{begins} [… {len(text) - MAX_REFUSAL:,} more characters …] {ends}"


def to_json(value: Any) -> str:
    """JSON as it is sent: Unicode as itself, and never NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def prefix_that_fits(text: str, room: int) -> str:
    """The longest convenient beginning of `text` whose JSON form has at most `room` characters."""
    cut = min(len(text), room)
    while len(to_json(text[:cut])) - 2 > room:
        cut = cut * 9 // 10
    return text[:cut]


def fit(value: dict[str, Any], cap: int, more: str) -> dict[str, Any]:
    """`value` with at most `cap` characters of JSON: the end of its longest list goes first, then
    ends of strings.
    """
    if len(to_json(value)) <= cap:
        return value
    room = cap - 300  # for the note that says what is missing
    fitted = dict(value)
    lists = {
        key: len(to_json(each))
        for key, each in value.items()
        if isinstance(each, list) and len(each) > 1
    }
    if lists:
        key = max(lists, key=lists.__getitem__)
        rest = len(to_json(value)) - lists[key]
        fitted[key], _ = _front(value[key], room - rest)
        if value.get("count") == len(value[key]):
            fitted["count"] = len(fitted[key])
        fitted["truncated"] = (
            f"only the first {len(fitted[key])} of {len(value[key])} {key} are here, to keep this "
            f"reply under {cap:,} characters; {more}"
        )
    if len(to_json(fitted)) > cap:
        fitted = _with_shorter_strings(fitted, room)
        fitted.setdefault(
            "truncated", f"long texts were cut to keep this reply under {cap:,} characters; {more}"
        )
    return fitted


def _front(items: list[Any], room: int) -> tuple[list[Any], str]:
    """As many items from the front as fit, but at least one; and a note when some are missing."""
    used, kept = 2, 0
    for item in items:
        used += len(to_json(item)) + 2
        if used > room and kept:
            break
        kept += 1
    note = f"[only the first {kept} of {len(items)} are here]" if kept < len(items) else ""
    return items[:kept], note


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


def cut(text: str, longest: int) -> str:
    """`text`, or its beginning and how much is missing."""
    return (
        text
        if len(text) <= longest
        else f"{text[:longest]} [… {len(text) - longest:,} more characters]"
    )


def _bounded(reply: Reply, more: str) -> Reply:
    room = MAX_REPLY
    blocks: list[Text | Resource] = []
    for block in reply.content:
        if room <= 0:
            blocks.append(
                Text(
                    text=f"[… {len(reply.content) - len(blocks)} more parts were left out; {more}]"
                )
            )
            break
        text = _sendable(block.text)
        if len(text) > room:
            text = f"{text[:room]}\n\n[… {len(text) - room:,} more characters; {more}]"
        blocks.append(replace(block, text=text))
        room -= len(text)
    structured = (
        None if reply.structured is None else fit(_sendable(reply.structured), MAX_REPLY, more)
    )
    return replace(reply, content=tuple(blocks), structured=structured)


def _sendable(value: Any) -> Any:
    """`value` without half surrogate pairs (a file name may hold them), which no UTF-8 stream can
    carry.
    """
    text = to_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return value
