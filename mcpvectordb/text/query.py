"""Queries: from what a person or an agent types to FTS5 expressions. Pure text in, text out.

`parse_query` is for ranked search, where any term may be missing; `parse_all_terms` for documents
that must have every term; `match_query`, `prefix_query`, `phrase_query` (and `text.boolean`) are
the ways in which memories are searched. No input can cause an FTS5 syntax error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mcpvectordb.text.stop_words import ENGLISH, stop_words
from mcpvectordb.text.tokens import CAMEL, CJK, WORD, bigrams, camel_parts

T = TypeVar("T")

MAX_QUERY_CHARACTERS = 2_000  # the rest of a query is ignored: parsing stays cheap
MAX_DISTINCT_TERMS = 64  # of a ranked query: FTS5 walks through all rows of each
# Terms that are joined by AND or OR in one expression: FTS5's time grows faster than their number.
MAX_JOINED = 32
# Occurrences of one term that count: repetition carries meaning, but FTS5 scores each copy, and 64
# copies of a common word take a second.
MAX_REPEATS = 4
# A code inside of a question counts as so many words: "what changed in version 0.28" asks for 0.28.
# Plain numbers do not: the years in questions about history are not what most of them ask for.
CODE_WEIGHT = 2

_ENDING = re.compile(r"'[a-z]{1,2}$")  # of Smith's, we'll
_JOINED = re.compile(r"[^\W_][-.]+[^\W_]")  # well-known, 1.0.21
# 0.28, 2024.1, v1.0.21: also found with or without the v
_VERSION = re.compile(r"(?i:v)?(?=[0-9])(?P<numbers>[0-9]+(?:\.[0-9]+)+)")
_PIECE = re.compile(r'(?P<minus>(?<!\S)-(?=[^\s-]))?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')


@dataclass(frozen=True, slots=True)
class Query:
    """A query for ranked search; each of its parts is an FTS5 phrase.

    `match` ranks; `required` and `excluded` also restrict results of the vector search. `codes` are
    those of the terms that are codes such as E-4021 or 1.0.21, which embeddings do not distinguish;
    `exact` is true if the query has nothing else.
    """

    terms: tuple[str, ...] = ()  # any of them matches; a repeated one counts repeatedly
    spellings: tuple[str, ...] = ()  # other ways to write some of the terms: v0.28 for 0.28
    codes: frozenset[str] = frozenset()
    phrases: tuple[str, ...] = ()  # quoted: all of them must occur
    exclusions: tuple[str, ...] = ()  # after a minus: none of them may occur
    exact: bool = False

    @property
    def match(self) -> str:
        """The FTS5 expression that a text must match; "" for a query without words."""
        anything = " OR ".join([*self.phrases, *self.terms, *self.spellings])
        return f"({self.required}) AND ({anything})" if self.phrases else anything

    @property
    def required(self) -> str:
        """The quoted phrases as an FTS5 expression, or ""."""
        return " AND ".join(self.phrases)

    @property
    def excluded(self) -> str:
        """The FTS5 expression that a text must not match, or ""."""
        return " OR ".join(self.exclusions)


def parse_query(text: str) -> Query:
    """Parse any string as a query of words, "quoted phrases" and -exclusions; never fails."""
    words: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    for minus, phrase, word in _pieces(text):
        tokens = map(fts5_phrase, [phrase] if phrase else _terms(word))
        (excluded if minus else phrases if phrase else words).extend(filter(None, tokens))
    if not words and not phrases:
        return Query()
    content = _content(words, lambda word: word[1:-1])
    codes = frozenset(word for word in content if _is_code(word[1:-1]))
    exact = not phrases and codes.issuperset(content)
    heavy = {word for word in codes if not exact and not word[1:-1].isdecimal()}
    kept = tuple(
        _bounded([word for word in content for _ in range(CODE_WEIGHT if word in heavy else 1)])
    )
    return Query(
        terms=kept,
        spellings=tuple(_other_spellings(kept)),
        codes=codes.intersection(kept),
        phrases=tuple(_bounded(phrases)),
        exclusions=tuple(_bounded(excluded)),
        exact=exact,
    )


def without_operators(text: str) -> str:
    """A query without the marks that `parse_query` reads as phrases and exclusions."""
    return re.sub(r"(?<!\S)-+", " ", text.replace('"', " "))


def fts5_phrase(text: str) -> str:
    """A text as one FTS5 phrase; "" if it has no word."""
    broken = " ".join(CJK.sub(lambda run: f" {' '.join(_query_bigrams(run[0]))} ", text).split())
    if not WORD.search(broken):
        return ""
    ends_in_one = (run := _last_run(text)) is not None and len(run) == 1
    return '"' + broken.replace('"', '""') + ('" *' if ends_in_one else '"')


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase to search for; with `prefix` its last word matches longer words, too."""

    text: str
    prefix: bool = False

    @property
    def expression(self) -> str:
        """The term as an FTS5 expression; "" if it has no word."""
        quoted = fts5_phrase(self.text)
        return f"{quoted} *" if quoted and self.prefix and not quoted.endswith("*") else quoted


