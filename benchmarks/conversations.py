"""Long conversations with questions about them, in the layouts in which they are published.

Which layout a file has is seen by its content:

LoCoMo    a list of conversations, each with `conversation` (sessions of dated turns: `session_1`,
          `session_1_date_time`; a turn has `speaker`, `dia_id` and `text`) and `qa`, questions with
          a `category` and the ids of the turns that answer them (`evidence`)
REALTALK  one such conversation a file, sessions and `qa` side by side; a turn has its own
          `date_time`, and its text is `clean_text`
BEAM      a folder with `chat.json` (batches of turns with `role`, `id` and `content`) and
          `probing_questions/probing_questions.json`: by category, questions with the ids of the
          turns that answer them (`source_chat_ids`)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb import InvalidInput

LAYOUTS = ("LoCoMo", "REALTALK", "BEAM")
UNANSWERED = "without an answer"
# As the authors number them. LoCoMo's last ask one speaker for what the other one said.
LOCOMO = {1: "several sessions", 2: "time", 3: "open domain", 4: "one session", 5: UNANSWERED}
REALTALK = {1: "several turns", 2: "time", 3: "common sense"}
CHAT, PROBES = "chat.json", "probing_questions/probing_questions.json"
_TURN = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
# What BEAM's users say ends with the number of the point of the plan that it was written from.
_POINT = re.compile(r"\s*->->\s*[\d,\s]+$")


class Turn(NamedTuple):
    """What somebody said in a session, as a user would store it: with its date and speaker."""

    id: str
    session: str
    text: str


class Question(NamedTuple):
    """A question about a conversation, and the turns that answer it."""

    text: str
    evidence: frozenset[str]
    category: str


class Conversation(NamedTuple):
    """The turns of all sessions, and questions about them."""

    data: str
    name: str
    turns: list[Turn]
    questions: list[Question]


def load(path: Path) -> list[Conversation]:
    """The conversations of a file or folder; raises InvalidInput if its layout is not known."""
    try:
        given = _read(path / CHAT if path.is_dir() else path)
        read = _layout(given)
        found = read(path, given) if read else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{_unread(path)}: {error!r}") from None
    if not any(each.questions for each in found):
        raise InvalidInput(_unread(path))
    return found


def _unread(path: Path) -> str:
    *others, last = LAYOUTS
    return (
        f"{path} has no conversations with questions in the layout of {', '.join(others)} or {last}"
        f" (a folder with {CHAT} and {PROBES})"
    )


def _layout(given: Any) -> Callable[[Path, Any], list[Conversation]] | None:
    """What reads such content."""
    if isinstance(given, list) and given and all(isinstance(each, dict) for each in given):
        if all({"conversation", "qa"} <= each.keys() for each in given):
            return _locomo
        return _beam if any(True for _ in _batches(given)) else None
    if isinstance(given, dict):
        if "qa" in given and any(_SESSION.fullmatch(name) for name in given):
            return _realtalk
        if any("source_chat_ids" in each for each in _probes(given)):
            return _beam
    return None


def _locomo(path: Path, given: list[dict[str, Any]]) -> list[Conversation]:
    return [
        _sessions("LoCoMo", str(each.get("sample_id", number)), each["conversation"], each["qa"])
        for number, each in enumerate(given, 1)
    ]


def _realtalk(path: Path, given: dict[str, Any]) -> list[Conversation]:
    return [_sessions("REALTALK", path.stem, given, given["qa"])]


def _sessions(
    data: str, name: str, sessions: Mapping[str, Any], qa: Iterable[Mapping[str, Any]]
) -> Conversation:
    """LoCoMo's conversations and REALTALK's, which differ in where texts and dates are."""
    names = sorted(filter(_SESSION.fullmatch, sessions), key=lambda name: int(name[8:]))
    turns = [
        Turn(each["dia_id"], session, _told(each, sessions.get(f"{session}_date_time", "")))
        for session in names
        for each in sessions[session]
    ]
    known, categories = {turn.id for turn in turns}, LOCOMO if data == "LoCoMo" else REALTALK
    questions = []
    for each in qa:
        # Some published lists have several ids in one text, and some ids of no turn.
        evidence = {id for text in each.get("evidence", ()) for id in _TURN.findall(text)} & known
        category = categories.get(int(each.get("category", 0)), "other")
        if evidence or category == UNANSWERED:
            questions.append(Question(each["question"], frozenset(evidence), category))
    return Conversation(data, name, turns, questions)


def _told(turn: Mapping[str, Any], date: str) -> str:
    text = turn.get("clean_text", turn.get("text", ""))
    picture = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{_dated(turn.get('date_time', date))}{turn['speaker']}: {text}{picture}"


def _dated(date: str) -> str:
    return f"{date}, " if date else ""


def _beam(path: Path, given: Any) -> list[Conversation]:
    """The conversation of a folder, whichever of its two files was named."""
    folder = path if path.is_dir() else path.parent
    folder = folder if (folder / CHAT).exists() else folder.parent
    turns = []
    for session, batch in enumerate(_batches(_read(folder / CHAT)), 1):
        date = ""
        for each in _messages(batch["turns"]):
            date = each.get("time_anchor") or date  # only the first turn of a batch has it
            text = _POINT.sub("", each["content"])
            told = f"{_dated(date)}{each['role']}: {text}"
            turns.append(Turn(str(each["id"]), str(session), told))
    # Where several turns have one id, nobody can say which of them is meant.
    known = {id for id, number in Counter(turn.id for turn in turns).items() if number == 1}
    questions = []
    for category, each in _categorized(_read(folder / PROBES)):
        evidence = frozenset(map(str, _numbers(each.get("source_chat_ids")))) & known
        if evidence or category == UNANSWERED:
            questions.append(Question(each["question"], evidence, category))
    return [Conversation("BEAM", f"{folder.parent.name}-{folder.name}", turns, questions)]


def _batches(given: Any) -> Iterator[dict[str, Any]]:
    """What has turns, however deep: the longest conversations are lists of plans of batches."""
    if isinstance(given, dict) and "turns" in given:
        yield given
    elif isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            yield from _batches(each)


def _messages(given: Any) -> Iterator[dict[str, Any]]:
    if isinstance(given, dict):
        yield given
    else:
        for each in given or ():
            yield from _messages(each)


def _categorized(given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for category, questions in given.items():
        name = UNANSWERED if category == "abstention" else category.replace("_", " ")
        for each in questions:
            yield name, each


def _probes(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for questions in given.values():
        if isinstance(questions, list):
            yield from (each for each in questions if isinstance(each, dict))


def _numbers(given: Any) -> Iterator[int]:
    """The ids of turns, in a list or by what each of them says."""
    if isinstance(given, int):
        yield given
    elif isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            yield from _numbers(each)


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
