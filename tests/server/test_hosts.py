from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb.cli.main import program
from mcpvectordb.hooks.run import EVENTS
from mcpvectordb_server.hosts import (
    HOSTS,
    SKILL,
    changed,
    command_line,
    hook_entries,
    remote_entry,
    set_up,
    token_of,
    write,
)
from mcpvectordb_server.settings import Entry

TOKEN = "a token of some length"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path / "AppData"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return tmp_path


def installed(name: str, settings: str | None = None) -> Path:
    """The settings file of a host that is made to be there."""
    host = HOSTS[name]
    (path,) = host.settings()
    host.folder(path).mkdir(parents=True, exist_ok=True)
    if settings is not None:
        path.write_text(settings)
    return path


def entry(name: str, db: Path = Path("~/notes.db"), *arguments: str) -> Entry:
    return HOSTS[name].local(command_line(db, arguments))


def test_the_command_line_has_absolute_paths_and_further_options(home: Path) -> None:
    command = command_line(Path("~/notes.db"), ["--surface", "all"])
    assert command[:3] == [sys.executable, "-m", "mcpvectordb_server"]
    assert command[3:] == ["--db", str(home / "notes.db"), "--surface", "all"]
    assert command_line(Path(":memory:"))[-3:] == [":memory:", "--surface", "desk"]


def test_a_python_that_may_be_gone_tomorrow_is_not_entered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(home / ".cache" / "uv" / "archive-v0" / "x7Gh"))
    with pytest.raises(InvalidInput, match="uv tool install mcpvectordb"):
        command_line(Path("~/notes.db"))


@pytest.mark.parametrize("named", [["--surface", "qmd"], ["--surface=qmd"]])
def test_the_surface_desk_is_entered_unless_another_is_named(named: list[str]) -> None:
    assert command_line(Path("a.db"), ["--read-only"])[-3:] == ["--surface", "desk", "--read-only"]
    assert "desk" not in command_line(Path("a.db"), named)


@pytest.mark.parametrize("arguments", [["--surfase", "all"], ["--surface", "none"], ["stray"]])
def test_options_that_the_server_would_not_take_are_refused(arguments: list[str]) -> None:
    with pytest.raises(InvalidInput):
        command_line(Path("a.db"), arguments)


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_gets_its_entry_and_loses_it_again(name: str, home: Path) -> None:
    path = installed(name)
    wanted = entry(name)
    assert f"Written to {path}" in set_up(name, wanted)
    written = path.read_text()
    assert str(home / "notes.db") in written
    assert "already set up" in set_up(name, wanted)
    assert path.read_text() == written
    set_up(name, None)
    assert "mcpvectordb" not in path.read_text()
    with pytest.raises(InvalidInput, match="nothing was removed"):
        set_up(name, None)


def test_each_host_names_the_page_that_its_entry_was_checked_by() -> None:
    for name, host in HOSTS.items():
        assert re.fullmatch(r"https://[\w.-]+/[\w./-]+", host.page), name


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_reaches_a_server_over_http_or_says_that_it_cannot(name: str, home: Path) -> None:
    path, url = installed(name), "http://127.0.0.1:8000/mcp"
    if HOSTS[name].remote is None:
        with pytest.raises(InvalidInput, match="only starts servers by a command"):
            remote_entry(HOSTS[name], url, TOKEN)
    else:
        set_up(name, remote_entry(HOSTS[name], url, TOKEN))
        assert url in path.read_text() and f"Bearer {TOKEN}" in path.read_text()


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "file:///etc/passwd", "http://", ""])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="must be a URL"):
        remote_entry(HOSTS["cursor"], url, TOKEN)


def test_the_token_is_the_given_one_or_that_of_this_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.delenv("MCPVECTORDB_TOKEN", raising=False)
    with pytest.raises(InvalidInput, match="set MCPVECTORDB_TOKEN to the bearer token of https"):
        token_of("https://notes.example/mcp")
    assert token_of("http://localhost:8000/mcp") == token_of("http://127.0.0.1:9000/mcp")
    monkeypatch.setenv("MCPVECTORDB_TOKEN", TOKEN)
    assert token_of("https://notes.example/mcp") == TOKEN


