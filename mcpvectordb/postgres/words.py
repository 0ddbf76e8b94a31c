"""The words of a text as FTS5 indexes them, in the form in which PostgreSQL stores them.

FTS5's own tokenizer makes the tokens, so they are the same ones; `tests/core/postgres` compares
them with what an FTS5 table has. It takes 11 µs for a passage of 1,000 characters. Reading them
from the index instead (fts5vocab) would give them term by term and not passage by passage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from mcpvectordb.storage.fts5 import TOKENIZER
from mcpvectordb.text.tokens import index_text

LONGEST_TERM = 255  # bytes: a B-tree has room for 2,704 together with the other columns
KEPT_CHARACTERS = 50  # of a longer one, for searches by its beginning
FTS5_LONGEST = 32_768  # bytes of a token that FTS5 keeps
SPELLINGS = ("unicode61", ["remove_diacritics", "2"])


class Tokenizer:
    """FTS5's tokenizer for stems, or for words as they are spelled; for one thread."""

    def __init__(self, *, stemmed: bool = True) -> None:
        self._connection = apsw.Connection(":memory:")  # which the tokenizer lives in
        self._tokenize = self._connection.fts5_tokenizer(*(TOKENIZER if stemmed else SPELLINGS))

    def terms(self, text: str) -> list[str]:
        """The terms of a text that was prepared for the index, in their order."""
        tokens: Iterable[Any] = self._tokenize(
            text.encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        return [each if len(each) < 64 else stored_term(each) for each in tokens]

    def words(self, columns: Sequence[str]) -> tuple[str, int]:
        """The terms of texts as one text, and how many there are.

        Each term stands between two spaces, and each column but the first after a line feed.
        """
        found = [self.terms(index_text(each)) for each in columns]
        return "\n".join(f" {' '.join(each)} " for each in found), sum(map(len, found))


def stored_term(token: str) -> str:
    """A token as it is stored: a very long one as its beginning and a hash."""
    raw = token.encode()[:FTS5_LONGEST]
    if len(raw) <= LONGEST_TERM:
        return token
    return f"{token[:KEPT_CHARACTERS]}~{hashlib.sha256(raw).hexdigest()[:32]}"
