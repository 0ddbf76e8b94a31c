"""The program `mcpvectordb`: its table of commands, their examples, the database, and errors."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb import __version__
from mcpvectordb.cli.output import complain, fail, show_block
from mcpvectordb.errors import MCPVectorDBError

if TYPE_CHECKING:
    from mcpvectordb import Config, Database

DB_VARIABLE = "MCPVECTORDB_DB"
MOST_EXAMPLES = 3  # at the end of a help

# Each command's module and the beginning of its help: `--help` need not load the modules.
COMMANDS = {
    "ingest": ("ingest", "Put files, folders, web pages or standard input into the database"),
    "search": ("search", "Find passages of documents, and memories"),
    "grep": ("search", "Find lines that match a regular expression (RE2)"),
    "verify": (
        "search",
        "Check whether a quotation stands in DOCUMENT (also path:line), or anywhere",
    ),
    "list": ("documents", "List documents, newest first"),
    "get": ("documents", "Print a document's text"),
    "multi-get": ("documents", "Print several documents"),
    "update": ("documents", "Change the metadata, title or library of a document"),
    "delete": ("documents", "Remove documents, by path, id or #hash"),
    "import": ("transfer", "Bring in what another program has stored"),
    "history": ("history", "List what was changed, by whom and when"),
    "undo": ("history", "Take back CHANGE, a number of `history`, or the latest not yet undone"),
    "redo": ("history", "Take the last undo back"),
    "forget": ("history", "Delete NAME so that nothing of it stays in the file"),
    "remember": ("memories", "Keep a fact, decision or preference as a memory"),
    "memories": ("memories", "List, search, show and forget memories"),
    "project": ("projects", "List, rename, merge and move projects"),
    "embed": ("ingest", "Embed the chunks that have no embedding yet"),
    "library": ("libraries", "List libraries, and let them follow folders"),
    "sync": ("libraries", "Update one library, or all that follow a folder, from its folder"),
    "watch": ("libraries", "Sync now, and again whenever something changes in the folders"),
    "status": (
        "maintenance",
        "Show counts, the model, what takes the space, and what is not embedded yet",
    ),
    "check": ("maintenance", "Verify the whole file"),
    "rebuild": ("maintenance", "Rebuild the indexes from the stored texts and embeddings"),
    "compact": ("maintenance", "Return unused space to the disk"),
    "copy": ("maintenance", "Write a complete copy as one file"),
    "export": ("transfer", "Write everything as JSONL, Markdown, CSV or Parquet"),
    "publish": ("transfer", "Bring the database into PostgreSQL, where many can search it"),
    "grant": (
        "transfer",
        "Let a role of PostgreSQL read what is published at URL, or publish there",
    ),
    "merge": ("history", "Take everything from the file OTHER that is not here, or is newer there"),
    "sync-with": ("history", "Merge the file OTHER into this one and this one into OTHER"),
    "remote": ("remotes", "Let copies of this file on other machines exchange what changed"),
    "salvage": ("maintenance", "Save what is still readable of a damaged FILE"),
    "model": ("models", "List, fetch, add, change and remove embedding models"),
    "web": ("server", "Look into the database in a browser"),
    "serve": ("server", "Serve the database to MCP hosts"),
    "access": (
        "access",
        "Let web and phone assistants in at a server's --public-url, and out again",
    ),
    "setup": ("server", "Enter the server into the settings of a host"),
    "hook": ("server", "Do what a host asks for at EVENT of a session"),
    "demo": ("demo", "Ingest a few pages into a temporary database"),
    "completion": ("main", "Print the completion script of a shell"),
}
FIRST = ("demo", "ingest", "search", "status", "setup")
"""The commands that one needs first, for the short help."""

# Words that people try, and the command they mean.
MEANT = {
    "add": "ingest",
    "index": "ingest",
    "find": "search",
    "query": "search",
    "ls": "list",
    "show": "get",
    "cat": "get",
    "rm": "delete",
    "remove": "delete",
    "libraries": "library list",
    "stats": "status",
    "info": "status",
    "backup": "copy",
    "dump": "export",
    "vacuum": "compact",
    "log": "history",
    "restore": "undo",
    "migrate": "import",
    "load": "import",
    "server": "serve",
    "models": "model list",
    "memory": "memories list",
    "projects": "project list",
    "remotes": "remote list",
}


class Program(click.Group):
    """Loads a command's module when the command is used; `--db FILE` may stand anywhere."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with `--db` moved to the front and `help X` meaning `X --help`."""
        if not args and not context.resilient_parsing:
            show_block(SHORT_HELP)
            context.exit()
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        end = args.index("--") if "--" in args else len(args)
        moved: list[str] = []
        rest: list[str] = []
        given = iter(args[:end])
        for each in given:
            if each == "--db":
                moved += [each, *itertools.islice(given, 1)]
            elif each.startswith("--db="):
                moved.append(each)
            else:
                rest.append(each)
        return super().parse_args(context, [*moved, *rest, *args[end:]])

    def list_commands(self, context: click.Context) -> list[str]:
        """The names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command with this name, loaded from its module."""
        from importlib import import_module

        if name not in COMMANDS:
            return None
        attribute = f"{name}_" if name in ("list", "import") else name.replace("-", "_")
        command: click.Command = getattr(
            import_module(f"mcpvectordb.cli.{COMMANDS[name][0]}"), attribute
        )
        attach_examples(command, name)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; an unknown name fails with similar ones."""
        name = arguments[0]
        if name not in COMMANDS:
            from difflib import get_close_matches

            if near := [MEANT[name]] if name in MEANT else get_close_matches(name, COMMANDS):
                context.fail(f"No such command {name!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Run a command; that the reader of its output is gone is no error, as it is for click."""
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise click.exceptions.Exit(0) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lines of the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@cache
def examples(name: str) -> list[str]:
    """The first examples of a command, or of a command and subcommand.

    They are typed in a home folder with notes in ~/notes; the tests run every one of them.
    """
    from importlib import resources

    lines = resources.files(__package__).joinpath("examples.txt").read_text("utf-8").splitlines()
    return [line for line in lines if f"mcpvectordb {name} " in f"{line} "][:MOST_EXAMPLES]


