"""Results of a search in the formats that people and programs ask for."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mcpvectordb.cli.output import complain, out

if TYPE_CHECKING:
    from mcpvectordb import Chunk, Database, Hit, Results

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Shown:
    """What the formats say of a hit; `docid` and `file` are names that `get` takes."""

    docid: str
    score: float
    file: str
    title: str
    context: str
    line: int
    snippet: str


def shown(db: Database, results: Results[Chunk], query: str) -> list[Shown]:
    """The hits as they are written in files, Markdown, CSV and XML."""
    return [_shown(db, hit, query) for hit in results]


def _shown(db: Database, hit: Hit[Chunk], query: str) -> Shown:
    document = hit.item.document
    context = "\n\n".join(db.documents.descriptions(document.library, document.source))
    return Shown(
        f"#{document.hash[:6]}",
        round(hit.score, 4),
        document.path,
        document.title,
        context,
        hit.item.first_line,
        db.documents.snippet(hit.item, query),
    )


def files(found: list[Shown]) -> str:
    """One line per document: docid, score, path, context."""
    best = {each.file: each for each in reversed(found)}
    return _csv(
        [[each.docid, each.score, each.file, each.context] for each in reversed(best.values())]
    )


def markdown(found: list[Shown]) -> str:
    """A section per hit; what it says is quoted."""
    return "\n".join(
        f"## {each.file}:{each.line}\n\n**{each.title}** ({each.docid}, {each.score:.2f})\n\n"
        + (f"*{each.context}*\n\n" if each.context else "")
        + "".join(f"> {line}\n" for line in each.snippet.split("\n"))
        for each in found
    )


def table(found: list[Shown]) -> str:
    """CSV with a header."""
    rows = [asdict(each) for each in found]
    return _csv([list(Shown.__dataclass_fields__), *(list(row.values()) for row in rows)])


def xml(found: list[Shown]) -> str:
    """An element per hit."""
    from xml.sax.saxutils import escape, quoteattr

    def attributes(each: Shown) -> str:
        named = {name: value for name, value in asdict(each).items() if name != "snippet"}
        return " ".join(
            f"{name}={quoteattr(_NOT_XML.sub('�', str(value)))}" for name, value in named.items()
        )

    elements = [
        f"  <file {attributes(each)}>{escape(_NOT_XML.sub('�', each.snippet))}</file>\n"
        for each in found
    ]
    return f"<results>\n{''.join(elements)}</results>\n"


FORMATS: Mapping[str, Callable[[list[Shown]], str]] = {
    "files": files,
    "md": markdown,
    "csv": table,
    "xml": xml,
}


def for_people(results: Results[Chunk], offset: int = 0, *, explain: bool = False) -> None:
    """Hits for a person: where each stands, then what it says; then which legs ran."""
    console = out()
    for number, hit in enumerate(results, offset + 1):
        console.print(f"{number}. {hit.score:.2f}  {hit.item.citation}", style="bold", markup=False)
        if explain:
            console.print(_explained(hit), style="dim", markup=False)
        console.print(_extract(hit), markup=False)
        console.print()
    if results.verdict or not results.hits:
        console.print(results.verdict or "nothing found", markup=False)
    console.print(
        f"searched by {' and '.join(results.legs) or 'nothing'}", style="dim", markup=False
    )
    for remark in left_undone(results):
        complain(remark)


def left_undone(results: Results[Chunk]) -> list[str]:
    """What was asked for and could not be done, and why."""
    return [
        f"{'relevance is not known' if leg == 'relevance' else f'not searched by {leg}'}: {reason}"
        for leg, reason in results.reasons.items()
    ]


def _explained(hit: Hit[Chunk]) -> str:
    """What each leg said of a hit."""
    scores = hit.scores
    parts = [
        ("BM25", scores.text, scores.text_rank),
        ("cosine", scores.vector, scores.vector_rank),
        ("sum of ranks", scores.rrf, None),
        ("reranker", scores.rerank, None),
        ("relevance", hit.relevance, None),
    ]
    told = [
        f"{name} {figure:.4f}" + (f" (rank {rank})" if rank else "")
        for name, figure, rank in parts
        if figure is not None
    ]
    return "   " + ", ".join(told)


def _extract(hit: Hit[Chunk]) -> str:
    text = hit.item.text
    return text if len(text) <= 500 else text[:500].rsplit(None, 1)[0] + " …"


def _csv(rows: list[list[object]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()
