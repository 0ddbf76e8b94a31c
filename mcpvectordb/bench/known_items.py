"""Known-item queries: what somebody might type who knows that a certain passage is in the file.

Nobody has to judge their answers, because it is known where each of them came from. Titles and
headings are asked as they stand; a few rare terms and a sentence without its rarest words stand for
what people remember of a text.
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
from mcpvectordb.text.tokens import CJK, STOP_WORDS

KINDS = ("title", "heading", "terms", "sentence")
# passages that are looked at for each item that is wanted of a kind: many have no telling title or
# heading
TRIES = 20
NEARLY = 2  # chunks that may have all words of a query that is still telling: some overlap
FREQUENT = 1_000  # how rare a word is, is counted up to here
FEWEST_TERMS, MOST_TERMS = 3, 5
LEAST_CHARACTERS = 100  # of text from which terms are taken, where there is so much
SENTENCE_WORDS = range(8, 41)
DROPPED = 1 / 3  # of a sentence's telling words

_TOKEN = re.compile(r"\w+(?:['’]\w+)*")
_END = re.compile(r"[.!?…]['\"’”)\]]*\s+|[。！？]|\n\s*\n\s*")
_PROSE = re.compile(r"(?:[^\W_]|[ \n,;:'’\"“”()`*。，、！？.!?…%/–—-])*[.!?…。！？]['\"’”)]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A query, and where in the text of a document (by its id) it should lead."""

    kind: str
    query: str
    document: str
    start: int
    end: int

    def found_in(self, chunk: Chunk) -> bool:
        """Whether a chunk has most of what the query is about, or lies in it for the most part."""
        common = min(self.end, chunk.end) - max(self.start, chunk.start)
        return (
            chunk.document.id == self.document
            and 2 * common >= min(self.end - self.start, chunk.end - chunk.start) > 0
        )


@dataclass(frozen=True, slots=True)
class _Passage:
    """A tile of a document; `text` goes on to the end of the next one, because a sentence does not
    mind tiles.
    """

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
) -> list[Item]:
    """Up to `count` items of each kind, from all over the file or a library; the same ones for the
    same seed.
    """
    items: dict[tuple[str, str], Item] = {}
    lacking = dict.fromkeys(kinds, count)
    for passage in _passages(sql, library, count * TRIES, seed):
        for kind in [kind for kind in kinds if lacking[kind]]:
            item = _MAKERS[kind](sql, index, passage, Random(f"{seed} {passage.id}"))  # noqa: S311 - no secret
            if item is not None and (kind, item.query) not in items:
                items[kind, item.query] = item
                lacking[kind] -= 1
        if not any(lacking.values()):
            break
    return sorted(items.values(), key=lambda item: KINDS.index(item.kind))


# Pure parts.


def tokens(text: str) -> list[str]:
    """The words of a text; runs of Chinese, Japanese or Korean in twos."""
    found = []
    for token in _TOKEN.findall(CJK.sub(lambda run: f" {run[0]} ", text)):
        found += (
            [token[i : i + 2] for i in range(0, len(token), 2)] if CJK.fullmatch(token) else [token]
        )
    return found


def telling(tokens: Sequence[str]) -> list[str]:
    """Those of the words that say something, each once."""
    return [
        word
        for word in dict.fromkeys(tokens)
        if word.casefold() not in STOP_WORDS
        and (len(word) > 2 or CJK.match(word))
        and fts5_phrase(word)
    ]


def rarest(frequencies: Mapping[str, int]) -> list[str]:
    """Words by how rare they are; those that occur nowhere else come last, because nobody would
    remember them.
    """
    present = [word for word, frequency in frequencies.items() if frequency]
    return sorted(present, key=lambda word: (frequencies[word] < 2, frequencies[word]))


