"""What a model reads of our replies through real hosts: they differ in what they pass on.

EXTERNAL_JUDGES=1 python -m pytest tests/external --full -rs
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mcpvectordb import Database
from tests.external.hosts import HOSTS, Setting
from tests.external.judges import ROOT
from tests.external.scripted_model import Call, ScriptedModel
from tests.server.surfaces import readable

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not os.environ.get("EXTERNAL_JUDGES"), reason="runs only with EXTERNAL_JUDGES=1"
    ),
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_model_reads_every_reply(host: str, path: Path, tmp_path: Path) -> None:
    with Database(path) as db:
        turns = readable.fill(db, tmp_path)
    names = readable.exposed()
    server = [sys.executable, "-m", "mcpvectordb_server", "--db", str(path)]
    for surface in readable.surfaces():
        server += ["--surface", surface.name]
    environ = {
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
    }
    home = tmp_path / "home"
    home.mkdir()
    script = [Call(names[turn.surface, turn.tool], turn.arguments) for turn in turns]
    with ScriptedModel(script) as model:
        done = HOSTS[host].run(Setting(home, model.url, server, environ))
    assert model.offered >= {call.tool for call in script}, done.stderr[-3000:]
    assert len(model.results) == len(script), done.stderr[-3000:]
    for turn, result in zip(turns, model.results, strict=True):
        for part in turn.read:
            assert part in result, f"{turn.surface} {turn.tool} {turn.arguments}: {result}"
