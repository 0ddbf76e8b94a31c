"""Invalid rows in the shadow tables of vec0 and FTS5, and every statement of ours on them.

Neither may crash. The statements are those of the library, on a database in memory and without the
checks of the library except for one that FTS5 needs, so hundreds of databases are tried a second.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from mcpvectordb.storage import vec0
from mcpvectordb.storage.fts5 import tombstone_problems
from mcpvectordb.storage.schema import expected_rows
from mcpvectordb.storage.vec0 import create_statement
from tests.torture.damage import Inspection

DIMENSION = 16
WORDS = (
    "harbour",
    "lamp",
    "keeper",
    "signal",
    "winter",
    "bread",
    "letter",
    "engine",
    "coast",
    "river",
    "stone",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    255,
    256,
    257,
    2**15,
    2**28,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**60,
    2**63 - 1,
    -(2**31),
    -(2**63),
)
OTHERS: tuple[Any, ...] = (None, "", "x", "x" * 2048, 1.5, 1e300, b"", b"\0", *NUMBERS)
TRIES = 20  # files in one round: a child can do many

Statement = tuple[str, Callable[[random.Random], Sequence[object]]]


def _code(rng: random.Random) -> tuple[bytes]:
    return (rng.randbytes(DIMENSION),)


def _id(rng: random.Random) -> tuple[int]:
    return (rng.choice([rng.randrange(310), 10**6 + rng.randrange(10**6)]),)


def _word(rng: random.Random) -> tuple[str]:
    return (
        rng.choice(
            [
                f'"{rng.choice(WORDS)}"',
                f'"{rng.choice(WORDS)} {rng.choice(WORDS)}" NOT "{rng.choice(WORDS)}"',
                f"{rng.choice(WORDS)[:2]}*",
            ]
        ),
    )


def _nothing(rng: random.Random) -> tuple[()]:
    return ()


USES: tuple[Statement, ...] = (
    ("SELECT rowid FROM codes WHERE embedding MATCH vec_int8(?) AND k = 20", _code),
    ("SELECT rowid FROM codes WHERE embedding MATCH vec_int8(?) AND k = 4096", _code),
    (
        "SELECT rowid FROM codes WHERE embedding MATCH vec_int8(?) AND k = 30 "
        "AND rowid IN (SELECT value FROM json_each('[1, 9, 777]'))",
        _code,
    ),
    ("SELECT rowid, embedding FROM codes", _nothing),
    ("SELECT rowid, embedding FROM codes WHERE rowid = ?", _id),
    (
        "INSERT INTO codes (rowid, embedding) VALUES (?, vec_int8(?))",
        lambda rng: (*_id(rng), *_code(rng)),
    ),
    ("DELETE FROM codes WHERE rowid = ?", _id),
    ("DELETE FROM codes WHERE rowid = ?", _id),
    (
        "SELECT rowid, bm25(document_words, 2.0) AS s FROM document_words WHERE document_words "
        "MATCH ? ORDER BY s LIMIT 9",
        _word,
    ),
    ("SELECT rowid FROM document_words WHERE document_words MATCH ? AND rowid > 100", _word),
    ("SELECT count(*) FROM document_words", _nothing),
    ("DELETE FROM document_words WHERE rowid = ?", _id),
    (
        "INSERT INTO document_words (rowid, title, headings, text) VALUES (?, 'a', '', ?)",
        lambda rng: (*_id(rng), " ".join(rng.choices(WORDS, k=200))),
    ),
    ("CREATE VIRTUAL TABLE temp.v USING fts5vocab('main', 'document_words', 'col')", _nothing),
    ("SELECT term, col, doc, cnt FROM temp.v", _nothing),
    ("PRAGMA integrity_check", _nothing),
    ("INSERT INTO document_words (document_words) VALUES ('optimize')", _nothing),
)
LAST: tuple[Statement, ...] = (
    ("INSERT INTO document_words (document_words) VALUES ('delete-all')", _nothing),
    ("DROP TABLE codes", _nothing),
    (create_statement("codes", DIMENSION), _nothing),
)


def craft_and_ask(number: int) -> Inspection:
    """The job for some databases; a crash ends the child process that does it."""
    for each in range(TRIES):
        rng = random.Random(f"shadows {number} {each}")
        crafted = _opened(_base())
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            with contextlib.suppress(apsw.Error):
                _spoil(crafted, rng)
        sql = _opened(crafted.serialize("main"))  # as another process meets it
        crafted.close()
        for statement, bindings in [
            *rng.sample(USES, rng.randint(4, len(USES))),
            *(LAST if rng.random() < 0.3 else ()),
        ]:
            with contextlib.suppress(apsw.Error, UnicodeDecodeError):
                deletes = statement.startswith("DELETE FROM document_words")
                if deletes and tombstone_problems(sql, "document_words"):
                    continue
                sql.execute(statement, bindings(rng)).fetchall()
        sql.close()
    return Inspection("survived")


def _opened(content: bytes | None = None) -> apsw.Connection:
    sql = apsw.Connection(":memory:")
    vec0.load(sql)
    if content is not None:
        sql.deserialize("main", content)
    sql.execute("PRAGMA cell_size_check = ON").fetchall()
    return sql


@functools.cache
def _base() -> bytes:
    sql, rng = _opened(), random.Random("sound")
    sql.execute(create_statement("codes", DIMENSION))
    sql.execute(
        next(str(row[3]) for row in expected_rows(1, frozenset()) if row[1] == "document_words")
    )
    for id in range(1, 301):
        sql.execute(
            "INSERT INTO codes (rowid, embedding) VALUES (?, vec_int8(?))", (id, *_code(rng))
        )
        sql.execute(
            "INSERT INTO document_words (rowid, title, headings, text) VALUES (?, ?, '', ?)",
            (id, rng.choice(WORDS), " ".join(rng.choices(WORDS, k=rng.choice([3, 9, 200])))),
        )
    for table in ("codes", "document_words"):
        sql.executemany(f"DELETE FROM {table} WHERE rowid = ?", ((id,) for id in range(5, 60, 5)))
    return sql.serialize("main")


def _spoil(sql: apsw.Connection, rng: random.Random) -> None:
    """Delete rows, or give one another id, the value of another row, or an invalid value."""
    table = rng.choice(
        [
            str(name)
            for (name,) in sql.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name NOT "
                "LIKE 'sqlite%'"
            )
        ]
    )
    columns = [str(row[1]) for row in sql.execute(f"PRAGMA table_info({table})")]
    key = columns[0] if table.endswith(("_idx", "_config")) else "rowid"
    rows: list[Any] = sql.execute(f"SELECT {key}, * FROM {table}").fetchall()
    if not rows:
        return
    (id, *values), place, deed = rng.choice(rows), rng.randrange(len(columns)), rng.randrange(12)
    if deed < 2:
        sql.execute(
            f"DELETE FROM {table}" if deed else f"DELETE FROM {table} WHERE {key} = ?",
            () if deed else (id,),
        )
    elif deed == 2:
        sql.execute(
            f"UPDATE {table} SET {key} = ? WHERE {key} = ?", (rng.choice([*NUMBERS, 3]), id)
        )
    else:
        value = rng.choice(rows)[place + 1] if deed == 3 else _other(values[place], rng)
        sql.execute(f'UPDATE {table} SET "{columns[place]}" = ? WHERE {key} = ?', (value, id))


def _other(value: object, rng: random.Random) -> object:
    if isinstance(value, bytes) and rng.random() < 0.8:
        return _torn(bytearray(value), rng)
    if isinstance(value, int) and rng.random() < 0.5:
        return max(-(2**63), min(2**63 - 1, value + rng.choice([-256, -1, 1, 255, 256])))
    return rng.choice(OTHERS)


def _torn(value: bytearray, rng: random.Random) -> bytes:
    place, length = rng.randrange(len(value) + 1), rng.randint(1, 16)
    deed = rng.randrange(5)
    if deed == 0:
        return bytes(value[:place])
    if deed == 1:
        return bytes(value) + rng.randbytes(rng.choice([1, 8, 100, 5_000]))
    if deed == 2:
        return rng.choice([rng.randbytes(len(value)), b"\xff" * len(value), bytes(len(value))])
    if deed == 3:
        return (
            bytes(value[:place])
            + rng.choice([b"\xff", b"\x7f", b"\0"]) * length
            + bytes(value[place + length :])
        )
    for flipped in range(min(len(value), rng.choice([1, 1, 3, 20]))):
        value[(place + 37 * flipped) % len(value)] ^= 1 << rng.randrange(8)
    return bytes(value)
