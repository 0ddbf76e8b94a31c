from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcpvectordb import __version__
from mcpvectordb_server import hosts, options
from mcpvectordb_server.surfaces.mcpvectordb import SURFACE
from tests.support import ROOT

pack = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci" / "bundle")))
MANIFEST, SERVER = pack.read("manifest.json"), pack.read("server.json")


def test_every_version_string_is_the_same() -> None:
    project = tomllib.loads((pack.CHECKOUT / "pyproject.toml").read_text())["project"]
    pypi, image = SERVER["packages"]
    versions = [each["version"] for each in (MANIFEST, SERVER, project, pypi)]
    assert set(versions) == {__version__}
    assert image["identifier"] == f"ghcr.io/mcpvectordb/mcpvectordb:{__version__}"
    docker = (ROOT / ".docker" / "Dockerfile").read_text("utf-8")
    assert f'image.version="{__version__}"' in docker
    assert f'io.modelcontextprotocol.server.name="{SERVER["name"]}"' in docker
    assert f"<!-- mcp-name: {SERVER['name']} -->" in (ROOT / "README.md").read_text("utf-8")
    formula = (ROOT / ".github" / "homebrew" / "mcpvectordb.rb").read_text("utf-8")
    assert f"/v{__version__}/mcpvectordb-{__version__}.tar.gz" in formula


def test_the_manifest_is_as_its_format_says_and_lists_the_tools_as_they_are() -> None:
    needed = {"manifest_version", "name", "version", "description", "author", "server"}
    known = {"display_name", "license", "keywords", "user_config", "compatibility", "tools"}
    assert needed <= MANIFEST.keys() <= needed | known
    assert [(each["name"], each["description"]) for each in MANIFEST["tools"]] == [
        (tool.name, tool.title) for tool in SURFACE.tools
    ]
    for option in MANIFEST["user_config"].values():
        assert {"type", "title", "description"} <= option.keys()
    used = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(MANIFEST["server"]))
    assert set(used) == MANIFEST["user_config"].keys()
    assert (pack.CHECKOUT / MANIFEST["server"]["entry_point"]).is_file()


def test_the_entry_of_the_registry_is_as_its_format_says() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", SERVER["name"])
    assert 1 <= len(SERVER["description"]) <= 100
    for package in SERVER["packages"]:
        assert {"registryType", "identifier", "transport"} <= package.keys()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A complete checkout, also where the tests run from an incomplete one."""
    root = tmp_path / "checkout"
    root.mkdir()
    for name in pack.PACKAGES:
        (root / name).symlink_to(pack.CHECKOUT / name)
    for name in pack.BESIDE:
        (root / name).write_text("beside\n")
    return root


def test_the_bundle_holds_manifest_and_source_and_starts(checkout: Path, tmp_path: Path) -> None:
    bundle = pack.pack(tmp_path, checkout)
    assert bundle.name == f"mcpvectordb-{__version__}.mcpb"
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    assert names[0] == "manifest.json"
    assert {"pyproject.toml", "README.md", "LICENSE", "mcpvectordb/__init__.py"} <= set(names)
    assert not any("__pycache__" in name for name in names)
    manifest = json.loads((tmp_path / "installed" / "manifest.json").read_text())
    assert (tmp_path / "installed" / manifest["server"]["entry_point"]).is_file()
    done = subprocess.run(
        [sys.executable, "-m", "mcpvectordb_server", "--version"],
        cwd=tmp_path / "installed",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"mcpvectordb {__version__}\n"


def test_two_packs_of_one_checkout_are_the_same_bytes(checkout: Path, tmp_path: Path) -> None:
    first = pack.pack(tmp_path, checkout).read_bytes()
    assert pack.pack(tmp_path, checkout).read_bytes() == first


def test_packing_an_incomplete_checkout_fails(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "LICENSE").unlink()
    assert pack.main([str(tmp_path)], checkout) == 1
    assert capsys.readouterr().err.endswith("has no LICENSE\n")


def _environ(**chosen: str) -> dict[str, str]:
    """The variables that a host sets for the bundle when the user chose these values."""
    values = {name: option["default"] for name, option in MANIFEST["user_config"].items()} | chosen
    return {
        name: re.sub(r"\$\{user_config\.(\w+)\}", lambda found: values[found[1]], value)
        for name, value in MANIFEST["server"]["mcp_config"]["env"].items()
    }


def test_the_bundle_uses_the_default_file_and_all_folders_unless_the_user_chooses() -> None:
    assert options.parse([], _environ()) == options.parse([], {})
    parsed = options.parse([], _environ(db="/a.db", surface="qmd", root="/"))
    assert (parsed.db, parsed.surfaces, parsed.roots) == (Path("/a.db"), ("qmd",), (Path("/"),))


def test_the_readme_has_the_line_by_which_the_registry_knows_the_package() -> None:
    assert f"<!-- mcp-name: {SERVER['name']} -->" in (pack.CHECKOUT / "README.md").read_text()


CLAUDE, GEMINI = ROOT / ".claude-plugin", ROOT / ".gemini-extension"


def test_the_plugins_have_the_version_and_the_skill_of_this_package() -> None:
    plugin, listed, extension = (
        json.loads(path.read_text())
        for path in (
            CLAUDE / "plugin.json",
            CLAUDE / "marketplace.json",
            GEMINI / "gemini-extension.json",
        )
    )
    shown = (plugin, extension, *listed["plugins"])
    assert {(each["name"], each["version"]) for each in shown} == {("mcpvectordb", __version__)}
    for folder in (ROOT / plugin["skills"], GEMINI / "skills"):
        assert (folder / "mcpvectordb" / "SKILL.md").read_text() == hosts.SKILL.read_text()


def test_the_plugins_have_the_hooks_that_setup_enters_and_a_server_that_starts() -> None:
    claude = json.loads((CLAUDE / "plugin.json").read_text())["hooks"]
    gemini = json.loads((GEMINI / "hooks" / "hooks.json").read_text())["hooks"]
    for host, found in (("gemini", gemini), ("claude-code", claude)):
        entered = hosts.hook_entries(host, "", program=["mcpvectordb"])
        shown = json.dumps({event: [each] for event, each in entered.items()})
        assert json.loads(shown.replace(" --host claude-code", "")) == found
    for file in (CLAUDE / "plugin.json", GEMINI / "gemini-extension.json"):
        (entry,) = json.loads(file.read_text())["mcpServers"].values()
        assert entry["args"][0] == "serve"
        options.parse(entry["args"][1:], {})
