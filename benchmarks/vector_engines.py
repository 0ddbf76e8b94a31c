"""One engine filled and searched once: `python vector_engines.py ENGINE FOLDER DATA.npz`, which prints the figures as JSON.

It runs with the interpreter of the engine's own environment, so it imports nothing of this package. Each function
opens an engine in a folder, for vectors of a dimension: `add` adds all rows under their numbers as ids, `search` gives the
ids of the vectors nearest to a query by cosine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NEAREST = 10
WARM = 5  # queries that are not timed: what is done once is not the time of a query


class Engine(NamedTuple):
    """What can be done with an open engine."""

    add: Callable[[Any], object]
    search: Callable[[Any], list[int]]
    close: Callable[[], object] = lambda: None


def mcpvectordb(folder: Path, _: int) -> Engine:
    """This library."""
    from mcpvectordb import Database

    db = Database(folder / "vectors.db")
    return Engine(lambda rows: db.vectors.add_many(map(str, range(len(rows))), rows),
                  lambda query: [int(hit.item.id) for hit in db.vectors.search(query, limit=NEAREST)], db.close)


def chroma(folder: Path, _: int) -> Engine:
    """Chroma's persistent client: HNSW with its default parameters."""
    chromadb = import_module("chromadb")

    client = chromadb.PersistentClient(str(folder), chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("vectors", metadata={"hnsw:space": "cosine"}, embedding_function=None)
    batch = client.get_max_batch_size()

    def add(rows: Any) -> None:
        for start in range(0, len(rows), batch):
            part = rows[start:start + batch]
            collection.add(ids=[str(start + offset) for offset in range(len(part))], embeddings=part)

    def search(query: Any) -> list[int]:
        return [int(id) for id in collection.query(query_embeddings=[query], n_results=NEAREST, include=[])["ids"][0]]

    return Engine(add, search)


def lancedb(folder: Path, dimension: int) -> Engine:
    """LanceDB without an index, which is what it does until one is asked for."""
    lancedb, pyarrow = import_module("lancedb"), import_module("pyarrow")

    schema = pyarrow.schema([("id", pyarrow.int64()), ("vector", pyarrow.list_(pyarrow.float32(), dimension))])
    table = lancedb.connect(str(folder)).create_table("vectors", schema=schema)

    def add(rows: Any) -> None:
        vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), dimension)
        table.add(pyarrow.Table.from_arrays([pyarrow.array(range(len(rows))), vectors], schema=schema))

    def search(query: Any) -> list[int]:
        found = table.search(query).distance_type("cosine").limit(NEAREST).select(["id"]).to_arrow()
        return [int(id) for id in found["id"].to_pylist()]

    return Engine(add, search)


def sqlite_vec(folder: Path, dimension: int) -> Engine:
    """sqlite-vec's vec0 table of float32, compared one by one."""
    apsw, sqlite_vec = import_module("apsw"), import_module("sqlite_vec")

    connection = apsw.Connection(str(folder / "vectors.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute(f"CREATE VIRTUAL TABLE v USING vec0 (embedding float[{dimension}] distance_metric=cosine)")

    def add(rows: Any) -> None:
        with connection:
            connection.executemany("INSERT INTO v (rowid, embedding) VALUES (?, ?)",
                                   ((number, row.tobytes()) for number, row in enumerate(rows)))

    def search(query: Any) -> list[int]:
        return [id for (id,) in connection.execute(
            "SELECT rowid FROM v WHERE embedding MATCH ? AND k = ? ORDER BY distance", (query.tobytes(), NEAREST))]

    return Engine(add, search, connection.close)


def hnswlib(folder: Path, dimension: int) -> Engine:
    """hnswlib in memory with Chroma's parameters, written to a file at the end of adding."""
    index = import_module("hnswlib").Index("cosine", dimension)

    def add(rows: Any) -> None:
        index.init_index(max_elements=len(rows), ef_construction=100, M=16)
        index.add_items(rows, range(len(rows)))
        index.save_index(str(folder / "vectors.bin"))
        index.set_ef(100)

    def search(query: Any) -> list[int]:
        return [int(id) for id in index.knn_query(query, k=NEAREST)[0][0]]

    return Engine(add, search)


ENGINES = {"mcpvectordb": mcpvectordb, "chroma": chroma, "lancedb": lancedb, "sqlite-vec": sqlite_vec, "hnswlib": hnswlib}
PACKAGES = {"mcpvectordb": "mcpvectordb", "chroma": "chromadb", "lancedb": "lancedb", "sqlite-vec": "sqlite-vec",
            "hnswlib": "hnswlib"}


def run(engine: str, folder: Path, rows: Any, queries: Any) -> dict[str, Any]:
    """Fill the engine, ask it every query, and tell what that took: seconds to add, milliseconds for each query."""
    opened = ENGINES[engine](folder, rows.shape[1])
    begin, begin_cpu = time.perf_counter(), time.process_time()
    opened.add(rows)
    added, added_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    for query in queries[:WARM]:
        opened.search(query)
    found, times, begin_cpu = [], [], time.process_time()
    for query in queries:
        begin = time.perf_counter()
        found.append(opened.search(query))
        times.append(1000 * (time.perf_counter() - begin))
    search_cpu = 1000 * (time.process_time() - begin_cpu) / len(queries)
    opened.close()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"version": version(PACKAGES[engine]), "add": added, "add_cpu": added_cpu, "search": sorted(times)[len(times) // 2],
            "search_cpu": search_cpu, "found": found, "bytes": size}


if __name__ == "__main__":
    with np.load(sys.argv[3]) as data:
        print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), data["rows"], data["queries"])))
