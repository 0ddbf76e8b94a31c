"""All passages of documents and memories compared by their stored embeddings.

`Database.similar` ranks texts by the cosine to the mean direction of one text's passages.

`Database.duplicates` finds passages that say nearly the same. Comparing all pairs of 100,000
passages would take minutes. Locality-sensitive hashing (Charikar, 2002) compares few of them: a
row's hash has a bit for each of some random planes, the side on which the row lies. Two rows at an
angle a agree in a bit with probability 1 - a/π, so rows that are nearly equal often have the same
hash, and others hardly ever. The rows are sorted by their hash, inside of one by a random
direction, and each is compared with the next few. That is done TABLES times with other planes, so
that a pair that one table separates is found in another. What is found is compared exactly; pairs
that share a row make a group.

Rows of tables are alike to a model although their numbers, which are what they say, differ: of two
passages that are mostly numbers, the numbers have to be the same as well.

`Database.projection` shows all passages in the plane (`search.plane`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpvectordb.documents import rows as document_rows
from mcpvectordb.errors import NotFound
from mcpvectordb.index.chunks import ChunkIndex, ModelRow
from mcpvectordb.index.resident import Allowed, selected
from mcpvectordb.memories import rows as memory_rows
from mcpvectordb.memories.memory import Memory
from mcpvectordb.ranking.meaning import best_of_owners
from mcpvectordb.records import Chunk, Hit, Results, Scores
from mcpvectordb.search import plane
from mcpvectordb.search.both import Kind
from mcpvectordb.search.records import Duplicates, Projection
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.lazy import np
from mcpvectordb.store import OpenStore
from mcpvectordb.text.tokens import WORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]

MOST_CHUNKS = 1_000  # of the text that others are compared with
OVERFETCH = 4  # chunks that are ranked at first for each item: several may belong to one
NOT_EMBEDDED = "it has no embedding yet"
PUBLISHED = "owner IN (SELECT key FROM published_documents)"

TABLES = 12
WINDOW = 6  # following rows of the same hash that a row is compared with
SLICE = 16_384  # rows whose cosines are computed at once: bounds the memory
SEED = 20_020  # any: the same rows always give the same groups

# (chunk, id of the passage or memory, key of the document or NO_DOCUMENT), by chunk.
_OF_DOCUMENTS = (
    "SELECT c.id, c.id, d.key FROM document_chunks c "
    "JOIN published_documents d ON d.key = c.owner ORDER BY c.id"
)
NO_DOCUMENT = 0
_OF_MEMORIES = f"SELECT id, owner, {NO_DOCUMENT} FROM context_chunks ORDER BY id"

MEMORIES = "memories"  # the name of their group beside libraries, folders and types
NUMERIC = 0.4  # of the words of a passage have digits: it is mostly numbers
SAME_NUMBERS = 0.8  # of the different numbers of two such passages, if they say the same


class SimilarTexts:
    """Ranks both kinds by the cosine to the mean direction of some chunks."""

    def __init__(self, sql: Sql, store: OpenStore, model: ModelRow) -> None:
        self._sql, self._model = sql, model
        self._indexes: dict[Kind, ChunkIndex] = {
            "documents": store.documents,
            "memories": store.memories,
        }

    def to_item(
        self, kind: Kind, owner: int, wanted: Iterable[Kind], limit: int
    ) -> Results[Chunk | Memory]:
        """The items most similar to that of `owner`, without itself, each by its best chunk."""
        index = self._indexes[kind]
        first = f"SELECT id FROM {index.chunks} WHERE owner = ? ORDER BY position LIMIT ?"
        direction = self._direction(index, selected(self._sql, first, (owner, MOST_CHUNKS)))
        if direction is None:
            return Results(hits=(), legs=(), reasons={"vector": NOT_EMBEDDED})
        return self._results(
            [
                row
                for each in wanted
                for row in self._nearest(each, direction, owner if each == kind else 0, limit)
            ],
            limit,
        )

    def at_lines(self, owner: int, first: int, count: int) -> list[int]:
        """The ids of the chunks that have these lines of a document, or of the first one below.

        Raises NotFound behind its last chunk.
        """
        found = self._sql.execute(
            "SELECT id, first_line FROM document_chunks WHERE owner = ? AND last_line >= ? "
            "ORDER BY position LIMIT ?",
            (owner, first, MOST_CHUNKS),
        ).fetchall()
        if not found:
            raise NotFound(f"there is no passage at line {first:,} of it")
        return [id for id, line in found if line < first + count] or [found[0][0]]

    def to_chunks(
        self, chunks: Sequence[int], wanted: Iterable[Kind], limit: int
    ) -> Results[Chunk | Memory]:
        """The passages of documents, and the memories, most similar to one or more passages."""
        index = self._indexes["documents"]
        direction = self._direction(index, chunks)
        if direction is None:
            return Results(hits=(), legs=(), reasons={"vector": NOT_EMBEDDED})
        ranked: list[tuple[float, Kind, int, int]] = []
        if "documents" in wanted:
            others = Allowed(
                "SELECT id FROM document_chunks WHERE id NOT IN (SELECT value FROM json_each(?)) "
                f"AND {PUBLISHED}",
                (json.dumps(list(chunks)),),
            )
            near = index.vector.nearest(self._sql, self._model.key, direction, others, limit)
            ranked += [(cosine, "documents", id, id) for id, cosine in near]
        if "memories" in wanted:
            ranked += self._nearest("memories", direction, 0, limit)
        return self._results(ranked, limit)

    def _results(
        self, ranked: list[tuple[float, Kind, int, int]], limit: int
    ) -> Results[Chunk | Memory]:
        """The hits for (cosine, kind, chunk, owner), best first."""
        best = sorted(ranked, key=lambda row: (-row[0], row[1], row[2]))[:limit]
        chunks = document_rows.chunks(self._sql, [row[2] for row in best if row[1] == "documents"])
        memories = memory_rows.by_ids(
            self._sql,
            self._indexes["memories"],
            [row[3] for row in best if row[1] == "memories"],
            images=False,
        )
        return Results(
            hits=tuple(
                Hit(
                    item=chunks[chunk] if each == "documents" else memories[found],
                    score=min(1.0, max(0.0, cosine)),
                    scores=Scores(vector=cosine, vector_rank=rank),
                )
                for rank, (cosine, each, chunk, found) in enumerate(best, 1)
            ),
            legs=("vector",),
        )

    def _direction(self, index: ChunkIndex, ids: Sequence[int]) -> bytes | None:
        """The mean of the unit vectors of chunks as float32; None without embeddings."""
        model = self._model
        rows: Any = index.vector.embeddings(self._sql, model.key, model.dimension, ids).rows
        lengths = np.linalg.norm(rows, axis=1)
        rows = rows[lengths > 0] / lengths[lengths > 0, None]
        return rows.mean(axis=0).astype(np.float32).tobytes() if len(rows) else None

    def _nearest(
        self, kind: Kind, direction: bytes, besides: int, limit: int
    ) -> list[tuple[float, Kind, int, int]]:
        """(cosine, kind, best chunk, owner) of the nearest owners."""
        index = self._indexes[kind]
        visible, bindings = PUBLISHED, ()
        if kind == "memories":
            now = memory_rows.compile_filter(**memory_rows.then(self._sql))
            visible = f"owner IN (SELECT x.id FROM contexts x WHERE {now.condition})"
            bindings = now.bindings
        allowed = Allowed(
            f"SELECT id FROM {index.chunks} WHERE owner != ? AND {visible}", (besides, *bindings)
        )
        best = best_of_owners(
            self._sql,
            index,
            lambda depth: index.vector.nearest(
                self._sql, self._model.key, direction, allowed, depth
            ),
            limit,
            OVERFETCH * limit,
        )
        return [(cosine, kind, chunk, owner) for owner, (chunk, cosine) in best.items()]


class UnitRows(NamedTuple):
    """Some rows: of each the id of its passage or memory, and the key of its document."""

    ids: NDArray[np.int64]
    documents: NDArray[np.int64]
    rows: NDArray[np.float32]


def _joined(blocks: Iterable[UnitRows], dimension: int) -> UnitRows:
    """The rows of all blocks."""
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, dimension), np.float32)
    return UnitRows(*map(np.concatenate, zip(none, *blocks, strict=True)))


def unit_rows(sql: Sql, model: ModelRow, store: OpenStore) -> Iterator[UnitRows]:
    """The embeddings of both shelves, some at a time: those of documents by id, then of memories.

    Passages of unpublished documents are left out.
    """
    for index, select in zip(store.indexes, (_OF_DOCUMENTS, _OF_MEMORIES), strict=True):
        found_in = np.array(sql.execute(select).fetchall(), np.int64).reshape(-1, 3)
        chunks, ids, documents = found_in.T
        for found, rows in index.vector.blocks(sql, model.key, model.dimension):
            places = np.searchsorted(chunks, found)
            there = places < len(chunks)
            there[there] = chunks[places[there]] == np.array(found)[there]
            lengths = np.linalg.norm(rows, axis=1)
            there &= lengths > 0
            places = places[there]
            yield UnitRows(
                ids[places],
                documents[places],
                (rows[there] / lengths[there, None]).astype(np.float32),
            )


def duplicates(
    sql: Sql, store: OpenStore, model: ModelRow | None, min_cosine: float
) -> list[Duplicates]:
    """The groups of passages that are embedded by a model of the file, the largest first."""
    if model is None:
        return []
    ids, documents, rows = _joined(unit_rows(sql, model, store), model.dimension)
    if not len(ids):
        return []
    of_memories = documents == NO_DOCUMENT
    first, second, cosines = similar_pairs(rows, min_cosine)
    paired = np.unique(np.concatenate([first, second]))
    chunks = np.where(of_memories, 0, ids)
    numbers = _numbers_of(sql, np.unique(chunks[paired]).tolist())
    same = np.array(
        [
            same_numbers(numbers.get(one, frozenset()), numbers.get(other, frozenset()))
            for one, other in zip(chunks[first].tolist(), chunks[second].tolist(), strict=True)
        ],
        np.bool_,
    )
    first, second, cosines = first[same], second[same], cosines[same]
    labels = components(len(rows), first, second)
    lowest = np.ones(len(rows), np.float32)
    np.minimum.at(lowest, labels[first], cosines)
    paired = np.unique(np.concatenate([first, second]))
    order = paired[np.argsort(labels[paired], kind="stable")]
    found = []
    for members in (
        np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else ()
    ):
        of_memory = of_memories[members]
        made = Duplicates(
            chunks=tuple(ids[members[~of_memory]].tolist()),
            memories=tuple(sorted({*ids[members[of_memory]].tolist()})),
            cosine=min(1.0, float(lowest[labels[members[0]]])),
        )
        if len(made) > 1:  # and not two passages of one memory
            found.append(made)
    return sorted(found, key=lambda each: (-len(each), each.chunks, each.memories))


def similar_pairs(rows: NDArray[np.float32], min_cosine: float) -> Pairs:
    """Pairs of unit rows that have at least this cosine: their numbers, and the cosines."""
    count, dimension = rows.shape
    random = np.random.default_rng(SEED)
    bits = min(62, max(4, math.ceil(math.log2(count + 1))))
    mean = rows.mean(axis=0, dtype=np.float32)
    # The hash of each row around their mean, and its place along the last plane's direction.
    keys, along = np.empty(count, np.int64), np.empty(count, np.float32)
    powers = 1 << np.arange(bits, dtype=np.int64)
    none = np.empty(0, np.int64)
    found: list[Pairs] = [(none, none, np.empty(0, np.float32))]
    for _ in range(TABLES):
        planes = random.standard_normal((dimension, bits + 1), np.float32)
        middle = mean @ planes
        for start in range(0, count, SLICE):
            part = slice(start, start + SLICE)
            sides = rows[part] @ planes - middle
            keys[part] = (sides[:, :-1] > 0) @ powers
            along[part] = sides[:, -1]
        order = np.lexsort((along, keys))
        for ahead in range(1, min(WINDOW, count - 1) + 1):
            same = np.flatnonzero(keys[order[:-ahead]] == keys[order[ahead:]])
            found.append(_near(rows, order[same], order[same + ahead], min_cosine))
    first, second, cosines = (np.concatenate(each) for each in zip(*found, strict=True))
    return first, second, cosines


def _near(
    rows: NDArray[np.float32],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    min_cosine: float,
) -> Pairs:
    """Those of the given pairs that have at least this cosine."""
    cosines = np.empty(len(first), np.float32)
    for start in range(0, len(first), SLICE):
        part = slice(start, start + SLICE)
        cosines[part] = np.einsum("ij,ij->i", rows[first[part]], rows[second[part]])
    near = cosines >= min_cosine - 1e-6  # what single precision may lose
    return first[near], second[near], cosines[near]


def components(
    count: int, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each of `count` rows the lowest number of those it is connected with by pairs.

    Every row takes the lowest label among its neighbours', then that label's own (pointer
    jumping), which halves the remaining distances, until nothing changes.
    """
    labels = np.arange(count)
    while True:
        low = np.minimum(labels[first], labels[second])
        new = labels.copy()
        np.minimum.at(new, labels[first], low)
        np.minimum.at(new, labels[second], low)
        new = new[new]
        if np.array_equal(new, labels):
            return labels
        labels = new


