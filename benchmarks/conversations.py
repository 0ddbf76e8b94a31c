"""How well turns of long conversations are remembered: `python -m benchmarks memory --data FILE`.

FILE has the published layout of LoCoMo: a JSON list of conversations, each with sessions of dated
turns (`session_1`, `session_1_date_time`; a turn has `speaker`, `dia_id` and `text`) and questions
(`qa`) with the ids of the turns that answer them (`evidence`) and a `category`. Every turn becomes
a memory, its date before it, and every question a search of the surface desk in the thread of its
conversation. Measured is which share of the evidence is among the first hits, and nDCG@10; the mean
of the categories counts each the same, as the leaderboard LMEB does.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.store import say
from mcpvectordb import Database, Entry, InvalidInput

DEPTHS = (1, 5, 10)
# As the authors number them.
CATEGORIES = {
    1: "several sessions",
    2: "time",
    3: "open domain",
    4: "one session",
    5: "without an answer",
}
_TURN = re.compile(r"D\d+:\d+")


class Turn(NamedTuple):
    """What somebody said in a session."""

    id: str
    text: str


class Question(NamedTuple):
    """A question about a conversation, and the turns that answer it."""

    text: str
    evidence: frozenset[str]
    category: str


class Conversation(NamedTuple):
    """The turns of all sessions, and questions about them."""

    name: str
    turns: list[Turn]
    questions: list[Question]


class Recalled(NamedTuple):
    """The figures of the questions of one category."""

    category: str
    questions: int
    ndcg: float
    recall: tuple[float, ...]
    mrr: float


class Grade(NamedTuple):
    """How well one question was answered; see `Recalled`."""

    ndcg: float
    recall: tuple[float, ...]
    mrr: float


def load(path: Path) -> list[Conversation]:
    """The conversations of a file; raises InvalidInput if it has another layout."""
    try:
        given = json.loads(path.read_text("utf-8"))
        return [_conversation(each, number) for number, each in enumerate(given, 1)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} has no conversations in the layout of LoCoMo: {error!r}"
        ) from None


def _conversation(given: dict[str, Any], number: int) -> Conversation:
    sessions = given["conversation"]
    names = [name for name in sessions if re.fullmatch(r"session_\d+", name)]
    turns = [
        Turn(turn["dia_id"], _told(turn, sessions.get(f"{name}_date_time", "")))
        for name in sorted(names, key=lambda name: int(name.partition("_")[2]))
        for turn in sessions[name]
    ]
    known = {turn.id for turn in turns}
    questions = []
    for each in given["qa"]:
        # Some published lists have several ids in one text.
        evidence = {id for text in each.get("evidence", ()) for id in _TURN.findall(text)} & known
        category = CATEGORIES.get(each.get("category", 0), "other")
        if evidence:
            questions.append(Question(each["question"], frozenset(evidence), category))
    return Conversation(str(given.get("sample_id", number)), turns, questions)


def _told(turn: dict[str, Any], date: str) -> str:
    picture = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    day = f"{date}, " if date else ""
    return f"{day}{turn['speaker']}: {turn.get('text', '')}{picture}"


def measure(conversations: Sequence[Conversation], path: Path) -> Iterator[Recalled]:
    """The figures of each category, and of all questions that have an answer."""
    grades: dict[str, list[Grade]] = defaultdict(list)
    with Database(path) as db:
        for number, each in enumerate(conversations, 1):
            say(f"{number} of {len(conversations)}: {each.name}, {len(each.turns):,} turns")
            ids = _remember(db, each)
            for question in each.questions:
                hits = db.search(
                    question.text, limit=max(DEPTHS), kind="memories", thread=each.name
                )
                found = [ids[hit.item.id] for hit in hits]
                grades[question.category].append(_graded(found, question.evidence))
    categories = [_mean(name, len(some), some) for name, some in sorted(grades.items())]
    yield from categories
    answered = [each for name, some in grades.items() if name != CATEGORIES[5] for each in some]
    if answered:
        yield _mean("all with an answer", len(answered), answered)
    if categories:
        yield _mean("mean of the categories", sum(map(len, grades.values())), categories)


def _mean(name: str, questions: int, some: Sequence[Grade | Recalled]) -> Recalled:
    recall = tuple(fmean(each.recall[place] for each in some) for place in range(len(DEPTHS)))
    ndcg, mrr = (fmean(values) for values in zip(*((e.ndcg, e.mrr) for e in some), strict=True))
    return Recalled(name, questions, ndcg, recall, mrr)


def _remember(db: Database, conversation: Conversation) -> dict[int, str]:
    """Store the turns of a conversation; the turn of each memory."""
    entries = [
        Entry(thread=conversation.name, source="user", text=each.text)
        for each in conversation.turns
    ]
    stored = db.memories.add_many(entries)
    return {
        each.result.id: turn.id
        for each, turn in zip(stored, conversation.turns, strict=True)
        if each.result is not None
    }


def _graded(found: Sequence[str], evidence: frozenset[str]) -> Grade:
    """How well hits, best first, cover the evidence."""
    recall = tuple(len(evidence & set(found[:depth])) / len(evidence) for depth in DEPTHS)
    ranks = [rank for rank, id in enumerate(found, 1) if id in evidence]
    best = range(1, min(len(evidence), max(DEPTHS)) + 1)
    gain, ideal = (sum(1 / math.log2(rank + 1) for rank in some) for some in (ranks, best))
    return Grade(gain / ideal, recall, 1 / ranks[0] if ranks else 0.0)


def run(path: Path, *, as_json: bool) -> None:
    """Measure the conversations of a file and print the figures."""
    with tempfile.TemporaryDirectory(prefix="conversations-") as folder:
        outcomes = list(measure(load(path), Path(folder) / "memory.db"))
    report.show(
        [
            {
                "questions about": each.category,
                "number": each.questions,
                "nDCG@10": each.ndcg,
                **{
                    f"recall@{depth}": share
                    for depth, share in zip(DEPTHS, each.recall, strict=True)
                },
                "MRR": each.mrr,
            }
            for each in outcomes
        ],
        as_json=as_json,
    )
