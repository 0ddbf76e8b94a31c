"""Conjunctive search: documents that have all terms of a query, in their text, title or path.

The keyword index has chunks, so each term is searched by itself: a document is found when every
term is in some chunk of it, or in its path. A term scores the BM25 of the chunk where that is
highest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import apsw

from mcpvectordb import filters
from mcpvectordb.documents.reciprocal_ranks import RankedDocuments
from mcpvectordb.documents.rows import DocumentFilter, path
from mcpvectordb.index import Allowed
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.storage import deadline
from mcpvectordb.storage.dialect import dialect_of
from mcpvectordb.text.bm25 import K1, idf
from mcpvectordb.text.query import AllTermsQuery, Term
from mcpvectordb.text.tokens import CJK

WEIGHTS = (4.0, 1.0, 1.0)  # BM25 weights of the title, the headings and the text
PATH_WEIGHT = 1.5  # of a term in a document's path, against 1 in its text
FEW = 1_000  # documents or chunks up to which these are checked one by one
# Chunks that are scored for one query, rarest terms first; further terms must occur but do not
# score, which bounds the time of queries with common words.
SCORED = 100_000
LONGEST_ENDING = 7  # letters that stemming removes at most

_WORD = re.compile(r"[^\W_]+")


def rank(
    sql: apsw.Connection,
    index: ChunkIndex,
    query: AllTermsQuery,
    filter: DocumentFilter,
    limit: int,
) -> RankedDocuments:
    """The documents that have all terms and none that is excluded, by weighted BM25."""
    if not query.terms:
        return []
    search = _TermSearch(sql, index, filter, _paths(sql, filter, [*query.terms, *query.excluded]))
    rarest, *others = search.rarest_first(query.terms)
    found = search.having(rarest)
    for term in others:
        if not found:
            return []
        deadline.check("looking for the words of the query")
        found = {
            owner: found[owner].joined(each) for owner, each in search.having(term, found).items()
        }
    for term in query.excluded:
        deadline.check("looking for the words that are excluded")
        for owner in search.having(term, found, scored=False):
            del found[owner]
    ranked = sorted(found.items(), key=lambda item: (-item[1].score, item[0]))[:limit]
    first = _first_chunks(sql, [owner for owner, each in ranked if not each.chunks])
    return [
        (owner, chunk, each.score)
        for owner, each in ranked
        if (chunk := each.best() or first.get(owner))
    ]


@dataclass(slots=True)
class _DocumentMatch:
    """The score of one document, and the scores of its chunks."""

    score: float = 0.0
    chunks: dict[int, float] = field(default_factory=dict)

    def joined(self, other: _DocumentMatch) -> _DocumentMatch:
        for chunk, score in other.chunks.items():
            self.chunks[chunk] = self.chunks.get(chunk, 0.0) + score
        self.score += other.score
        return self

    def best(self) -> int | None:
        return max(self.chunks, key=lambda chunk: (self.chunks[chunk], -chunk), default=None)


class _TermSearch:
    """Searches for one term after the other."""

    def __init__(
        self,
        sql: apsw.Connection,
        index: ChunkIndex,
        filter: DocumentFilter,
        paths: Mapping[int, str],
    ) -> None:
        self._sql, self._index, self._filter, self._paths = sql, index, filter, paths
        self._documents = int(sql.execute("SELECT count(*) FROM published_documents").get)
        self._frequency: dict[Term, int] = {}
        self._scored_rows = 0

    def rarest_first(self, terms: Sequence[Term]) -> list[Term]:
        """The terms by ascending frequency: the rarest leave the fewest documents for the next."""
        self._frequency = {
            term: self._index.keyword.frequency(self._sql, term.expression, SCORED)
            for term in terms
        }
        return sorted(terms, key=self._frequency.__getitem__)

    def having(
        self,
        term: Term,
        among: Mapping[int, _DocumentMatch] | None = None,
        *,
        scored: bool = True,
    ) -> dict[int, _DocumentMatch]:
        """The documents that have a term, among all chosen ones or the given ones."""
        found: dict[int, _DocumentMatch] = {}
        self._scored_rows += self._frequency.get(term, 0)
        if among is not None and (not scored or self._scored_rows > SCORED):
            found = {
                owner: _DocumentMatch()
                for owner in self._index.keyword.owners(
                    self._sql, term.expression, self._owners(among)
                )
                if owner in among
            }
        else:
            rows = list(
                self._index.keyword.each(self._sql, term.expression, WEIGHTS, self._owners(among))
            )
            for owner, chunk, score in rows or self._spelled(term, among):
                if among is None or owner in among:
                    each = found.setdefault(owner, _DocumentMatch())
                    each.chunks[chunk] = score
                    each.score = max(score, each.score)
        sought = _sought_in_paths(term)
        named = [owner for owner, words in self._paths.items() if sought in words]
        bonus = idf(self._documents, len(named)) * PATH_WEIGHT * (K1 + 1) / (PATH_WEIGHT + K1)
        for owner in named:
            if among is None or owner in among:
                found.setdefault(owner, _DocumentMatch()).score += bonus
        return found

    def _spelled(
        self, term: Term, among: Mapping[int, _DocumentMatch] | None
    ) -> list[tuple[int, int, float]]:
        """Chunks with a word that begins with a term although its stem does not.

        For example, "meeting" is "meet" in the index, and the prefix "meeti" does not match that.
        """
        word = _tokens(term.text)
        if not term.prefix or not word.isascii() or not word.isalpha():
            return []
        begins = re.compile(rf"(?<![^\W_]){word}", re.IGNORECASE)
        for length in range(len(word) - 1, max(2, len(word) - LONGEST_ENDING - 1), -1):
            stem = Term(word[:length], prefix=True).expression
            rows = list(
                islice(self._index.keyword.each(self._sql, stem, WEIGHTS, self._owners(among)), FEW)
            )
            passages = self._index.passages(self._sql, [chunk for _, chunk, _ in rows])
            spelled = {
                each.id
                for each in passages
                if any(map(begins.search, (each.title, *each.headings, each.words)))
            }
            if spelled:
                return [row for row in rows if row[1] in spelled]
        return []

    def _owners(self, among: Mapping[int, _DocumentMatch] | None) -> Allowed:
        """The documents to search: once they are few, only these are scored."""
        if among is None or len(among) > FEW:
            return self._filter.documents
        return Allowed("SELECT value FROM json_each(?)", (json.dumps(list(among)),))


# Paths are not in the index: there are few, they are short, and they change when a folder is moved.


def _paths(sql: apsw.Connection, filter: DocumentFilter, terms: Iterable[Term]) -> dict[int, str]:
    """The words of paths that may have one of the terms, by document."""
    longest = [max(_tokens(term.text).split(), key=len, default="") for term in terms]
    likely = (
        " OR ".join(["lower(d.library || '/' || d.source) LIKE ?"] * len(longest))
        if all(map(str.isascii, longest))
        else filters.EVERYTHING
    )
    rows = sql.execute(
        f"SELECT d.key, d.library, d.source, {dialect_of(sql).root} "
        f"FROM published_documents d WHERE ({filter.condition}) AND ({likely})",
        (*filter.bindings, *(f"%{word}%" for word in longest if likely != filters.EVERYTHING)),
    )
    return {
        key: f" {_tokens(path(library, source, root or ''))} "
        for key, library, source, root in rows
    }


def _tokens(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def _sought_in_paths(term: Term) -> str:
    """The text that the words of a path have if the term is among them."""
    words = _tokens(term.text)
    if CJK.search(words):
        return words
    return f" {words}" if term.prefix else f" {words} "


def _first_chunks(sql: apsw.Connection, owners: list[int]) -> dict[int, int]:
    return dict(
        sql.execute(
            "SELECT owner, id FROM document_chunks "
            "WHERE position = 0 AND owner IN (SELECT value FROM json_each(?))",
            (json.dumps(owners),),
        )
    )
