"""Known-item queries: what a user might type who knows that a certain passage is in the file.

Their results need no judgments, because the passage of each query is known ("known-item search").
Titles and headings are queries as they are; a few rare terms, and a sentence without its rarest
words, imitate what people remember of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import apsw

from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.metadata import decode_list
from mcpvectordb.records import Chunk
from mcpvectordb.text.query import fts5_phrase, without_operators
from mcpvectordb.text.stop_words import stop_words
from mcpvectordb.text.tokens import CJK

KINDS = ("title", "heading", "terms", "sentence")
# Passages that are tried for each item of a kind: many have no title or heading that is unique.
TRIES = 20
MAX_MATCHES = 2  # chunks that may have all words of a query: two chunks may overlap
MAX_FREQUENCY = 1_000  # the frequency of a word is counted up to here
FEWEST_TERMS, MOST_TERMS = 3, 5
LEAST_CHARACTERS = 100  # of the text from which terms are taken, if there is so much
SENTENCE_WORDS = range(8, 41)
DROPPED = 1 / 3  # of the content words of a sentence

_TOKEN = re.compile(r"\w+(?:['’]\w+)*")
_END = re.compile(r"[.!?…]['\"’”)\]]*\s+|[。！？]|\n\s*\n\s*")
_PROSE = re.compile(r"(?:[^\W_]|[ \n,;:'’\"“”()`*。，、！？.!?…%/–—-])*[.!?…。！？]['\"’”)]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownItem:
    """A query, and the part of a document (named by its id) that it should find."""

    kind: str
    query: str
    document: str
    start: int
    end: int

    def found_in(self, chunk: Chunk) -> bool:
        """Whether a chunk covers at least half of the part, or lies in it by at least half."""
        common = min(self.end, chunk.end) - max(self.start, chunk.start)
        return (
            chunk.document.id == self.document
            and 2 * common >= min(self.end - self.start, chunk.end - chunk.start) > 0
        )


@dataclass(frozen=True, slots=True)
class _Passage:
    """A tile of a document; `text` goes on to the end of the next tile, to complete sentences."""

    id: int
    owner: int
    document: str
    title: str
    headings: tuple[str, ...]
    start: int
    length: int
    text: str


def sample(
    sql: apsw.Connection,
    index: ChunkIndex,
    count: int,
    *,
    kinds: Sequence[str] = KINDS,
    seed: int = 0,
    library: str | None = None,
) -> list[KnownItem]:
    """Up to `count` items of each kind, from a file or a library; the same for the same seed."""
    items: dict[tuple[str, str], KnownItem] = {}
    missing = dict.fromkeys(kinds, count)
    for passage in _passages(sql, library, count * TRIES, seed):
        for kind in [kind for kind in kinds if missing[kind]]:
            item = _MAKERS[kind](sql, index, passage, Random(f"{seed} {passage.id}"))  # noqa: S311 - no secret
            if item is not None and (kind, item.query) not in items:
                items[kind, item.query] = item
                missing[kind] -= 1
        if not any(missing.values()):
            break
    return sorted(items.values(), key=lambda item: KINDS.index(item.kind))


def tokens(text: str) -> list[str]:
    """The words of a text; Chinese, Japanese and Korean in pairs of characters."""
    found = []
    for token in _TOKEN.findall(CJK.sub(lambda run: f" {run[0]} ", text)):
        found += (
            [token[i : i + 2] for i in range(0, len(token), 2)] if CJK.fullmatch(token) else [token]
        )
    return found


def content_words(tokens: Sequence[str]) -> list[str]:
    """The words that are no stop words and can be searched for, each once."""
    stops = stop_words(token.casefold() for token in tokens)
    return [
        word
        for word in dict.fromkeys(tokens)
        if word.casefold() not in stops and (len(word) > 2 or CJK.match(word)) and fts5_phrase(word)
    ]


def rarest(frequencies: Mapping[str, int]) -> list[str]:
    """Words by their frequency, rarest first; those that occur only once come last.

    Nobody would remember those.
    """
    present = [word for word, frequency in frequencies.items() if frequency]
    return sorted(present, key=lambda word: (frequencies[word] < 2, frequencies[word]))


def without_rarest(tokens: Sequence[str], frequencies: Mapping[str, int]) -> list[str]:
    """The words of a sentence in their order, without the rarest third of its content words."""
    by_frequency = sorted(frequencies, key=lambda word: frequencies[word])
    dropped = set(by_frequency[: max(1, round(DROPPED * len(frequencies)))])
    return [token for token in tokens if token not in dropped]


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the sentences of a text; text such as code is split at blank lines."""
    ends = [0, *(each.end() for each in _END.finditer(text)), len(text)]
    for start, end in pairwise(ends):
        if sentence := text[start:end].strip():
            first = text.index(sentence, start)
            yield first, first + len(sentence)


def is_prose(text: str) -> bool:
    """Whether a text is one complete sentence of ordinary length, not code, table or heading."""
    return len(tokens(text)) in SENTENCE_WORDS and bool(_PROSE.fullmatch(text))


