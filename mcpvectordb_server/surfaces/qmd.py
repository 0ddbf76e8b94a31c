"""The surface qmd: the knowledge base of Markdown files of its specification 1.0.0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from typing_extensions import TypedDict

from mcpvectordb import (
    Chunk,
    Database,
    Document,
    Hit,
    InvalidInput,
    Library,
    MCPVectorDBError,
    ModelMissing,
    NotFound,
    Place,
    Results,
)
from mcpvectordb_server.arguments import not_blank, within
from mcpvectordb_server.replies import (
    MAX_ECHO,
    MAX_REPLY,
    Reply,
    Resource,
    Text,
    cut,
    failed,
    with_note,
)
from mcpvectordb_server.shown import Shown, shows
from mcpvectordb_server.surface import READS, Prompt, ResourceTemplate, Surface, Tool
from mcpvectordb_server.surfaces import prose

VERSION = "1.0.0"
SCHEME = "qmd://"
NO_VECTORS = "Vector index not found. Run 'qmd embed' first to create embeddings."
EMBED_HERE = "here the command is `mcpvectordb embed`; a server also embeds in the background"
MOST_RESULTS = 1000
# Names in one list for `multi_get`, and documents of one pattern: more would not fit into a reply.
MOST_NAMES = 200
MOST_MATCHING = 1000
# Missing names of a list that get suggestions; each of them compares with every path there is.
SUGGESTED_FOR = 5
# Characters of a document in one reply; the rest is for its context.
_ROOM = MAX_REPLY * 9 // 10


class QmdResult(TypedDict):
    """One document that was found."""

    docid: str
    file: str
    title: str
    score: float
    context: str | None
    snippet: str


QmdSearchReply = Annotated[Reply, Shown(results=list[QmdResult], note=str)]


class QmdCollection(TypedDict):
    """One collection; without a folder of its own, `path` and `pattern` are empty."""

    name: str
    path: str
    pattern: str
    documents: int
    lastUpdated: str


Limit = Annotated[int, "Maximum number of results (default: 10)"]
Only = Annotated[str | None, "Only this collection, by its name"]


def search(
    db: Database,
    *,
    query: Annotated[
        str, 'Words to look for; "a phrase" must stand together, -word must not occur'
    ],
    limit: Limit = 10,
    minScore: Annotated[float, "Minimum relevance score 0-1 (default: 0)"] = 0,
    collection: Only = None,
) -> QmdSearchReply:
    """Find documents that have all given words, anywhere in title, text or path. Fast.

    Use this for names, codes and a few telling words; each may be the beginning of a longer one.
    For whole questions use `vsearch` or `query`. Each result quotes the line that fits best with
    its neighbours and their line numbers.
    """
    return _found(db, query, limit, minScore, collection, "text")


def vsearch(
    db: Database,
    *,
    query: Annotated[str, "What to look for, in natural language"],
    limit: Limit = 10,
    minScore: Annotated[float, "Minimum relevance score 0-1 (default: 0.3)"] = 0.3,
    collection: Only = None,
) -> QmdSearchReply:
    """Find documents by meaning, also where they share no word with the query.

    Use this for questions and descriptions; for exact words use `search`. Needs embeddings:
    `status` shows if there are any.
    """
    return _found(db, query, limit, minScore, collection, "vector")


@shows(results=list[QmdResult], steps=list[str], skipped=dict[str, str], note=str)
def query(
    db: Database,
    *,
    query: Annotated[str, "What to look for, in natural language"],
    limit: Limit = 10,
    minScore: Annotated[float, "Minimum relevance score 0-1 (default: 0)"] = 0,
    collection: Only = None,
) -> Reply:
    """Find documents as well as possible: by words and meaning, by what the first results have in
    common, read again.

    Use this when it matters; it takes a second or more. `steps` and `skipped` say what was done:
    without embeddings it goes by words only, without the reranking model by ranks. Scores are made
    of ranks: compare them within this reply only.
    """
    return _found(db, query, limit, minScore, collection, "hybrid")


def get(
    db: Database,
    *,
    file: Annotated[
        str,
        "Path, end of a path, or docid (#abc123), as in results; file.md:100 starts at line 100",
    ],
    fromLine: Annotated[int | None, "Start at this line (1-indexed)"] = None,
    maxLines: Annotated[int | None, "Maximum number of lines"] = None,
    lineNumbers: Annotated[bool, "Put its number before every line: 'N: content'"] = False,
) -> Reply:
    """Read one document, or a part of it, by its path or docid.

    Use this after a search, with the `file` or `docid` of a result. A name that is not known is
    answered with similar ones.
    """
    place = _place(db, file)
    line = place.line if place.line is not None else fromLine
    most = place.lines if place.lines is not None else _not_negative("maxLines", maxLines)
    body = _part(db.documents.text(place.document.id), line, most, lineNumbers)
    if len(body) > _ROOM:  # whole lines, as many as fit
        kept = body[:_ROOM].rpartition("\n")[0] or body[:_ROOM]
        after = kept.count("\n") + 1
        left, following = body.count("\n") + 1 - after, max(1, line or 1) + after
        body = f"{kept}\n\n[... {left} more lines; ask again with fromLine={following}]"
    return Reply(content=(_resource(db, place.document, body),))


def multi_get(
    db: Database,
    *,
    pattern: Annotated[str, "Glob pattern (journals/2025-05*.md), or names with commas between"],
    maxLines: Annotated[int | None, "Maximum number of lines of each document"] = None,
    maxBytes: Annotated[int, "Skip documents larger than this (default: 10240)"] = 10240,
    lineNumbers: Annotated[bool, "Put its number before every line: 'N: content'"] = False,
) -> Reply:
    """Read several documents at once, by a pattern or a list of names.

    Use this when you know which documents you need. Those that are too large are named and left
    out: read them with `get`.
    """
    _not_negative("maxLines", maxLines)
    documents, missing = _selected(db, pattern)
    if not documents:
        raise NotFound(
            "\n\n".join(missing) or f"No files matched pattern: {cut(pattern, MAX_ECHO)}"
        )
    notices = ["\n\n".join(missing)] if missing else []
    if len(documents) > MOST_MATCHING:
        documents = documents[:MOST_MATCHING]
        notices.append(
            f"[SKIPPED: all files after the first {MOST_MATCHING} that match. Ask for fewer.]"
        )
    sizes = {each.id: db.documents.text_bytes(each.id) for each in documents}
    large = [each for each in documents if sizes[each.id] > maxBytes]
    small = [each for each in documents if sizes[each.id] <= maxBytes]
    notices += [
        f"[SKIPPED: {each.path} - File too large ({math.floor(sizes[each.id] / 1024 + 0.5)}KB). "
        f"Use 'qmd get' with file=\"{each.path}\" to retrieve.]"
        for each in large
    ]
    resources = _resources(db, small, maxLines, lineNumbers)
    if skipped := len(small) - len(resources):
        notices.append(f"[SKIPPED: {skipped} more files, to keep this reply short. Ask for fewer.]")
    return Reply(content=(*(Text(text=each) for each in notices), *resources))


@shows(
    totalDocuments=int,
    needsEmbedding=int,
    hasVectorIndex=bool,
    collections=list[QmdCollection],
    note=str,
)
def status(db: Database) -> Reply:
    """Show the collections, how many documents they have, and whether they can be searched by
    meaning.
    """
    coverage, backlog = db.documents.coverage(), db.documents.backlog()
    libraries = db.documents.libraries()
    collections = sorted(
        (_collection(db, each) for each in libraries),
        key=lambda each: each["lastUpdated"],
        reverse=True,
    )
    total = sum(each["documents"] for each in collections)
    lines = [
        "QMD Index Status:",
        f"  Total documents: {total}",
        f"  Needs embedding: {coverage.distinct_waiting}",
        f"  Vector index: {'yes' if coverage.any else 'no'}",
        f"  Collections: {len(collections)}",
    ]
    lines += [
        f"    - {each['path'] or each['name']} ({each['documents']} docs)" for each in collections
    ]
    structured = {
        "totalDocuments": total,
        "needsEmbedding": coverage.distinct_waiting,
        "hasVectorIndex": coverage.any,
        "collections": collections,
    }
    reply = Reply(content=(Text(text="\n".join(lines)),), structured=structured)
    return with_note(reply, backlog.note)


def read(db: Database, path: str) -> str:
    """The text of the resource `qmd://path`, with line numbers; if missing, a text that says so."""
    try:
        place = _place(db, path)
    except NotFound as error:
        return str(error)
    text = db.documents.text(place.document.id)
    return _with_context(db, place.document, _part(text, place.line, place.lines, True))


def failure(tool: str, error: MCPVectorDBError) -> Reply:
    """An error: MCP's flag and its text; a note has our command beside qmd's own."""
    reply = failed(str(error))
    if str(error) != NO_VECTORS:
        return reply
    # Hosts that show the structured content alone must not lose the error.
    return replace(reply, structured={"note": f"{NO_VECTORS} {EMBED_HERE}"})


def _found(
    db: Database,
    query: str,
    limit: int,
    least: float,
    collection: str | None,
    mode: Literal["text", "vector", "hybrid"],
) -> Reply:
    """The reply of a search tool; scores of both kinds together are compared as they are shown."""
    within("limit", limit, 0, MOST_RESULTS, hint=": more would not fit into a reply")
    found = (
        db.documents.search(
            query,
            mode=mode,
            unit="document",
            library=collection or None,
            limit=limit,
            fusion="rrf",
            expand=True,
            rerank=True,
        )
        if query.strip()
        else Results[Chunk](hits=(), legs=())
    )
    if mode == "vector" and (reason := found.reasons.get("vector")):
        raise ModelMissing(
            f"Meaning cannot be searched: {reason}" if db.documents.coverage().any else NO_VECTORS
        )
    scores = [_rounded(hit.score) if mode == "hybrid" else hit.score for hit in found]
    items = [
        _result(db, hit, query, whole=mode == "text")
        for hit, score in zip(found, scores, strict=True)
        if score >= least
    ]
    head = f'Found {len(items)} result{"s" if len(items) != 1 else ""} for "{query}":'
    lines = [
        f"{each['docid']} {each['score']:.0%} {each['file']} - {each['title']}" for each in items
    ]
    text = "\n".join([head, "", *lines]) if items else f'No results found for "{query}"'
    note = found.verdict if items else found.note.replace("no library", "no collection")
    reply = with_note(Reply(content=(Text(text=text),), structured={"results": items}), note)
    if mode == "hybrid":
        steps = {"steps": list(found.legs), "skipped": dict(found.reasons)}
        reply = replace(reply, structured={**(reply.structured or {}), **steps})
    return with_note(reply, found.backlog.note if "vector" in found.legs else "")


def _result(db: Database, hit: Hit[Chunk], query: str, *, whole: bool) -> QmdResult:
    document = hit.item.document
    return QmdResult(
        docid=f"#{document.hash[:6]}",
        file=document.path,
        title=_title(document),
        score=_rounded(hit.score),
        context=_context(db, document),
        snippet=db.documents.snippet(hit.item, query, whole=True) if whole else hit.snippet,
    )


def _rounded(score: float) -> float:
    return math.floor(100 * score + 0.5) / 100


def _place(db: Database, name: str) -> Place:
    """The document of a name or URI; raises NotFound with similar names."""
    [place] = _places(db, [name])
    if place is None:
        raise NotFound(_not_found(db, name))
    return place


def _places(db: Database, names: Sequence[str]) -> list[Place | None]:
    """The documents of names or URIs, None for an unknown one; all are looked up at once."""
    spellings = {name: _spellings(name) for name in names}
    every = list(dict.fromkeys(each for some in spellings.values() for each in some))
    found = dict(zip(every, db.documents.lookup(every), strict=True))
    return [next(filter(None, map(found.get, spellings[name])), None) for name in names]


def _spellings(name: str) -> list[str]:
    """What a name or URI may stand for: it is percent-encoded not at all, once or twice."""
    given = name.strip().strip("\"'").strip()
    plain = given.removeprefix(SCHEME) if given.startswith(SCHEME) else name
    return [plain, unquote(plain), unquote(unquote(plain))]


def _not_found(db: Database, name: str, suggest: bool = True) -> str:
    paths = db.documents.suggest(_spellings(name)[1]) if suggest else []
    similar = "".join(f"\n  - {path}" for path in paths)
    return f"Document not found: {cut(name, MAX_ECHO)}" + (
        f"\n\nDid you mean one of these?{similar}" if similar else ""
    )


def _selected(db: Database, pattern: str) -> tuple[list[Document], list[str]]:
    """The documents of a glob or a list of names, each once, and messages about missing names."""
    not_blank("pattern", pattern)
    is_glob = any(sign in pattern for sign in "*?[{")
    glob = pattern.strip().removeprefix(SCHEME)
    if is_glob and (found := db.documents.matching(glob, limit=MOST_MATCHING + 1)):
        return found, []
    names = list(dict.fromkeys(filter(None, (each.strip() for each in pattern.split(",")))))
    if len(names) > MOST_NAMES:
        if is_glob:
            return [], []
        raise InvalidInput(
            f"pattern lists {len(names):,} names; at most {MOST_NAMES} are read at once"
        )
    selected: dict[str, Document] = {}
    missing: list[str] = []
    for name, place in zip(names, _places(db, names), strict=True):
        if place is not None:
            selected.setdefault(place.document.id, place.document)
        else:
            missing.append(_not_found(db, name, suggest=len(missing) < SUGGESTED_FOR))
    return list(selected.values()), [] if is_glob else missing


def _lines(text: str) -> list[str]:
    """The lines of a text; a newline at its end begins no further line."""
    return text.removesuffix("\n").split("\n")


def _part(text: str, line: int | None, most: int | None, numbers: bool) -> str:
    """At most `most` lines of a text from `line` on, with their numbers if wanted."""
    if line is None and most is None and not numbers:
        return text
    first = max(1, line or 1)
    chosen = _lines(text)[first - 1 :][:most]
    return "\n".join(
        f"{number}: {each.rstrip()}" if numbers else each
        for number, each in enumerate(chosen, first)
    )


def _resources(
    db: Database, documents: list[Document], most: int | None, numbers: bool
) -> list[Resource]:
    """At most `most` lines of each document; those that are too many for a reply are left out."""
    resources: list[Resource] = []
    length = 0
    for document in documents:
        if length > MAX_REPLY:
            break
        text = db.documents.text(document.id)
        body = _part(text, None, most, numbers)
        left_out = 0 if most is None else max(0, len(_lines(text)) - most)
        note = f"\n\n[... truncated {left_out} more lines]" if left_out else ""
        resources.append(_resource(db, document, body + note))
        length += len(resources[-1].text)
    return resources


def _resource(db: Database, document: Document, body: str) -> Resource:
    # Percent-encoded by segments, as JavaScript's encodeURIComponent does it.
    path = "/".join(quote(segment, safe="!'()*-._~") for segment in document.path.split("/"))
    return Resource(
        uri=SCHEME + path,
        name=document.path,
        title=_title(document),
        text=_with_context(db, document, body),
    )


def _with_context(db: Database, document: Document, body: str) -> str:
    context = _context(db, document)
    return f"<!-- Context: {context} -->\n\n{body}" if context else body


def _context(db: Database, document: Document) -> str | None:
    return "\n\n".join(db.documents.descriptions(document.library, document.source)) or None


def _title(document: Document) -> str:
    """The document's title; the name of its file, if it has none, is without extension here."""
    name = PurePosixPath(document.path).name
    return PurePosixPath(name).stem if document.title == name else document.title


