"""A power cut loses or tears what was written but not synced.

Every acknowledged change is stored nevertheless.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tests.guarantees import Guarantee
from tests.torture.disks import Disk, Event, moments, recorded
from tests.torture.support_torture import (
    WRITING,
    Account,
    State,
    Step,
    disagreements,
    opened,
    state,
    steps,
)

pytestmark = pytest.mark.torture

STEPS = 25  # operations of one life of a file, opened and closed several times
CUTS = 100  # power cuts tried on one life


def recorded_history(path: Path, rng: random.Random) -> tuple[list[Event], list[Step]]:
    """Make, write, close and reopen a file; the events on the disk, and what was done."""
    done: list[Step] = []
    with recorded() as disk:
        while len(done) < STEPS:
            with opened(path) as db:
                for step in islice(steps(db, rng, "writer", WRITING), rng.randint(3, 12)):
                    done.append(step)
                    step.call()
                    disk.events.append(Event("acknowledged"))
    return disk.events, done


def test_acknowledged_changes_survive_a_power_cut(
    guarantee: Callable[..., Guarantee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    done: list[Step] = []
    cuts: list[int] = []

    def round(number: int, rng: random.Random) -> None:
        nonlocal events, done, cuts
        if number % CUTS == 0:
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
            events, done = recorded_history(tmp_path / "lived.db", rng)
            cuts = moments(events)
        place = rng.choice(cuts) if number % 4 else rng.randrange(len(events))
        folder = tmp_path / str(number)
        folder.mkdir()
        disk = Disk()
        for event in events[:place]:
            disk.happen(event)
        disk.cut(folder, rng)
        verify(
            folder / "lived.db", done, sum(event.kind == "acknowledged" for event in events[:place])
        )
        shutil.rmtree(folder)

    guarantee("2 power loss", full=1_000, short=20).run_rounds(round)


def verify(path: Path, done: list[Step], acknowledged: int) -> None:
    account = Account()
    for step in done[:acknowledged]:
        account.acknowledged |= step.changes
    account.begun = dict(done[acknowledged].changes) if acknowledged < len(done) else {}
    with opened(path) as db:
        assert db.check() == []
        assert disagreements(state(db), State(), [account]) == []
        db.embed_pending()
        assert db.stats().pending == 0 and db.check() == []
