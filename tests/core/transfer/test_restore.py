"""An export as JSONL, imported into an empty file, makes an equal file."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Database, Image, ParseFailed, Progress
from mcpvectordb.index.tuning import Tuning
from tests.support import Letters, scaled

QUERIES = ("tea water", "keys", "α β")


def reads(db: Database) -> Iterator[Any]:
    """What every public read returns."""
    yield db.documents.coverage()
    yield db.documents.backlog()
    for each in db.documents.browse(limit=1000):
        yield each, db.documents.text(each.id), db.documents.outline(each.id)
        yield db.documents.descriptions(each.library, each.source)
    for library in db.documents.libraries():
        yield {**library.to_dict(), "confirmed": None}
    yield list(db.memories.browse(limit=1000, images=True)), db.memories.threads()
    yield {**db.memories.statistics().to_dict(), "unavailable": None}
    yield db.memories.indexed_keys(), list(db.memories.browse(where={"metadata.status": "open"}))
    yield db.vectors.stores(), db.vectors.browse(store=None, limit=1000)
    for store in db.vectors.stores():
        yield db.vectors.namespaces(store.name)
        for query in ([1.0, 0.5], [0.3, -0.2, 0.9]):
            yield db.vectors.search(query, store=store.name).hits


def hit(each: Any) -> Any:
    fields = each.to_dict()
    if "position" in fields["item"]:
        del fields["item"]["id"]  # the number of a passage in this file
    return fields


def searches(db: Database) -> Iterator[Any]:
    for query, mode in itertools.product(QUERIES, ("hybrid", "text", "vector")):
        for unit in ("passage", "document"):
            results = db.documents.search(query, mode=mode, unit=unit, limit=20)  # type: ignore[arg-type]
            yield [hit(each) for each in results]
        yield [hit(each) for each in db.memories.search(query, mode=mode, limit=20)]  # type: ignore[arg-type]


def everything(db: Database) -> list[Any]:
    stats = {**db.stats().to_dict(), "path": "", "bytes": 0, "history_bytes": 0}  # it stays
    return [stats, *reads(db), *searches(db), db.check()]


@pytest.mark.parametrize("embeddings", ["float32", "float16"])
def test_every_shelf_comes_back_equal(tmp_path: Path, embeddings: str) -> None:
    config = Config(embeddings=embeddings)
    with Database(tmp_path / "a.db", embedder=Letters(), config=config) as db:
        fill(db, tmp_path / "notes")
        round_trip(db, tmp_path / "out.jsonl.gz")


def fill(db: Database, notes: Path) -> None:
    """Something of everything that a file can hold."""
    notes.mkdir()
    (notes / "tea.md").write_text("---\nyear: 2024\n---\n# Tea\n\nGreen tea, water at 80.\n")
    db.documents.add_library("notes", notes, description="Drinks", ignore=["drafts/"])
    db.documents.describe("notes", "tea", "All about tea")
    db.documents.sync()
    first = db.documents.ingest_text("Old text of keys.", source="k.md", metadata={"a": 1}).document
    db.documents.ingest_text("New text of keys.", source="k.md", metadata={"b": [1, None]})
    assert db.documents.lookup(first.id).former
    document = db.documents.browse(library="default")[0]
    db.documents.update(document.id, title="All keys", metadata_patch={"a": None, "c": "x"})
    db.documents.ingest_text("word " * 2_000, source="long.md", embed=False)
    db.documents.ingest_text("def tea():\n    pass\n", source="tea.py", library="code")
    db.documents.ingest(notes / "tea.md", duplicate=True)
    db.documents.ingest(notes / "tea.md", duplicate=True)
    (notes / "once").mkdir()
    (notes / "once" / "cup.md").write_text("A cup, once.")
    db.documents.ingest_folder(notes / "once", library="once")  # whose paths begin there
    png = Image(data=b"\x89PNG\0", metadata={"w": 1})
    first_memory = db.memories.add("t", "user", "Green keys α", tags=["B", "a"], images=[png]).id
    db.memories.add("t", "agent", "Water for tea.", metadata={"status": "open", "n": {"m": 1.5}})
    gone = db.memories.add("u", "user", "To be deleted.").id
    db.memories.add("u", "user", "After the deleted one.")
    db.memories.delete([gone])
    db.memories.update(first_memory, metadata={})
    db.vectors.add("a", np.array([1, 2], np.float32), metadata={"x": "y"})
    db.vectors.add("a", [0.1, 0.2, 0.3], store="exact", namespace="n", metric="dot")
    db.vectors.add("b", [1e300, 2.0], store="exact", metric="dot")
    db.vectors.add("z", [1.0], store="far", metric="euclidean")
    db.vectors.delete("z", store="far")


def round_trip(db: Database, out: Path) -> None:
    """Export, import into an empty file, and compare; importing again brings nothing."""
    before = everything(db)
    db.export_to(out)
    # Documents of three chunks are long ones, which are written in several transactions.
    tuning = Tuning(slice_chunks=2)
    with Database(out.with_name("b.db"), embedder=Letters(), tuning=tuning) as other:
        done = other.import_from(out, embed=False)
        assert not done.skipped and not done.unread and not done.changed and not done.known
        assert everything(other) == before
        again = other.import_from(out, embed=False)
        assert again.known == done.added and not again.added and not again.skipped
        assert everything(other) == before
        other.export_to(out.with_name("again.jsonl"))
    assert records(out.with_name("again.jsonl")) == records(out)


def records(path: Path) -> list[dict[str, Any]]:
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip) | (
    st.lists(st.sampled_from(["green tea", "# Keys", "milk", "\n\n", "α β", "| a |\n|-|\n| b |"]))
    .map(" ".join)
    .filter(str.strip)
)
names = st.sampled_from(["a.md", "b.py", "../c", "d", "https://example.org/e"])
keys = st.sampled_from(["status", "title", "imported", "x.y", "ä"])
scalars = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | st.text(max_size=5)
)
objects = st.dictionaries(keys, scalars | st.lists(scalars, max_size=2), max_size=3)
numbers = st.floats(-1e6, 1e6).filter(lambda each: abs(each) > 1e-3)

documents = st.tuples(
    st.just("document"), texts, names, st.sampled_from(["default", "Lib 2"]), objects
)
memories = st.tuples(
    st.just("context"),
    st.sampled_from(["t", "u"]),
    st.sampled_from(["user", "agent"]),
    texts,
    objects,
    st.lists(st.sampled_from(["one", "Two", "drei"]), max_size=2),
    st.binary(max_size=8),
)
vectors = st.tuples(
    st.just("vector"),
    st.sampled_from(["i", "j", "k"]),
    st.lists(numbers, min_size=2, max_size=3),
    st.sampled_from([("default", "cosine"), ("dots", "dot"), ("far", "euclidean")]),
    st.sampled_from(["", "n"]),
    objects,
)
deletions = st.tuples(st.just("delete"), st.integers(0, 9))
updates = st.tuples(st.just("update"), st.integers(0, 9), objects, st.none() | texts)


def do(db: Database, step: tuple[Any, ...]) -> None:
    match step:
        case ("document", text, name, library, values):
            db.documents.ingest_text(text, source=name, library=library, metadata=values)
        case ("context", thread, source, text, values, tags, image):
            images = [Image(data=image)] if image else None
            db.memories.add(thread, source, text, metadata=values, tags=tags, images=images)
        case ("vector", id, embedding, (store, metric), namespace, values):
            db.vectors.add(
                id, embedding, store=store, metric=metric, namespace=namespace, metadata=values
            )
        case ("delete", place):
            for each in db.documents.browse(limit=1, offset=place):
                db.documents.delete(each.id)
            for memory in db.memories.browse(limit=1, offset=place):
                db.memories.delete([memory.id])
        case ("update", place, values, title):
            for each in db.documents.browse(limit=1, offset=place):
                db.documents.update(each.id, metadata=values, title=title)
            for memory in db.memories.browse(limit=1, offset=place):
                db.memories.update(memory.id, metadata=values)


@settings(max_examples=scaled(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(documents | memories | vectors | deletions | updates, max_size=12))
def test_any_content_comes_back_equal(steps: list[tuple[Any, ...]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder) / "a.db", embedder=Letters()) as db,
    ):
        for step in steps:
            do(db, step)
        round_trip(db, Path(folder) / "out.jsonl")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file, a.db, and its export, out.jsonl."""
    folder = tmp_path_factory.mktemp("original")
    with Database(folder / "a.db", embedder=Letters()) as db:
        fill(db, folder / "notes")
        db.export_to(folder / "out.jsonl")
    return folder


