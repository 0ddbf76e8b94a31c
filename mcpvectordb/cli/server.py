"""Commands about the MCP server: serve, setup."""

from __future__ import annotations

from pathlib import Path

import click

from mcpvectordb.cli.output import show


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def serve(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Serve the database to MCP hosts; the same as mcpvectordb-server (see `serve --help`)."""
    from mcpvectordb_server.__main__ import main

    db = context.find_root().obj
    raise SystemExit(
        main([*(["--db", str(db)] if db else []), *arguments], prog="mcpvectordb serve")
    )


@click.command()
@click.argument("host", metavar="HOST")
@click.option("--remove", is_flag=True, help="Remove the entry.")
@click.option("--dry-run", is_flag=True, help="Show the change without making it.")
@click.argument("arguments", nargs=-1, metavar="[-- SERVER OPTIONS]")
@click.pass_context
def setup(
    context: click.Context, host: str, remove: bool, dry_run: bool, arguments: tuple[str, ...]
) -> None:
    """Enter the server into the settings of a host.

    HOST is claude-desktop, claude-code, cursor, vscode, windsurf or zed.
    """
    from mcpvectordb_server.options import default_db
    from mcpvectordb_server.setup import set_up

    db: Path = (context.find_root().obj or default_db()).expanduser().absolute()
    show(set_up(host, db, arguments=arguments, remove=remove, dry_run=dry_run), nl=False)
