"""Commands about the MCP server: serve, setup."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from mcpvectordb.cli.main import given_database, opened
from mcpvectordb.cli.output import fail, show, show_block


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Serve the database to MCP hosts; the same as mcpvectordb-server (see `serve --help`)."""
    from mcpvectordb_server.__main__ import main

    db = given_database()
    raise SystemExit(
        main([*(["--db", str(db)] if db else []), *arguments], prog="mcpvectordb serve")
    )


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port on 127.0.0.1; 0 takes any free one [default: 8765, or the next free one].",
)
@click.option("--no-open", is_flag=True, help="Print the address without opening a browser.")
@click.option("--read-only", is_flag=True, help="Only look: nothing can be changed.")
def web(files: tuple[Path, ...], port: int | None, no_open: bool, read_only: bool) -> None:
    """Look into the database in a browser, live, while agents write to it.

    Of several FILEs, or FILEs beside --db, the page shows the first and can switch to the others.
    The page is served on this machine only, until Ctrl-C. Its address has a token that lets one
    browser or program in; set MCPVECTORDB_TOKEN to choose it.
    """
    import os

    from mcpvectordb import Config
    from mcpvectordb_server.web.serve import serve as serve_page

    given = given_database()
    named: dict[Path | str, Path | None] = {}
    if given or not files:
        named[_place(given) if given else ""] = None
    for file in files:
        named.setdefault(_place(file), file)
    with ExitStack() as open_files:
        databases = [
            open_files.enter_context(opened(file, make=not read_only, read_only=read_only))
            for file in named.values()
        ]
        token = os.environ.get(Config.ENV_PREFIX + "TOKEN")
        serve_page(*databases, port=port, open_page=not no_open, token=token)


def _place(file: Path | str) -> Path | str:
    """Where a file is, however it is named; a URL as it is."""
    return file.expanduser().resolve() if isinstance(file, Path) else file


@click.command()
@click.argument("host", metavar="HOST", required=False)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that agents may ingest files from. Repeatable; asked for on a terminal. Without "
    "it they may ingest any file that you can read, except secrets.",
)
@click.option("--remove", is_flag=True, help="Remove the entry.")
@click.option("--dry-run", is_flag=True, help="Show the change without making it.")
@click.option(
    "--print", "print_entry", is_flag=True, help="Print the entry to paste; HOST may be left out."
)
@click.option(
    "--http",
    "url",
    metavar="URL",
    help="Enter a server that runs elsewhere, with its bearer token (MCPVECTORDB_TOKEN).",
)
@click.option(
    "--hooks",
    "with_hooks",
    is_flag=True,
    help="Enter hooks, too: sessions are kept as conversations, and the next one is briefed "
    "(claude-code, codex, gemini, cursor).",
)
@click.option(
    "--prompts",
    is_flag=True,
    help="With --hooks: look for what is strongly relevant before each prompt.",
)
@click.argument("arguments", nargs=-1, metavar="[-- SERVER OPTIONS]")
def setup(
    host: str | None,
    roots: tuple[Path, ...],
    remove: bool,
    dry_run: bool,
    print_entry: bool,
    url: str | None,
    with_hooks: bool,
    prompts: bool,
    arguments: tuple[str, ...],
) -> None:
    """Enter the server into the settings of a host, and its skill where the host knows skills.

    HOST is claude-desktop, claude-code, cursor, vscode, vscode-insiders, windsurf, zed, codex,
    gemini, cline, continue, goose, lm-studio, jetbrains or opencode.
    """
    from mcpvectordb_server import hosts
    from mcpvectordb_server.options import default_db

    if host is None and not print_entry:
        fail("name a HOST (see `mcpvectordb setup --help`), or print the entry with --print", 2)
    known = hosts.find(host) if host else hosts.ANY
    db: Path | str = given_database() or default_db()
    if isinstance(db, Path):
        db = db.expanduser().absolute()
    token = hosts.token_of(url) if url else ""
    named = any(each.partition("=")[0] == "--root" for each in arguments)
    unlimited = not (roots or remove or url or named)
    if unlimited and sys.stdin.isatty():
        answer: str = click.prompt(
            "Folder that agents may ingest files from (empty: any file that you can read, except "
            "secrets)",
            default="",
            show_default=False,
            err=True,
        )
        roots = (Path(answer.strip()),) if answer.strip() else ()
    entry = (
        hosts.remote_entry(known, url, token)
        if url
        else known.local(hosts.command_line(db, arguments, roots))
    )
    if prompts and not with_hooks:
        fail("--prompts is about hooks: add --hooks", 2)
    hooks = hosts.hook_entries(host, db, prompts=prompts) if host and with_hooks else None
    if print_entry:
        show_block(known.form.changed("", known.section, hosts.NAME, entry))
    elif host:
        report = hosts.set_up(host, None if remove else entry, hooks=hooks, dry_run=dry_run)
        show_block(report.replace(token, "…") if token else report)
    if unlimited and not roots:
        show(
            "Agents may ingest any file that you can read, except secrets; --root DIR limits them "
            "to a folder.",
            err=True,
        )


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="EVENT [--host HOST]")
def hook(arguments: tuple[str, ...]) -> None:
    """Do what a host asks for at EVENT of a session, which `setup --hooks` enters.

    EVENT is the host's own name: SessionStart, UserPromptSubmit, Stop, PreCompact, SessionEnd …
    HOST is claude-code, codex, gemini or cursor. The host's JSON comes from standard input.
    Whatever goes wrong is a line of hooks.log in your data folder, never an error.
    """
    from mcpvectordb.hooks.run import main

    db = given_database()
    raise SystemExit(main([*arguments, *(["--db", str(db)] if db else [])]))
