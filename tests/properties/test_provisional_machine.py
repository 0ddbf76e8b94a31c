"""Documents come, go and are embedded in any order, with the static model and without it: the file
stays sound, and what waits has a provisional embedding or none, never two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcpvectordb import Config, Database
from tests.support import Letters, scaled
from tests.support_static import needs_the_static_model

WORDS = ("tea", "soup", "house", "river", "engine", "letter")


class ProvisionalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "machine.db"
        self.stored: dict[str, str] = {}

    @initialize(on=st.booleans())
    def start(self, on: bool) -> None:
        self.db = Database(self.path, embedder=Letters(), config=Config(provisional=on))

    @rule(on=st.booleans())
    def open_again(self, on: bool) -> None:
        self.db.close()
        self.start(on)

    @rule(source=st.sampled_from("abcd"), word=st.sampled_from(WORDS), embed=st.booleans())
    def ingest(self, source: str, word: str, embed: bool) -> None:
        self.db.documents.ingest_text(f"about {word}", source=source, title=source, embed=embed)
        self.stored[source] = word

    @rule(source=st.sampled_from("abcd"))
    def delete(self, source: str) -> None:
        if self.stored.pop(source, None):
            self.db.documents.delete(self.db.documents.lookup(f"default/{source}").document.id)

    @rule()
    def embed_one(self) -> None:
        self.db._encoder.embed_some(self.db._indexes[0], most=1)

    @rule()
    def embed_all(self) -> None:
        self.db.embed_pending()
        with self.db._file.reading() as sql:
            assert sql.execute("SELECT count(*) FROM models WHERE name LIKE 'potion%'").get == 0
            assert sql.execute("SELECT count(*) FROM settings WHERE name = 'provisional'").get == 0

    @rule()
    def rebuild(self) -> None:
        self.db.rebuild()

    @precondition(lambda self: self.stored)
    @rule(word=st.sampled_from(WORDS), mode=st.sampled_from(("vector", "hybrid")))
    def search(self, word: str, mode: str) -> None:
        found = self.db.documents.search(f"about {word}", mode=mode, limit=10)
        backlog = found.backlog
        if mode == "vector":
            assert len(found) == backlog.provisional + len(self.stored) - backlog.pending
            assert sum(hit.scores.provisional for hit in found) == backlog.provisional
        else:
            assert len(found) == len(self.stored)

    @invariant()
    def the_file_is_sound(self) -> None:
        if hasattr(self, "db"):
            assert self.db.check() == []

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
        self.folder.cleanup()


TestProvisional = needs_the_static_model(ProvisionalMachine.TestCase)
TestProvisional.settings = settings(max_examples=scaled(15), stateful_step_count=15)