def test_roots_are_absolute_folders(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    (home / "papers").mkdir()
    command = command_line(Path("a.db"), ["--surface", "all"], [Path("papers"), Path("~")])
    roots = ["--root", str(home / "papers"), "--root", str(home)]
    assert command[5:] == [*roots, "--surface", "all"]
    with pytest.raises(InvalidInput, match="nowhere is not a folder"):
        command_line(Path("a.db"), roots=[Path("nowhere")])


@pytest.mark.parametrize(
    ("answer", "options", "written"),
    [
        ("papers\n", [], ["--root", "HOME/papers"]),
        ("\n", [], []),
        ("never read", ["--root", "papers"], ["--root", "HOME/papers"]),
        ("never read", ["--", "--root", "papers"], ["--root", "papers"]),
    ],
)
def test_the_command_asks_for_a_root_on_a_terminal(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    options: list[str],
    written: list[str],
) -> None:
    path = installed("cursor")
    (home / "papers").mkdir()
    monkeypatch.chdir(home)
    for terminal, expected in ((True, written), (False, written if options else [])):
        typed = io.StringIO(answer)
        monkeypatch.setattr(typed, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(sys, "stdin", typed)
        program.main(["--db", "x.db", "setup", "cursor", *options], standalone_mode=False)
        arguments = json.loads(path.read_text())["mcpServers"]["mcpvectordb"]["args"]
        rest = [each for each in arguments[4:] if each not in ("--surface", "desk")]
        assert rest == [each.replace("HOME", str(home)) for each in expected]
        said = "any file that you can read, except secrets; --root" in capsys.readouterr().err
        assert said is not bool(expected)


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("darwin", "HOME/Library/Application Support"),
        ("win32", "/R"),
        ("linux", "HOME/.config"),
    ],
)
def test_the_settings_path_is_that_of_the_platform(platform: str, folder: str, home: Path) -> None:
    paths = HOSTS["claude-desktop"].settings(platform=platform, environ={"APPDATA": "/R"})
    path = Path(folder.replace("HOME", str(home))) / "Claude/claude_desktop_config.json"
    assert paths == [path]


def test_both_ways_to_install_claude_desktop_on_windows_are_found(home: Path) -> None:
    store = home / "Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    store.mkdir(parents=True)
    desktop, name = HOSTS["claude-desktop"], "claude_desktop_config.json"
    assert desktop.settings(platform="win32") == [store / name]
    (own := home / "AppData/Claude").mkdir(parents=True)
    assert desktop.settings(platform="win32") == [own / name, store / name]


def test_other_servers_and_comments_stay(home: Path) -> None:
    before = '{\n  // mine\n  "context_servers": {"other": {"command": "x"}}\n}\n'
    path = installed("zed", before)
    said = set_up("zed", entry("zed"))
    for kept in ("// mine", '"other": {"command": "x"}'):
        assert kept in path.read_text()
    assert '+    "mcpvectordb": {' in said and f"Written to {path}" in said


def test_the_old_file_is_kept_and_its_mode_too(home: Path) -> None:
    path = installed("cursor", '{"mcpServers": {}}')
    path.chmod(0o600)
    set_up("cursor", entry("cursor"))
    (backup,) = path.parent.glob("mcp.json.*.bak")
    assert backup.read_text() == '{"mcpServers": {}}'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {each.name for each in path.parent.iterdir()} == {path.name, backup.name, "skills"}


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_nothing_that_is_written_can_be_read_by_others_even_for_a_moment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = installed("cursor", '{"mcpServers": {"other": {"env": {"KEY": "secret"}}}}')
    path.chmod(0o600)
    modes: list[int] = []
    change_mode = os.chmod

    def noting_the_mode_before(name: str, mode: int, **options: bool) -> None:
        modes.append(stat.S_IMODE(Path(name).stat().st_mode))
        change_mode(name, mode, **options)

    monkeypatch.setattr(os, "chmod", noting_the_mode_before)
    set_up("cursor", entry("cursor"))
    assert modes == [0o600, 0o600]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_a_new_settings_file_is_for_its_owner_only(home: Path) -> None:
    path = installed("cursor")
    set_up("cursor", entry("cursor"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_dry_run_shows_the_change_and_writes_nothing(home: Path) -> None:
    path = installed("cursor")
    said = set_up("cursor", entry("cursor"), dry_run=True)
    assert '+    "mcpvectordb": {' in said
    assert not path.exists()


@pytest.mark.parametrize("name", HOSTS)
def test_for_a_missing_host_nothing_is_written(name: str, home: Path) -> None:
    with pytest.raises(InvalidInput, match="was not found on this machine") as error:
        set_up(name, entry(name))
    assert f"mcpvectordb setup {name} --print" in str(error.value)
    assert list(home.iterdir()) == []


def test_claude_code_is_detected_by_its_folder(home: Path) -> None:
    (home / ".claude").mkdir()
    set_up("claude-code", entry("claude-code"))
    settings = json.loads((home / ".claude.json").read_text())
    assert settings["mcpServers"]["mcpvectordb"]["type"] == "stdio"


def test_a_broken_settings_file_is_refused_and_not_changed(home: Path) -> None:
    path = installed("cursor", '{"mcpServers": ')
    with pytest.raises(InvalidInput, match="was left as it is: it is not JSON"):
        set_up("cursor", entry("cursor"))
    assert path.read_text() == '{"mcpServers": '
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInput, match="cannot be read"):
        set_up("cursor", entry("cursor"))


def test_a_file_changed_by_another_program_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    after = changed(HOSTS["cursor"], path, "{}", entry("cursor"))
    path.write_text('{"mcpServers": {"new": {}}}')
    with pytest.raises(InvalidInput, match="changed by another program"):
        write(path, "{}", after)
    assert path.read_text() == '{"mcpServers": {"new": {}}}'


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_settings_behind_a_symbolic_link_are_changed_in_place(home: Path) -> None:
    path = installed("cursor")
    kept = home / "dotfiles.json"
    kept.write_text("{}")
    path.symlink_to(kept)
    set_up("cursor", entry("cursor"))
    assert path.is_symlink()
    assert "mcpvectordb" in kept.read_text()


def test_an_unknown_host_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="no host 'emacs'; known are claude-desktop, claude-c"):
        set_up("emacs", None)