def attach_examples(command: click.Command, name: str) -> None:
    """Let the help of a command, and of its subcommands, end with examples."""
    lines = "\n".join(f"  {line}" for line in examples(name))
    command.epilog = f"\b\nExamples:\n{lines}"
    if isinstance(command, click.Group):
        for each, subcommand in command.commands.items():
            attach_examples(subcommand, f"{name} {each}")


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--db",
    "path",
    metavar="FILE",
    envvar=DB_VARIABLE,
    help="The database file, or postgresql://… where files were published "
    f"[environment: {DB_VARIABLE}; default: notes.db in your data folder].",
)
@click.version_option(__version__, prog_name="mcpvectordb")
@click.pass_context
def program(context: click.Context, path: str | None) -> None:
    """Documents in one SQLite file, found again by words and by meaning."""
    from mcpvectordb.storage.dialect import is_database_url

    context.obj = path if path is None or is_database_url(path) else Path(path)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Put its output where your shell reads it at the start, or evaluate it there.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click completes these three shells"  # noqa: S101
    root = context.find_root().command
    show_block(f"{kind(root, {}, 'mcpvectordb', '_MCPVECTORDB_COMPLETE').source()}\n")


SHORT_HELP = (
    "Documents, notes and memories in one SQLite file, found again by words and by meaning.\n\n"
    + "".join(f"  mcpvectordb {name:8}  {COMMANDS[name][1]}\n" for name in FIRST)
    + "\n`mcpvectordb --help` lists all commands, `mcpvectordb COMMAND --help` explains one.\n"
)


def given_database() -> Path | str | None:
    """What `--db` names: a path, or the URL of a published database; None without it."""
    place: Path | str | None = click.get_current_context().find_root().obj
    return place


