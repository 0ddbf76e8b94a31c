"""How the command line speaks: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import Console

    from mcpvectordb.records import Embedded, Progress, ProgressCallback


def out() -> Console:
    """The console for results: as wide as the terminal, unbroken lines where there is none."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def complain(message: object) -> None:
    """One line on stderr."""
    click.echo(f"mcpvectordb: {' '.join(str(message).split())}", err=True)


def fail(message: object, code: int = 1) -> NoReturn:
    """One line on stderr, then the end."""
    complain(message)
    raise SystemExit(code)


def counted(counts: Mapping[str, int]) -> str:
    """What there is how many of, without what there is none of: "2 indexed, 1 failed"."""
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def print_json(value: object) -> None:
    """A result for programs."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


def plain(value: object) -> Any:
    """Records as objects, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def bar(label: str, unit: str) -> Iterator[ProgressCallback]:
    """A progress bar on stderr with rate and time left; the callback moves it. Without a label it
    tells the step.

    When files are in and only the model is still at work, it goes on with chunks.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TextColumn("{task.fields[pace]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task(label, total=None, unit=unit, pace="")

        def move(progress: Progress) -> None:
            name, counted = (
                ("embedding", "chunks")
                if progress.step == "embed"
                else (label or progress.step, unit)
            )
            bars.update(
                task, completed=progress.done, total=progress.total, description=name, unit=counted
            )
            speed, left = bars.tasks[0].speed, bars.tasks[0].time_remaining
            guessed = (
                f"{speed:,.1f}/s, {timedelta(seconds=int(left))} left"
                if speed and left is not None
                else ""
            )
            bars.update(task, pace=progress.pace or guessed)

        yield move


def embedded_in(done: Embedded) -> str:
    """What went through the model; "" when nothing did."""
    return (
        f"{done.chunks:,} chunks embedded ({done.tokens:,} tokens, {done.tokens_per_second:,.0f}/s)"
        if done.chunks
        else ""
    )


@contextlib.contextmanager
def busy(label: str) -> Iterator[None]:
    """A moving sign on stderr while something runs that cannot say how far it is."""
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
