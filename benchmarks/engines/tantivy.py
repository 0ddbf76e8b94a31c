"""tantivy with English stems and positions; passages are stored and read with every result."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from benchmarks.engines import NEAREST, Words


class Engine:
    """One index of one field."""

    packages = ("tantivy", "numpy")

    def __init__(self, folder: Path) -> None:
        self._tantivy = import_module("tantivy")
        schema = self._tantivy.SchemaBuilder()
        schema.add_unsigned_field("id", stored=True)
        schema.add_text_field("text", stored=True, tokenizer_name="en_stem")
        self._index = self._tantivy.Index(schema.build(), str(folder))

    def add_texts(self, texts: list[str]) -> None:
        """In one commit, with its default of memory and threads."""
        writer = self._index.writer()
        for number, text in enumerate(texts):
            writer.add_document(self._tantivy.Document(id=number, text=text))
        writer.commit()
        writer.wait_merging_threads()

    def matching(self, query: Words) -> list[int]:
        """Ids and texts."""
        self._index.reload()
        written = " ".join(
            [
                *query["any"],
                *(f"+{word}" for word in query["all"]),
                *(f"-{word}" for word in query["none"]),
            ]
        )
        searcher = self._index.searcher()
        hits = searcher.search(self._index.parse_query(written, ["text"]), NEAREST).hits
        return [int(searcher.doc(address)["id"][0]) for _, address in hits]

    def close(self) -> None:
        """It has no closing."""
