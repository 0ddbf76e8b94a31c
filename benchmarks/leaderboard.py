"""How well turns of long conversations are found again: `python -m benchmarks memory --data FILE`.

FILE has one of the layouts of `benchmarks.conversations`. Every turn becomes a memory in the thread
of its conversation, its date and speaker before it, and every question a search in that thread.
What is found is compared with the turns that answer the question, and with the sessions that these
are from; no model judges anything. Figures are means over the questions of a category, and then
over the categories, which is how the leaderboard LMEB counts. CPU is that of all threads, the
median over the questions. Models of this library and rivals are asked the same.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from benchmarks import metrics, report, rivals
from benchmarks.conversations import UNANSWERED, Conversation, Question, load
from benchmarks.engines import Recalled
from benchmarks.rivals import OURS
from benchmarks.store import say
from mcpvectordb import InvalidInput

MODEL = "all-MiniLM-L6-v2"  # which is always there
MEAN = "mean of the categories"


class Answer(NamedTuple):
    """A question, what an engine found for it, and the milliseconds of the processor it took.

    `judged` are the turns that answer it, `sessions` those that these are from, and `heard` the
    session of each turn that was found.
    """

    data: str
    question: Question
    judged: dict[str, int]
    sessions: dict[str, int]
    found: list[str]
    heard: list[str]
    nothing: bool
    cpu: float


FOUND: dict[str, Callable[[Answer], float]] = {
    "nDCG@10": lambda each: metrics.ndcg(each.found, each.judged, 10),
    "recall@5": lambda each: metrics.recall(each.found, each.judged, 5),
    "recall@10": lambda each: metrics.recall(each.found, each.judged, 10),
    "sessions@5": lambda each: metrics.recall(each.heard, each.sessions, 5),
    "sessions@10": lambda each: metrics.recall(each.heard, each.sessions, 10),
}


def run(
    paths: Sequence[Path],
    names: Sequence[str],
    cache: Path | None = None,
    *,
    as_json: bool = False,
) -> None:
    """Ask engines about the conversations of files, and print the figures."""
    conversations = [each for path in paths for each in load(path)]
    if len({each.name for each in conversations}) < len(conversations):
        raise InvalidInput("two of the conversations have the same name")
    rows, notes = [], []
    with tempfile.TemporaryDirectory(prefix="conversations-") as temporary:
        folder = Path(temporary)
        cache = cache or folder / "cache"
        for name in names:  # what cannot be installed is told before anything is measured
            rivals.interpreter(cache, name)
        rivals.write(folder, conversations=[_given(each) for each in conversations])
        for name in names:
            say(f"{name}: {sum(len(each.turns) for each in conversations):,} turns")
            figures = rivals.once(folder, cache, name, ("remember", "recall"))
            engine = f"{name} {figures['version']}"
            recalled = figures["recall"]
            answers = list(_answers(conversations, recalled["found"], recalled["cpu"]))
            for data in dict.fromkeys(each.data for each in conversations):
                asked = [each for each in answers if each.data == data]
                rows += [{"engine": engine, "data": data, **row} for row in _rows(asked)]
                notes.append(f"{engine} on {data}: {_told(asked)}")
    report.show(rows, notes, as_json=as_json)


def models(names: Iterable[str] | None) -> list[str]:
    """This library as an engine, with each of the models."""
    return [f"{OURS}@{name}" for name in dict.fromkeys(names or (MODEL,))]


def _given(conversation: Conversation) -> dict[str, object]:
    return {
        "name": conversation.name,
        "turns": [each.text for each in conversation.turns],
        "questions": [each.text for each in conversation.questions],
    }


def _answers(
    conversations: Iterable[Conversation], recalled: Iterable[Recalled], cpu: Iterable[float]
) -> Iterator[Answer]:
    """What was found for each question, in the order in which they were asked."""
    both = iter(zip(recalled, cpu, strict=True))
    for each in conversations:
        session = {turn.id: turn.session for turn in each.turns}
        for question in each.questions:
            answer, took = next(both)
            found = [each.turns[number] for number in answer["found"]]
            yield Answer(
                data=each.data,
                question=question,
                judged=dict.fromkeys(question.evidence, 1),
                sessions=dict.fromkeys((session[id] for id in question.evidence), 1),
                found=[turn.id for turn in found],
                heard=[turn.session for turn in found],
                nothing=answer["nothing"],
                cpu=took,
            )


def _rows(answers: Sequence[Answer]) -> list[report.Row]:
    """The figures of each category, and their mean."""
    categories = defaultdict(list)
    for each in answers:
        categories[each.question.category].append(each)
    rows = [_figures(name, some) for name, some in sorted(categories.items())]
    every: report.Row = {"questions about": MEAN, "number": len(answers)}
    for name in FOUND:
        known = [row[name] for row in rows if row[name] is not None]
        every[name] = fmean(known) if known else None
    every["said nothing"] = None  # right of one category, and wrong of the others
    every["CPU ms"] = median(each.cpu for each in answers)
    return [*rows, every]


def _figures(category: str, answers: Sequence[Answer]) -> report.Row:
    """The figures of a category; where no turn answers the questions, none can be found."""

    answerable = [each for each in answers if each.judged]
    row: report.Row = {"questions about": category, "number": len(answers)}
    for name, measure in FOUND.items():
        row[name] = fmean(map(measure, answerable)) if answerable else None
    row["said nothing"] = fmean(each.nothing for each in answers)
    row["CPU ms"] = median(each.cpu for each in answers)
    return row


def _told(answers: Sequence[Answer]) -> str:
    """How often it was said that nothing relevant was found, where that was right and wrong."""

    def share(*, unanswered: bool) -> str:
        said = [
            each.nothing for each in answers if (each.question.category == UNANSWERED) == unanswered
        ]
        return f"{fmean(said):.3f} of {len(said):,}" if said else "none"

    return (
        f"nothing relevant was found, it was said of {share(unanswered=True)} questions without an "
        f"answer, and of {share(unanswered=False)} with one."
    )
