"""Pack the bundle of this project.

`python -m mcpvectordb_server.packaging.pack FOLDER` writes it. A bundle (.mcpb) is a ZIP file of
the manifest and the project's source; the host's uv installs the dependencies. It is packed from a
checkout, and two packs of one checkout have the same bytes.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from mcpvectordb import InvalidInput

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
PACKAGES = ("mcpvectordb", "mcpvectordb_server")
BESIDE = ("pyproject.toml", "README.md", "LICENSE")


def read(name: str) -> dict[str, Any]:
    """The content of one of the two files."""
    value: dict[str, Any] = json.loads((HERE / name).read_text())
    return value


def pack(folder: Path, checkout: Path = CHECKOUT) -> Path:
    """Write the bundle of a checkout into a folder; returns its path.

    InvalidInput reports that `checkout` is none.
    """
    manifest = read("manifest.json")
    if missing := [name for name in BESIDE if not (checkout / name).is_file()]:
        raise InvalidInput(
            f"the bundle is packed from a checkout of the project; {checkout} has no "
            f"{', '.join(missing)}"
        )
    found = [checkout / name for name in BESIDE]
    for package in PACKAGES:
        found += [path for path in (checkout / package).rglob("*") if path.is_file()]
    files = {
        path.relative_to(checkout).as_posix(): path
        for path in found
        if "__pycache__" not in path.parts
    }
    bundle = folder / f"{manifest['name']}-{manifest['version']}.mcpb"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in [("manifest.json", HERE / "manifest.json"), *sorted(files.items())]:
            # The same time in every pack, so that two packs have the same bytes.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return bundle


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