def numbers_in(text: str) -> frozenset[str]:
    """The numbers of a text that is mostly numbers; none of any other."""
    words = WORD.findall(text)
    numbers = [word for word in words if any(map(str.isdigit, word))]
    return frozenset(numbers) if len(numbers) >= NUMERIC * len(words) else frozenset()


def same_numbers(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two passages that are alike also say the same by their numbers, if they are such."""
    return len(one & other) >= SAME_NUMBERS * len(one | other)


def _numbers_of(sql: Sql, chunks: Sequence[int]) -> dict[int, frozenset[str]]:
    """`numbers_in` the passages of documents with these ids."""
    texts = sql.execute(
        f"SELECT c.id, {ChunkIndex.text('document')} FROM document_chunks c "
        "WHERE c.id IN (SELECT value FROM json_each(?))",
        (json.dumps(chunks),),
    )
    return {id: numbers_in(text) for id, text in texts}


def projection(sql: Sql, store: OpenStore, model: ModelRow | None) -> Projection:
    """The projection of all passages that are embedded by a model of the file."""
    pending, points = 0, _joined((), 2)
    if model is not None:
        pending = sum(each.count_pending(sql, model.key) for each in store.indexes)
        step = max(1, -(-sum(each.count(sql) for each in store.indexes) // plane.SAMPLE))
        sample, skip = [np.empty((0, model.dimension), np.float32)], 0
        for block in unit_rows(sql, model, store):  # every `step`-th row of all of them
            sample.append(block.rows[skip::step])
            skip = (skip - len(block.rows)) % step
        rows = np.concatenate(sample)
        if len(rows):
            centres = plane.landmarks(rows)
            places = plane.layout(centres)
            points = _joined(
                (
                    block._replace(rows=plane.placed(block.rows, centres, places))
                    for block in unit_rows(sql, model, store)
                ),
                2,
            )
    names, groups = _groups(sql, points)
    return Projection(
        ids=points.ids,
        x=points.rows[:, 0],
        y=points.rows[:, 1],
        memories=int((points.documents == NO_DOCUMENT).sum()),
        names=names,
        groups=groups,
        pending=pending,
    )


def _groups(
    sql: Sql, points: UnitRows
) -> tuple[dict[str, tuple[str, ...]], dict[str, NDArray[np.uint8]]]:
    """The names of the groups of points by library, folder, type and time, and those of each."""
    field = document_rows.fields(sql.dialect)
    columns = f"d.library, {field['folder']}, d.file_type, {field['date']}"
    documents = sql.execute(
        f"SELECT d.key, {columns} FROM published_documents d ORDER BY d.key"
    ).fetchall()
    memories = sql.execute("SELECT x.id, x.created_at FROM contexts x ORDER BY x.id").fetchall()
    keys = np.array([key for key, *_ in documents], np.int64)
    ids = np.array([id for id, _ in memories], np.int64)
    items = np.where(
        points.documents == NO_DOCUMENT,
        len(keys) + np.searchsorted(ids, points.ids),
        np.searchsorted(keys, points.documents),
    )
    others = [MEMORIES] * len(memories)
    columns_of = [[row[at] for row in documents] for at in range(1, 5)]
    labels = {
        "library": columns_of[0] + others,
        "folder": plane.by_folder(columns_of[1], plane.MOST_GROUPS - 1) + others,
        "type": columns_of[2] + others,
        "time": plane.by_time(columns_of[3] + [when for _, when in memories]),
    }
    made = {by: plane.numbered([names[item] for item in items]) for by, names in labels.items()}
    return (
        {by: names for by, (names, _) in made.items()},
        {by: numbers for by, (_, numbers) in made.items()},
    )
