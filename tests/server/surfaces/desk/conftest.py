from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pymupdf
import pytest

from mcpvectordb import Database
from tests.server.surfaces.desk.agent import Agent

FILES = {
    "handbook/travel.md": "# Travel\n\n## Daily allowance\n\nThe daily allowance for trips inside "
    "the country is 28 euros.\nAbroad it is 45 euros.\n\n## Trains\n\nJourneys of less than four "
    "hours are made by train, second class.\n",
    "handbook/vacation.md": "# Vacation\n\nEverybody has 30 days of vacation a year. Days that are "
    "left over expire at the end of March of the following year.\n",
    "handbook/security.md": "---\ntags: [security, policy]\nyear: 2024\n---\n# Passwords\n\n"
    "Passwords have at least sixteen characters and are kept in the password manager.\n",
    "minutes/2025-03-04.md": "---\nyear: 2025\n---\n# Meeting of 4 March\n\nWe decided to move the "
    "servers to Hamburg. Anna takes care of it.\n",
    "minutes/2025-05-06.md": "---\nyear: 2025\n---\n# Meeting of 6 May\n\nThe move to Hamburg is "
    "postponed until autumn, because the data centre is not ready.\n",
    "letters/offer.txt": "Dear Sir,\n\nwe are pleased to offer you a main-\ntenance contract for "
    "all seven ele-\nvators at 4,200 euros a year.\n\nYours sincerely\n",
    "code/retry.py": 'import time\n\n\ndef retry(call, attempts=5):\n    """Call until it works, '
    'waiting twice as long each time."""\n    for attempt in range(attempts):\n        try:\n'
    "            return call()\n        except ConnectionError:\n            time.sleep(2**attempt)\n",
    "data/prices.csv": "article,price\nbolt M6,0.12\nbolt M8,0.17\nwasher M6,0.03\n",
    "manual/pump.md": "# Pump P-4021\n\nThis manual is for pumps of the series 4000.\n\n"
    + "".join(
        f"## Chapter {number}\n\n"
        + f"Paragraph of chapter {number} about valve V{number}. It is checked once a year. " * 12
        + "\n\n"
        for number in range(1, 21)
    )
    + "## Errors\n\nError E17 means that the inlet is blocked: close valve V3, then clean the "
    "filter.\n",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a small firm."""
    root = tmp_path_factory.mktemp("firm")
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    with pymupdf.open() as document:
        for text in (
            "Contract of lease",
            "The rent is 1,900 euros a month, due on the third working day.",
            "Notice can be given with six months' warning.",
        ):
            document.new_page().insert_text((72, 72), text)
        document.save(root / "letters/lease.pdf")
    os.utime(root / "handbook/vacation.md", (10**9, 10**9))
    return root


@pytest.fixture(scope="module")
def firm(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database with these files, embedded by the model that a user has."""
    with Database(tmp_path_factory.mktemp("firm") / "firm.db") as db:
        db.documents.add_library("firm", folder, description="handbook, minutes, letters")
        db.documents.sync()
        yield db


@pytest.fixture(scope="module")
def agent(firm: Database) -> Agent:
    return Agent(firm)
