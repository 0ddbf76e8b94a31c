"""Search results in the output formats: text, files, Markdown, CSV, XML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import TYPE_CHECKING

from mcpvectordb.cli.output import StyledText, complain, visible_line

if TYPE_CHECKING:
    from mcpvectordb import Chunk, Database, Hit, Results

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A hit in the output formats; `docid` and `file` are names that `get` takes."""

    docid: str
    score: float
    file: str
    title: str
    context: str
    line: int
    snippet: str


def rows_of(db: Database, results: Results[Chunk], query: str) -> list[ResultRow]:
    """The hits as rows for the formats files, Markdown, CSV and XML."""
    return [_row(db, hit, query) for hit in results]


def _row(db: Database, hit: Hit[Chunk], query: str) -> ResultRow:
    document = hit.item.document
    context = "\n\n".join(db.documents.descriptions(document.library, document.source))
    return ResultRow(
        f"#{document.hash[:6]}",
        round(hit.score, 4),
        document.path,
        document.title,
        context,
        hit.item.first_line,
        db.documents.snippet(hit.item, query),
    )


def files(rows: list[ResultRow]) -> str:
    """One CSV line per document: docid, score, path, context."""
    best = {each.file: each for each in reversed(rows)}
    return _csv(
        [[each.docid, each.score, each.file, each.context] for each in reversed(best.values())]
    )


def markdown(rows: list[ResultRow]) -> str:
    """Markdown: a section per hit with its lines as a quotation."""
    return "\n".join(
        f"## {visible_line(each.file)}:{each.line}\n\n"
        f"**{visible_line(each.title)}** ({each.docid}, {each.score:.2f})\n\n"
        + (f"*{each.context}*\n\n" if each.context else "")
        + "".join(f"> {line}\n" for line in each.snippet.split("\n"))
        for each in rows
    )


def table(rows: list[ResultRow]) -> str:
    """CSV with a header."""
    return _csv([[each.name for each in fields(ResultRow)], *(list(astuple(row)) for row in rows)])


def xml(rows: list[ResultRow]) -> str:
    """XML with one element per hit."""
    from xml.sax.saxutils import escape, quoteattr

    def attributes(each: ResultRow) -> str:
        named = {name: value for name, value in asdict(each).items() if name != "snippet"}
        return " ".join(
            f"{name}={quoteattr(_NOT_XML.sub('�', str(value)))}" for name, value in named.items()
        )

    elements = [
        f"  <file {attributes(each)}>{escape(_NOT_XML.sub('�', each.snippet))}</file>\n"
        for each in rows
    ]
    return f"<results>\n{''.join(elements)}</results>\n"


FORMATS: Mapping[str, Callable[[list[ResultRow]], str]] = {
    "files": files,
    "md": markdown,
    "csv": table,
    "xml": xml,
}


def print_results(results: Results[Chunk], offset: int = 0, *, explain: bool = False) -> None:
    """Print hits as text: the citation and the passage of each, then which legs ran."""
    page = StyledText()
    for number, hit in enumerate(results, offset + 1):
        page.print(visible_line(f"{number}. {hit.score:.2f}  {hit.item.citation}"), style="bold")
        if explain:
            page.print(_explained(hit), style="dim")
        page.print(_extract(hit))
        page.print()
    if results.legs and (results.verdict or not results.hits):
        page.print(results.verdict or "nothing found")
    page.print(f"searched by {' and '.join(results.legs) or 'nothing'}", style="dim")
    for remark in omissions(results):
        complain(remark)


def omissions(results: Results[Chunk]) -> list[str]:
    """The steps of a search that did not run or not on all passages, each with its reason."""
    partly = [results.backlog.note] if "vector" in results.legs and results.backlog.note else []
    return partly + [
        f"{'relevance is not known' if leg == 'relevance' else f'not searched by {leg}'}: {reason}"
        for leg, reason in results.reasons.items()
    ]


def _explained(hit: Hit[Chunk]) -> str:
    """The scores that each leg gave a hit, in one line."""
    scores = hit.scores
    parts = [
        ("BM25", scores.text, scores.text_rank),
        ("cosine", scores.vector, scores.vector_rank),
        ("sum of ranks", scores.rrf, None),
        ("reranker", scores.rerank, None),
        ("relevance", hit.relevance, None),
    ]
    named = [
        f"{name} {figure:.4f}" + (f" (rank {rank})" if rank else "")
        for name, figure, rank in parts
        if figure is not None
    ]
    return "   " + ", ".join(named)


def _extract(hit: Hit[Chunk]) -> str:
    text = hit.item.passage
    return text if len(text) <= 500 else text[:500].rsplit(None, 1)[0] + " …"


def _csv(rows: list[list[object]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()
