"""The program: which commands there are, which file they work on, and how errors end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb import __version__
from mcpvectordb.cli.output import fail
from mcpvectordb.errors import MCPVectorDBError

if TYPE_CHECKING:
    from mcpvectordb import Config, Database

DB_VARIABLE = "MCPVECTORDB_DB"

# The module in which each command lives, and how its own help begins: --help then loads none of
# them.
COMMANDS = {
    "ingest": ("ingest", "Put files, folders, web pages or standard input into the database"),
    "search": ("search", "Find passages"),
    "query": ("search", "Find documents, as well as it can be done"),
    "get": ("documents", "Print a document's text"),
    "multi-get": ("documents", "Print several documents"),
    "ls": ("documents", "List the libraries, or the documents of a library"),
    "list": ("ingest", "List documents, newest first"),
    "libraries": ("ingest", "List the libraries with their counts"),
    "delete": ("ingest", "Remove documents, by id or path"),
    "embed": ("ingest", "Embed what is not yet found by meaning"),
    "status": ("documents", "Show the libraries, and how much of them is found by meaning"),
    "library": ("libraries", "Let libraries follow folders"),
    "sync": ("libraries", "Bring one library, or all that follow a folder, in line with it"),
    "watch": ("libraries", "Sync now, and again whenever something changes in the folders"),
    "stats": ("maintenance", "Show counts, sizes and what the file was made with"),
    "check": ("maintenance", "Verify the whole file"),
    "rebuild": ("maintenance", "Make the indexes again from the stored texts and embeddings"),
    "compact": ("maintenance", "Give unused space back to the disk"),
    "copy": ("maintenance", "Write a complete copy as one file"),
    "salvage": ("maintenance", "Save what can still be read of a damaged FILE"),
    "bench": ("bench", "Measure searches on FILE (or --db)"),
    "model": ("models", "See, fetch, add and change embedding models"),
    "serve": ("server", "Offer the database to MCP hosts"),
    "setup": ("server", "Enter the server into the settings of a host"),
    "demo": ("demo", "Ingest a few pages into a temporary database"),
}


class Program(click.Group):
    """Loads a command's module when the command is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Every command, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command, from its module."""
        from importlib import import_module

        if name not in COMMANDS:
            return None
        attribute = "list_" if name == "list" else name.replace("-", "_")
        command: click.Command = getattr(
            import_module(f"mcpvectordb.cli.{COMMANDS[name][0]}"), attribute
        )
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table's lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--db",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar=DB_VARIABLE,
    help=f"The database file [environment: {DB_VARIABLE}; default: notes.db in your data folder].",
)
@click.version_option(__version__, prog_name="mcpvectordb")
@click.pass_context
def program(context: click.Context, path: Path | None) -> None:
    """Documents in one SQLite file, found again by words and by meaning."""
    context.obj = path


@contextlib.contextmanager
def opened(
    context: click.Context, *, make: bool = False, read_only: bool = False
) -> Iterator[Database]:
    """The database the user means; only commands that `make` one create it."""
    from mcpvectordb import Database

    path = database_path(context)
    if not path.expanduser().exists() and str(path) != ":memory:":
        if not make:
            fail(
                f"there is no database {path}: put something in with `mcpvectordb --db {path} "
                f"ingest PATH`"
            )
        if context.find_root().obj is None:
            path.parent.mkdir(parents=True, exist_ok=True)
    with Database(path, config=configured(read_only=read_only)) as db:
        yield db


def database_path(context: click.Context) -> Path:
    """Where the database is that the user means."""
    from mcpvectordb.config import Config

    path: Path = context.find_root().obj or Config.data_folder() / "notes.db"
    return path


def configured(**changes: Any) -> Config:
    """The configuration from the environment."""
    from dataclasses import replace

    from mcpvectordb.config import Config
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
        fail(
            f"internal error ({type(error).__name__}: {error}); the file is sound, please report "
            f"this"
        )
