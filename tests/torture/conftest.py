"""Each guarantee counts its rounds and failures; the run ends with a table of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.guarantees import FULL, TABLE, Guarantee

ROUNDS = 20  # of 500, with --full


@pytest.fixture
def guarantee(request: pytest.FixtureRequest) -> Callable[..., Guarantee]:
    """`guarantee("1 killed", full=500, short=6)` makes a row of the table.

    It has as many rounds as the option --rounds asks for.
    """
    option = request.config.getoption
    wanted = option("--rounds")
    guarantees = request.config.stash.setdefault(TABLE, {})

    def give(name: str, *, full: int, short: int) -> Guarantee:
        longer = max(short, full * ROUNDS // FULL) if option("--full") else short
        planned = longer if wanted is None else max(1, full * wanted // FULL)
        first = 1_000_000 * option("--again")
        return guarantees.setdefault(
            name, Guarantee(name, planned, long=wanted is not None, first=first)
        )

    return give
