"""The command demo: ingest and search of a few pages that ship with the package."""

from __future__ import annotations

import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import click

from mcpvectordb.cli.output import StyledText, bar, complain

# What each shows, the query, and a filter.
QUERIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("by an exact word", "E-4021", {}),
    (
        "by a paraphrase that shares no word with its answer",
        "how do I avoid getting seasick?",
        {},
    ),
    (
        "filtered by metadata: year = 2025",
        "how often is the lens cleaned?",
        {"metadata.year": 2025},
    ),
)


@click.command()
@click.option(
    "--keep",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep the database in FILE, to look into it: mcpvectordb --db FILE web",
)
def demo(keep: Path | None) -> None:
    """Ingest a few pages into a temporary database and run three queries."""
    from mcpvectordb import Database
    from mcpvectordb.cli.main import configured

    with (
        tempfile.TemporaryDirectory() as folder,
        Database(keep or Path(folder) / "demo.db", config=configured()) as db,
    ):
        began = time.perf_counter()
        shipped = resources.files("mcpvectordb").joinpath("cli/demo_pages").iterdir()
        pages = sorted(
            (each for each in shipped if each.name.endswith(".md")), key=lambda each: each.name
        )
        with bar("reading", "pages") as move:
            texts = (each.read_text("utf-8") for each in pages)
            names = [each.name for each in pages]
            db.documents.ingest_many(
                texts, sources=names, library="demo", embed=False, progress=move
            )
        with bar("embedding", "chunks") as move:
            db.embed_pending(progress=move)
        stats = db.stats()
        printed = StyledText()
        printed.print(
            f"{stats.documents} pages in {stats.chunks} chunks, embedded with {stats.model}, "
            f"in {time.perf_counter() - began:.1f} s: one file of {stats.bytes / 1e6:.1f} MB.\n"
        )
        for shows, query, where in QUERIES:
            began = time.perf_counter()
            results = db.documents.search(query, where=where, limit=1)
            milliseconds = 1000 * (time.perf_counter() - began)
            printed.print(f"? {query}   [{shows}]", style="bold")
            for hit in results:
                printed.print(hit.item.passage)
                how = f"{milliseconds:.0f} ms, by {' and '.join(results.legs)}"
                printed.print(f"— {hit.item.citation}, {how}\n", style="dim")
            for leg, reason in results.reasons.items():
                complain(f"not searched by {leg}: {reason}")
    printed.print(_NEXT)
    if keep is not None:
        printed.print(f"  mcpvectordb --db {keep} web   look into these pages in a browser")


_NEXT = """Next:
  mcpvectordb ingest ~/Documents          ingest a folder
  mcpvectordb search "what did we decide about the budget?"
  mcpvectordb --help                      all commands
  mcpvectordb-server --help               serve the file to Claude, Cursor and other MCP hosts"""
