"""What the torture tests promise, how often it was tried, and how it failed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

FULL = 500  # `--rounds 500` is the full form; other numbers scale every promise alike
MOST_FAILURES = 20  # after so many a promise is broken well enough


@dataclass
class Guarantee:
    """A row of the table: how often a guarantee was tested, and how it failed."""

    name: str
    planned: int
    long: bool
    first: int = 0
    rounds: int = 0
    note: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> range:
        """The numbers of the rounds, which are their seeds."""
        return range(self.first, self.first + self.planned)

    def run_rounds(self, round: Callable[[int, random.Random], object]) -> None:
        """Run all rounds, each with its number and a generator seeded by it."""
        for number in self.numbers:
            self.rounds += 1
            try:
                round(number, random.Random(f"{self.name} {number}"))
            except Exception as error:
                self.failures.append(f"round {number}: {type(error).__name__}: {error}")
            if len(self.failures) >= MOST_FAILURES:
                break
        self.check_failures()

    def check_failures(self) -> None:
        """Fail the test if a round failed, with the numbers (seeds) of these rounds."""
        assert not self.failures, (
            f"{self.name}: {len(self.failures)} of {self.rounds}\n" + "\n".join(self.failures)
        )


TABLE = pytest.StashKey[dict[str, Guarantee]]()
"""Where a run keeps the rows of the table, by name."""
