"""A preference for what is newer: scores lose half of their value with every half-life. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mcpvectordb import dates


@dataclass(frozen=True, slots=True)
class Recency:
    """How much a time counts, seen from `now`."""

    half_life: timedelta
    now: datetime

    @staticmethod
    def parse(newer: str | None, now: datetime) -> Recency | None:
        """The preference that `newer`, a half-life such as 30d, asks for; None asks for none."""
        return None if newer is None else Recency(dates.duration(newer, "newer"), now)

    def weight(self, moment: str) -> float:
        """1 for the present and the future, half as much for each half-life that has passed."""
        try:
            when = datetime.fromisoformat(moment)
        except ValueError:  # of a server that sends what is no time
            return 1.0
        age = self.now - (when if when.tzinfo else when.replace(tzinfo=UTC))
        return float(0.5 ** max(0.0, age / self.half_life))
