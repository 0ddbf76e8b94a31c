"""After any sequence of operations on documents, the file equals a model in memory and is sound."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mcpvectordb import Config, Database, InvalidInput
from mcpvectordb.index.tuning import Tuning
from tests.properties.machines import DatabaseMachine
from tests.support import Letters, scaled

SOURCES = st.sampled_from(["a.md", "b.md", "c.py", "d"])
LIBRARIES = st.sampled_from(["one", "two"])
WORDS = st.sampled_from(["apple", "pear", "plum", "parseHTML", "数据库", "E-4021", "the"])
TEXTS = (
    st.lists(
        WORDS | st.sampled_from(["\n\n", "# Head\n", "```\ncode\n```\n", "\x00", "é́ "]),
        min_size=1,
        max_size=60,
    )
    .map(" ".join)
    .filter(lambda text: bool(text.strip()))
)
TITLES = st.none() | st.sampled_from(["Zebra", "Quagga"])
DOCUMENTS = st.tuples(SOURCES, LIBRARIES, TEXTS, st.booleans())
CONFIG = Config(chunk_size=16, chunk_overlap=4)
# Documents of two chunks are short; words of deleted ones are merged out of the index at once.
SLICES = Tuning(slice_chunks=2, slice_characters=150, slice_pages=1, deleted_rows=0)


class DocumentsMachine(DatabaseMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[str, str], str] = {}
        self.ids: dict[tuple[str, str], str] = {}
        self.said: dict[tuple[str, str], dict[str, str | None]] = {}

    def opened(self, path: Path) -> Database:
        return Database(path, embedder=Letters(), config=CONFIG, tuning=SLICES)

    @initialize(documents=st.lists(DOCUMENTS, min_size=1, max_size=3))
    def start(self, documents: list[tuple[str, str, str, bool]]) -> None:
        self.open()
        for document in documents:
            self.ingest(*document)

    @rule(source=SOURCES, library=LIBRARIES, text=TEXTS, embed=st.booleans())
    def ingest(self, source: str, library: str, text: str, embed: bool) -> None:
        key = (library, source)
        done = self.db.documents.ingest_text(
            text, source=source, library=library, embed=embed, metadata={"size": len(text)}
        )
        expected = (
            "indexed"
            if key not in self.model
            else "unchanged"
            if self.model[key] == text
            else "replaced"
        )
        assert done.status == expected
        if expected == "unchanged":
            assert done.document.id == self.ids[key]
        else:
            self.model[key], self.ids[key] = text, done.document.id
            self.said.setdefault(key, {})

    @precondition(lambda self: self.model)
    @rule(data=st.data(), title=TITLES, by=st.none() | st.sampled_from("xy"), embed=st.booleans())
    def update(self, data: st.DataObject, title: str | None, by: str | None, embed: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        done = self.db.documents.update(
            self.ids[key], title=title, metadata_patch={"by": by}, embed=embed
        )
        before = dict(self.said[key])
        self.said[key] |= {"by": by} | ({} if title is None else {"title": title})
        assert done.document.id == self.ids[key]
        if self.said[key] == before:
            assert done.status == "unchanged"

    @precondition(lambda self: self.model)
    @rule(data=st.data(), library=LIBRARIES)
    def move(self, data: st.DataObject, library: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        new = (library, key[1])
        if new != key and new in self.model:
            with pytest.raises(InvalidInput, match="already has a document of"):
                self.db.documents.update(self.ids[key], library=library)
            return
        self.db.documents.update(self.ids[key], library=library)
        for facts in (self.model, self.ids, self.said):
            facts[new] = facts.pop(key)

    @rule(by=st.sampled_from("xy"), library=LIBRARIES)
    def filter(self, by: str, library: str) -> None:
        self.db.embed_pending()
        expected = {
            source
            for (name, source), said in self.said.items()
            if name == library and said.get("by") == by
        }
        for _ in range(2):  # the second search may be answered from memory
            hits = self.db.documents.search(
                "apple", mode="vector", library=library, where={"metadata.by": by}, limit=1000
            )
            assert {hit.item.document.source for hit in hits} == expected

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        assert self.db.documents.delete(self.ids[key]) > 0
        assert self.db.documents.delete(self.ids.pop(key)) == 0
        del self.model[key], self.said[key]

    @rule()
    def embed(self) -> None:
        self.db.embed_pending()
        assert self.db.stats().pending == 0

    @rule(word=WORDS, library=LIBRARIES)
    def search_by_words(self, word: str, library: str) -> None:
        found = {
            hit.item.document.source
            for hit in self.db.documents.search(word, mode="text", library=library, limit=1000)
        }
        expected = {
            source
            for (name, source), text in self.model.items()
            if name == library and word in text.split()
        }
        assert found >= expected
        assert found <= {source for name, source in self.model if name == library}

    @rule(word=WORDS)
    def search_by_meaning(self, word: str) -> None:
        self.db.embed_pending()
        hits = self.db.documents.search(word, mode="vector", limit=1000)
        assert {(hit.item.document.library, hit.item.document.source) for hit in hits} == set(
            self.model
        )
        for hit in hits:
            text = self.model[hit.item.document.library, hit.item.document.source]
            assert text[hit.item.start : hit.item.end] == hit.item.text

    def assert_file_equals_model(self) -> None:
        documents = self.db.documents.browse(limit=1000)
        assert {(each.library, each.source): each.id for each in documents} == self.ids
        for each in documents:
            key = (each.library, each.source)
            assert self.db.documents.text(each.id) == self.model[key]
            assert each.metadata.get("by") == self.said[key].get("by")
            assert each.metadata["size"] == len(self.model[key])
            assert self.said[key].get("title") in (None, each.title)


TestDocuments = DocumentsMachine.TestCase
TestDocuments.settings = settings(max_examples=scaled(25), stateful_step_count=15)
