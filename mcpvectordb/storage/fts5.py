"""FTS5's private parts: the only module that reads its shadow tables and knows their formats.

Checked with SQLite 3.53 and 3.54. An FTS5 table T keeps its index in T_data (id, block) and the
length of every row in T_docsize (id, sz). Numbers there are SQLite varints, seven bits a byte.
The tables are contentless: the text itself is not in them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import apsw

from mcpvectordb.errors import Damaged
from mcpvectordb.storage.dialect import FileConnection, Sql
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The tokenizers of words by their stems, and of words as they are spelled.
STEMMING, SPELLING = (
    ("porter", ["unicode61", "remove_diacritics", "2"]),
    ("unicode61", ["remove_diacritics", "2"]),
)

_AVERAGES = 1  # the row of T_data with the number of rows and of each column's tokens
_TOMBSTONES = 1 << 53  # rows of T_data from here on are pages of deleted ids
# Bytes of such a page before its ids: byte 0 is an id's size, 4 to 7 their number.
_TOMBSTONE_HEAD = 8

Counts = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
"""Row ids and, for each, how often a term occurs in that row."""


def register(connection: apsw.Connection) -> None:
    """Give a connection the FTS5 function `occurrences(table, title_weight)`."""
    connection.register_fts5_function("occurrences", _occurrences)


def _occurrences(api: Any, *arguments: Any) -> int:
    """How often the (only) phrase of a query is in the current row; in the title it counts more."""
    (title_weight,) = arguments
    title, *others = (len(api.phrase_column_offsets(0, at)) for at in range(api.column_count))
    return int(title_weight * title + sum(others))


def totals(sql: Sql, table: str) -> tuple[int, int]:
    """How many rows and tokens a table has, by FTS5's own running count."""
    block = sql.execute(f"SELECT block FROM {table}_data WHERE id = {_AVERAGES}").get or b""
    rows, *tokens = varints(block) or [0]
    return rows, sum(tokens)


def ids(sql: Sql, table: str) -> NDArray[np.int64]:
    """The ids of all rows, ascending."""
    rows = sql.execute(f"SELECT id FROM {table}_docsize ORDER BY id")
    return np.fromiter((id for (id,) in rows), np.int64)


def lengths(sql: Sql, table: str, after: int = 0) -> Counts:
    """The ids above `after`, ascending, and how many tokens each row has."""
    rows = sql.execute(
        f"SELECT id, sz FROM {table}_docsize WHERE id > ? ORDER BY id", (after,)
    ).fetchall()
    sizes = np.fromiter((sum(varints(size)) for _, size in rows), np.int64, len(rows))
    return np.fromiter((id for id, _ in rows), np.int64, len(rows)), sizes


def counts(sql: Sql, table: str, expression: str, title_weight: int, after: int = 0) -> Counts:
    """The rows above `after` that match an expression of one phrase, and how often they have it.

    FTS5's function `occurrences` is asked for the phrase's offsets in each row. For all rows that
    have a single token, `token_counts` is three times as fast.
    """
    found = sql.execute(
        f"SELECT rowid, occurrences({table}, {title_weight}) FROM {table} "
        f"WHERE {table} MATCH ? AND rowid > ?",
        (expression, after),
    ).fetchall()
    return _pairs(found)


def token_counts(sql: Sql, table: str, token: str, title_weight: int) -> Counts:
    """The rows that have a token, and how often.

    FTS5's vocabulary of instances (fts5vocab) lists every occurrence; SQLite concatenates the row
    ids and the weights into two long texts, which numpy parses. The vocabulary knows neither
    phrases nor prefixes and cannot start at an id: see `counts` for these.
    """
    vocabulary = _vocabulary_table(sql, table, "instance")
    # Sorted by row id, so that the occurrences in one row are adjacent.
    docs, weights = sql.execute(
        "SELECT group_concat(doc), "
        f"group_concat(CASE col WHEN 'title' THEN {title_weight} ELSE 1 END) "
        f"FROM {vocabulary} WHERE term = ?",
        (token,),
    ).get
    if docs is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    each = np.fromstring(docs, np.int64, sep=",")
    first = np.flatnonzero(np.diff(each, prepend=each[0] - 1))
    return each[first], np.add.reduceat(np.fromstring(weights, np.int64, sep=","), first)


def counts_in(
    sql: Sql, table: str, expression: str, title_weight: int, ids: Sequence[int]
) -> Counts:
    """Those of these rows that have a phrase, ascending, and how often."""
    # The plus sign keeps SQLite from running the whole MATCH again for every single id.
    found = sql.execute(
        f"SELECT rowid, occurrences({table}, {title_weight}) FROM {table} WHERE {table} MATCH ? "
        "AND +rowid IN (SELECT value FROM json_each(?))",
        (expression, json.dumps(ids)),
    ).fetchall()
    return _pairs(found)


def lengths_of(sql: Sql, table: str, ids: Sequence[int]) -> Counts:
    """Those of these rows that exist, ascending, and how many tokens each has."""
    rows = sql.execute(
        f"SELECT id, sz FROM {table}_docsize WHERE id IN (SELECT value FROM json_each(?)) "
        "ORDER BY id",
        (json.dumps(ids),),
    )
    return _pairs([(id, sum(varints(size))) for id, size in rows])


