"""A file that is changed in any way and published now and then: what its origin has in PostgreSQL is
always what a first publish of the file would bring there, and its statistics are right.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from mcpvectordb import Config, Database, Image, InvalidInput, NotFound
from tests.properties.test_documents_machine import SLICES
from tests.support import Letters, scaled
from tests.support_postgres import problems, published, rows, versions_of_rows

SOURCES = st.sampled_from(["a.md", "b.md", "c.py"])
LIBRARIES = st.sampled_from(["one", "two"])
TEXTS = st.sampled_from(
    [
        "apple pie",
        "pear " * 40,
        "# Plum\n\n" + "plum tart. " * 60,
        "数据库",
        "---\nby: x\n---\nfig",
        "a\0b",
    ]
)
VALUES = st.none() | st.sampled_from(["x", "\0"])
CONFIG = Config(chunk_size=16, chunk_overlap=4)


class PublishMachine(RuleBasedStateMachine):
    url = ""  # of a database, set by the test
    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.origin = f"origin {next(self.numbers)}"

    def open(self, name: str) -> Database:
        return Database(self.folder / name, embedder=Letters(), config=CONFIG, tuning=SLICES)

    @initialize(text=TEXTS)
    def start(self, text: str) -> None:
        self.db = self.open("file.db")
        self.db.documents.ingest_text(text, source="a.md", library="one")
        self.db.copy_to(self.folder / "copy.db")
        self.copy = self.open("copy.db")

    @rule(
        source=SOURCES, library=LIBRARIES, text=TEXTS, embed=st.booleans(), elsewhere=st.booleans()
    )
    def ingest(self, source: str, library: str, text: str, embed: bool, elsewhere: bool) -> None:
        db = self.copy if elsewhere else self.db
        db.documents.ingest_text(text, source=source, library=library, embed=embed)

    @rule(data=st.data(), title=st.none() | st.just("Zebra"), by=VALUES, embed=st.booleans())
    def update(self, data: st.DataObject, title: str | None, by: str | None, embed: bool) -> None:
        if found := self.db.documents.browse(limit=100):
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda each: each.path)))
            self.db.documents.update(chosen.id, title=title, metadata_patch={"by": by}, embed=embed)

    @rule(data=st.data(), library=LIBRARIES)
    def move(self, data: st.DataObject, library: str) -> None:
        if found := self.db.documents.browse(limit=100):
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda each: each.path)))
            with contextlib.suppress(InvalidInput):  # the library has one with this source
                self.db.documents.update(chosen.id, library=library)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if found := self.db.documents.browse(limit=100):
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda each: each.path)))
            self.db.documents.delete(chosen.id)

    @rule(library=LIBRARIES, text=st.sampled_from(["fruit", "trees"]))
    def describe(self, library: str, text: str) -> None:
        if not any(each.root for each in self.db.documents.libraries() if each.name == library):
            self.db.documents.add_library(library, self.folder, description=text)
        self.db.documents.describe(library, "part", text)

    @rule(text=TEXTS, tags=st.none() | st.just(["t"]), image=st.booleans())
    def remember(self, text: str, tags: list[str] | None, image: bool) -> None:
        images = [Image(data=b"x")] if image else None
        self.db.memories.add("thread", "agent", text, tags=tags, images=images)

    @rule(data=st.data(), text=st.none() | TEXTS, by=VALUES)
    def correct(self, data: st.DataObject, text: str | None, by: str | None) -> None:
        if found := self.db.memories.browse(limit=100).items:
            chosen = data.draw(st.sampled_from([each.id for each in found]))
            self.db.memories.update(chosen, text=text, metadata_patch={"by": by})

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if found := self.db.memories.browse(limit=100).items:
            self.db.memories.delete([data.draw(st.sampled_from([each.id for each in found]))])

    @rule(id=st.sampled_from("vw"), value=st.sampled_from([1.0, 0.1]), store=st.sampled_from("st"))
    def vector(self, id: str, value: float, store: str) -> None:
        self.db.vectors.add(id, [value, 1.0], store=store, metadata={"value": value})

    @rule(id=st.sampled_from("vw"))
    def delete_vector(self, id: str) -> None:
        self.db.vectors.delete(id, store="s")

    @rule()
    def undo(self) -> None:
        with contextlib.suppress(NotFound, InvalidInput):  # nothing to undo, or changed since
            self.db.undo(embed=False)

    @rule()
    def embed(self) -> None:
        self.db.embed_pending()

    @rule()
    def merge(self) -> None:
        self.db.merge(self.copy.path)

    @rule(libraries=st.none() | st.just(["one"]))
    def publish(self, libraries: list[str] | None) -> None:
        with contextlib.suppress(NotFound):  # there is no such library any more
            report = self.db.publish(self.url, origin=self.origin, libraries=libraries)
            assert report.waiting == self.db.stats().pending
            before = versions_of_rows(self.url)
            assert self.db.publish(self.url, origin=self.origin, libraries=libraries).changes == 0
            assert versions_of_rows(self.url) == before
            self.db.publish(self.url, origin="fresh", libraries=libraries)
            assert published(self.url, self.origin) == published(self.url, "fresh")
            assert problems(self.url) == []
            rows(self.url, "DELETE FROM mcpvectordb.origins WHERE name = 'fresh'")
            assert problems(self.url) == []

    def teardown(self) -> None:
        if hasattr(self, "copy"):
            self.publish(None)
            self.db.close()
            self.copy.close()
        shutil.rmtree(self.folder)


def test_what_is_published_bit_by_bit_is_what_a_first_publish_brings(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PublishMachine, "url", postgres_url)
    run_state_machine_as_test(
        PublishMachine,
        settings=settings(max_examples=scaled(8), stateful_step_count=14, deadline=None),
    )
