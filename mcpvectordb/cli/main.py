"""The program: which commands there are, which file they work on, and how errors end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.console import fail
from mcpvectordb.config import PREFIX, Config, data_folder
from mcpvectordb.errors import MCPVectorDBError

if TYPE_CHECKING:
    from mcpvectordb import Database

DB_VARIABLE = f"{PREFIX}DB"

# Each command lives in the module named here, so that --help loads none of what they need.
COMMANDS = {
    "ingest": "content", "search": "finding", "query": "finding", "get": "reading", "multi-get": "reading", "ls": "reading",
    "list": "content", "libraries": "content", "delete": "content", "embed": "content", "status": "reading",
    "library": "libraries", "sync": "libraries", "watch": "libraries",
    "stats": "keeping", "check": "keeping", "rebuild": "keeping", "compact": "keeping", "copy": "keeping",
    "salvage": "keeping",
    "model": "models", "serve": "serving", "setup": "serving", "demo": "demo",
}


class Program(click.Group):
    """Loads a command's module when the command is used or described."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Every command, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command, from its module."""
        from importlib import import_module

        if name not in COMMANDS:
            return None
        attribute = "list_" if name == "list" else name.replace("-", "_")
        command: click.Command = getattr(import_module(f"mcpvectordb.cli.{COMMANDS[name]}"), attribute)
        return command


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", "path", metavar="FILE", type=click.Path(path_type=Path), envvar=DB_VARIABLE,
              help=f"The database file [environment: {DB_VARIABLE}; default: notes.db in your data folder].")
@click.version_option(package_name="mcpvectordb", prog_name="mcpvectordb")
@click.pass_context
def program(context: click.Context, path: Path | None) -> None:
    """Documents in one SQLite file, found again by words and by meaning."""
    context.obj = path


@contextlib.contextmanager
def opened(context: click.Context, *, make: bool = False, read_only: bool = False) -> Iterator[Database]:
    """The database the user means; only commands that `make` one create it."""
    from mcpvectordb import Database

    path = context.find_root().obj or data_folder() / "notes.db"
    if not path.expanduser().exists() and str(path) != ":memory:":
        if not make:
            fail(f"there is no database {path}: put something in with `mcpvectordb --db {path} ingest PATH`")
        if context.find_root().obj is None:
            path.parent.mkdir(parents=True, exist_ok=True)
    with Database(path, config=configured(read_only=read_only)) as db:
        yield db


def configured(**changes: Any) -> Config:
    """The configuration from the environment."""
    from mcpvectordb_server.options import VARIABLES

    config = Config.from_env(also=VARIABLES)
    return replace(config, **{name: value for name, value in changes.items() if value})


def main() -> None:
    """Run the program; whatever goes wrong is one line on stderr."""
    try:
        code = program.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted; the file is sound, and the same command goes on where it stopped", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away, which is no error
        sys.exit(0)
    except MCPVectorDBError as error:
        fail(error)
    except Exception as error:
        fail(f"internal error ({type(error).__name__}: {error}); the file is sound, please report this")