@dataclass(frozen=True, slots=True)
class Interpretation:
    """One reading of a query: an FTS5 expression and the terms that it searches for."""

    expression: str
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class FulltextQuery:
    """The interpretations of a query, to be tried in order until one finds something.

    `note` says what was not done as requested, or is "".
    """

    interpretations: tuple[Interpretation, ...] = ()
    note: str = ""


def match_query(text: str) -> FulltextQuery:
    """All words of a query, stop words included; as a fallback, any of its content words."""
    words, note = _few(*_bounded_words(text))
    parts = [Term(part) for word in words for part in _terms(word)]
    content = _content(parts, lambda part: part.text)
    interpretations = [
        _interpretation([Term(word) for word in words], " AND "),
        _interpretation(content, " OR "),
    ]
    return FulltextQuery(
        tuple(
            dict.fromkeys(
                interpretation for interpretation in interpretations if interpretation.expression
            )
        ),
        note,
    )


def prefix_query(text: str) -> FulltextQuery:
    """All words of a query as prefixes; a single letter beside other words is no prefix."""
    words, note = _few(*_bounded_words(text))
    return _conjunction(
        [Term(word, prefix=len(words) == 1 or not is_letter(word)) for word in words], note
    )


def phrase_query(text: str) -> FulltextQuery:
    """The words of a query as one phrase."""
    words, note = _bounded_words(text)
    return _conjunction([Term(" ".join(words))], note)


@dataclass(frozen=True, slots=True)
class AllTermsQuery:
    """The terms that a document must have, each anywhere in it, and those it must not have."""

    terms: tuple[Term, ...] = ()
    excluded: tuple[Term, ...] = ()

    @property
    def content_terms(self) -> AllTermsQuery:
        """The same query without stop words."""
        return replace(self, terms=tuple(_content(self.terms, lambda term: _bare(term.text), ())))


def parse_all_terms(text: str) -> AllTermsQuery:
    """Parse a query for documents that have all of its words, each as a prefix.

    "Phrases" and words with hyphens or dots are searched as they are written, -exclusions must not
    occur. A single letter beside other words is no prefix. A query of exclusions alone is empty.
    """
    terms: list[Term] = []
    excluded: list[Term] = []
    for minus, phrase, word in _pieces(text):
        term = Term(phrase or word, prefix=bool(word) and not minus and not _JOINED.search(word))
        if term.expression:
            (excluded if minus else terms).append(term)
    kept = list(dict.fromkeys(terms))[:MAX_JOINED]
    if len(kept) > 1:
        kept = [replace(term, prefix=term.prefix and not is_letter(term.text)) for term in kept]
    return (
        AllTermsQuery(tuple(kept), tuple(dict.fromkeys(excluded))[:MAX_JOINED])
        if kept
        else AllTermsQuery()
    )


def snippet_terms(text: str) -> list[str]:
    """The content words and CJK parts of a query, in lower case, to look for in lines of text."""
    return _sought(text, lambda phrase: WORD.findall(phrase.casefold()), str.casefold)


def highlight_terms(text: str) -> list[Term]:
    """The content words and phrases of a query that a text is marked for; exclusions are not."""
    return [Term(each) for each in _sought(text, lambda phrase: [phrase], str)]


def _sought(
    text: str, of_phrase: Callable[[str], list[str]], of_word: Callable[[str], str]
) -> list[str]:
    """The different content words of a query, of its phrases as well, but not of exclusions."""
    terms = [
        term
        for minus, phrase, word in _pieces(text)
        if not minus
        for term in (of_phrase(phrase) if phrase else map(of_word, _terms(word)))
        if WORD.search(term)
    ]
    return list(dict.fromkeys(_content(terms, str)))[:MAX_DISTINCT_TERMS]