def vague(tokens: Sequence[str], frequencies: Mapping[str, int]) -> list[str]:
    """A sentence without the rarest third of its telling words, in its order."""
    by_frequency = sorted(frequencies, key=lambda word: frequencies[word])
    dropped = set(by_frequency[: max(1, round(DROPPED * len(frequencies)))])
    return [token for token in tokens if token not in dropped]


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where sentences lie in a text; what has no sentences, such as code, is cut at blank lines."""
    ends = [0, *(each.end() for each in _END.finditer(text)), len(text)]
    for start, end in pairwise(ends):
        if sentence := text[start:end].strip():
            first = text.index(sentence, start)
            yield first, first + len(sentence)


def is_prose(text: str) -> bool:
    """Whether a text is a whole sentence of a person's length, and not code, a table or a
    heading.
    """
    return len(tokens(text)) in SENTENCE_WORDS and bool(_PROSE.fullmatch(text))


# Where the file has to be asked.


def _passages(
    sql: apsw.Connection, library: str | None, most: int, seed: int
) -> Iterator[_Passage]:
    """Passages in a random order; none of a document that is there twice, for its copy would answer
    as well.
    """
    ids = [
        id
        for (id,) in sql.execute(
            "SELECT c.id FROM document_chunks c JOIN documents d ON d.key = c.owner WHERE ?1 IS "
            "NULL OR d.library = ?1 ORDER BY c.id",
            (library,),
        )
    ]
    for id in Random(seed).sample(ids, min(most, len(ids))):  # noqa: S311
        for owner, document, title, headings, start, tile, after in sql.execute(
            "SELECT c.owner, d.id, d.title, c.headings, c.tile_start, c.tile, n.tile FROM "
            "document_chunks c JOIN documents d ON d.key = c.owner LEFT JOIN document_chunks n "
            "ON n.owner = c.owner AND n.position = c.position + 1 WHERE c.id = ? AND NOT EXISTS "
            "(SELECT 1 FROM documents o WHERE o.hash = d.hash AND o.key <> d.key)",
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
) -> Item | None:
    """The title of the passage's document, if no other one has it."""
    if (
        not telling(tokens(passage.title))
        or sql.execute(
            "SELECT EXISTS (SELECT 1 FROM documents WHERE lower(title) = lower(?) AND key <> ?)",
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
) -> Item | None:
    """The nearest heading over the passage, if no other section has its words; it leads to the
    whole section.
    """
    path = passage.headings
    if not path or not telling(tokens(path[-1])) or path[-1].casefold() == passage.title.casefold():
        return None
    rows = sql.execute(
        'SELECT start, "end", headings FROM document_chunks WHERE owner = ?', (passage.owner,)
    )
    section = [
        (start, end) for start, end, headings in rows if decode_list(headings)[: len(path)] == path
    ]
    if index.keyword.frequency(sql, f"headings : {fts5_phrase(path[-1])}", len(section) + 1) > len(
        section
    ):
        return None
    return _item(
        "heading",
        path[-1],
        passage,
        min(start for start, _ in section),
        max(end for _, end in section),
    )


def _terms(
    sql: apsw.Connection, index: ChunkIndex, passage: _Passage, random: Random
) -> Item | None:
    """The rarest words of a few sentences that belong together, as many as it takes to tell them
    from all others.
    """
    lying = list(sentences(passage.text))
    if not lying:
        return None
    start = random.choice([start for start, _ in lying if start < passage.length])
    end = next((end for _, end in lying if end >= start + LEAST_CHARACTERS), lying[-1][1])
    chosen = rarest(_frequencies(sql, index, telling(tokens(passage.text[start:end]))))
    for count in range(FEWEST_TERMS, MOST_TERMS + 1):
        if len(chosen) >= count and _is_telling(sql, index, chosen[:count]):
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
) -> Item | None:
    """A sentence without its rarest words, unless it stands in other passages too."""
    prose = [
        (start, end)
        for start, end in sentences(passage.text)
        if start < passage.length and is_prose(passage.text[start:end])
    ]
    if not prose:
        return None
    start, end = random.choice(prose)
    asked = tokens(passage.text[start:end])
    frequencies = _frequencies(sql, index, telling(asked))
    if len(frequencies) < FEWEST_TERMS + 1 or not _is_telling(sql, index, list(frequencies)):
        return None
    return _item(
        "sentence",
        " ".join(vague(asked, frequencies)),
        passage,
        passage.start + start,
        passage.start + end,
    )


_MAKERS: Mapping[str, Callable[[apsw.Connection, ChunkIndex, _Passage, Random], Item | None]] = {
    "title": _title,
    "heading": _heading,
    "terms": _terms,
    "sentence": _sentence,
}


def _item(kind: str, query: str, passage: _Passage, start: int, end: int) -> Item:
    return Item(
        kind=kind, query=without_operators(query), document=passage.document, start=start, end=end
    )


def _frequencies(sql: apsw.Connection, index: ChunkIndex, terms: Sequence[str]) -> dict[str, int]:
    return {term: index.keyword.frequency(sql, fts5_phrase(term), FREQUENT) for term in terms}


def _is_telling(sql: apsw.Connection, index: ChunkIndex, terms: Sequence[str]) -> bool:
    """Whether hardly any other chunk has all of these words."""
    return index.keyword.frequency(sql, " AND ".join(map(fts5_phrase, terms)), NEARLY + 1) <= NEARLY