@pytest.fixture
def exported(original: Path, tmp_path: Path) -> Path:
    shutil.copy(original / "a.db", tmp_path)
    return Path(shutil.copy(original / "out.jsonl", tmp_path))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty file."""
    with Database(tmp_path / "b.db", embedder=Letters()) as opened:
        yield opened


def test_what_is_here_stays_and_what_is_missing_comes(exported: Path, db: Database) -> None:
    mine = db.memories.add("mine", "user", "I was here first.")
    db.documents.ingest_text("My keys.", source="k.md")
    db.vectors.add("a", [9.0, 9.0])
    done = db.import_from(exported)
    assert set(done.skipped) == {"another version of it is here, which stays as it is"}
    assert sum(done.skipped.values()) == 2
    assert db.memories.get([mine.id])[0].text == "I was here first."
    assert db.memories.count() == 4 and db.vectors.get("a").embedding.tolist() == [9.0, 9.0]
    again = db.import_from(exported)
    assert not again.added and db.memories.count() == 4
    assert db.check() == []


@pytest.mark.parametrize("slice_chunks", [1, 1000], ids=["long", "short"])
def test_a_source_that_another_process_ingests_meanwhile_is_there_once(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_chunks: int
) -> None:
    """What is here is seen in the transaction that writes, not before."""
    tuning = Tuning(slice_chunks=slice_chunks)
    with (
        Database(tmp_path / "b.db", embedder=Letters(), tuning=tuning) as db,
        Database(tmp_path / "b.db", embedder=Letters()) as other,
    ):
        write_all = db.documents.writer.write_all

        def meanwhile(documents: Any) -> Any:
            other.documents.ingest_text("Our keys.", source="k.md")
            return write_all(documents)

        monkeypatch.setattr(db.documents.writer, "write_all", meanwhile)
        done = db.import_from(exported)
        [here] = db.documents.browse(where={"source": "k.md"})
        assert db.documents.text(here.id) == "Our keys."
        assert done.skipped["another version of it is here, which stays as it is"] == 1


def test_a_dry_run_stores_nothing(exported: Path, db: Database) -> None:
    planned = db.import_from(exported, dry_run=True)
    assert planned.added == {"libraries": 1, "documents": 7, "memories": 3, "vectors": 3}
    assert db.stats().documents == db.stats().memories == db.stats().vectors == 0
    assert db.import_from(exported).added == planned.added


def test_an_import_that_was_stopped_is_continued(exported: Path, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with Database(tmp_path / "a.db", embedder=Letters()) as db:
        wanted = everything(db)
    with Database(tmp_path / "b.db", embedder=Letters()) as db:
        with pytest.raises(KeyboardInterrupt):
            db.import_from(exported, progress=stop)
        db.import_from(exported, embed=False)
        assert everything(db) == wanted


def test_another_model_embeds_anew_and_says_so(exported: Path, tmp_path: Path) -> None:
    class Other(Letters):
        name = "other letters"

    with Database(tmp_path / "b.db", embedder=Other()) as db:
        done = db.import_from(exported)
        assert any("made with letters (32 d), the model here is other" in n for n in done.notes)
        assert db.stats().model == "other letters" and not db.stats().pending
        assert "kept" not in done.embeddings


def test_a_new_file_gets_the_model_of_the_export(exported: Path, tmp_path: Path) -> None:
    """Also where it is not installed: everything is stored, and found by words."""
    with Database(tmp_path / "b.db") as db:
        done = db.import_from(exported)
        assert db.stats().model == "letters" and done.embeddings["kept"] > 3
        assert db.documents.search("green tea", mode="text")


def test_the_folder_of_a_library_must_be_confirmed_here(exported: Path, db: Database) -> None:
    done = db.import_from(exported)
    assert any("mcpvectordb library confirm notes" in note for note in done.notes)
    [library] = [each for each in db.documents.libraries() if each.root]
    assert not library.confirmed and library.description == "Drinks"


def test_what_was_said_since_the_import_is_not_forgotten(
    exported: Path, db: Database, tmp_path: Path
) -> None:
    """Also of documents of which it was not known what people had said: of old files."""
    path = broken(exported, lambda lines: of_kind(lines, "document").update({"given": None}))
    id = of_kind(list(map(json.loads, path.read_text("utf-8").splitlines())), "document")["id"]
    db.import_from(path, embed=False)
    db.export_to(tmp_path / "same.jsonl")
    assert records(tmp_path / "same.jsonl") == records(path)
    db.documents.update(id, metadata={"said": "here"})
    db.import_from(path, embed=False)
    db.export_to(tmp_path / "later.jsonl")
    [later] = [each for each in records(tmp_path / "later.jsonl") if each.get("id") == id]
    assert later["given"]["metadata"]["said"] == ["here"]


def test_a_vector_that_comes_twice_is_stored_once(exported: Path, db: Database) -> None:
    path = broken(exported, lambda lines: lines.insert(-1, of_kind(lines, "vector")))
    done = db.import_from(path)
    assert done.added["vectors"] == 3 and done.known == {"vectors": 1}


def broken(exported: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    lines = [json.loads(line) for line in exported.read_text("utf-8").splitlines()]
    change(lines)
    exported.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
    return exported


def of_kind(lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(each for each in lines if each.get("kind") == kind)


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("document", {"text": "Other text"}, "its chunks are not its whole text"),
        ("document", {"chunks": []}, "its chunks are not its whole text"),
        ("document", {"text": None}, "text must be text"),
        ("document", {"id": "x" * 1000}, "id has more than 200 characters"),
        ("document", {"library": ""}, "library must not be blank"),
        ("document", {"created_at": "yesterday"}, "created_at must be a date"),
        ("document", {"metadata": [1]}, "metadata must be an object"),
        ("document", {"given": {"title": 1}}, "given"),
        ("document", {"mtime_ns": 2**70}, "mtime_ns must be a whole number"),
        ("context", {"images": [{"data": "***", "mime_type": "a/b"}]}, "an image is not base64"),
        ("context", {"id": 0}, "the id of a context"),
        ("store", {"metric": "taxicab"}, "metric must be"),
        ("vector", {"raw": "AAAA"}, "raw has not the size of 2 numbers"),
        ("vector", {"raw": base64.b64encode(b"\0\0\xc0\x7f" * 2).decode()}, "finite numbers"),
        ("vector", {"dimension": 10**9}, "raw has not the size"),
        ("library", {"pattern": "../x"}, "must be relative"),
        ("mystery", {}, "not known"),
    ],
)
def test_a_record_that_cannot_be_stored_is_reported_and_the_rest_comes(
    exported: Path, db: Database, kind: str, change: dict[str, Any], reason: str
) -> None:
    def edit(lines: list[dict[str, Any]]) -> None:
        if kind == "mystery":
            lines.insert(3, {"kind": kind})
        else:
            of_kind(lines, kind).update(change)

    done = db.import_from(broken(exported, edit))
    assert any(reason in each for each in done.skipped), done.skipped
    assert sum(done.added.values()) > 8 and db.check() == []


def test_chunks_that_lie_about_their_text_are_refused(exported: Path, db: Database) -> None:
    def edit(lines: list[dict[str, Any]]) -> None:
        chunk = of_kind(lines, "document")["chunks"][0]
        chunk["start"] = chunk["end"]

    done = db.import_from(broken(exported, edit))
    assert "a chunk leaves out a part of the text" in done.skipped


def test_embeddings_of_the_wrong_size_are_made_anew(exported: Path, db: Database) -> None:
    def edit(lines: list[dict[str, Any]]) -> None:
        of_kind(lines, "document")["chunks"][0]["embedding"] = "AAAA"
        nan = base64.b64encode(b"\0\0\xc0\x7f" * 32).decode()
        of_kind(lines, "context")["chunks"][0]["embedding"] = nan

    db.import_from(broken(exported, edit))
    assert not db.stats().pending and db.check() == []


def test_a_truncated_export_gives_what_it_has(exported: Path, db: Database) -> None:
    raw = exported.read_bytes()
    exported.write_bytes(raw[: len(raw) * 2 // 3])
    done = db.import_from(exported)
    assert any("its last line is missing" in each for each in done.unread)
    assert any("not JSON" in each for each in done.unread) and done.added


def test_lines_that_are_missing_are_counted(exported: Path, db: Database) -> None:
    def edit(lines: list[dict[str, Any]]) -> None:
        lines.remove(of_kind(lines, "vector"))

    done = db.import_from(broken(exported, edit))
    assert done.unread == ("13 items were exported, but 12 are in the file",)


def test_the_export_of_a_newer_version_is_refused(exported: Path, tmp_path: Path) -> None:
    path = broken(exported, lambda lines: lines[0].update({"mcpvectordb": 2}))
    with Database(tmp_path / "b.db") as db, pytest.raises(ParseFailed, match="newer mcpvectordb"):
        db.import_from(path)


def test_a_chosen_model_is_not_replaced(exported: Path, tmp_path: Path) -> None:
    config = Config(model="all-MiniLM-L6-v2")
    with Database(tmp_path / "b.db", config=config) as db:
        db.import_from(exported, embed=False)
        assert db.stats().model == "all-MiniLM-L6-v2" and db.stats().pending > 3
