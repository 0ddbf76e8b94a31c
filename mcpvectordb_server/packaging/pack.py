"""Validate `server.json` and `manifest.json`, and pack the bundle of this project.

`python -m mcpvectordb_server.packaging.pack FOLDER` writes it. A bundle (.mcpb) is a ZIP file of
the manifest and the project's source; the host's uv installs the dependencies. It is packed from a
checkout, and two packs of one checkout have the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mcpvectordb import InvalidInput, __version__
from mcpvectordb_server.surfaces import load

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
PACKAGES = ("mcpvectordb", "mcpvectordb_server")
BESIDE = ("pyproject.toml", "README.md", "LICENSE")

_MANIFEST = {
    "manifest_version",
    "name",
    "version",
    "description",
    "author",
    "server",
    "display_name",
    "license",
    "keywords",
    "user_config",
    "compatibility",
    "tools",
}
_REQUIRED = {"manifest_version", "name", "version", "description", "author", "server"}
_OPTION = {"type", "title", "description"}


def read(name: str) -> dict[str, Any]:
    """The content of one of the two files."""
    value: dict[str, Any] = json.loads((HERE / name).read_text())
    return value


def problems(manifest: Mapping[str, Any], server: Mapping[str, Any]) -> list[str]:
    """Everything in which the two files contradict their formats, the program or each other."""
    return [*_manifest_problems(manifest), *_server_problems(server)]


def _manifest_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"manifest.json lacks {key}" for key in sorted(_REQUIRED - manifest.keys()))
    yield from (
        f"manifest.json has an unknown {key}" for key in sorted(manifest.keys() - _MANIFEST)
    )
    if manifest.get("version") != __version__:
        yield (
            f"manifest.json is for version {manifest.get('version')}, the program is {__version__}"
        )
    offered = [(tool.name, tool.title) for tool in load("mcpvectordb").tools]
    if [(tool["name"], tool["description"]) for tool in manifest.get("tools", [])] != offered:
        yield (
            "manifest.json does not list the tools as they are: "
            f"{', '.join(name for name, _ in offered)}"
        )
    options = manifest.get("user_config", {})
    yield from (
        f"manifest.json: the option {name} lacks {', '.join(sorted(_OPTION - option.keys()))}"
        for name, option in options.items()
        if not option.keys() >= _OPTION
    )
    used = set(re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(manifest.get("server", {}))))
    yield from (
        f"manifest.json: the option {name} is {'not used' if name in options else 'not there'}"
        for name in sorted(used ^ options.keys())
    )
    if not (CHECKOUT / manifest.get("server", {}).get("entry_point", "?")).is_file():
        yield "manifest.json: the entry point is no file of the bundle"


def _server_problems(server: Mapping[str, Any]) -> Iterator[str]:
    if not re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server.get("name", "")):
        yield "server.json: the name must be a reversed domain, a slash and a name"
    if not 1 <= len(server.get("description", "")) <= 100:
        yield "server.json: the description must have 1 to 100 characters"
    versions = {
        server.get("version"),
        *(package.get("version") for package in server.get("packages", [])),
    }
    if versions != {__version__}:
        yield (
            f"server.json is for version {', '.join(map(str, versions))}, the program is "
            f"{__version__}"
        )
    yield from (
        f"server.json: a package lacks {key}"
        for package in server.get("packages", [])
        for key in ("registryType", "identifier", "transport")
        if key not in package
    )


def pack(folder: Path, checkout: Path = CHECKOUT) -> Path:
    """Write the bundle of a checkout into a folder; returns its path.

    InvalidInput reports what is wrong with the files, or that `checkout` is none.
    """
    manifest = read("manifest.json")
    if found := problems(manifest, read("server.json")):
        raise InvalidInput("; ".join(found))
    if missing := [name for name in BESIDE if not (checkout / name).is_file()]:
        raise InvalidInput(
            f"the bundle is packed from a checkout of the project; {checkout} has no "
            f"{', '.join(missing)}"
        )
    bundle = folder / f"{manifest['name']}-{manifest['version']}.mcpb"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "manifest.json", HERE / "manifest.json")
        for path in sorted(_files(checkout)):
            _add(archive, path.relative_to(checkout).as_posix(), path)
    return bundle


def _files(checkout: Path) -> Iterator[Path]:
    yield from (checkout / name for name in BESIDE)
    for package in PACKAGES:
        yield from (
            path
            for path in (checkout / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    # The same time in every pack, so that two packs have the same bytes.
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, path.read_bytes())


def project_version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"])


def main(arguments: list[str] | None = None, checkout: Path = CHECKOUT) -> int:
    """Pack into the given folder, or into the current one; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        sys.stdout.write(f"{pack(Path(given[0] if given else '.'), checkout)}\n")
    except (InvalidInput, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
