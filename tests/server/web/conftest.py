from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from tests.server.web.support_web_server import Served
from tests.support import Letters


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server for a new file."""
    with Database(tmp_path / "page.db", embedder=Letters()) as db:
        server = Served(db)
        yield server
        server.stop()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for a file with something of everything, which tests of a module only read."""
    folder = tmp_path_factory.mktemp("filled")
    with Database(folder / "page.db", embedder=Letters()) as db:
        fill(db)
        server = Served(db)
        yield server
        server.stop()


@pytest.fixture
def looking(tmp_path: Path) -> Iterator[Served]:
    """A server that only looks."""
    with Database(tmp_path / "page.db", embedder=Letters()) as db:
        fill(db)
    with Database(tmp_path / "page.db", embedder=Letters(), config=Config(read_only=True)) as db:
        server = Served(db)
        yield server
        server.stop()


def fill(db: Database) -> None:
    for number in range(12):
        db.documents.ingest_text(
            f"# Tea {number}\n\nGreen tea number {number} 😀 is drunk in Japan.\n\n## More\n\nand cups.",
            source=f"tea/{'green' if number % 2 else 'black'}/{number}.md",
            library="notes",
            metadata={"number": number},
        )
    db.documents.ingest_text("def tea():\n    return 1\n", source="tea.py", library="code")
    for number in range(5):
        db.memories.add(
            f"thread {number % 2}", "agent", f"Remember tea {number}", tags=["drinks", f"n{number}"]
        )
    db.vectors.add("v1", [1.0, 0.0], metadata={"a": 1})
    db.vectors.add("v2", [0.9, 0.1])
