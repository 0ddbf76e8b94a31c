"""After any sequence of operations on documents, the file equals a model in memory and is sound."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mcpvectordb import Config, Database
from mcpvectordb.index.tuning import Tuning
from tests.properties.machines import DatabaseMachine
from tests.support import Letters

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
DOCUMENTS = st.tuples(SOURCES, LIBRARIES, TEXTS, st.booleans())
CONFIG = Config(chunk_size=16, chunk_overlap=4)
# Documents of two chunks are short; words of deleted ones are merged out of the index at once.
SLICES = Tuning(slice_chunks=2, slice_characters=150, slice_pages=1, deleted_rows=0)


class DocumentsMachine(DatabaseMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[str, str], str] = {}
        self.ids: dict[tuple[str, str], str] = {}

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
            else "skipped"
            if self.model[key] == text
            else "replaced"
        )
        assert done.status == expected
        if expected == "skipped":
            assert done.document.id == self.ids[key]
        else:
            self.model[key], self.ids[key] = text, done.document.id

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        assert self.db.documents.delete(self.ids[key]) > 0
        assert self.db.documents.delete(self.ids.pop(key)) == 0
        del self.model[key]

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
        for key, id in self.ids.items():
            assert self.db.documents.text(id) == self.model[key]


TestDocuments = DocumentsMachine.TestCase
TestDocuments.settings = settings(max_examples=25, stateful_step_count=15)