@contextlib.contextmanager
def opened(
    file: Path | None = None, *, make: bool = False, dry_run: bool = False, **changes: Any
) -> Iterator[Database]:
    """Open a file, or the database that the options name; it is created only with `make`.

    With `dry_run` one that does not exist is an empty one without a file. `changes` are those of
    the configuration that `configured` makes.
    """
    from mcpvectordb import Database

    place = file or given_database()
    path = place or database_path()
    if isinstance(path, Path) and _is_empty(path.expanduser()) and str(path) != ":memory:":
        if dry_run:
            path = Path(":memory:")
        elif not make:
            fail(
                f"there is no database {path}: create it with `mcpvectordb --db {path} ingest PATH`"
            )
        elif place is None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                fail(
                    f"the data folder {path.parent} cannot be made: {error.strerror}; name a "
                    "database elsewhere by --db FILE"
                )
    with Database(path, config=configured(**changes)) as db, db.acting_as("shell"):
        if db.set_aside:
            complain(db.set_aside)
        yield db


def _is_empty(path: Path) -> bool:
    """Whether there is no file, or one without a byte, which opening would make a database."""
    return not path.exists() or path.stat().st_size == 0


def database_path() -> Path:
    """The path of the database file that the options name."""
    from mcpvectordb.config import Config

    place = given_database()
    if isinstance(place, str):
        fail("this is for files, and not for what was published: name a file by --db")
    return place or Config.data_folder() / "notes.db"


def configured(**changes: Any) -> Config:
    """The configuration from the environment, with changes that are not empty."""
    from dataclasses import replace

    from mcpvectordb.config import Config

    config = Config.from_env()
    return replace(config, **{name: value for name, value in changes.items() if value})


def main() -> None:
    """Run the program; every error is one line on stderr."""
    if not os.environ.get("PYTHONIOENCODING"):
        _write_all_characters(sys.stdout, sys.stderr)
    try:
        code = program.main(prog_name="mcpvectordb", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        fail(_message(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        # A second interrupt ends the process at once, without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fail("interrupted; the file is sound, and the same command continues where it stopped", 130)
    except BrokenPipeError:
        # The reader of our output is gone, which is no error; nothing is left to be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MCPVectorDBError as error:
        fail(f"{error}{_hint()}")
    except Exception as error:
        fail(
            f"internal error ({type(error).__name__}: {error}); the file is sound, please report "
            f"this"
        )


def _write_all_characters(*streams: Any) -> None:
    """Let no character of a text fail for want of a sign in the encoding of its stream.

    Windows gives pipes and files the code page of its region: there it is UTF-8, as in files that
    are exported. A terminal shows a question mark.
    """
    for stream in streams:
        if not getattr(stream, "encoding", "utf-8").lower().startswith("utf"):
            more = {"errors": "replace"} if stream.isatty() else {"encoding": "utf-8"}
            stream.reconfigure(**more)


def _message(error: click.ClickException) -> str:
    """An error of the command line, with a hint where a query was taken for an option."""
    message = re.sub(
        r"is not a valid (integer|float)( range)?\.",
        lambda kind: f"is not a {'whole ' * (kind[1] == 'integer')}number.",
        error.format_message(),
    )
    message = re.sub(r"is not in the range x>=(\d+)\.", r"is less than \1.", message)
    command = error.ctx.command.name if isinstance(error, click.UsageError) and error.ctx else ""
    if isinstance(error, click.NoSuchOption) and command == "search":
        return f"{message} {_EXCLUDING}"
    return message + _hint()


_EXCLUDING = "To search without a word, write -- before the query: search -- -word"


def _hint() -> str:
    """What to write instead, where a search may have failed at a -word read as -w, -l or -n."""
    given = list(itertools.takewhile(lambda each: each != "--", sys.argv[1:]))
    taken = next((each for each in given if re.fullmatch(r"-[wln][^\W\d]+", each)), "")
    if "search" not in given or not taken:
        return ""
    return f" ({taken} was read as the option {taken[:2]}. {_EXCLUDING})"
