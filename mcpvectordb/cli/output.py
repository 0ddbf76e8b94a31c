"""Output of the commands: results on stdout, progress and errors on stderr.

Titles, paths, texts, names and error messages come from outside and may carry control characters
(C0, DEL, C1) with which a terminal can be reprogrammed. Whatever a command prints goes through
`visible` here; only `print_text` into a pipe and JSON, which escapes them, keep such characters. A
name with a line end in it cannot forge a line either (`visible_line`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import Console

    from mcpvectordb.records import Embedded, Library, Progress, ProgressCallback, Synced


# Every control character but tab, newline and the carriage return of a line's end.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_LINE_ENDS = re.compile(r"[\n\r\u2028\u2029]")
_NOT_ESCAPED_BY_JSON = re.compile(r"[\x7f-\x9f]")


def visible(text: str) -> str:
    """A text with U+FFFD instead of each control character, except tabs and line ends."""
    return _CONTROLS.sub("\ufffd", text)


def visible_line(text: str) -> str:
    """A text in one line, with U+FFFD instead of each control character and line end."""
    return _LINE_ENDS.sub("\ufffd", visible(text))


def show(text: object, *, err: bool = False) -> None:
    """Print one line on stdout or stderr, without control characters."""
    click.echo(visible_line(str(text)), err=err)


def show_block(text: str) -> None:
    """Print lines on stdout, without control characters."""
    click.echo(visible(text), nl=False)


def print_text(text: str) -> None:
    """Print a document's text as it is, but without control characters on a terminal."""
    if sys.stdout.isatty():
        show_block(text)
    else:
        # Without `color` click would remove what looks like a style.
        click.echo(text, nl=False, color=True)


class StyledText:
    """Styled results, as wide as the terminal; plain text in long lines without one.

    There are no styles and no links if NO_COLOR is set either. Without a terminal nothing of rich
    is loaded, which is a fifth of what a search by words takes.
    """

    def __init__(self) -> None:
        self._console: Console | None = None
        if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
            from rich.console import Console

            self._console = Console(
                highlight=False,
                markup=False,
                emoji=False,
                color_system=None if os.environ.get("NO_COLOR") else "auto",
            )

    @property
    def is_styled(self) -> bool:
        """Whether styles will be seen."""
        return self._console is not None and self._console.color_system is not None

    def print(self, text: str = "", style: str = "") -> None:
        """Print a text without control characters."""
        self.print_parts((text, style))

    def print_parts(self, *parts: tuple[str, str]) -> None:
        """Print (text, style) parts as one text, without control characters.

        A style "link URL" makes a part a hyperlink, where the terminal knows them (OSC 8).
        """
        if self._console is None:
            click.echo(visible("".join(text for text, _ in parts)))
            return
        from rich.text import Text

        self._console.print(Text.assemble(*((visible(text), style) for text, style in parts)))


def show_planned(planned: Iterable[tuple[str, str]]) -> None:
    """Print what a dry run would do, a line per file: whether one has a text is not known yet."""
    for what, path in planned:
        show(f"{'remove' if what == 'remove' else 'read'}  {path}")


def complain(message: object) -> None:
    """Print a message as one line on stderr."""
    show(f"mcpvectordb: {' '.join(str(message).split())}", err=True)


def fail(message: object, code: int = 1) -> NoReturn:
    """Print a message as one line on stderr and end the program."""
    complain(message)
    raise SystemExit(code)


def counted(counts: Mapping[str, int]) -> str:
    """The counts that are not 0, as text: "2 indexed, 1 failed"."""
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def skipped_in(counts: Mapping[str, int], *, hint: bool) -> str:
    """How many files were skipped, by reason, as text; `hint` says how to list them."""
    if not any(counts.values()):
        return ""
    return f"skipped: {counted(counts)}{' (--verbose lists them)' if hint else ''}"


def show_skipped(done: Synced) -> None:
    """Print a line for each skipped file."""
    for path, reason in done.skipped_paths:
        show(f"skipped {path}: {reason}")
    if more := sum(done.skipped.values()) - len(done.skipped_paths):
        show(f"skipped {more} more")


