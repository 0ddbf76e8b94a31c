"""Queries: from what a person or an agent types to FTS5 expressions. Pure text in, text out.

`parse_query` is for ranked search, where any term may be missing; `parse_all_terms` for documents
that must have every term; `match_query`, `prefix_query`, `phrase_query` and `boolean_query` are the
ways in which memories are searched. No input can cause an FTS5 syntax error. What is scored outside
of FTS5 is scored as it does: BM25 (Robertson and Zaragoza, 2009) with its parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mcpvectordb.text.tokens import CAMEL, CJK, ENGLISH, WORD, bigrams, camel_parts, stop_words

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
_PIECE = re.compile(r'(?P<sign>(?<!\S)[-+](?=[^\s+-]))?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')
# The last word of a query, if a * says that it is only begun: not a quoted or excluded one.
_BEGUN = re.compile(r'(?<!\S)(?P<word>[^\s"*+-][^\s"*]+)\*\s*\Z')
_INFLECTED = re.compile(r"(?:s|ed|ing)$")
# Letters that a stem may be shorter than the beginning of its word, and that it has at least.
LONGEST_ENDING, SHORTEST_STEM = 7, 3
# FTS5's fixed parameters: how soon repeated terms stop counting, how much a row's length counts.
K1, B = 1.2, 0.75
# FTS5's lower bound: a term that more than half of the rows have would count negatively otherwise.
MIN_IDF = 1e-6


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
class Query:
    """A query for ranked search; each of its parts is an FTS5 phrase.

    `match` ranks; `required` and `excluded` also restrict results of the vector search. Phrases are
    required (`strict`) in a query that has no other words; beside others they add to the score of
    what contains them. A `common` query has nothing but stop words, and is taken as a phrase.
    `codes` are those of the terms that are codes such as E-4021 or 1.0.21, which embeddings do not
    distinguish; `exact` is true if the query has nothing else. `words` and `quoted` are its words
    and quoted phrases as they were written, exclusions left out, and `stops` the stop words of its
    language. `begun` is a word of which only the beginning is known; see `completed`.
    """

    terms: tuple[str, ...] = ()  # any of them matches; a repeated one counts repeatedly
    spellings: tuple[str, ...] = ()  # other ways to write some of the terms: v0.28 for 0.28
    codes: frozenset[str] = frozenset()
    phrases: tuple[str, ...] = ()  # quoted
    strict: bool = False
    common: bool = False
    exclusions: tuple[str, ...] = ()  # after a minus: none of them may occur
    exact: bool = False
    words: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()
    stops: frozenset[str] = ENGLISH
    begun: str = ""

    def completed(self, known: Callable[[str], bool]) -> Query:
        """The query with the words that its last one begins; `known` says what an index has.

        The word itself counts as well, if there is one. Where no word of the index begins with it,
        the index may have stems: then it is the longest one that the word begins with.
        """
        word = fts5_phrase(self.begun)
        # A plural is no beginning: the stem of lens is that of len, and begins length as well.
        if not word or (_INFLECTED.search(self.begun) and known(word)):
            return self
        stems = range(len(self.begun) - 1, SHORTEST_STEM - 1, -1)[:LONGEST_ENDING]
        begins = [f"{word} *", *(fts5_phrase(self.begun[:end]) for end in stems)]
        found = next(filter(known, begins), "")
        if not found:
            return self
        others = [term for term in self.terms if term != word or known(word)]
        return replace(self, terms=(*others, found))

    @property
    def match(self) -> str:
        """The FTS5 expression that a text must match; "" for a query without words."""
        anything = " OR ".join([*self.phrases, *self.terms, *self.spellings])
        return f"({self.required}) AND ({anything})" if self.required else anything

    @property
    def required(self) -> str:
        """The phrases that must occur as an FTS5 expression, or ""."""
        return " AND ".join(self.phrases) if self.strict else ""

    @property
    def excluded(self) -> str:
        """The FTS5 expression that a text must not match, or ""."""
        return " OR ".join(self.exclusions)

    @property
    def content_words(self) -> list[str]:
        """The content words, those of phrases as well, in lower case, to look for in lines."""
        words = [word for phrase in self.quoted for word in WORD.findall(phrase.casefold())]
        return self._content([*map(str.casefold, self.words), *words])

    @property
    def marked(self) -> list[Term]:
        """The content words and phrases that are marked in a text."""
        content = self._content([*self.words, *self.quoted])
        return [Term(each, prefix=each == self.begun) for each in content]

    def _content(self, words: Sequence[str]) -> list[str]:
        """The different words that are no stop words; if all are, all of them."""
        content = [word for word in words if word.casefold() not in self.stops]
        return list(dict.fromkeys(content or words))[:MAX_DISTINCT_TERMS]


@lru_cache(maxsize=64)  # a question is asked of documents and of memories, and page by page
def parse_query(text: str) -> Query:
    """Parse any string as a query of words, "quoted phrases" and -exclusions; never fails.

    The last word may be followed by a *, if only its beginning is known. People quote inside of
    questions, and write of options such as -v. So what is quoted must occur only in a query of
    nothing else, and a minus excludes only beside keywords: in a question, which has stop words, it
    is no operator. A query of stop words alone is taken as a phrase.
    """
    words: list[str] = []
    quoted: list[str] = []
    signed: list[str] = []
    begun = _BEGUN.search(text[:MAX_QUERY_CHARACTERS])
    for sign, phrase, word in _pieces(text[: begun.end("word")] if begun else text):
        terms = [phrase] if phrase else _terms(word)
        (signed if sign == "-" else quoted if phrase or sign else words).extend(
            filter(WORD.search, terms)
        )
    stops = stop_words([word.casefold() for word in words or WORD.findall(" ".join(quoted))])
    if any(word.casefold() in stops for word in words):
        words, signed = [*words, *signed], []
    if not words and not quoted:
        return Query()
    content = [word for word in words if word.casefold() not in stops]
    common = bool(words) and not content and not quoted
    if common:
        words, quoted = [], [" ".join(words)]
    exact = not quoted and all(map(_is_code, content))
    strict = not content
    if not strict:
        inner = [word for phrase in quoted for word in WORD.findall(phrase)]
        content += [word for word in inner if word.casefold() not in stops]
    kept = _bounded(
        fts5_phrase(word)
        for word in content
        for _ in range(CODE_WEIGHT if _is_code(word) and not exact and not word.isdecimal() else 1)
    )
    return Query(
        terms=kept,
        spellings=tuple(_other_spellings(kept)),
        codes=frozenset(fts5_phrase(word) for word in content if _is_code(word)) & set(kept),
        phrases=_bounded(map(fts5_phrase, quoted)),
        strict=strict,
        common=common,
        exclusions=_bounded(map(fts5_phrase, signed)),
        exact=exact,
        words=tuple(words),
        quoted=tuple(quoted),
        stops=stops,
        begun=begun["word"] if begun and fts5_phrase(begun["word"]) in kept else "",
    )


def without_star(text: str) -> str:
    """A query without the mark of a word that is only begun."""
    return text.rstrip()[:-1] if _BEGUN.search(text) else text


def without_operators(text: str) -> str:
    """A query without the marks that `parse_query` reads as phrases and exclusions."""
    return re.sub(r"(?<!\S)[-+]+", " ", text.replace('"', " "))


def fts5_phrase(text: str) -> str:
    """A text as one FTS5 phrase; "" if it has no word."""
    runs = [] if text.isascii() else CJK.findall(text)
    broken = CJK.sub(lambda run: f" {' '.join(_query_bigrams(run[0]))} ", text) if runs else text
    if not WORD.search(broken):
        return ""
    # A single character at the end may have any neighbour in the text.
    ends_in_one = bool(runs) and len(runs[-1]) == 1 and text.rstrip().endswith(runs[-1])
    return '"' + " ".join(broken.split()).replace('"', '""') + ('" *' if ends_in_one else '"')


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
    words, note = _words(text, MAX_JOINED)
    parts = [Term(part) for word in words for part in _terms(word)]
    readings = (
        _interpretation([Term(word) for word in words], " AND "),
        _interpretation(_content(parts) or parts, " OR "),
    )
    return FulltextQuery(tuple(dict.fromkeys(each for each in readings if each.expression)), note)


def prefix_query(text: str) -> FulltextQuery:
    """All words of a query as prefixes; a single letter beside other words is no prefix."""
    words, note = _words(text, MAX_JOINED)
    return _conjunction(
        [Term(word, prefix=len(words) == 1 or not is_letter(word)) for word in words], note
    )


def phrase_query(text: str) -> FulltextQuery:
    """The words of a query as one phrase."""
    words, note = _words(text)
    return _conjunction([Term(" ".join(words))], note)


@dataclass(frozen=True, slots=True)
class AllTermsQuery:
    """The terms that a document must have, each anywhere in it, and those it must not have."""

    terms: tuple[Term, ...] = ()
    excluded: tuple[Term, ...] = ()

    @property
    def content_terms(self) -> AllTermsQuery:
        """The same query without stop words."""
        return replace(self, terms=tuple(_content(self.terms)))


def parse_all_terms(text: str) -> AllTermsQuery:
    """Parse a query for documents that have all of its words, each as a prefix.

    "Phrases" and words with hyphens or dots are searched as they are written, -exclusions must not
    occur. A single letter beside other words is no prefix. A query of exclusions alone is empty.
    """
    terms: list[Term] = []
    excluded: list[Term] = []
    for sign, phrase, word in _pieces(text):
        minus = sign == "-"
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


def _pieces(text: str) -> Iterator[tuple[str, str, str]]:
    """(sign, phrase, word) of a query's parts: a phrase or a word, after a minus, a plus or not."""
    for piece in _PIECE.finditer(text[:MAX_QUERY_CHARACTERS].replace("\x00", " ")):
        yield piece["sign"] or "", piece["phrase"] or "", piece["word"] or ""


