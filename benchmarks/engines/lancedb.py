"""LanceDB: vectors without an index, its default, and its own full-text index."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.engines import GROUPS, NEAREST, Words


class Engine:
    """A table of vectors and one of passages."""

    packages = ("lancedb",)

    def __init__(self, folder: Path) -> None:
        self._db = import_module("lancedb").connect(str(folder))
        self._tables: dict[str, Any] = {}

    def add_vectors(self, rows: Any) -> None:
        """All at once."""
        arrow, numbers = import_module("pyarrow"), range(len(rows))
        vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), rows.shape[1])
        self._db.create_table(
            "vectors",
            arrow.table(
                {
                    "id": arrow.array(numbers),
                    "group": arrow.array([number % GROUPS for number in numbers]),
                    "vector": vectors,
                }
            ),
        )

    def nearest(self, query: Any, group: int | None) -> list[int]:
        """Ids only; a condition applies before."""
        search = (
            self._table("vectors")
            .search(query)
            .distance_type("cosine")
            .limit(NEAREST)
            .select(["id"])
        )
        if group is not None:
            search = search.where(f"`group` = {group}", prefilter=True)
        return [int(id) for id in search.to_arrow()["id"].to_pylist()]

    def add_texts(self, texts: list[str]) -> None:
        """Indexed by the stems of words, with positions, after all are in."""
        arrow = import_module("pyarrow")
        table = self._db.create_table(
            "texts", arrow.table({"id": arrow.array(range(len(texts))), "text": arrow.array(texts)})
        )
        table.create_fts_index("text", use_tantivy=False)

    def matching(self, query: Words) -> list[int]:
        """Ids and texts."""
        queries = import_module("lancedb.query")
        must, never = queries.Occur.MUST, queries.Occur.MUST_NOT
        parts = [
            *((must, word) for word in query["all"]),
            *((never, word) for word in query["none"]),
        ]
        asked = (
            queries.BooleanQuery([(how, queries.MatchQuery(word, "text")) for how, word in parts])
            if parts
            else queries.MatchQuery(" ".join(query["any"]), "text")
        )
        found = (
            self._table("texts")
            .search(asked, query_type="fts")
            .limit(NEAREST)
            .select(["id", "text"])
            .to_arrow()
        )
        return [int(id) for id in found["id"].to_pylist()]

    def close(self) -> None:
        """It has no closing."""

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = self._db.open_table(name)
        return self._tables[name]
