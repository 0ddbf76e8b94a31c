from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb_server import setup
from mcpvectordb_server.setup import HOSTS, SettingsChange, apply, entry, plan, set_up


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path / "AppData"))
    return tmp_path


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_gets_an_entry_with_absolute_paths(name: str, home: Path) -> None:
    path = HOSTS[name].settings()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    set_up(name, Path("~/notes.db"))
    written = json.loads(path.read_text())[HOSTS[name].section]["mcpvectordb"]
    assert written["command"] == sys.executable
    assert written["args"] == ["-m", "mcpvectordb_server", "--db", str(home / "notes.db")]


def test_the_settings_path_is_that_of_the_platform(home: Path) -> None:
    desktop = HOSTS["claude-desktop"]
    assert (
        desktop.settings(platform="darwin")
        == home / "Library/Application Support/Claude/claude_desktop_config.json"
    )
    assert desktop.settings(platform="win32", environ={"APPDATA": "/R"}) == Path(
        "/R/Claude/claude_desktop_config.json"
    )
    assert desktop.settings(platform="linux") == home / ".config/Claude/claude_desktop_config.json"


def test_other_servers_and_comments_stay(home: Path) -> None:
    path = HOSTS["zed"].settings()
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "context_servers": {"other": {"command": "x"}}\n}\n')
    said = set_up("zed", home / "notes.db")
    assert "// mine" in path.read_text()
    assert '"other": {"command": "x"}' in path.read_text()
    assert '+    "mcpvectordb": {' in said
    assert f"Written to {path}" in said


def test_the_old_file_is_kept_and_its_mode_too(home: Path) -> None:
    path = HOSTS["cursor"].settings()
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {}}')
    path.chmod(0o600)
    set_up("cursor", home / "notes.db")
    (backup,) = path.parent.glob("mcp.json.*.bak")
    assert backup.read_text() == '{"mcpServers": {}}'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == sorted([path.name, backup.name])


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_nothing_that_is_written_can_be_read_by_others_even_for_a_moment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = HOSTS["cursor"].settings()
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"other": {"env": {"KEY": "secret"}}}}')
    path.chmod(0o600)
    modes: list[int] = []
    change_mode = os.chmod

    def noting_the_mode_before(name: str, mode: int, **options: bool) -> None:
        modes.append(stat.S_IMODE(Path(name).stat().st_mode))
        change_mode(name, mode, **options)

    monkeypatch.setattr(os, "chmod", noting_the_mode_before)
    set_up("cursor", home / "notes.db")
    assert modes == [0o600, 0o600]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_a_new_settings_file_is_for_its_owner_only(home: Path) -> None:
    path = HOSTS["cursor"].settings()
    path.parent.mkdir(parents=True)
    set_up("cursor", home / "notes.db")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_dry_run_shows_the_change_and_writes_nothing(home: Path) -> None:
    path = HOSTS["cursor"].settings()
    path.parent.mkdir(parents=True)
    said = set_up("cursor", home / "notes.db", dry_run=True)
    assert '+    "mcpvectordb": {' in said
    assert not path.exists()


def test_a_second_setup_changes_nothing_and_remove_removes_the_entry(home: Path) -> None:
    path = HOSTS["vscode"].settings()
    path.parent.mkdir(parents=True)
    path.write_text('{"servers": {"other": {}}}')
    set_up("vscode", home / "notes.db")
    assert "already set up" in set_up("vscode", home / "notes.db")
    set_up("vscode", home / "notes.db", remove=True)
    assert json.loads(path.read_text()) == {"servers": {"other": {}}}
    assert "already without" in set_up("vscode", home / "notes.db", remove=True)


@pytest.mark.parametrize("name", HOSTS)
def test_for_a_missing_host_nothing_is_written_and_the_entry_is_shown(
    name: str, home: Path
) -> None:
    said = set_up(name, home / "notes.db")
    assert f"{HOSTS[name].title} was not found on this machine" in said
    assert '"mcpvectordb": {' in said
    assert list(home.iterdir()) == []


def test_claude_code_is_detected_by_its_folder(home: Path) -> None:
    (home / ".claude").mkdir()
    set_up("claude-code", home / "notes.db")
    assert (
        json.loads((home / ".claude.json").read_text())["mcpServers"]["mcpvectordb"]["type"]
        == "stdio"
    )


def test_a_broken_settings_file_is_refused_and_not_changed(home: Path) -> None:
    path = HOSTS["cursor"].settings()
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": ')
    with pytest.raises(InvalidInput, match="was left as it is: it is not JSON"):
        set_up("cursor", home / "notes.db")
    assert path.read_text() == '{"mcpServers": '
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInput, match="cannot be read"):
        set_up("cursor", home / "notes.db")


def test_a_file_changed_by_another_program_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    change = plan(HOSTS["cursor"], path, entry(HOSTS["cursor"], tmp_path / "notes.db"))
    path.write_text('{"mcpServers": {"new": {}}}')
    with pytest.raises(InvalidInput, match="changed by another program"):
        apply(change)
    assert path.read_text() == '{"mcpServers": {"new": {}}}'


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_settings_behind_a_symbolic_link_are_changed_in_place(home: Path) -> None:
    path = HOSTS["cursor"].settings()
    path.parent.mkdir(parents=True)
    kept = home / "dotfiles.json"
    kept.write_text("{}")
    path.symlink_to(kept)
    set_up("cursor", home / "notes.db")
    assert path.is_symlink()
    assert "mcpvectordb" in kept.read_text()


def test_further_server_options_are_put_into_the_entry(home: Path) -> None:
    assert entry(HOSTS["cursor"], home / "a.db", ["--surface", "all"])["args"][-2:] == [
        "--surface",
        "all",
    ]


def test_an_unknown_host_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidInput,
        match="there is no host 'emacs'; known are claude-desktop, claude-code, cursor",
    ):
        set_up("emacs", Path("a.db"))


def test_a_change_without_difference_has_no_diff(tmp_path: Path) -> None:
    assert SettingsChange(path=tmp_path, before="a\n", after="a\n").diff == ""
    assert setup.NAME == "mcpvectordb"