def _words(text: str, most: int | None = None) -> tuple[list[str], str]:
    """The words of a query, or its first `most` different ones, and a note of what is left out."""
    words, note = text[:MAX_QUERY_CHARACTERS].replace("\x00", " ").split(), ""
    if len(text) > MAX_QUERY_CHARACTERS:
        note = f"only the first {MAX_QUERY_CHARACTERS:,} characters of the query were read"
        words = words[:-1] or words
    if most is None:
        return words, note
    different = list(dict.fromkeys(words))
    if len(different) > most:
        note = f"only the first {most} words of the query were looked for"
    return different[:most], note


def is_letter(text: str) -> bool:
    """Whether a text is a single letter that is not CJK.

    As a prefix it would match very many words, which is slow.
    """
    return len(letters := "".join(WORD.findall(text))) == 1 and not CJK.search(letters)


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


def _terms(word: str) -> Iterator[str]:
    """The terms to search for because of one word of a query."""
    plain = _bare(word)
    if (plain.isascii() and plain.isalpha() and plain.islower()) or plain.casefold() in ENGLISH:
        yield plain  # most words; don't is one, too
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
    return not word.isalpha() and any(map(str.isdigit, word)) and bool(WORD.search(word))


def _other_spellings(terms: Iterable[str]) -> Iterator[str]:
    """The versions among some terms with a v where they have none, and without where they have."""
    for term in terms:
        if found := _VERSION.fullmatch(term[1:-1]):
            numbers = found["numbers"]
            yield fts5_phrase(numbers if len(numbers) < len(found[0]) else f"v{numbers}")