def _collection(db: Database, library: Library) -> QmdCollection:
    newest = db.documents.browse(library=library.name, limit=1)
    updated = datetime.fromisoformat(
        newest[0].created_at if newest else library.created_at
    ).astimezone(UTC)
    return QmdCollection(
        name=library.name,
        path=library.root,
        pattern=library.pattern,
        documents=library.documents,
        lastUpdated=f"{updated.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z",
    )


def _not_negative(name: str, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise InvalidInput(f"{name} must be 0 or more, not {value}")
    return value


SURFACE = Surface(
    name="qmd",
    version=VERSION,
    instructions=prose("qmd"),
    tools=(
        Tool(search, "Search by words", READS, more="lower limit, or raise minScore"),
        Tool(vsearch, "Search by meaning", READS, more="lower limit, or raise minScore"),
        Tool(query, "Search thoroughly", READS, more="lower limit, or raise minScore"),
        Tool(get, "Read a document", READS, more="ask for the rest with fromLine and maxLines"),
        Tool(multi_get, "Read several documents", READS, more="ask for fewer, or set maxLines"),
        Tool(status, "Index status", READS, more="search each collection by its name"),
    ),
    failure=failure,
    templates=(
        ResourceTemplate(
            prefix=SCHEME,
            name="document",
            title="QMD Document",
            description="A markdown document from your QMD knowledge base. Use search tools to "
            "discover documents.",
            read=read,
        ),
    ),
    prompt=Prompt(
        name="query",
        title="Query guide",
        description="How to search this knowledge base effectively",
        text=prose("qmd_guide"),
    ),
)
