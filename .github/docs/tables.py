"""Write the tables that are made from the code: `python .github/docs/tables.py` renews the pages.

A table stands between `<!-- NAME: ... -->` and `<!-- end -->`; `tests/test_docs.py` compares it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from mcpvectordb import Config
from mcpvectordb.cli.models import figure
from mcpvectordb.embedding.catalogue import CATALOGUE, ENGLISH_COLLECTIONS, Model
from mcpvectordb_server.hosts import HOSTS, McpHost

FOLDER = Path(__file__).parent


def settings() -> str:
    """The table of all fields of Config: variable, default, and what its docstring says."""
    meanings = _meanings()
    rows = [
        f"| `{each.name}` | `{Config.ENV_PREFIX}{each.name.upper()}` | {_shown(each.default)} | "
        f"{meanings[each.name]} |"
        for each in fields(Config)
    ]
    return "\n".join(["| field | variable | default | what it is |", "|---|---|---|---|", *rows])


def _meanings() -> Mapping[str, str]:
    """What the docstring of Config says of each field."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.getdoc(Config).splitlines():  # type: ignore[union-attr]
        if begins := re.match(r"(\w+) {2,}(.*)", line):
            name, found[begins[1]] = begins[1], begins[2]
        elif name and line:
            found[name] += f" {line.strip()}"
    return found


def _shown(default: object) -> str:
    if isinstance(default, bool) or default is None:
        return str(default).lower()
    return f'`"{default}"`' if isinstance(default, str) else f"{default:,}"


def hosts() -> str:
    """The table of the hosts that `setup` knows."""
    rows = [
        f"| [{host.title}]({host.page}) | `{name}` | {'<br>'.join(_files(host))} | "
        f"`{host.section}` | {'yes' if host.remote else 'no'} |"
        for name, host in HOSTS.items()
    ]
    head = "| host | `HOST` | settings file | section | `--http` |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def _files(host: McpHost) -> Iterator[str]:
    everywhere = host.paths("linux")
    yield f"`{_readable(everywhere[0])}`"
    for name, platform in (("macOS", "darwin"), ("Windows", "win32")):
        if (paths := host.paths(platform)) != everywhere:
            yield from (f"{name}: `{_readable(path)}`" for path in paths)


def _readable(path: str) -> str:
    """A path of the table of hosts as people write it."""
    return re.sub(r"{(\w+)}", lambda found: _VARIABLES[found[1]], path)


def models() -> str:
    """The table of the models of the catalogue, as `mcpvectordb model list` has them."""
    head = "| model | how it comes | size | vectors | languages | nDCG@10 hybrid: "
    rows = [
        f"| {model.name} | {_origin(model)} | {model.size / 1e6:.0f} MB | "
        f"{model.dimension if model.kind == 'embedder' else 'reranker'} | {model.languages} | "
        + " | ".join(figure(model.measured.get(name)) for name in COLLECTIONS)
        + " |"
        for model in CATALOGUE.values()
    ]
    return "\n".join(
        [head + " | ".join(COLLECTIONS) + " |", "|---|---|--:|--:|---|--:|--:|--:|--:|", *rows]
    )


def _origin(model: Model) -> str:
    return (
        "with the package" if model.command == "pip install mcpvectordb" else f"`{model.command}`"
    )


COLLECTIONS = (*ENGLISH_COLLECTIONS, "xquad-zh")
_VARIABLES = {"APPDATA": "%APPDATA%", "LOCALAPPDATA": "%LOCALAPPDATA%", "CODEX_HOME": "~/.codex"}

TABLES = {
    "settings.md": ("settings", settings),
    "agents.md": ("hosts", hosts),
    "models.md": ("models", models),
}


def renewed(page: str) -> str:
    """The text of a page with its table made anew."""
    name, table = TABLES[page]
    text = (FOLDER / page).read_text("utf-8")
    place = rf"(<!-- {name}: .*? -->\n).*?(\n<!-- end -->)"
    if not re.search(place, text, re.DOTALL):
        raise ValueError(f"{page} has no place for the table {name}")
    return re.sub(
        place, lambda found: f"{found[1]}{table()}{found[2]}", text, count=1, flags=re.DOTALL
    )


if __name__ == "__main__":
    for page in TABLES:
        (FOLDER / page).write_text(renewed(page), "utf-8")
