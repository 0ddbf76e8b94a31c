"""A file format after the newest one, whose migration is long enough to be killed in."""

from __future__ import annotations

from pathlib import Path

from mcpvectordb.storage import schema
from mcpvectordb.storage.schema import MIGRATIONS, VERSION
from tests.torture.support_torture import opened

ROWS = 5_000
NEXT = f"""
ALTER TABLE documents ADD COLUMN torture INTEGER NOT NULL DEFAULT 0;
CREATE TABLE torture (number INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
INSERT INTO torture WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {ROWS})
SELECT value, hex(randomblob(100)) FROM n;
UPDATE documents SET torture = (SELECT count(*) FROM torture);
CREATE INDEX torture_by_text ON torture (text);
"""


def register_next_format(folder: Path) -> None:
    """Register one more migration in this process."""
    step = folder / f"{VERSION + 1:03}_torture.sql"
    step.write_text(NEXT)
    schema.MIGRATIONS = (*MIGRATIONS, step)
    schema.VERSION = VERSION + 1
    schema.made_rows.cache_clear()


def open_all(paths: list[Path], steps: Path) -> None:
    """What a child process does: migrate one file after the other to the next format."""
    register_next_format(steps)
    for path in paths:
        opened(path).close()
