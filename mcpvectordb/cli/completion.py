"""The command completion: scripts that complete commands and options in a shell."""

from __future__ import annotations

import click

from mcpvectordb.cli.output import show


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
    show(kind(root, {}, "mcpvectordb", "_MCPVECTORDB_COMPLETE").source())
