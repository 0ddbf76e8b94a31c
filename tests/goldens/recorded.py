"""Goldens: values as text that is the same on every machine, compared with what was recorded."""

from __future__ import annotations

import json
import re
from difflib import unified_diff
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\d\b")
# What depends on the machine, the release of SQLite or the moment.
_MEASURED = frozenset(
    """seconds milliseconds bytes size size_bytes database_size_mb db_size_mb unused free_bytes
    disk_usage took elapsed space history_bytes parser installed get_it data_version port pid stamp execution_time_ms cpu""".split()
)


class Recorded:
    """Compares values with goldens; `renew` writes them instead."""

    def __init__(self, folder: Path, *, renew: bool) -> None:
        self._folder, self._renew = str(folder), renew

    def __call__(self, name: str, value: Any) -> None:
        """Compare a value with the golden of this name."""
        path = FOLDER / f"{name}.json"
        text = json.dumps(_stable(value), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        text = self._named(text)
        if self._renew:
            path.write_text(text, encoding="utf-8")
        golden = path.read_text(encoding="utf-8") if path.exists() else ""
        changes = unified_diff(
            golden.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=2
        )
        assert not (shown := "\n".join(list(changes)[:80])), shown

    def _named(self, text: str) -> str:
        """A text with names for ids, in their order, and for times and the folder."""
        names: dict[str, str] = {}
        text = text.replace(self._folder, "FOLDER")
        text = _UUID.sub(lambda id: names.setdefault(id[0], f"ID-{len(names) + 1}"), text)
        return _DATE.sub("DATE", _TIME.sub("TIME", text))


def _stable(value: Any) -> Any:
    """A value without what differs from run to run, and with six digits of each number."""
    if isinstance(value, dict):
        return {
            str(key): "MEASURED" if key in _MEASURED and each is not None else _stable(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_stable(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:  # JSON inside of a text block, readable in a diff
            return {"(JSON)": _stable(json.loads(value))}
        except ValueError:
            return value.splitlines()
    return value.splitlines() if isinstance(value, str) and "\n" in value else value
