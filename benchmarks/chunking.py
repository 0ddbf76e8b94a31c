"""How well chunks fit the passages that answer questions: `python -m benchmarks chunking --data
DIR`.

DIR holds corpora/*.md and questions_df.csv with the columns question, references (JSON: content,
start_index, end_index) and corpus_id. All corpora go into one database; for each question its best
chunks are compared, character by character, with the passages that answer it.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.collection import Entry
from benchmarks.store import filled, say
from mcpvectordb import Chunk, Config, Database, InvalidInput

MODES = ("vector", "hybrid", "text")
TOP = 5
# characters, about 1,000 tokens: what an agent can spend on an answer, whatever the chunks' size
BUDGET = 4_000
ENOUGH = 100  # chunks that always exceed the budget

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ranges of characters that answer it, in the text of one corpus."""

    text: str
    corpus: str
    answers: list[Range]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the questions; `budget_recall` is the recall in the first BUDGET characters."""

    model: str
    size: int
    overlap: int
    mode: str
    chunks: int
    characters: int
    recall: float
    precision: float
    iou: float
    budget_recall: float


def main(arguments: list[str]) -> None:
    """Read the options, measure, print."""
    options = _options(arguments)
    texts = _texts(options.data, options.corpus)
    questions = spaced(_questions(options.data, texts), options.questions)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="chunking-") as temporary:
        cache = options.cache or Path(temporary)
        for size, overlap in product(options.sizes, options.overlaps):
            config = Config(model=options.model, chunk_size=size, chunk_overlap=overlap)
            for outcome in measure(texts, questions, config, options.mode or MODES[:2], cache):
                outcomes.append(outcome)
                say(f"{size}/{overlap} {outcome.mode}: recall {outcome.recall:.3f}")
    print(
        json.dumps([asdict(each) for each in outcomes], indent=2)
        if options.json
        else table(outcomes)
    )


def measure(
    texts: dict[str, str],
    questions: list[Question],
    config: Config,
    modes: Sequence[str],
    cache: Path,
) -> Iterator[Outcome]:
    """Chunk all texts in one way and grade the answers in every mode."""
    corpus = [Entry(f"{name}.md", "", text) for name, text in texts.items()]
    file = filled(cache, json.dumps(texts), corpus, config)
    with Database(file.path, config=config) as db:
        for mode in modes:
            graded = [grade(db, question, mode) for question in questions]
            means = [round(fmean(column), 4) for column in zip(*graded, strict=True)]
            yield Outcome(
                file.model,
                config.chunk_size,
                config.chunk_overlap,
                mode,
                file.chunks,
                sum(map(len, texts.values())) // file.chunks,
                *means,
            )


def grade(db: Database, question: Question, mode: str) -> tuple[float, float, float, float]:
    """Recall, precision and IoU of the best chunks, and the recall within the budget."""
    hits = db.documents.search(question.text, mode=mode, limit=ENOUGH)
    chunks = [hit.item for hit in hits]
    top, first = chunks[:TOP], list(within(chunks, BUDGET))
    answered, wanted = common(_of(top, question), question.answers), length(question.answers)
    # Text that is in two chunks counts twice.
    retrieved = sum(chunk.end - chunk.start for chunk in top)
    return (
        answered / wanted,
        answered / retrieved,
        answered / (retrieved + wanted - answered),
        common(
            [(start, end) for name, start, end in first if name == _source(question)],
            question.answers,
        )
        / wanted,
    )


def within(chunks: Sequence[Chunk], budget: int) -> Iterator[tuple[str, int, int]]:
    """(source, start, end) of the first chunks within so many characters, the last one cut."""
    for chunk in chunks:
        taken = min(budget, chunk.end - chunk.start)
        if taken == 0:
            return
        yield chunk.document.source, chunk.start, chunk.start + taken
        budget -= taken


def merged(ranges: Sequence[Range]) -> list[Range]:
    """The same characters as ranges that do not touch, in order."""
    result: list[Range] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def length(ranges: Sequence[Range]) -> int:
    """How many characters ranges cover."""
    return sum(end - start for start, end in merged(ranges))


def common(one: Sequence[Range], other: Sequence[Range]) -> int:
    """How many characters both cover."""
    return sum(
        max(0, min(a_end, b_end) - max(a, b))
        for (a, a_end), (b, b_end) in product(merged(one), merged(other))
    )


def spaced(questions: list[Question], wanted: int | None) -> list[Question]:
    """So many of the questions, evenly from the whole list."""
    if wanted is None or wanted >= len(questions):
        return questions
    return [questions[i * len(questions) // wanted] for i in range(wanted)]


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = [
        f"| model | size | overlap | mode | chunks | characters | recall@{TOP} | precision@{TOP} "
        f"| IoU@{TOP} | recall in 1,000 tokens |",
        "|---|--:|--:|---|" + "--:|" * 6,
    ]
    lines += [
        f"| {o.model} | {o.size or 'auto'} | {o.overlap} | {o.mode} | {o.chunks} | {o.characters} "
        f"| {o.recall:.3f} | {o.precision:.3f} | {o.iou:.3f} | {o.budget_recall:.3f} |"
        for o in outcomes
    ]
    return "\n".join(lines)


def _source(question: Question) -> str:
    return f"{question.corpus}.md"


def _of(chunks: Sequence[Chunk], question: Question) -> list[Range]:
    return [
        (chunk.start, chunk.end) for chunk in chunks if chunk.document.source == _source(question)
    ]


def _texts(folder: Path, only: list[str] | None) -> dict[str, str]:
    paths = sorted(folder.glob("corpora/*.md"))
    texts = {
        path.stem: path.read_bytes().decode() for path in paths if not only or path.stem in only
    }
    if not texts or (only and len(texts) < len(set(only))):
        raise InvalidInput(
            f"{folder} has the corpora {', '.join(path.stem for path in paths) or '(none)'}"
        )
    return texts


def _questions(folder: Path, texts: dict[str, str]) -> list[Question]:
    with (folder / "questions_df.csv").open(encoding="utf-8", newline="") as rows:
        questions = [_question(row) for row in csv.DictReader(rows) if row["corpus_id"] in texts]
    if not questions:
        raise InvalidInput(f"{folder} has no question about {', '.join(texts)}")
    return questions


def _question(row: dict[str, str]) -> Question:
    answers = [(each["start_index"], each["end_index"]) for each in json.loads(row["references"])]
    return Question(row["question"], row["corpus_id"], answers)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks chunking", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="a folder with corpora and questions_df.csv",
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[0],
        metavar="N",
        help="tokens per chunk [automatic]",
    )
    parser.add_argument(
        "--overlaps", type=int, nargs="+", default=[0], metavar="N", help="tokens of overlap [0]"
    )
    parser.add_argument(
        "--model", default="", metavar="NAME", help="an embedding model [the best one installed]"
    )
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="how to search [vector and hybrid]"
    )
    parser.add_argument(
        "--corpus", action="append", metavar="NAME", help="only this corpus and its questions"
    )
    parser.add_argument(
        "--questions", type=int, metavar="N", help="ask only N questions, evenly chosen"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="keep the filled databases here for the next run"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)
