from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mcpvectordb import __version__
from mcpvectordb_server import options
from mcpvectordb_server.packaging import pack
from mcpvectordb_server.packaging.pack import problems, project_version, read
from mcpvectordb_server.surfaces.mcpvectordb import SURFACE


def test_every_version_string_is_the_same() -> None:
    server, manifest = read("server.json"), read("manifest.json")
    versions = {
        __version__,
        project_version(),
        manifest["version"],
        server["version"],
        *(package["version"] for package in server["packages"]),
    }
    assert versions == {__version__}
    assert SURFACE.version == "0.2.0"


def test_manifest_and_registry_entry_are_valid() -> None:
    assert problems(read("manifest.json"), read("server.json")) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": "9.9.9"}, "manifest.json is for version 9.9.9, the program is"),
        ({"colour": "red"}, "manifest.json has an unknown colour"),
        ({"author": None}, "manifest.json lacks author"),
        ({"tools": []}, "manifest.json does not list the tools as they are"),
        ({"user_config": {}}, "manifest.json: the option db is not there"),
        (
            {
                "user_config": {
                    "db": {"type": "string"},
                    "x": {"type": "string", "title": "X", "description": "X"},
                }
            },
            "manifest.json: the option db lacks description, title",
        ),
        (
            {"server": {"entry_point": "nowhere.py"}},
            "manifest.json: the entry point is no file of the bundle",
        ),
    ],
)
def test_an_invalid_manifest_is_reported(changes: dict[str, object], problem: str) -> None:
    manifest = {**read("manifest.json"), **changes}
    manifest = {key: value for key, value in manifest.items() if value is not None}
    assert any(each.startswith(problem) for each in problems(manifest, read("server.json")))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "mcpvectordb"}, "server.json: the name must be"),
        ({"description": "x" * 101}, "server.json: the description must have 1 to 100 characters"),
        ({"version": "9.9.9"}, "server.json is for version"),
        ({"packages": [{"version": __version__}]}, "server.json: a package lacks registryType"),
    ],
)
def test_an_invalid_registry_entry_is_reported(changes: dict[str, object], problem: str) -> None:
    assert any(
        each.startswith(problem)
        for each in problems(read("manifest.json"), {**read("server.json"), **changes})
    )


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
    manifest = read("manifest.json")
    values = {name: option["default"] for name, option in manifest["user_config"].items()} | chosen
    return {
        name: re.sub(r"\$\{user_config\.(\w+)\}", lambda found: values[found[1]], value)
        for name, value in manifest["server"]["mcp_config"]["env"].items()
    }


def test_the_bundle_uses_the_default_file_and_all_folders_unless_the_user_chooses() -> None:
    assert options.parse([], _environ()) == options.parse([], {})
    parsed = options.parse([], _environ(db="/a.db", surface="qmd", root="/"))
    assert (parsed.db, parsed.surfaces, parsed.roots) == (Path("/a.db"), ("qmd",), (Path("/"),))


def test_the_readme_has_the_line_by_which_the_registry_knows_the_package() -> None:
    name = read("server.json")["name"]
    assert f"<!-- mcp-name: {name} -->" in (pack.CHECKOUT / "README.md").read_text()
