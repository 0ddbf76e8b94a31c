"""Commands that find something in texts: search, grep, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import (
    check_library,
    chosen_project,
    conditions_from,
    json_option,
    library_option,
    project_option,
    where_option,
)
from mcpvectordb.cli.output import complain, print_json, show_block, show_result
from mcpvectordb.cli.results import FORMATS, omissions, print_results, rows_of
from mcpvectordb.records import Condition

if TYPE_CHECKING:
    from mcpvectordb import Document, Memory, Quotation, Results


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="QUERY")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "text", "vector"]),
    default="hybrid",
    show_default=True,
    help="By words (text), by meaning (vector), or by both.",
)
@click.option(
    "--unit",
    type=click.Choice(["passage", "document"]),
    default="passage",
    show_default=True,
    help="What to return; each document is returned once, by its best passage.",
)
@click.option(
    "--kind",
    type=click.Choice(["documents", "memories"]),
    help="One kind only; --library, --unit document, --min-score and --files ask for documents.",
)
@library_option
@project_option
@where_option
@click.option("--limit", "-n", default=5, show_default=True, type=click.IntRange(min=0))
@click.option("--offset", default=0, type=click.IntRange(min=0))
@click.option("--min-score", default=0.0, type=click.FloatRange(0, 1))
@click.option(
    "--min-relevance",
    default=0.0,
    type=click.FloatRange(0, 1),
    help="Leave out results that are less likely to be relevant.",
)
@click.option(
    "--expand",
    is_flag=True,
    help="Also search for terms that the first results have in common (--unit document).",
)
@click.option(
    "--rerank", is_flag=True, help="Score the best results with a cross-encoder (takes seconds)."
)
@click.option(
    "--group/--no-group",
    default=True,
    show_default=True,
    help="Show the best passage of each document before others of it.",
)
@click.option(
    "--fold/--no-fold",
    default=True,
    show_default=True,
    help="Leave out passages that are nearly the same as a better one.",
)
@click.option(
    "--newer",
    metavar="HALF-LIFE",
    help="Prefer newer documents: with every 12h, 30d, 6m or 1y of age a score is halved.",
)
@json_option
@click.option("--files", is_flag=True, help="Print docid, score, path and context of documents.")
@click.option("--md", is_flag=True, help="Print Markdown.")
@click.option("--csv", is_flag=True, help="Print CSV.")
@click.option("--xml", is_flag=True, help="Print XML.")
@click.option("--explain", is_flag=True, help="Show the score and those of each leg.")
def search(
    words: tuple[str, ...],
    unit: Literal["passage", "document"],
    kind: Literal["documents", "memories"] | None,
    project: str | None,
    min_score: float,
    expand: bool,
    conditions: tuple[str, ...],
    as_json: bool,
    explain: bool,
    **options: Any,
) -> None:
    """Find passages of documents, and memories, in the whole database or in a project.

    "Quoted phrases" alone must occur, -words beside keywords must not; conf* at the end also finds
    longer words. Write -- before a query that begins with a minus.
    """
    query = " ".join(words)
    wanted = [form for form in FORMATS if options.pop(form)]
    if len(wanted) + as_json > 1:
        named = " and ".join(f"--{form}" for form in ([*["json"] * as_json, *wanted]))
        raise click.UsageError(f"{named} contradict each other: choose one")
    if expand and unit != "document":
        raise click.UsageError("--expand applies to documents only: add --unit document")
    of_documents = unit == "document" or min_score > 0 or "files" in wanted
    if of_documents and kind == "memories":
        raise click.UsageError("--unit document, --min-score and --files apply to documents only")
    with opened() as db:
        check_library(db, options["library"])
        where, scope = conditions_from(conditions), chosen_project(db, project)
        results: Results[Any]
        if of_documents:
            if scope is not None:
                where.append(Condition("library", "in", scope.libraries))
            if expand:
                options |= {"expand": True, "fusion": "rrf"}  # to whose rankings it adds
            results = db.documents.search(
                query, unit=unit, min_score=min_score, where=where, **options
            )
        else:
            within = scope and scope.name
            results = db.search(query, kind=kind, project=within, where=where, **options)
        if as_json:
            fields = ("hits", "legs", "reasons", "verdict", "note", "uncalibrated", "backlog")
            print_json({name: getattr(results, name) for name in fields})
        elif wanted:
            show_block(FORMATS[wanted[0]](rows_of(db, results)))
            for remark in filter(None, (results.verdict, *omissions(results))):
                complain(remark)
        else:
            print_results(
                results,
                query,
                options["offset"],
                explain=explain,
                project=scope and scope.name,
                state=db.documents.state,
            )
        if results.note and not as_json:
            complain(results.note)


@click.command()
@click.argument("pattern")
@click.option("--literal", "-F", is_flag=True, help="Look for PATTERN as it is.")
@click.option("--ignore-case", "-i", is_flag=True, help="Let upper and lower case match.")
@library_option
@project_option
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(min=0))
@click.option(
    "--as-of",
    metavar="TIME",
    help="Memories that held then, not those that hold now; any: also those that were replaced.",
)
@json_option
def grep(
    pattern: str,
    literal: bool,
    ignore_case: bool,
    library: str | None,
    project: str | None,
    limit: int,
    as_of: str | None,
    as_json: bool,
) -> None:
    """Find lines that match a regular expression (RE2), in documents and memories.

    The exit code is 1 if there is none.
    """
    with opened() as db:
        scope = chosen_project(db, project)
        found = db.grep(
            pattern,
            literal=literal,
            case_sensitive=not ignore_case,
            library=library,
            project=scope and scope.name,
            limit=limit,
            as_of=as_of,
        )
    lines = (f"{_place(each.item, each.line)}: {each.text}" for each in found)
    more = found.total - len(found)
    within = f"in the project {scope.name}" if scope else ""
    notes = (f"{more:,} more lines match; --limit shows more" if more else "", found.note, within)
    show_result(found, lines, notes, as_json=as_json)
    if not found.total:
        raise SystemExit(1)


@click.command()
@click.argument("quotation")
@click.argument("document", required=False)
@click.option("--page", type=click.IntRange(min=1), help="It should stand on this page.")
@json_option
def verify(quotation: str, document: str | None, page: int | None, as_json: bool) -> None:
    """Check whether a quotation stands in DOCUMENT (also path:line), or anywhere.

    The answer is exact, spacing (with other spacing, hyphens or quotation marks), case (with
    capital and small letters exchanged), elsewhere or absent, with the place and the SHA-256 of the
    text. The exit code is 0 where it stands, in the first three of these, and 1 where it does not.
    """
    with opened() as db:
        found = db.verify(quotation, document=document, page=page)
    show_result(found, _verified(found), as_json=as_json)
    if found.note:
        complain(found.note)
    if found.status in ("elsewhere", "absent"):
        raise SystemExit(1)


def _verified(found: Quotation) -> list[str]:
    if found.item is None or not found.text:
        return [f"absent ({found.searched:,} texts were read)"]
    page = "" if found.page is None else f", p. {found.page}"
    place = _place(found.item, found.first_line, found.last_line) + page
    told = f"{found.status}: {place} (SHA-256 of the text: {found.text_sha256})"
    return [told] if found.exact else [told, f"It stands there as: {found.text}"]


def _place(item: Document | Memory, first: int, last: int = 0) -> str:
    from mcpvectordb import Document

    if isinstance(item, Document):
        return item.place(first, last)
    return f"memory {item.id}:{first}-{last}" if last > first else f"memory {item.id}:{first}"
