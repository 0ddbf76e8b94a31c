"""The first ten of 200 questions in every mode, with their scores."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from mcpvectordb import Database
from tests.goldens.house import Words
from tests.goldens.recorded import Recorded

_THINGS = """pump valve kettle lamp boiler fan sensor printer router battery engine drill camera
    heater cooler mixer""".split()
_PLACES = "kitchen garden cellar office garage attic workshop hallway".split()
_ACTS = """is cleaned every|was replaced in|fails below|is checked before|belongs to the|was bought
    for the|needs a new filter after|is kept in the""".split("|")
_WHEN = """Monday|the first frost|twenty days|the winter of 2024|the annual meeting|every holiday|
    three months|the long weekend""".split("|")
_WORDS = "key budget certificate invoice meeting contract warranty manual password".split()


def corpus(numbers: Random) -> dict[str, str]:
    """Notes whose sentences share their words, so that rankings have something to decide."""
    notes = {}
    for number in range(120):
        lines = [
            f"The {numbers.choice(_THINGS)} in the {numbers.choice(_PLACES)} "
            f"{numbers.choice(_ACTS).strip()} {numbers.choice(_WHEN).strip()}; "
            f"see the {numbers.choice(_WORDS)} {numbers.choice('ABCD')}-{numbers.randrange(100)}."
            for _ in range(numbers.randrange(1, 5))
        ]
        notes[f"note-{number:03}.md"] = f"# {numbers.choice(_THINGS)}\n\n" + "\n\n".join(lines)
    return notes


def questions(numbers: Random) -> list[str]:
    """Questions of several kinds: words, sentences, identifiers, phrases, exclusions, strangers."""
    made = []
    for number in range(200):
        thing, place = numbers.choice(_THINGS), numbers.choice(_PLACES)
        when, word = numbers.choice(_WHEN).strip(), numbers.choice(_WORDS)
        made.append(
            [
                f"when was the {thing} in the {place} checked?",
                f"{thing} {word}",
                f"{word} {numbers.choice('ABCD')}-{numbers.randrange(100)}",
                f'"{when}" {thing}',
                f"{thing} -{place}",
                f"what happens to the {thing} after {when}, and where is its {word}?",
                f"xylophone {thing}s",
                place,
            ][number % 8]
        )
    return made


def test_rankings_are_as_recorded(tmp_path: Path, recorded: Recorded) -> None:
    numbers = Random(11)
    found: dict[str, Any] = {}
    with Database(tmp_path / "rankings.db", embedder=Words()) as db:
        notes = corpus(numbers)
        for source, text in notes.items():
            db.documents.ingest_text(text, source=source)
            db.memories.add(source[:6], "agent", text.split("\n\n")[-1])
        for question in questions(numbers):
            found[question] = {
                **{
                    mode: passages(db, question, mode=mode) for mode in ("text", "vector", "hybrid")
                },
                "documents": passages(db, question, unit="document"),
                "memories": memories(db, question),
            }
    recorded("rankings", found)


def passages(db: Database, question: str, **options: Any) -> str:
    hits = db.documents.search(question, limit=10, **options)
    return " ".join(f"{hit.item.document.source[5:8]}={hit.score:.6g}" for hit in hits)


def memories(db: Database, question: str) -> str:
    hits = db.memories.search(question, limit=10)
    return " ".join(f"{hit.item.id}={hit.score:.6g}" for hit in hits)