def _pieces(text: str) -> Iterator[tuple[bool, str, str]]:
    """(after a minus, phrase, word) of a query's parts: each is a phrase or a word."""
    for piece in _PIECE.finditer(text[:MAX_QUERY_CHARACTERS].replace("\x00", " ")):
        yield bool(piece["minus"]), piece["phrase"] or "", piece["word"] or ""


def _bounded_words(text: str) -> tuple[list[str], str]:
    words = text[:MAX_QUERY_CHARACTERS].replace("\x00", " ").split()
    if len(text) <= MAX_QUERY_CHARACTERS:
        return words, ""
    return words[
        :-1
    ] or words, f"only the first {MAX_QUERY_CHARACTERS:,} characters of the query were read"


def is_letter(text: str) -> bool:
    """Whether a text is a single letter that is not CJK.

    As a prefix it would match very many words, which is slow.
    """
    return len(letters := "".join(WORD.findall(text))) == 1 and not CJK.search(letters)


def _few(words: Sequence[str], note: str) -> tuple[list[str], str]:
    different = list(dict.fromkeys(words))
    if len(different) <= MAX_JOINED:
        return different, note
    return different[:MAX_JOINED], f"only the first {MAX_JOINED} words of the query were looked for"


def _conjunction(terms: Sequence[Term], note: str) -> FulltextQuery:
    interpretation = _interpretation(terms, " AND ")
    return FulltextQuery((interpretation,) if interpretation.expression else (), note)


def _interpretation(terms: Sequence[Term], operator: str) -> Interpretation:
    kept = tuple(dict.fromkeys(term for term in terms if term.expression))[:MAX_JOINED]
    return Interpretation(operator.join(term.expression for term in kept), kept)


def _query_bigrams(run: str) -> list[str]:
    """The bigrams to search for.

    A run's last character is not one of them: it may have another neighbour in the text.
    """
    return bigrams(run)[:-1] or [run]


def _last_run(text: str) -> str | None:
    runs = CJK.findall(text)
    return runs[-1] if runs and text.rstrip().endswith(runs[-1]) else None


def _terms(word: str) -> Iterator[str]:
    """The terms to search for because of one word of a query."""
    plain = _bare(word)
    if plain.casefold() in ENGLISH:  # don't is one word
        yield plain
    elif CJK.search(plain):
        yield from _cjk_terms(plain)
    elif _is_code(plain):
        yield plain
        yield from _inner_words(plain)
    else:
        for part in WORD.findall(_ENDING.sub("", plain)):
            yield part
            yield from _inner_words(part)


def _inner_words(word: str) -> Iterator[str]:
    """The words inside of identifiers; single letters and digits are left out."""
    for identifier in CAMEL.findall(word):
        yield from (part for part in camel_parts(identifier) if len(part) > 1)


def _bare(word: str) -> str:
    return word.replace("’", "'").strip(".,;:!?()[]{}<>'`")


def _cjk_terms(word: str) -> Iterator[str]:
    for run in re.split(f"({CJK.pattern})", word):
        if CJK.fullmatch(run):
            yield from _query_bigrams(run)
        else:
            yield from WORD.findall(run)


def _is_code(word: str) -> bool:
    """Whether a word has meaning only as a whole: E-4021, 1.0.21, 192.168.0.1, v2_final."""
    return any(character.isdigit() for character in word) and bool(WORD.search(word))


def _other_spellings(terms: Iterable[str]) -> Iterator[str]:
    """The versions among some terms with a v where they have none, and without where they have."""
    for term in terms:
        if found := _VERSION.fullmatch(term[1:-1]):
            numbers = found["numbers"]
            yield fts5_phrase(numbers if len(numbers) < len(found[0]) else f"v{numbers}")


def _content(
    terms: Sequence[T], text: Callable[[T], str], otherwise: Sequence[T] | None = None
) -> list[T]:
    """Those of some terms that are no stop words; if all are, all of them or `otherwise`."""
    stops = stop_words(text(term).casefold() for term in terms)
    content = [term for term in terms if text(term).casefold() not in stops]
    return content or list(terms if otherwise is None else otherwise)


def _bounded(terms: Sequence[T]) -> list[T]:
    seen: Counter[T] = Counter()
    kept = []
    for term in terms:
        if term in seen or len(seen) < MAX_DISTINCT_TERMS:
            seen[term] += 1
            if seen[term] <= MAX_REPEATS:
                kept.append(term)
    return kept
