"""What a model reads of our replies through real hosts: they differ in what they pass on.

EXTERNAL_JUDGES=1 python -m pytest tests/external --full -rs
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mcpvectordb import Database
from mcpvectordb_server.hosts import HOSTS as KNOWN
from mcpvectordb_server.hosts import hook_entries, with_hooks
from tests.external.hosts import HOSTS, PROMPT, Setting
from tests.external.judges import ROOT
from tests.external.scripted_model import ANSWER, Call, ScriptedModel
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
    # Claude Code offers to ask its user also where there is none, and closes the question then.
    server = [sys.executable, "-m", "mcpvectordb_server", "--db", str(path), "--unattended"]
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


@pytest.mark.parametrize(
    ("host", "command"),
    [
        ("Claude Code", ["plugin", "validate", str(ROOT)]),
        ("Gemini CLI", ["extensions", "validate", str(ROOT / ".gemini-extension")]),
    ],
)
def test_a_host_finds_our_plugin_valid(host: str, command: list[str], tmp_path: Path) -> None:
    checked = HOSTS[host]._replace(prepare=lambda _: (command, {}))
    done = checked.run(Setting(tmp_path, "", [], {}))
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("host", "name"),
    [("Claude Code", "claude-code"), ("Gemini CLI", "gemini"), ("Codex", "codex")],
)
def test_a_session_is_briefed_and_kept(
    host: str, name: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    with Database(path) as db:
        db.memories.add("work", "user", "The gauge reads 4711.", tags=["standing"])

    def prepare(setting: Setting) -> tuple[list[str], dict[str, str]]:
        arguments, environ = HOSTS[host].prepare(setting)
        file = KNOWN[name].hooks_file()
        before = file.read_text() if file.exists() else ""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(with_hooks(KNOWN[name], before, hook_entries(name, path)))
        if name == "codex":
            arguments.insert(1, "--dangerously-bypass-hook-trust")
        return arguments, {**environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(home)}

    server = [sys.executable, "-m", "mcpvectordb_server", "--db", str(tmp_path / "other.db")]
    with ScriptedModel([]) as model:
        done = (
            HOSTS[host]
            ._replace(prepare=prepare)
            .run(Setting(home, model.url, server, {"PYTHONPATH": str(ROOT)}))
        )
    log = "".join(each.read_text() for each in home.rglob("hooks.log"))
    assert any("The gauge reads 4711." in each for each in model.requests), (log, done)
    with Database(path) as db:
        kept = [each for each in db.memories if each.thread.startswith(f"work/{name} ")]
    assert [(each.source, each.text) for each in kept][:2] == [
        ("user", PROMPT),
        ("agent", ANSWER),
    ], (log, done)
