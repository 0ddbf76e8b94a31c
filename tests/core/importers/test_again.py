"""A state machine: the source changes, memories here change, and imports bring one to the other."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mcpvectordb import Database
from tests.core.importers.test_run import memories
from tests.support import Letters, scaled

pytestmark = pytest.mark.long

HASHES = st.sampled_from("abcd")
TEXTS = st.sampled_from(["tea", "coffee", "milk and sugar", "# Heading\n\nwater"])


class ImportMachine(RuleBasedStateMachine):
    """What is here after an import: the source, except for what was changed or deleted here."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.source = memories(Path(self.folder.name) / "m.db", {})
        self.db = Database(":memory:", embedder=Letters())
        self.there: dict[str, str] = {}
        self.imported: dict[str, str] = {}  # as the last import brought it
        self.here: dict[str, str] = {}
        self.ids: dict[str, int] = {}
        self.changes = 0

    @rule(hash=HASHES, text=TEXTS)
    def change_there(self, hash: str, text: str) -> None:
        self.there[hash] = f"{hash}: {text}"
        memories(self.source, {hash: self.there[hash]})

    @rule(hash=HASHES)
    def delete_there(self, hash: str) -> None:
        self.there.pop(hash, None)
        sql = apsw.Connection(str(self.source))
        sql.execute("DELETE FROM memories WHERE content_hash = ?", (hash,))
        sql.close()

    @rule(hash=HASHES)
    def change_here(self, hash: str) -> None:
        if hash in self.here:
            self.changes += 1
            self.here[hash] = f"my own {self.changes}"
            self.db.memories.update(self.ids[hash], text=self.here[hash])

    @rule(hash=HASHES)
    def delete_here(self, hash: str) -> None:
        if hash in self.here:
            del self.here[hash], self.imported[hash]
            self.db.memories.delete([self.ids.pop(hash)])

    @rule()
    def import_all(self) -> None:
        done = self.db.import_from(self.source)
        expected = {"added": 0, "changed": 0, "known": 0, "skipped": 0}
        for hash, text in self.there.items():
            if hash not in self.here:
                outcome = "added"
            elif text == self.imported[hash]:
                outcome = "known"
            else:
                outcome = "changed" if self.here[hash] == self.imported[hash] else "skipped"
            expected[outcome] += 1
            if outcome in ("added", "changed"):
                self.here[hash] = self.imported[hash] = text
        counted = {
            "added": done.added,
            "changed": done.changed,
            "known": done.known,
            "skipped": done.skipped,
        }
        assert {name: sum(counts.values()) for name, counts in counted.items()} == expected
        self.ids = {
            each.metadata["imported"]["id"]: each.id
            for each in self.db.memories.browse(limit=100)
            if each.metadata
        }

    @invariant()
    def what_is_here_is_what_is_expected(self) -> None:
        texts = sorted(each.text for each in self.db.memories.browse(limit=100))
        assert texts == sorted(self.here.values())

    def teardown(self) -> None:
        assert not self.db.check()
        self.db.close()
        self.folder.cleanup()


TestImportMachine = ImportMachine.TestCase
TestImportMachine.settings = settings(max_examples=scaled(20), stateful_step_count=15)
