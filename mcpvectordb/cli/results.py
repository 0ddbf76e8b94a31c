"""Search results in the output formats: text, files, Markdown, CSV, XML."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from mcpvectordb.cli.output import StyledText, complain, visible_line

if TYPE_CHECKING:
    from mcpvectordb import Chunk, Database, Document, Hit, Results
    from mcpvectordb.text.query import Term

NAMED = 3  # passages that are named because they say the same as a hit

_NOT_XML = "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # compiled on use


class ResultRow(NamedTuple):
    """A hit in the output formats; `docid` and `file` are names that `get` takes.

    Of a memory both are its place, which `memories show` takes, and the title is its thread.
    """

    docid: str
    confidence: str
    relevance: float | str
    score: float
    file: str
    title: str
    context: str
    line: int
    snippet: str
    place: str


def rows_of(db: Database, results: Results[Any]) -> list[ResultRow]:
    """The hits as rows for the formats files, Markdown, CSV and XML."""
    return [_row(db, hit) for hit in results]


def _row(db: Database, hit: Hit[Any]) -> ResultRow:
    item, context = hit.item, ""
    if hasattr(item, "document"):
        document = item.document
        context = "\n\n".join(db.documents.descriptions(document.library, document.source))
        named = (f"#{document.hash[:6]}", document.path, document.title, document.place(hit.line))
    else:
        named = (item.place, item.place, item.thread, f"{item.place}:{hit.line}")
    docid, file, title, place = named
    return ResultRow(
        docid,
        hit.confidence or "",
        "" if hit.relevance is None else round(hit.relevance, 4),
        round(hit.score, 4),
        file,
        title,
        context,
        hit.line,
        hit.snippet,
        place,
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
        f"## {visible_line(each.place)}\n\n"
        f"**{visible_line(each.title)}** ({_named(each)})\n\n"
        + (f"*{each.context}*\n\n" if each.context else "")
        + "".join(f"> {line}\n" for line in each.snippet.split("\n"))
        for each in rows
    )


def _named(row: ResultRow) -> str:
    return f"{row.docid}, {row.confidence} match" if row.confidence else row.docid


def table(rows: list[ResultRow]) -> str:
    """CSV with a header."""
    return _csv([ResultRow._fields, *rows])


def xml(rows: list[ResultRow]) -> str:
    """XML with one element per hit."""
    from xml.sax.saxutils import escape, quoteattr

    def attributes(each: ResultRow) -> str:
        named = {name: value for name, value in each._asdict().items() if name != "snippet"}
        return " ".join(
            f"{name}={quoteattr(re.sub(_NOT_XML, '�', str(value)))}"
            for name, value in named.items()
        )

    elements = [
        f"  <file {attributes(each)}>{escape(re.sub(_NOT_XML, '�', each.snippet))}</file>\n"
        for each in rows
    ]
    return f"<results>\n{''.join(elements)}</results>\n"


FORMATS: Mapping[str, Callable[[list[ResultRow]], str]] = {
    "files": files,
    "md": markdown,
    "csv": table,
    "xml": xml,
}


def print_results(
    results: Results[Any],
    query: str,
    offset: int = 0,
    *,
    explain: bool = False,
    project: str | None = None,
    state: Callable[[Document], str] = lambda _: "",
) -> None:
    """Print hits as text: place, confidence and matching lines of each, then which legs ran.

    `project` is where they were looked for; `state` says what became of a document's file.
    """
    page = StyledText()
    if results.legs and (results.verdict or not results.hits):
        page.print(results.verdict or "nothing found")
    if results.verdict and results.hits:
        page.print()
    terms = _terms(query) if page.is_styled else []
    for number, hit in enumerate(results, offset + 1):
        if number > offset + 1 and results.weak_from == number - offset - 1:
            page.print("weak matches below", style="dim")
            page.print()
        page.print_parts((f"{number}. ", "bold"), *_headline(hit))
        if explain:
            page.print(_explained(hit), style="dim")
        page.print_parts(*_marked(hit.snippet, terms))
        for remark in _remarks(hit, state):
            page.print(visible_line(f"   {remark}"), style="dim")
        page.print()
    within = visible_line(f" in the project {project}") if project else ""
    page.print(f"searched by {' and '.join(results.legs) or 'nothing'}{within}", style="dim")
    if results.uncalibrated and "relevance" not in results.reasons:
        page.print(f"relevance is not known: {results.uncalibrated}", style="dim")
    for remark in omissions(results):
        complain(remark)


def _terms(query: str) -> list[Term]:
    """What is highlighted in the lines that a query found."""
    from mcpvectordb.text.query import Term, parse_query

    return [Term(word) for word in parse_query(query).content_words]


def _headline(hit: Hit[Any]) -> list[tuple[str, str]]:
    """Where a hit is (path and line, a link if it is a file or page), confidence and title."""
    confidence = "" if hit.confidence is None else f"{hit.confidence} match"
    if not hasattr(hit.item, "document"):
        told = (confidence, hit.item.thread, hit.item.created_at[:10], hit.item.validity)
        said = visible_line("  " + ", ".join(filter(None, told)))
        return [(hit.item.place, "bold"), (said, "")]
    document, page = hit.item.document, hit.item.page
    style = f"bold link {uri}" if (uri := _uri(document.source)) else "bold"
    facts = [
        confidence,
        " > ".join(dict.fromkeys(filter(None, (document.title, *hit.item.headings)))),
        f"p. {page}" if page else "",
    ]
    return [
        (visible_line(_place(hit.item, hit.line)), style),
        (visible_line("  " + ", ".join(filter(None, facts))), ""),
    ]


def _place(chunk: Chunk, line: int) -> str:
    """The path and line of a passage; the path is relative if it is in the current folder."""
    document = chunk.document
    source = Path(document.source)
    with contextlib.suppress(OSError, ValueError):  # no such folder any more, or not in it
        if source.is_absolute():
            return document.place(line, name=str(source.relative_to(Path.cwd())))
    return document.place(line, name=document.source)


def _uri(source: str) -> str:
    """The address that a source is linked to; "" if it is neither a file nor a page."""
    if source.startswith(("https://", "http://")):
        return quote(source, safe=";/?:@&=+$,-_.!~*'()#%[]")
    return Path(source).as_uri() if Path(source).is_absolute() else ""


def _marked(snippet: str, terms: list[Term]) -> list[tuple[str, str]]:
    """The lines of a snippet with the terms of the query highlighted, but not in line numbers."""
    from mcpvectordb.ranking.snippets import occurrences

    parts: list[tuple[str, str]] = []
    for line in snippet.split("\n"):
        number, _, text = line.partition(": ")
        if not text:
            continue
        parts += [("\n" if parts else "", ""), (f"   {number}: ", "dim")]
        place = 0
        for start, end in occurrences(text, terms, stemmed=True) if terms else ():
            parts += [(text[place:start], ""), (text[start:end], "bold yellow")]
            place = end
        parts.append((text[place:], ""))
    return parts


_SINCE = {
    "changed": "the file has changed since it was read: ingest it again",
    "gone": "the file is gone from this machine",
}


def _remarks(hit: Hit[Any], state: Callable[[Document], str]) -> list[str]:
    """What became of a hit's file, and what it stands for: passages that say the same, others."""
    if not hasattr(hit.item, "document"):
        return []
    since = _SINCE.get(state(hit.item.document), "")
    remarks = [since] if since else []
    if hit.folded:
        places = [_place(chunk, chunk.first_line) for chunk in hit.folded[:NAMED]]
        others = len(hit.folded) - len(places)
        remarks.append(
            f"nearly the same: {', '.join(places)}" + (f" and {others} more" if others else "")
        )
    if hit.more:
        remarks.append(f"{hit.more} more passage{'s' * (hit.more > 1)} of this document")
    return remarks


def omissions(results: Results[Any]) -> list[str]:
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
        ("score", hit.score, None),
        ("BM25", scores.text, scores.text_rank),
        ("cosine", scores.vector, scores.vector_rank),
        ("sum of ranks", scores.rrf, None),
        ("reranker", scores.rerank, None),
        ("recency", scores.recency, None),
        ("relevance", hit.relevance, None),
    ]
    named = [
        f"{name} {figure:.4f}" + (f" (rank {rank})" if rank else "")
        for name, figure, rank in parts
        if figure is not None
    ]
    return "   " + ", ".join(named)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    import csv

    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()
