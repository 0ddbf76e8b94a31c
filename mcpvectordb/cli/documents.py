"""Commands about stored documents: list, get, multi-get, update, delete."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpvectordb.cli.main import opened
from mcpvectordb.cli.options import (
    conditions_from,
    json_option,
    metadata_option,
    metadata_pair,
    no_embed_option,
    where_option,
)
from mcpvectordb.cli.output import (
    complain,
    fail,
    print_json,
    print_text,
    quantity,
    show,
    show_result,
    visible_line,
)
from mcpvectordb.errors import InvalidInput, NotFound
from mcpvectordb.records import Condition
from mcpvectordb.text import fuzzy

if TYPE_CHECKING:
    from mcpvectordb import Database, Document, Place

lines_option = click.option(
    "--lines", type=click.IntRange(min=0), metavar="N", help="Print at most N lines."
)
numbers_option = click.option("--line-numbers", is_flag=True, help="Print line numbers.")


@click.command("list")
@click.argument("name", default="", metavar="[LIBRARY|PATH]")
@where_option
@click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(min=0))
@click.option("--offset", default=0, type=click.IntRange(min=0))
@json_option
def list_(name: str, conditions: tuple[str, ...], as_json: bool, **page: Any) -> None:
    """List documents, newest first: all, or those of a library or of a folder in one."""
    with opened() as db:
        library, within = _scope(db, name) if name.strip("/") else (None, [])
        where = [*conditions_from(conditions), *within]
        documents = list(db.documents.browse(library=library, where=where, **page))
        total = db.documents.count(library=library, where=where)
        note = "" if total else db.documents.why_empty(library=library, where=where)
        backlog = db.documents.backlog()
    if not as_json:
        show(f"{len(documents):,} of {quantity(total, 'document')}", err=True)
    result = {"documents": documents, "total": total, "note": note, "backlog": backlog}
    lines = (
        f"{each.id}  {each.size:>10,}  {each.modified[:16] or '-':<16}  {each.path}  {each.title}"
        for each in documents
    )
    show_result(result, lines, (note, backlog.note), as_json=as_json)


@click.command()
@click.argument("name", metavar="NAME[:LINE]")
@lines_option
@numbers_option
@click.option(
    "--as-of", metavar="TIME|CHANGE", help="As it was at a time (2026-11-29, 2d) or after a change."
)
@json_option
def get(
    name: str,
    lines: int | None,
    line_numbers: bool,
    as_of: str | None,
    as_json: bool,
) -> None:
    """Print a document's text.

    NAME is its path or the end of it, its id, or #hash; NAME:LINE starts at that line. A name that
    several documents have prints none, but lists them.
    """
    # A number that cannot be one of a change is no time either, which is what the error says then.
    moment = int(as_of) if as_of and as_of.isdecimal() and len(as_of) < 20 else as_of
    with opened() as db:
        when = "" if moment is None else f" as of {moment}"
        [place] = _places(db, [name], partial(_candidates, db, as_of=moment), when)
        limit = lines if lines is not None else place.lines
        whole = db.documents.text(place.document.id, as_of=moment)
        text = _excerpt(whole, place.line, limit, line_numbers)
    if as_json:
        print_json({"document": place.document, "text": text})
    else:
        print_text(text)


@click.command("multi-get")
@click.argument("pattern", metavar="PATTERN|NAME,NAME...")
@lines_option
@click.option(
    "--max-bytes",
    default=10240,
    show_default=True,
    type=click.IntRange(min=0),
    help="Leave out documents whose text is larger.",
)
@numbers_option
@json_option
def multi_get(
    pattern: str,
    lines: int | None,
    max_bytes: int,
    line_numbers: bool,
    as_json: bool,
) -> None:
    """Print several documents: those that match a pattern ('notes/**/*.md'), or a list of names."""
    with opened() as db:
        if any(sign in pattern for sign in "*?[{"):
            documents = db.documents.matching(pattern)
        else:
            names = list(filter(None, map(str.strip, pattern.split(","))))
            documents = _unique(_places(db, names, partial(_candidates, db)))
        if not documents:
            fail(f"no document matches {pattern!r}; `mcpvectordb list` shows what there is")
        texts = {}
        for each in documents:
            if db.documents.text_bytes(each.id) > max_bytes:
                complain(
                    f"{each.path} is left out: it has more than {max_bytes} bytes; get it by "
                    "itself, or raise --max-bytes"
                )
            else:
                text = db.documents.text(each.id)
                texts[each.path] = _excerpt(text, None, lines, line_numbers)
    if as_json:
        print_json({"documents": [{"path": path, "text": text} for path, text in texts.items()]})
    else:
        print_text(
            "\n".join(f"==> {visible_line(path)} <==\n{text}" for path, text in texts.items())
        )


@click.command()
@click.argument("name")
@metadata_option
@click.option("--title", metavar="TEXT", help="Another title.")
@click.option("--library", "-l", metavar="NAME", help="The library to move it to.")
@no_embed_option
def update(name: str, metadata: tuple[str, ...], no_embed: bool, **fields: Any) -> None:
    """Change the metadata, title or library of a document, by path, id or #hash.

    -m KEY=VALUE sets a key, -m KEY=null removes it. What is given here stays when the document's
    file changes.
    """
    if metadata:
        fields["metadata_patch"] = dict(metadata_pair(each) for each in metadata)
    with opened() as db:
        [document] = _only(db, [name])
        done = db.documents.update(document.id, embed=not no_embed, **fields)
    show(f"{done.status} {done.document.path}")
    if done.note:
        complain(done.note)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def delete(names: tuple[str, ...]) -> None:
    """Remove documents, by path, id or #hash.

    A name that is unknown, or that several documents have, removes nothing at all. All of them
    are one change, which one `undo` takes back.
    """
    with opened() as db:
        documents = _only(db, names)
        db.documents.delete(each.id for each in documents)
        roots = {each.name: each.root for each in db.documents.libraries() if each.root}
    for each in documents:
        show(f"deleted {each.path} ({each.id}) with {quantity(each.chunks, 'chunk')}")
    for each in documents:
        root = roots.get(each.library, "")
        if root and Path(each.source).is_relative_to(root) and Path(each.source).exists():
            rule = "/" + Path(each.source).relative_to(root).as_posix()
            complain(
                f"the library {each.library} follows {root}: the next sync takes {each.path} in "
                f"again, under another id; to exclude it, add the line {rule} to "
                f"{Path(root) / '.mcpvectordbignore'}"
            )


def _scope(db: Database, name: str) -> tuple[str | None, list[Condition]]:
    """The library or the condition that selects what NAME stands for; raises NotFound."""
    inside = name.strip("/")
    libraries = [each.name for each in db.documents.libraries()]
    for library in libraries:
        if library in (name, inside):
            return library, []
    escaped = re.sub(r"([*?\[\]{}\\])", r"\\\1", inside)
    below = db.documents.matching(f"{escaped}/**")
    if not below:
        named = next(filter(None, _candidates(db, _spellings(name))), [])
        below = [place.document for place in named]
    if not below:
        near = [*fuzzy.nearest(inside, libraries), *db.documents.suggest(name)]
        raise NotFound(f"there is no library, folder or document {name}; {_hint(near)}")
    return None, [Condition("id", "in", [each.id for each in below])]


def _unique(places: Sequence[Place]) -> list[Document]:
    return list({each.document.id: each.document for each in places}.values())


def _candidates(
    db: Database, names: Sequence[str], as_of: str | int | None = None
) -> list[list[Place]]:
    """The documents that each name may mean, or the one that it meant at a time.

    The id of an earlier version means the present one.
    """
    several = db.documents.candidates(names) if as_of is None else [[] for _ in names]
    one = db.documents.lookup(names, as_of=as_of)
    return [
        places or list(filter(None, [place])) for places, place in zip(several, one, strict=True)
    ]


def _places(
    db: Database,
    names: Sequence[str],
    find: Callable[[Sequence[str]], list[list[Place]]],
    when: str = "",
) -> list[Place]:
    """The one document that each name means, of those that `find` returns for each.

    A file that exists below the working folder comes before one whose path only ends like a name.
    Raises NotFound with similar names for the first unknown one, and InvalidInput for one that
    several documents have.
    """
    every = list(dict.fromkeys(each for name in names for each in _spellings(name)))
    found = dict(zip(every, find(every), strict=True))
    chosen = []
    for name in names:
        meanings = list(filter(None, map(found.get, _spellings(name))))
        if not meanings:
            hint = _hint(db.documents.suggest(name))
            if name.startswith("memory:"):
                hint = "`mcpvectordb memories` shows and forgets memories"
            raise NotFound(f"no document has the path, id or hash {name}{when}; {hint}")
        places = min(meanings, key=len)
        if len(places) > 1:
            shown = ", ".join(f"{each.document.path} ({each.document.id})" for each in places[:10])
            more = f" and {len(places) - 10} more" if len(places) > 10 else ""
            raise InvalidInput(
                f"{len(places)} documents are called {name}: {shown}{more}; name one by its path "
                "or id"
            )
        chosen.append(places[0])
    return chosen


def _only(db: Database, names: Sequence[str]) -> list[Document]:
    """The documents with these names, each once, to be changed; InvalidInput for one with a line.

    The id of an earlier version is none of them.
    """
    places = _places(db, names, db.documents.candidates)
    for name, place in zip(names, places, strict=True):
        if place.line is not None:
            raise InvalidInput(f"{name} names a line; this concerns a document as a whole")
    return _unique(places)


def _spellings(name: str) -> list[str]:
    here = Path(name).expanduser()
    return [str(here.resolve()), name] if here.exists() else [name]


def _hint(similar: Sequence[str]) -> str:
    if not similar:
        return "`mcpvectordb list` shows what there is"
    return f"did you mean {', '.join(dict.fromkeys(similar))}?"


def _excerpt(text: str, line: int | None, limit: int | None, numbers: bool) -> str:
    """At most `limit` lines of a text from a line on, with their line ends."""
    if line is None and limit is None and not numbers:
        return text
    first = max(1, line or 1)
    chosen = re.findall(r"[^\n]*\n|[^\n]+", text)[first - 1 :][:limit]
    return "".join(
        f"{number}: {each}" if numbers else each for number, each in enumerate(chosen, first)
    )
