"""`mcpvectordb demo`: what this is, shown in a minute on text that ships with the package."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import click

from mcpvectordb.cli.output import bar, complain, out
from mcpvectordb.records import Progress


@dataclass(frozen=True)
class Question:
    """What the demo asks, and what it shows by that."""

    shows: str
    text: str
    where: dict[str, Any] = field(default_factory=dict)


QUESTIONS = (
    Question("by an exact word", "E-4021"),
    Question(
        "by a paraphrase that shares no word with its answer", "how do I avoid getting seasick?"
    ),
    Question(
        "filtered by metadata: year = 2025",
        "how often is the lens cleaned?",
        {"metadata.year": 2025},
    ),
)


@click.command()
def demo() -> None:
    """Ingest a few pages into a temporary database and ask it three questions."""
    from mcpvectordb import Database
    from mcpvectordb.cli.main import configured

    with (
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder) / "demo.db", config=configured()) as db,
    ):
        began = time.perf_counter()
        shipped = resources.files("mcpvectordb").joinpath("cli/demo_pages").iterdir()
        pages = sorted(
            (each for each in shipped if each.name.endswith(".md")), key=lambda each: each.name
        )
        with bar("reading", "pages") as move:
            for number, page in enumerate(pages, 1):
                db.documents.ingest_text(
                    page.read_text("utf-8"), source=page.name, library="demo", embed=False
                )
                move(Progress(step="ingest", done=number, total=len(pages)))
        with bar("embedding", "chunks") as move:
            db.embed_pending(progress=move)
        stats = db.stats()
        console = out()
        console.print(
            f"{stats.documents} pages in {stats.chunks} chunks, embedded with {stats.model}, "
            f"in {time.perf_counter() - began:.1f} s: one file of {stats.bytes / 1e6:.1f} MB.\n"
        )
        for question in QUESTIONS:
            _ask(db, question)
    console.print(_NEXT, markup=False)


def _ask(db: Any, question: Question) -> None:
    began = time.perf_counter()
    results = db.documents.search(question.text, where=question.where, limit=1)
    milliseconds = 1000 * (time.perf_counter() - began)
    console = out()
    console.print(f"? {question.text}   [{question.shows}]", style="bold", markup=False)
    for hit in results:
        console.print(hit.item.text, markup=False)
        how = f"{milliseconds:.0f} ms, by {' and '.join(results.legs)}"
        console.print(f"— {hit.item.citation}, {how}\n", style="dim", markup=False)
    for leg, reason in results.reasons.items():
        complain(f"not searched by {leg}: {reason}")


_NEXT = """Next:
  mcpvectordb ingest ~/Documents          put a folder in
  mcpvectordb search "what did we decide about the budget?"
  mcpvectordb --help                      everything else
  mcpvectordb-server --help               offer the file to Claude, Cursor and other MCP hosts"""
