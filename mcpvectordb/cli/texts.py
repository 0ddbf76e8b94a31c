"""Commands over the texts of documents and memories: grep, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import json_option, library_option
from mcpvectordb.cli.output import complain, print_json, show, visible_line

if TYPE_CHECKING:
    from mcpvectordb import Document, Memory


@click.command()
@click.argument("pattern")
@click.option("--literal", "-F", is_flag=True, help="Look for PATTERN as it is.")
@click.option("--ignore-case", "-i", is_flag=True, help="Let upper and lower case match.")
@library_option
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(min=0))
@json_option
@click.pass_context
def grep(
    context: click.Context,
    pattern: str,
    literal: bool,
    ignore_case: bool,
    library: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find lines that match a regular expression (RE2), in documents and memories.

    The exit code is 1 if there is none.
    """
    with opened(context) as db:
        found = db.grep(
            pattern,
            literal=literal,
            case_sensitive=not ignore_case,
            library=library,
            limit=limit,
        )
    if as_json:
        print_json(found)
    else:
        for each in found:
            show(f"{_name(each.item)}:{each.line}: {visible_line(each.text)}")
        if more := found.total - len(found):
            complain(f"{more:,} more lines match; --limit shows more")
        if found.note:
            complain(found.note)
    if not found.total:
        context.exit(1)


@click.command()
@click.argument("quotation")
@click.argument("document", required=False)
@click.option("--page", type=click.IntRange(min=1), help="It should stand on this page.")
@json_option
@click.pass_context
def verify(
    context: click.Context, quotation: str, document: str | None, page: int | None, as_json: bool
) -> None:
    """Check whether a quotation stands in DOCUMENT (also path:line), or anywhere.

    The answer is exact, spacing (with other spacing, hyphens or quotation marks), elsewhere or
    absent, with the place and the SHA-256 of the text. The exit code is 1 for the last two.
    """
    with opened(context) as db:
        found = db.verify(quotation, document=document, page=page)
    if as_json:
        print_json(found)
    elif found.item is None or not found.text:
        show(f"absent ({found.searched:,} texts were read)")
    else:
        page_told = "" if found.page is None else f", p. {found.page}"
        show(
            f"{found.status}: {_name(found.item)}:{found.first_line}-{found.last_line}{page_told} "
            f"(SHA-256 of the text: {found.text_sha256})"
        )
        if not found.exact:
            show(f"It stands there as: {visible_line(found.text)}")
    if found.note:
        complain(found.note)
    if found.status in ("elsewhere", "absent"):
        context.exit(1)


def _name(item: Document | Memory) -> str:
    path = getattr(item, "path", "")
    return visible_line(path) if path else f"context {item.id}"