def _content(terms: Sequence[Term]) -> list[Term]:
    """Those of some terms that are no stop words."""
    texts = [_bare(term.text).casefold() for term in terms]
    stops = stop_words(texts)
    return [term for term, text in zip(terms, texts, strict=True) if text not in stops]


def _bounded(terms: Iterable[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    kept = []
    for term in terms:
        if term in seen or len(seen) < MAX_DISTINCT_TERMS:
            seen[term] = seen.get(term, 0) + 1
            if seen[term] <= MAX_REPEATS:
                kept.append(term)
    return tuple(kept)


# Boolean queries (AND, OR, NOT, parentheses, "phrases") are translated for FTS5 by a
# recursive-descent parser with one method for each rule of this grammar:
#
#     either  = both (OR both)*
#     both    = negated (AND negated)*       an AND before a NOT may be left out
#     negated = NOT negated | group
#     group   = (word | "phrase" | "(" either ")")+    adjacent parts must all match
#
# A group binds more tightly than any operator, as in FTS5: `a NOT b c` matches a without b and c
# together. A word that ends in * is a prefix. NOT may stand anywhere, although FTS5 only has the
# binary operator "this NOT that": a part that matches everything except something is kept as that
# something with a mark (`_Part.negated`), and De Morgan's laws combine such parts.

MAX_DEPTH = 10  # of parentheses: FTS5's own parser refuses expressions that are much deeper
OPERATORS = ("AND", "OR", "NOT")

_BOOLEAN_PIECE = re.compile(r'"[^"]*"\*?|[()]|[^\s()"]+|"')


class _Malformed(ValueError):
    """Why a query is malformed, as a clause for the note of the result."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a query: the FTS5 expression of what it matches or, if `negated`, excludes.

    The expression of a part without words is empty.
    """

    expression: str = ""
    found: tuple[Term, ...] = ()
    avoided: tuple[Term, ...] = ()
    negated: bool = False


def boolean_query(text: str) -> FulltextQuery:
    """Parse a boolean query; a malformed one is read as plain words.

    The note of the result says why it was malformed.
    """
    # One character more than is allowed: a longer query is read as plain words.
    pieces = _BOOLEAN_PIECE.findall(text[: MAX_QUERY_CHARACTERS + 1].replace("\x00", " "))
    terms = [piece for piece in pieces if piece not in (*OPERATORS, "(", ")", '"')]
    if not any(_term(piece).expression for piece in terms):
        return FulltextQuery()
    try:
        if len(terms) > MAX_JOINED or len(text) > MAX_QUERY_CHARACTERS:
            raise _Malformed(
                f"it has more than {MAX_JOINED} words or {MAX_QUERY_CHARACTERS:,} characters"
            )
        if len(terms) > 1 and (
            short := next((each for each in terms if each.endswith("*") and is_letter(each)), "")
        ):
            raise _Malformed(f"{short} is the beginning of too many words")
        parser = _Parser(pieces)
        part = parser.either(0)
        if parser.next():
            raise _Malformed("a ) closes nothing")
    except _Malformed as error:
        plain = match_query(" ".join(piece.strip('"*') for piece in terms))
        return FulltextQuery(
            plain.interpretations,
            f"not a boolean query, since {error}: its words were looked for instead",
        )
    if part.negated:
        return FulltextQuery(
            note="a query that only leaves things out finds nothing: say what to look for, too"
        )
    return FulltextQuery((Interpretation(part.expression, tuple(dict.fromkeys(part.found))),))


class _Parser:
    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces, self.place = pieces, 0

    def next(self) -> str:
        return self.pieces[self.place] if self.place < len(self.pieces) else ""

    def took(self, piece: str) -> bool:
        self.place += (found := self.next() == piece)
        return found

    def either(self, depth: int) -> _Part:
        parts = [self.both(depth)]
        while self.took("OR"):
            parts.append(self.both(depth))
        return _combined(parts, "OR")

    def both(self, depth: int) -> _Part:
        parts = [self.negated(depth)]
        while self.took("AND") or self.next() == "NOT":
            parts.append(self.negated(depth))
        return _combined(parts, "AND")

    def negated(self, depth: int) -> _Part:
        flips = 0
        while self.took("NOT"):
            flips += 1
        part = self.group(depth)
        if not part.expression or flips % 2 == 0:
            return part
        return _Part(part.expression, part.avoided, part.found, not part.negated)

    def group(self, depth: int) -> _Part:
        parts = []
        while (piece := self.next()) not in ("", ")", *OPERATORS):
            self.place += 1
            if piece == '"':
                raise _Malformed('a " is not closed')
            parts.append(self.nested(depth + 1) if piece == "(" else _listed(piece))
        if not parts:
            before = self.pieces[self.place - 1] if self.place else "its beginning"
            raise _Malformed(f"there is nothing between {before} and {piece or 'its end'}")
        return _combined(parts, "AND")

    def nested(self, depth: int) -> _Part:
        if depth > MAX_DEPTH:
            raise _Malformed(f"it is nested more than {MAX_DEPTH} deep")
        part = self.either(depth)
        if not self.took(")"):
            raise _Malformed("a ( is not closed")
        return part


def _term(piece: str) -> Term:
    return Term(piece.rstrip("*").strip('"'), prefix=piece.endswith("*"))


def _listed(piece: str) -> _Part:
    term = _term(piece)
    return _Part(term.expression, (term,)) if term.expression else _Part()


def _combined(parts: Sequence[_Part], operator: str) -> _Part:
    """What all of some parts match (AND), or any of them (OR)."""
    listed = [part.expression for part in parts if part.expression and not part.negated]
    left_out = [part.expression for part in parts if part.expression and part.negated]
    if listed and left_out:
        # De Morgan: "this or not that" is "not (that and not this)".
        negated = operator == "OR"
        first, second = (left_out, listed) if negated else (listed, left_out)
        expression = f"({_joined(first, 'AND')}) NOT ({_joined(second, 'OR')})"
    else:
        negated = bool(left_out)
        opposite = "OR" if operator == "AND" else "AND"
        expression = _joined(listed, operator) or _joined(left_out, opposite)
    return _Part(
        expression,
        tuple(term for part in parts for term in part.found),
        tuple(term for part in parts for term in part.avoided),
        negated,
    )


def _joined(expressions: Sequence[str], operator: str) -> str:
    return (
        f" {operator} ".join(f"({each})" for each in expressions)
        if len(expressions) > 1
        else "".join(expressions)
    )


# BM25 outside of FTS5.


def idf(rows: int, having: float) -> float:
    """FTS5's inverse document frequency of a term that `having` of `rows` rows contain."""
    return max(MIN_IDF, math.log((max(0, rows - having) + 0.5) / (having + 0.5)))


def saturate(bm25: float) -> float:
    """A BM25 score on a scale of 0 to 1 that does not depend on the other results."""
    return bm25 / (1 + bm25)


def full_score(query: Query, rows: int, frequencies: Mapping[str, int]) -> tuple[float, float]:
    """The BM25 of a row of average length that has every term of a query once, and the share of it
    that is due to codes which some row has.

    `frequencies` has the number of rows that have each term.
    """
    weights = {term: idf(rows, having) for term, having in frequencies.items()}
    # `Query.match` names a phrase twice: it is required, and it is one of the terms.
    full = sum(weights[term] for term in (*query.phrases, *query.phrases, *query.terms))
    coded = sum(
        weights[term]
        for term in (*query.terms, *query.spellings)
        if frequencies[term] and (term in query.codes or term in query.spellings)
    )
    return full, min(1.0, coded / full) if full else 0.0
