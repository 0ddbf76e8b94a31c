"""What helps with commands: an end of their help with examples, and the command completion."""

from __future__ import annotations

import click

from mcpvectordb.cli.output import show

EXAMPLES: dict[str, tuple[str, ...]] = {
    "ingest": (
        "mcpvectordb ingest ~/notes --pattern '**/*.md' --dry-run",
        "mcpvectordb ingest report.md keys.md --library work -m year=2026",
        "echo 'Call the plumber.' | mcpvectordb ingest -",
    ),
    "search": (
        "mcpvectordb search how do we rotate the signing keys",
        "mcpvectordb search '\"signing key\" -draft' --library work --limit 3",
        "mcpvectordb search keys --where 'metadata.year>=2025' --where 'created_at>7d' --json",
    ),
    "grep": ("mcpvectordb grep 'keys? of'", "mcpvectordb grep -F -i signing --library work"),
    "verify": (
        "mcpvectordb verify 'The signing key' keys.md",
        "mcpvectordb verify 'is  rotated' --json",
    ),
    "list": ("mcpvectordb list", "mcpvectordb list work --json"),
    "get": ("mcpvectordb get keys.md", "mcpvectordb get keys.md:3 --lines 20"),
    "multi-get": ("mcpvectordb multi-get '**/*.md'", "mcpvectordb multi-get keys.md,report.md"),
    "update": (
        "mcpvectordb update keys.md -m year=2026 -m draft=null",
        "mcpvectordb update keys.md --title 'All keys' --library work",
    ),
    "delete": ("mcpvectordb delete old.md", "mcpvectordb delete draft.md spare.md"),
    "history": ("mcpvectordb history --since 2d", "mcpvectordb history keys.md --diff"),
    "undo": ("mcpvectordb undo --yes", "mcpvectordb undo 1 --yes"),
    "forget": (
        "mcpvectordb forget old.md --for-good --yes",
        "mcpvectordb forget draft.md --for-good --yes --json",
    ),
    "embed": ("mcpvectordb embed", "mcpvectordb embed --db work.db"),
    "library": ("mcpvectordb library list", "mcpvectordb library add notes ~/notes"),
    "library add": (
        "mcpvectordb library add notes ~/notes",
        "mcpvectordb library add notes ~/notes --pattern '**/*.md' --ignore drafts/",
    ),
    "library confirm": (
        "mcpvectordb library confirm notes --db received.db",
        "mcpvectordb library confirm notes",
    ),
    "library describe": (
        "mcpvectordb library describe notes / 'What I wrote down'",
        "mcpvectordb library describe notes /recipes 'Tried and found good'",
    ),
    "library list": ("mcpvectordb library list", "mcpvectordb library list --json"),
    "library remove": (
        "mcpvectordb library remove notes --keep-documents",
        "mcpvectordb library remove notes --yes",
    ),
    "sync": ("mcpvectordb sync", "mcpvectordb sync notes --dry-run"),
    "watch": ("mcpvectordb watch", "mcpvectordb watch notes"),
    "status": ("mcpvectordb status", "mcpvectordb status --json"),
    "check": ("mcpvectordb check", "mcpvectordb check --db work.db"),
    "rebuild": ("mcpvectordb rebuild", "mcpvectordb rebuild --clock --yes"),
    "compact": ("mcpvectordb compact", "mcpvectordb compact --db work.db"),
    "copy": (
        "mcpvectordb copy for-the-laptop.db",
        "mcpvectordb copy --db work.db backup.db --overwrite",
    ),
    "import": (
        "mcpvectordb import ~/Downloads/conversations.json --dry-run",
        "mcpvectordb import obsidian ~/vault --library mine",
        "mcpvectordb import csv rows.csv --text question,answer --id number",
    ),
    "export": (
        "mcpvectordb export everything.jsonl",
        "mcpvectordb export ~/markdown --library work",
        "mcpvectordb export passages.csv --overwrite --json",
    ),
    "publish": (
        "mcpvectordb publish postgresql://localhost/team",
        "mcpvectordb publish postgresql://localhost/team --origin handbook --library work",
    ),
    "grant": (
        "mcpvectordb grant postgresql://localhost/team alice",
        "mcpvectordb grant postgresql://localhost/team bob --publish --origin handbook",
    ),
    "merge": ("mcpvectordb merge laptop.db", "mcpvectordb merge laptop.db --json"),
    "sync-with": ("mcpvectordb sync-with laptop.db", "mcpvectordb sync-with laptop.db --json"),
    "salvage": (
        "mcpvectordb salvage damaged.db saved.db",
        "mcpvectordb salvage damaged.db saved.db --json",
    ),
    "model": ("mcpvectordb model list", "mcpvectordb model use all-MiniLM-L6-v2"),
    "model list": ("mcpvectordb model list", "mcpvectordb model list --json"),
    "model pull": (
        "mcpvectordb model pull snowflake-arctic-embed-s",
        "mcpvectordb model pull nomic-embed-text-v1.5",
    ),
    "model add": ("mcpvectordb model add ~/my-model", "mcpvectordb model add ~/my-model --help"),
    "model add-endpoint": (
        "mcpvectordb model add-endpoint nomic --url http://localhost:11434/v1 "
        "--model nomic-embed-text",
        "mcpvectordb model add-endpoint openai --url https://api.openai.com/v1 "
        "--model text-embedding-3-small --key-variable OPENAI_API_KEY",
        "mcpvectordb model add-endpoint judge --url http://localhost:8080 "
        "--model bge-reranker-v2-m3 --kind reranker",
    ),
    "model use": (
        "mcpvectordb model use all-MiniLM-L6-v2",
        "mcpvectordb model use all-MiniLM-L6-v2 --db work.db",
    ),
    "web": ("mcpvectordb web", "mcpvectordb web --read-only --no-open --port 9000"),
    "serve": ("mcpvectordb serve --list-tools", "mcpvectordb serve --surface all --list-tools"),
    "setup": ("mcpvectordb setup --print", "mcpvectordb setup cursor --dry-run"),
    "demo": ("mcpvectordb demo", "mcpvectordb demo --keep pages.db"),
    "completion": ("mcpvectordb completion bash", "mcpvectordb completion zsh"),
}
"""For each command (or command and subcommand), in a home folder with notes in ~/notes.

The tests run every one of them.
"""


def attach(command: click.Command, name: str) -> None:
    """Let the help of a command, and of its subcommands, end with examples."""
    if name in EXAMPLES:
        lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
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
    show(kind(root, {}, "mcpvectordb", "_MCPVECTORDB_COMPLETE").source())
