"""What all state machines over a database have in common."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mcpvectordb import Database


class DatabaseMachine(RuleBasedStateMachine):
    """A database in a real file, compared with a model in memory after every step.

    A subclass opens the database in `opened`, adds rules that write to the file and to its model,
    and compares the two in `assert_file_equals_model`. The rules here must not change the content.
    So that they run on files that have one, a subclass adds some in `start`: hypothesis leaves out
    random rules in each run, and often all that write.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "0.db"
        self.copies = 0
        self.db: Database | None = None

    def opened(self, path: Path) -> Database:
        """Open the database as this machine needs it."""
        raise NotImplementedError

    def assert_file_equals_model(self) -> None:
        """Assert that everything in the file is what the model expects."""
        raise NotImplementedError

    def open(self) -> None:
        self.db = self.opened(self.path)

    @rule()
    def reopen(self) -> None:
        self.db.close()
        assert [each.name for each in self.folder.iterdir()] == [self.path.name]
        self.open()

    @rule()
    def continue_in_a_copy(self) -> None:
        self.copies += 1
        old, self.path = self.path, self.folder / f"{self.copies}.db"
        self.db.copy_to(self.path)
        self.db.close()
        old.unlink()
        self.open()

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule()
    def rebuild(self) -> None:
        self.db.rebuild()

    @invariant()
    def the_file_equals_the_model_and_is_sound(self) -> None:
        self.assert_file_equals_model()
        assert self.db.check() == []

    def teardown(self) -> None:
        if self.db is not None:
            self.db.close()
        shutil.rmtree(self.folder)