def _passages(
    sql: apsw.Connection, library: str | None, most: int, seed: int
) -> Iterator[_Passage]:
    """Passages in random order, except of documents with a copy, which could be found instead."""
    ids = [
        id
        for (id,) in sql.execute(
            "SELECT c.id FROM document_chunks c "
            "JOIN published_documents d ON d.key = c.owner WHERE ?1 IS "
            "NULL OR d.library = ?1 ORDER BY c.id",
            (library,),
        )
    ]
    for id in Random(seed).sample(ids, min(most, len(ids))):  # noqa: S311
        for owner, document, title, headings, start, tile, after in sql.execute(
            "SELECT c.owner, d.id, d.title, c.headings, c.tile_start, c.tile, n.tile FROM "
            "document_chunks c JOIN published_documents d ON d.key = c.owner "
            "LEFT JOIN document_chunks n "
            "ON n.owner = c.owner AND n.position = c.position + 1 WHERE c.id = ? AND NOT EXISTS "
            "(SELECT 1 FROM published_documents o WHERE o.hash = d.hash AND o.key <> d.key)",
            (id,),
        ):
            yield _Passage(
                id,
                owner,
                document,
                title,
                decode_list(headings),
                start,
                len(tile),
                tile + (after or ""),
            )


def _title(
    sql: apsw.Connection, index: ChunkIndex, passage: _Passage, random: Random
) -> KnownItem | None:
    """The title of the document of a passage, if no other document has it."""
    if (
        not content_words(tokens(passage.title))
        or sql.execute(
            "SELECT EXISTS (SELECT 1 FROM published_documents "
            "WHERE lower(title) = lower(?) AND key <> ?)",
            (passage.title, passage.owner),
        ).get
    ):
        return None
    end = sql.execute(
        'SELECT max("end") FROM document_chunks WHERE owner = ?', (passage.owner,)
    ).get
    return _item("title", passage.title, passage, 0, end)


def _heading(
    sql: apsw.Connection, index: ChunkIndex, passage: _Passage, random: Random
) -> KnownItem | None:
    """The nearest heading above a passage, if no other section has its words.

    It should find any part of the section.
    """
    path = passage.headings
    if (
        not path
        or not content_words(tokens(path[-1]))
        or path[-1].casefold() == passage.title.casefold()
    ):
        return None
    rows = sql.execute(
        'SELECT start, "end", headings FROM document_chunks WHERE owner = ?', (passage.owner,)
    )
    section = [
        (start, end) for start, end, headings in rows if decode_list(headings)[: len(path)] == path
    ]
    match = f"headings : {fts5_phrase(path[-1])}"
    if index.keyword.frequency(sql, match, len(section) + 1) > len(section):
        return None
    starts, ends = zip(*section, strict=True)
    return _item("heading", path[-1], passage, min(starts), max(ends))


def _terms(
    sql: apsw.Connection, index: ChunkIndex, passage: _Passage, random: Random
) -> KnownItem | None:
    """The rarest words of a few adjacent sentences, as many as identify them."""
    spans = list(sentences(passage.text))
    if not spans:
        return None
    start = random.choice([start for start, _ in spans if start < passage.length])
    end = next((end for _, end in spans if end >= start + LEAST_CHARACTERS), spans[-1][1])
    chosen = rarest(_frequencies(sql, index, content_words(tokens(passage.text[start:end]))))
    for count in range(FEWEST_TERMS, MOST_TERMS + 1):
        if len(chosen) >= count and _identify(sql, index, chosen[:count]):
            return _item(
                "terms",
                " ".join(chosen[:count]),
                passage,
                passage.start + start,
                passage.start + end,
            )
    return None


def _sentence(
    sql: apsw.Connection, index: ChunkIndex, passage: _Passage, random: Random
) -> KnownItem | None:
    """A sentence without its rarest words, unless other passages have it too."""
    prose = [
        (start, end)
        for start, end in sentences(passage.text)
        if start < passage.length and is_prose(passage.text[start:end])
    ]
    if not prose:
        return None
    start, end = random.choice(prose)
    words = tokens(passage.text[start:end])
    frequencies = _frequencies(sql, index, content_words(words))
    if len(frequencies) < FEWEST_TERMS + 1 or not _identify(sql, index, list(frequencies)):
        return None
    return _item(
        "sentence",
        " ".join(without_rarest(words, frequencies)),
        passage,
        passage.start + start,
        passage.start + end,
    )


_MAKERS: Mapping[
    str, Callable[[apsw.Connection, ChunkIndex, _Passage, Random], KnownItem | None]
] = {
    "title": _title,
    "heading": _heading,
    "terms": _terms,
    "sentence": _sentence,
}


def _item(kind: str, query: str, passage: _Passage, start: int, end: int) -> KnownItem:
    return KnownItem(
        kind=kind, query=without_operators(query), document=passage.document, start=start, end=end
    )


def _frequencies(sql: apsw.Connection, index: ChunkIndex, terms: Sequence[str]) -> dict[str, int]:
    return {term: index.keyword.frequency(sql, fts5_phrase(term), MAX_FREQUENCY) for term in terms}


def _identify(sql: apsw.Connection, index: ChunkIndex, terms: Sequence[str]) -> bool:
    """Whether at most MAX_MATCHES chunks have all of these words."""
    match = " AND ".join(map(fts5_phrase, terms))
    return index.keyword.frequency(sql, match, MAX_MATCHES + 1) <= MAX_MATCHES