def _pairs(found: Sequence[Any]) -> Counts:
    pairs = np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def single_token(sql: Sql, expression: str, stemmed: bool) -> str | None:
    """The token that an expression stands for; None for a prefix or for several tokens."""
    if not expression.endswith('"'):
        return None
    text = expression[1:-1].replace('""', '"').encode()
    tokenizer = cast(apsw.Connection, sql).fts5_tokenizer(*(STEMMING if stemmed else SPELLING))
    found: list[Any] = list(tokenizer(text, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False))
    return str(found[0][0]) if len(found) == 1 else None


def common_tokens(sql: Sql, table: str, least: int) -> list[str]:
    """The tokens that at least so many rows have, the commonest first.

    All of the index is read for that: 0.2 s of CPU for 100,000 rows.
    """
    rows = sql.execute(
        f"SELECT term FROM {_vocabulary_table(sql, table, 'row')} WHERE doc >= ? "
        "ORDER BY doc DESC, term",
        (least,),
    )
    return [token for (token,) in rows]


def _vocabulary_table(sql: Sql, table: str, kind: str) -> str:
    """The name of a table that lists a vocabulary (fts5vocab), made once for each connection."""
    name = f"{table}_{kind}"
    # Asking for the table is cheaper than making it if it does not exist.
    if not cast(apsw.Connection, sql).table_exists("temp", name):
        sql.execute(
            f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab('main', '{table}', '{kind}')"
        )
    return f"temp.{name}"


class Deleter:
    """Deletes rows of one contentless table.

    FTS5 notes deleted ids on hash pages of its own. A damaged page that is full of one and the same
    id would make FTS5 grow it until memory runs out, so the pages are verified before the first
    deletion.
    """

    def __init__(self, table: str) -> None:
        self._table, self._verified = table, False

    def delete(self, sql: Sql, ids: Iterable[int]) -> None:
        """Delete rows; ids that have none are ignored."""
        if not self._verified and (found := tombstone_problems(sql, self._table)):
            raise Damaged(f"{found[0]}: run `mcpvectordb rebuild`")
        self._verified = True
        sql.executemany(f"DELETE FROM {self._table} WHERE rowid = ?", ((id,) for id in ids))


def tombstone_problems(sql: Sql, table: str) -> list[str]:
    """What is wrong with the pages of deleted ids."""
    pages = sql.execute(f"SELECT id, block FROM {table}_data WHERE id >= {_TOMBSTONES}")
    return [
        f"{table}: the removed rows on page {id} are not those that were removed"
        for id, block in pages
        if not _is_sound_page(block)
    ]


def _is_sound_page(block: object) -> bool:
    if not isinstance(block, bytes) or block[:1] not in (b"\4", b"\x08"):
        return False
    size, count = block[0], int.from_bytes(block[4:_TOMBSTONE_HEAD], "big")
    places = range(_TOMBSTONE_HEAD, len(block), size)
    ids = [id for at in places if any(id := block[at : at + size])]
    return len(ids) == len(set(ids)) == count


def count_deleted(sql: Sql, table: str) -> int:
    """How many deleted rows still have their words in the index."""
    pages = sql.execute(f"SELECT substr(block, 5, 4) FROM {table}_data WHERE id >= {_TOMBSTONES}")
    return sum(int.from_bytes(count, "big") for (count,) in pages)


def merge(sql: Sql, table: str, pages: int) -> None:
    """Do the next part of what `optimize` does, writing about so many pages of 4 KB."""
    sql.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (-pages,))


def optimize(sql: Sql, table: str) -> None:
    """Merge all segments into one, which also drops what deleted rows still occupy."""
    sql.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def forget_deleted(sql: Sql) -> None:
    """Drop what deleted rows have left in any FTS5 table: their words stay in the index as long as
    FTS5 has them noted as deleted.
    """
    names = "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING fts5 %'"
    for (table,) in sql.execute(names).fetchall():
        if sql.execute(f"SELECT 1 FROM {table}_data WHERE id >= {_TOMBSTONES} LIMIT 1").get:
            optimize(sql, str(table))


def clear(sql: Sql, table: str) -> None:
    """Delete all rows."""
    sql.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")


def same_content(sql: Sql, table: str, fill: Callable[[Sql], None]) -> bool:
    """Whether a table has the vocabulary and the row lengths of one that `fill` makes in memory."""

    def content(of: Sql) -> list[list[Any]]:
        vocabulary = _vocabulary_table(of, table, "col")
        return [
            of.execute(f"SELECT id, sz FROM {table}_docsize ORDER BY id").fetchall(),
            of.execute(f"SELECT term, col, doc, cnt FROM {vocabulary}").fetchall(),
        ]

    with contextlib.closing(FileConnection(":memory:")) as scratch:
        scratch.execute(sql.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get)
        fill(scratch)
        return content(sql) == content(scratch)


def varints(data: Any) -> list[int]:
    """The numbers in a sequence of SQLite varints, most significant bits first."""
    values, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            values.append(value)
            value = 0
    return values