HOOKED = [name for name, host in HOSTS.items() if host.hooks]


@pytest.mark.parametrize("name", HOOKED)
def test_hooks_and_the_skill_are_entered_beside_those_of_others_and_removed_again(
    name: str, home: Path
) -> None:
    installed(name)
    file, skill = HOSTS[name].hooks_file(), HOSTS[name].skill_file()
    event = HOSTS[name].hooks["events"][0]
    other = {event: [{"command": "theirs"}], "Else": [{"command": "theirs"}]}
    settings = {"theme": "dark", "hooks": other}
    file.write_text(json.dumps(settings, indent=2))
    report = set_up(name, entry(name), hooks=hook_entries(name, home / "a b.db"))
    written = json.loads(file.read_text())["hooks"]
    assert set(HOSTS[name].hooks["events"]) <= set(EVENTS[name])
    assert [each for each in written if each != "Else"] == [
        each for each in written if each in HOSTS[name].hooks["events"]
    ]
    assert written[event][0] == {"command": "theirs"}
    assert f"hook {event} --host {name} --db '{home / 'a b.db'}'" in json.dumps(written[event][1])
    assert f"+++ {file}" in report and skill.read_text() == SKILL.read_text()
    again = file.read_text()
    set_up(name, entry(name), hooks=hook_entries(name, home / "a b.db"))
    set_up(name, entry(name))
    assert file.read_text() == again
    set_up(name, None)
    left = json.loads(file.read_text())
    assert left["hooks"] == other and left["theme"] == "dark"
    assert not skill.parent.exists()


def test_the_hook_before_a_prompt_is_entered_on_request_only(home: Path) -> None:
    assert "UserPromptSubmit" not in hook_entries("claude-code", home / "a.db")
    entries = hook_entries("claude-code", home / "a.db", prompts=True)
    assert list(entries) == [*HOSTS["claude-code"].hooks["events"], "UserPromptSubmit"]
    with pytest.raises(InvalidInput, match="takes nothing from a hook before a prompt"):
        hook_entries("cursor", home / "a.db", prompts=True)
    with pytest.raises(InvalidInput, match="hooks of Zed are not known; they are of claude-code"):
        hook_entries("zed", home / "a.db")


def test_every_event_of_the_hooks_is_one_that_the_command_knows() -> None:
    for name in HOOKED:
        hooks = HOSTS[name].hooks
        known = {*hooks["events"], *([hooks["prompt"]] if "prompt" in hooks else [])}
        assert known == set(EVENTS[name])


def test_hooks_of_cursor_begin_a_file_with_its_version(home: Path) -> None:
    installed("cursor")
    set_up("cursor", entry("cursor"), hooks=hook_entries("cursor", home / "a.db"))
    written = json.loads(HOSTS["cursor"].hooks_file().read_text())
    assert written["version"] == 1
    assert list(written["hooks"]["sessionStart"][0]) == ["command"]


def test_a_skill_that_was_changed_by_hand_stays(home: Path) -> None:
    installed("cursor")
    set_up("cursor", entry("cursor"))
    skill = HOSTS["cursor"].skill_file()
    skill.write_text("mine")
    set_up("cursor", None)
    assert skill.read_text() == "mine"


def test_the_skill_is_short_and_has_its_header() -> None:
    text = SKILL.read_text()
    assert text.startswith("---\nname: mcpvectordb\ndescription: ")
    assert len(text.split()) < 500


def test_the_command_enters_hooks(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installed("claude-code")
    program.main(
        ["--db", str(home / "x.db"), "setup", "claude-code", "--hooks", "--root", str(home)],
        standalone_mode=False,
    )
    written = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert list(written)[::-1] == ["SessionStart", "Stop", "PreCompact", "SessionEnd"]
    group = written["Stop"][0]["hooks"][0]
    assert group["type"] == "command" and group["timeout"] == 10
    program.main(["setup", "claude-code", "--remove"], standalone_mode=False)
    assert "Stop" not in (home / ".claude" / "settings.json").read_text()
