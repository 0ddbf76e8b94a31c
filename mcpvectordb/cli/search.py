"""Commands that find: search for passages, query for documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.ingest import conditions_from, json_option, library_option, where_option
from mcpvectordb.cli.main import opened
from mcpvectordb.cli.output import complain, print_json
from mcpvectordb.cli.results import FORMATS, for_people, left_undone, shown

if TYPE_CHECKING:
    from mcpvectordb import Chunk, Database, Results

Command = Callable[..., None]

_PRINTED = {
    "files": "docid, score, path and context of each document",
    "md": "Markdown",
    "csv": "CSV",
    "xml": "XML",
}


def _looking(limit: int) -> Callable[[Command], Command]:
    """The options of both commands."""

    def decorate(command: Command) -> Command:
        options = [
            click.argument("words", nargs=-1, required=True, metavar="QUERY"),
            click.option(
                "--mode",
                type=click.Choice(["hybrid", "text", "vector"]),
                default="hybrid",
                show_default=True,
                help="By words, by meaning, or by both.",
            ),
            library_option,
            where_option,
            click.option(
                "--limit", "-n", default=limit, show_default=True, type=click.IntRange(min=0)
            ),
            click.option("--offset", default=0, type=click.IntRange(min=0)),
            click.option("--min-score", default=0.0, type=click.FloatRange(0, 1)),
            json_option,
            *(
                click.option(f"--{name}", "form", flag_value=name, help=f"Print {what}.")
                for name, what in _PRINTED.items()
            ),
            click.option("--explain", is_flag=True, help="Show what each leg said."),
        ]
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@_looking(5)
@click.option(
    "--min-relevance",
    default=0.0,
    type=click.FloatRange(0, 1),
    help="Leave out what is less likely to be relevant.",
)
@click.option(
    "--rerank", is_flag=True, help="Let a cross-encoder read the best twenty again (takes seconds)."
)
@click.pass_context
def search(
    context: click.Context,
    /,
    words: tuple[str, ...],
    conditions: tuple[str, ...],
    rerank: bool,
    min_relevance: float,
    **options: Any,
) -> None:
    """Find passages. "Quoted phrases" must occur, -words must not (write -- before a query that
    begins with one).
    """
    with opened(context) as db:
        query, chosen = " ".join(words), _chosen(options)
        results = db.documents.search(
            query,
            where=conditions_from(conditions),
            rerank=rerank,
            min_relevance=min_relevance,
            **chosen,
        )
        _print(db, results, query, options)


@click.command()
@_looking(10)
@click.option(
    "--no-expand", is_flag=True, help="Do not look for what the first results have in common."
)
@click.option(
    "--no-rerank", is_flag=True, help="Do not let a cross-encoder read the best ones again."
)
@click.pass_context
def query(
    context: click.Context,
    /,
    words: tuple[str, ...],
    conditions: tuple[str, ...],
    no_expand: bool,
    no_rerank: bool,
    **options: Any,
) -> None:
    """Find documents, as well as it can be done; in text mode those that have all words."""
    with opened(context) as db:
        text, chosen = " ".join(words), _chosen(options)
        results = db.documents.search(
            text,
            unit="document",
            where=conditions_from(conditions),
            expand=not no_expand,
            rerank=not no_rerank,
            **chosen,
        )
        _print(db, results, text, options)


def _chosen(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("mode", "library", "limit", "offset", "min_score")}


def _print(db: Database, results: Results[Chunk], query: str, options: dict[str, Any]) -> None:
    if options["as_json"]:
        print_json(
            {
                "hits": results.hits,
                "legs": results.legs,
                "reasons": results.reasons,
                "verdict": results.verdict,
            }
        )
    elif options["form"]:
        click.echo(FORMATS[options["form"]](shown(db, results, query)), nl=False)
        for remark in filter(None, (results.verdict, *left_undone(results))):
            complain(remark)
    else:
        for_people(results, options["offset"], explain=options["explain"])
