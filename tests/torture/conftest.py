"""Each guarantee counts its rounds and failures; the run ends with a table of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.torture.support_torture import FULL, Guarantee

GUARANTEES = pytest.StashKey[dict[str, Guarantee]]()


@pytest.fixture
def guarantee(request: pytest.FixtureRequest) -> Callable[..., Guarantee]:
    """`guarantee("1 killed", full=500, short=6)` makes a row of the table.

    It has as many rounds as the option --rounds asks for.
    """
    wanted = request.config.getoption("--rounds")
    guarantees = request.config.stash.setdefault(GUARANTEES, {})

    def give(name: str, *, full: int, short: int) -> Guarantee:
        planned = short if wanted is None else max(1, full * wanted // FULL)
        first = 1_000_000 * request.config.getoption("--again")
        return guarantees.setdefault(
            name, Guarantee(name, planned, long=wanted is not None, first=first)
        )

    return give


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    guarantees = config.stash.get(GUARANTEES, {})
    if not guarantees:
        return
    width = max(len(name) for name in guarantees)
    terminalreporter.section("guarantees")
    terminalreporter.write_line(f"{'guarantee':<{width}}  {'rounds':>8}  failures")
    for each in sorted(
        guarantees.values(), key=lambda guarantee: (int(guarantee.name.split()[0]), guarantee.name)
    ):
        terminalreporter.write_line(
            f"{each.name:<{width}}  {each.rounds:>8,}  {len(each.failures):>8}  {each.note}".rstrip(),
            red=bool(each.failures),
        )
