"""What benchmarks print: the machine, a table, and what is to be said about it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def show(rows: Sequence[Row], notes: Sequence[str] = (), *, as_json: bool = False) -> None:
    """Print rows of figures, and sentences about them."""
    if as_json:
        print(json.dumps({"machine": machine(), "rows": rows, "notes": notes}, indent=2))
    else:
        print("\n".join([machine(), "", table(rows), "", *notes]).rstrip())


def table(rows: Sequence[Row]) -> str:
    """Rows with the same names as a Markdown table; numbers to the right."""
    names = list(rows[0])
    rules = [
        "--:" if any(isinstance(row[name], int | float) for row in rows) else "---"
        for name in names
    ]
    lines = [names, rules, *([written(row[name]) for name in names] for row in rows)]
    rule = f"|{'|'.join(rules)}|"
    return "\n".join(rule if line is rules else f"| {' | '.join(line)} |" for line in lines)


def written(value: Any) -> str:
    """A number as people read it: three digits that count, and commas; nothing is a dash."""
    if value is None:
        return "–"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3}f}"


def verdict(value: float, target: float) -> str:
    """Whether a value that should be small is."""
    return f"{'within' if value <= target else 'ABOVE'} the target of {target:g}"


def machine() -> str:
    """Where this was measured."""
    import apsw

    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{os.cpu_count()} × {_processor()}{load}, {platform.system()}, Python "
        f"{platform.python_version()}, SQLite {apsw.sqlite_lib_version()}."
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