def complain_files(done: Synced) -> dict[str, str]:
    """Print a line for each file that failed or was read in part, and the note on all.

    Returns what is wrong with those that failed.
    """
    failed = {
        path: message if path in message else f"{path}: {message}"
        for path, message in done.failures
    }
    for message in failed.values():
        complain(message)
    for path, note in done.partial:
        complain(f"{path}: {note}")
    if done.note:
        complain(f"{done.library}: {done.note}")
    return failed


def print_json(value: object) -> None:
    """Print a value as JSON; DEL and C1 are escaped as well, which JSON does not demand."""
    from mcpvectordb.records import in_json

    text = json.dumps(in_json(value), ensure_ascii=False, indent=2)
    click.echo(_NOT_ESCAPED_BY_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def show_result(
    result: object, lines: Iterable[str], notes: Iterable[str] = (), *, as_json: bool
) -> None:
    """Print a result as JSON, or the lines that say it and on stderr the notes that are not ""."""
    if as_json:
        print_json(result)
        return
    for line in lines:
        show(line)
    for note in filter(None, notes):
        complain(note)


LINE_SECONDS = 3.0
"""Seconds between two lines of progress where there is no terminal."""


@contextlib.contextmanager
def bar(
    label: str, unit: str, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[ProgressCallback]:
    """Progress on stderr, with rate and time left; yields the callback that moves it.

    On a terminal it is a bar, elsewhere a line every few seconds. Without a label it shows the name
    of the step. While only the model is still working, it counts chunks.
    """
    label = visible_line(label)
    if not sys.stderr.isatty():
        yield _lines(label, unit, clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    # What is counted comes first: the rest is cut where the terminal is narrow.
    columns = (
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[unit]}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12 if console.width < 100 else 40),
        TextColumn("{task.fields[pace]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
    )
    with Bar(*columns, console=console, expand=True) as bars:
        task = bars.add_task(label, total=None, unit=unit, pace="")

        def move(progress: Progress) -> None:
            name, counts = _STEPS.get(progress.step, (label or progress.step, unit))
            bars.update(
                task, completed=progress.done, total=progress.total, description=name, unit=counts
            )
            speed, left = bars.tasks[0].speed, bars.tasks[0].time_remaining
            estimate = (
                f"{speed:,.1f}/s, {timedelta(seconds=int(left))} left"
                if speed and left is not None
                else ""
            )
            bars.update(task, pace=progress.pace or estimate)

        yield move


# Steps that come with others, and count something else: what they are called, and what they count.
_STEPS = {
    "embed": ("embedding", "chunks"),
    "compare": ("comparing", "items"),
    "graph": ("making a graph", "blocks"),
    "vacuum": ("vacuuming", "steps"),
}


def _lines(label: str, unit: str, clock: Callable[[], float]) -> ProgressCallback:
    """A callback that prints a line every few seconds, the first one only after as long."""
    last = clock()

    def move(progress: Progress) -> None:
        nonlocal last
        if clock() - last < LINE_SECONDS:
            return
        last = clock()
        name, counts = _STEPS.get(progress.step, (label or progress.step, unit))
        total = "" if progress.total is None else f"/{progress.total:,}"
        pace = f", {progress.pace}" if progress.pace else ""
        show(f"{name}: {progress.done:,}{total} {counts}{pace}", err=True)

    return move


def quantity(count: int, noun: str) -> str:
    """A number with its noun: "1 document", "1,200 documents", "2 libraries"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def embedded_in(done: Embedded) -> str:
    """How much was embedded, as text; "" for nothing."""
    return (
        f"{quantity(done.chunks, 'chunk')} embedded ({quantity(done.tokens, 'token')}, "
        f"{done.tokens_per_second:,.0f}/s)"
        if done.chunks
        else ""
    )


def library_line(library: Library, waiting: int = 0) -> str:
    """A library with its counts and, where it follows a folder, what it takes in from there."""
    facts = [
        library.name,
        quantity(library.documents, "document"),
        quantity(library.chunks, "chunk"),
        f"{quantity(waiting, 'document')} not yet embedded" if waiting else "",
        library.root,
        "(not confirmed on this machine)" if library.root and not library.confirmed else "",
        library.pattern,
        f"without {' '.join(library.ignore)}" if library.ignore else "",
        library.description,
    ]
    return "  ".join(filter(None, facts))


@contextlib.contextmanager
def busy(label: str) -> Iterator[None]:
    """A spinner on stderr while something of unknown length runs."""
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
