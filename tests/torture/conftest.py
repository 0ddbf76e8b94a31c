"""Every promise counts its rounds and failures; the run ends with a table of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.torture.support_torture import FULL, Promise

PROMISES = pytest.StashKey[dict[str, Promise]]()


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> Callable[..., Promise]:
    """`promise("1 killed", full=500, short=6)`: as many rounds as this run is to have, and a row of
    the table.
    """
    wanted = request.config.getoption("--rounds")
    kept = request.config.stash.setdefault(PROMISES, {})

    def give(name: str, *, full: int, short: int) -> Promise:
        planned = short if wanted is None else max(1, full * wanted // FULL)
        first = 1_000_000 * request.config.getoption("--again")
        return kept.setdefault(name, Promise(name, planned, long=wanted is not None, first=first))

    return give


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    kept = config.stash.get(PROMISES, {})
    if not kept:
        return
    width = max(len(name) for name in kept)
    terminalreporter.section("promises")
    terminalreporter.write_line(f"{'promise':<{width}}  {'rounds':>8}  failures")
    for each in sorted(
        kept.values(), key=lambda promise: (int(promise.name.split()[0]), promise.name)
    ):
        terminalreporter.write_line(
            f"{each.name:<{width}}  {each.rounds:>8,}  {len(each.failures):>8}  {each.note}".rstrip(),
            red=bool(each.failures),
        )
