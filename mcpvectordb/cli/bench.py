"""The command bench: how well a file's passages are found, and which settings find more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.main import configured, database_path
from mcpvectordb.cli.options import json_option, library_option
from mcpvectordb.cli.output import bar, print_json, show

if TYPE_CHECKING:
    from mcpvectordb.bench.run import Report

_NAMES = {
    "title": "titles",
    "heading": "headings",
    "terms": "rare terms",
    "sentence": "sentences without their rarest words",
    "all": "all",
}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@library_option
@click.option(
    "--queries",
    default=100,
    show_default=True,
    metavar="N",
    help="How many queries to generate and run.",
    type=click.IntRange(min=4),
)
@click.option(
    "--seed", default=0, show_default=True, metavar="N", help="The seed of the sample of passages."
)
@click.option(
    "--no-chunking", is_flag=True, help="Do not try other chunk sizes (the longest step)."
)
@json_option
@click.pass_context
def bench(
    context: click.Context,
    file: Path | None,
    library: str | None,
    queries: int,
    seed: int,
    no_chunking: bool,
    as_json: bool,
) -> None:
    """Measure searches on FILE (or --db) with queries made from its passages; it is not changed."""
    from mcpvectordb.bench.run import bench

    with bar("", "done") as move:
        report = bench(
            file or database_path(context),
            config=configured(),
            library=library,
            queries=queries,
            seed=seed,
            chunking=not no_chunking,
            progress=move,
        )
    if as_json:
        print_json(report)
    else:
        for line in _lines(report):
            show(line)


def _lines(report: Report) -> list[str]:
    where = report.path if report.library is None else f"library {report.library} of {report.path}"
    asked = ", ".join(f"{count} {_NAMES[kind]}" for kind, count in report.queries.items() if count)
    return [
        f"{where}: {report.documents:,} documents, {report.passages:,} passages of "
        f"{report.chunk_size} tokens, {report.model}",
        f"Queries (seed {report.seed}): {asked}",
        "",
        *_table(report),
        "",
        *_settings(report),
        *(each.advice for each in report.comparisons),
        "",
        *report.notes,
    ]


def _table(report: Report) -> list[str]:
    lines = [
        f"{'mode':<8}{'queries':<12}{'n':>6}{'recall@1':>10}{'recall@10':>11}"
        f"{'MRR@10':>8}{'ms p50':>9}{'p95':>8}"
    ]
    for each in report.figures:
        kind = _NAMES[each.kind].split(" without")[0]
        lines.append(
            f"{each.mode:<8}{kind:<12}{each.queries:>6}{each.recall_1:>10.2f}{each.recall_10:>11.2f}{each.mrr_10:>8.3f}"
            f"{each.p50:>9.1f}{each.p95:>8.1f}"
        )
    return lines


def _settings(report: Report) -> list[str]:
    """The values that were tried, each with its gain over the one in force."""
    lines = []
    for each in report.comparisons:
        tried = ", ".join(
            f"{one.value:g} in force"
            if one.value == each.current
            else f"{one.value:g} {one.gain:+.3f} ± {one.error:.3f}"
            for one in each.tried
        )
        lines.append(f"{each.setting} ({each.measure}, {each.queries} queries): {tried}")
    return [*lines, ""] if lines else []
