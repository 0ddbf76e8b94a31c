"""What helps with commands: an end of their help with examples, and the command completion."""

from __future__ import annotations

from functools import cache
from importlib import resources

import click

from mcpvectordb.cli.output import show_block

MOST = 3  # examples at the end of a help


@cache
def examples(name: str) -> list[str]:
    """The first examples of a command, or of a command and subcommand.

    They are typed in a home folder with notes in ~/notes; the tests run every one of them.
    """
    lines = resources.files(__package__).joinpath("examples.txt").read_text("utf-8").splitlines()
    return [line for line in lines if f"mcpvectordb {name} " in f"{line} "][:MOST]


def attach(command: click.Command, name: str) -> None:
    """Let the help of a command, and of its subcommands, end with examples."""
    lines = "\n".join(f"  {line}" for line in examples(name))
    command.epilog = f"\b\nExamples:\n{lines}"
    if isinstance(command, click.Group):
        for each, subcommand in command.commands.items():
            attach(subcommand, f"{name} {each}")


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
