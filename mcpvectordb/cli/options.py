"""Options that several commands share, and the parsing of --where and --metadata."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.output import fail, visible
from mcpvectordb.errors import InvalidInput, NotFound
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.records import Condition

if TYPE_CHECKING:
    from mcpvectordb import Database, ProjectScope

# Longest first: ">=" must not be read as ">".
_SIGNS = {
    "!=": "ne",
    ">=": "gte",
    "<=": "lte",
    "^=": "starts_with",
    "*=": "contains",
    "=": "eq",
    ">": "gt",
    "<": "lt",
}

library_option = click.option("--library", "-l", metavar="NAME", help="Only this library.")
project_option = click.option(
    "--project",
    metavar="NAME",
    help="The project; auto: that of the folder you stand in, all: everything "
    "[environment: MCPVECTORDB_PROJECT].",
)
where_option = click.option(
    "--where",
    "-w",
    "conditions",
    multiple=True,
    metavar="FIELD=VALUE",
    help="A condition on a field or metadata.KEY: = != > >= < <= *= (contains) ^= (starts with). "
    "Times: 2026-11, 2026-11-29T10:00, today, yesterday, 7d (ago). Repeatable.",
)
metadata_option = click.option(
    "--metadata",
    "-m",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata of the documents. Repeatable.",
)
pattern_option = click.option(
    "--pattern",
    default=EVERYTHING,
    show_default=True,
    metavar="GLOB",
    help="Which files of a folder: * matches within one, **/ any folders, {md,txt} either.",
)
ignore_option = click.option(
    "--ignore",
    multiple=True,
    metavar="GLOB",
    help="Files of a folder to leave out, as in a .gitignore. Repeatable.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="List every file that is skipped, with the reason."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and do nothing."
)
no_embed_option = click.option(
    "--no-embed", is_flag=True, help="Store without embeddings; run `embed` later."
)


def ask(question: str, yes: bool) -> None:
    """Ask on a terminal whether to go on; ends the program without a yes, there or in `--yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nothing was done: say --yes to go on")
    if not click.confirm(visible(f"{question} Go on?"), err=True):
        fail("nothing was done")


def check_library(db: Database, name: str | None) -> None:
    """Raise NotFound for a library that does not exist, with similar names."""
    if name is not None and (reason := db.documents.why_empty(library=name)):
        raise NotFound(reason)


def chosen_project(db: Database, name: str | None, *, new: bool = False) -> ProjectScope | None:
    """The project that `--project` or the environment names, if any does; raises NotFound."""
    project = db.projects.chosen(name or "", new=new)
    return None if project is None else db.projects.scope(project)


def conditions_from(conditions: tuple[str, ...]) -> list[Condition]:
    """The conditions that `--where` options express."""
    found = []
    for text in conditions:
        match = re.fullmatch(rf"(.+?)({'|'.join(map(re.escape, _SIGNS))})(.*)", text, re.DOTALL)
        if match is None:
            raise InvalidInput(
                f"{text!r} is not a condition; write FIELD=VALUE, for example metadata.year>=2024"
            )
        field, operator, value = match[1].strip(), _SIGNS[match[2]], _value(match[3])
        # A column knows itself what it holds, and what is looked for in a text is text: 2024 in
        # *=2024 is no number.
        free = field.startswith("metadata.") and operator not in ("contains", "starts_with")
        if not free and not isinstance(value, str):
            value = match[3].strip()
        found.append(Condition(field, operator, value))
    return found


def metadata_pair(text: str) -> tuple[str, Any]:
    """The key and value of a `--metadata KEY=VALUE` option."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InvalidInput(f"{text!r} is not metadata; write KEY=VALUE, for example year=2026")
    return key, _value(value)


def _value(text: str) -> Any:
    """The value of a JSON text (numbers, true, lists), otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
