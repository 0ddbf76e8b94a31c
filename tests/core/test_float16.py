"""Files that store embeddings of texts as float16, in everything that moves embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest

from mcpvectordb import Config, Database, InvalidInput, Progress
from mcpvectordb.index.resident import selected
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.recovery.salvage import salvage
from mcpvectordb.storage.dialect import Sql
from tests.core.index.test_encoder import opened_gate
from tests.support import Letters

FLOAT16 = Config(embeddings="float16")
TEXTS = {f"{name}.md": f"All about {name} and water." for name in ("tea", "coffee", "milk")}


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with Database(path, embedder=Letters(), config=FLOAT16) as database:
        fill(database)
        yield database


def fill(db: Database) -> None:
    for source, text in TEXTS.items():
        db.documents.ingest_text(text, source=source)
    db.memories.add("t", "user", "Tea is in the cupboard.")
    db.vectors.add("v", [0.1, 0.2, 0.3])
    db.vectors.add("w", np.ones(3, np.float32))


def sizes(db: Database) -> dict[str, set[int]]:
    """The lengths of the embeddings of each shelf in bytes; Letters has 32 values."""

    def lengths(sql: Sql, shelf: str) -> set[int]:
        return set(selected(sql, f"SELECT octet_length(embedding) FROM {shelf}_embeddings"))

    with db._file.reading() as sql:
        return {shelf: lengths(sql, shelf) for shelf in ("document", "context", "vector")}


HALVES = {"document": {64}, "context": {64}, "vector": {12, 24}}
WHOLES = {"document": {128}, "context": {128}, "vector": {12, 24}}


def ranking(db: Database, **options: str) -> list[tuple[str, float]]:
    found = db.documents.search("tea water", mode="vector", **options)  # type: ignore[arg-type]
    return [(hit.item.document.source, round(hit.scores.vector or 0, 3)) for hit in found]


def test_texts_take_two_bytes_a_value_and_vectors_stay_exact(db: Database, tmp_path: Path) -> None:
    assert db.stats().embeddings == "float16" and sizes(db) == HALVES
    assert db.check() == []
    assert db.vectors.get("v").embedding.tolist() == [0.1, 0.2, 0.3]
    with Database(tmp_path / "whole.db", embedder=Letters()) as other:
        fill(other)
        assert other.stats().embeddings == "float32" and sizes(other) == WHOLES
        assert ranking(db) == ranking(other) and len(ranking(db)) == 3
        assert ranking(db, unit="document") == ranking(other, unit="document")
        assert [each.item.text for each in db.memories.search("tea")]
        similar = [
            [hit.item.text for hit in each.similar(document="tea.md")] for each in (db, other)
        ]
        assert similar[0] == similar[1] and similar[0]


def test_the_file_decides_and_not_the_configuration(db: Database, path: Path) -> None:
    db.close()
    with Database(path, embedder=Letters(), config=Config(embeddings="float32")) as again:
        assert again.stats().embeddings == "float16"
        again.documents.ingest_text("Something new.", source="new.md")
        assert sizes(again) == HALVES
    with Database(path.with_name("old.db"), embedder=Letters()) as old:
        fill(old)
    with Database(path.with_name("old.db"), embedder=Letters(), config=FLOAT16) as old:
        old.documents.ingest_text("Something new.", source="new.md")
        assert old.stats().embeddings == "float32" and sizes(old) == WHOLES


def test_before_the_first_ingest_a_file_says_what_it_would_get(path: Path) -> None:
    with Database(path, embedder=Letters(), config=FLOAT16) as db:
        assert db.stats().embeddings == "float16"
        db.vectors.add("v", [1.0])
    with Database(path, embedder=Letters()) as db:  # no text was stored, so nothing is settled
        assert db.stats().embeddings == "float32"


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidInput, match="float32 or float16, not 'int4'"):
        Config(embeddings="int4")
    with pytest.raises(InvalidInput, match="float32 or float16, not 'half'"):
        Config.from_env({"MCPVECTORDB_EMBEDDINGS": "half"})
    assert Config.from_env({"MCPVECTORDB_EMBEDDINGS": "float16"}).embeddings == "float16"


def test_embeddings_that_float16_could_not_hold_are_stored_by_their_direction(path: Path) -> None:
    class Large(Letters):
        def embed(self, texts, *, query=False):  # type: ignore[no-untyped-def]
            return super().embed(texts, query=query) * np.float32(3e4)

    with Database(path, embedder=Large(), config=FLOAT16) as db:
        fill(db)
        assert db.check() == [] and not db.stats().pending and len(ranking(db)) == 3


def test_undo_rebuild_compact_and_copy_keep_them(db: Database, tmp_path: Path) -> None:
    before = ranking(db)
    db.documents.ingest_text("Another text.", source="tea.md")
    db.undo()
    db.documents.delete(db.documents.lookup("milk.md").document.id)
    db.undo()
    db.rebuild()
    db.compact()
    assert (ranking(db), db.check(), sizes(db), db.stats().pending) == (before, [], HALVES, 0)
    db.copy_to(tmp_path / "copy.db")
    with Database(tmp_path / "copy.db", embedder=Letters()) as copy:
        assert (ranking(copy), copy.stats().embeddings) == (before, "float16")


def test_a_salvaged_file_is_as_it_was(db: Database, path: Path, tmp_path: Path) -> None:
    before = ranking(db)
    db.close()
    sql = apsw.Connection(str(path))
    sql.execute("UPDATE document_embeddings SET embedding = zeroblob(62) WHERE chunk = 1")
    sql.execute("UPDATE vector_embeddings SET embedding = zeroblob(6) WHERE vector = 2")
    sql.close()
    with Database(path, embedder=Letters()) as damaged:
        problems = " ".join(damaged.check())
        assert "the embedding of 1 has" in problems and "lost a half of its bytes" in problems
    salvage(path, tmp_path / "out.db", embedder=Letters())
    with Database(tmp_path / "out.db", embedder=Letters()) as saved:
        assert saved.stats().embeddings == "float16" and saved.stats().vectors == 1
        saved.embed_pending()
        assert (ranking(saved), saved.check(), sizes(saved)["document"]) == (before, [], {64})


def test_a_damaged_setting_is_reported_and_repaired(
    db: Database, path: Path, tmp_path: Path
) -> None:
    with db._file.writing() as sql:
        sql.execute("""UPDATE settings SET value = '"float1"' WHERE name = 'embeddings'""")
    assert db.check() == ["settings: the value of embeddings is invalid"]
    assert len(ranking(db)) == 3  # the length of a BLOB says what it holds
    salvage(path, tmp_path / "out.db", embedder=Letters())
    with Database(tmp_path / "out.db", embedder=Letters()) as saved:
        assert saved.check() == [] and len(ranking(saved)) == 3


@pytest.mark.parametrize(
    ("mine", "wanted", "gets"),
    [
        ("float16", "", "float16"),
        ("float16", "float16", "float16"),
        ("float16", "float32", "float32"),
        ("float32", "float16", "float16"),
    ],
)
def test_an_import_keeps_the_type_unless_another_is_wanted(
    tmp_path: Path, mine: str, wanted: str, gets: str
) -> None:
    with Database(tmp_path / "a.db", embedder=Letters(), config=Config(embeddings=mine)) as db:
        fill(db)
        db.export_to(tmp_path / "out.jsonl")
        before = ranking(db)
    embedder = opened_gate()
    with Database(tmp_path / "b.db", embedder=embedder, config=Config(embeddings=wanted)) as other:
        other.import_from(tmp_path / "out.jsonl")
        assert other.stats().embeddings == gets
        assert sizes(other) == (HALVES if gets == "float16" else WHOLES)
        assert (embedder.seen, other.check(), ranking(other)) == ([], [], before)


def test_a_header_of_an_export_with_another_type_is_refused(db: Database, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    db.export_to(out)
    out.write_text(out.read_text().replace('"embeddings":"float16"', '"embeddings":"float8"'))
    with (
        Database(tmp_path / "b.db", embedder=Letters()) as other,
        pytest.raises(InvalidInput, match="float8"),
    ):
        other.import_from(out)


def test_csv_and_parquet_have_the_numbers(db: Database, tmp_path: Path) -> None:
    import pyarrow.parquet

    db.vectors.delete("v")
    db.export_to(tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    row = np.array(table["embedding"][0].as_py())
    assert str(table.schema.field("embedding").type.value_type) == "float" and len(row) == 32
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("mine", [Config(), FLOAT16], ids=["float32", "float16"])
def test_merging_gives_each_file_its_own_type(db: Database, tmp_path: Path, mine: Config) -> None:
    with Database(tmp_path / "b.db", embedder=Letters(), config=mine) as other:
        other.documents.ingest_text("Only here, about tea.", source="here.md")
    db.close()
    embedder = opened_gate()
    with Database(tmp_path / "b.db", embedder=embedder) as other:
        merged = other.merge(db.path)
        assert merged.embedded == 4 and not embedder.seen
        assert sizes(other) == (HALVES if mine.embeddings else WHOLES)
        assert other.check() == [] and len(ranking(other)) == 4
    with Database(tmp_path / "new.db", embedder=embedder) as new:
        new.merge(db.path)
        assert new.stats().embeddings == "float16" and sizes(new) == HALVES and not embedder.seen


def test_embeddings_of_other_programs_are_kept(db: Database, tmp_path: Path) -> None:
    """Also where the text that they are compared by has one of two bytes a value here already."""
    text = TEXTS["tea.md"]
    with closing(apsw.Connection(str(tmp_path / "other.db"))) as sql:
        sql.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT, embedding BLOB)")
        for id, content in (("a", text), ("b", "A new one.")):
            [row] = Letters().embed([content])
            sql.execute("INSERT INTO notes VALUES (?, ?, ?)", (id, content, row.tobytes()))
    done = db.import_from(tmp_path / "other.db", table="notes")
    assert done.embeddings["kept"] >= 1 and sizes(db) == HALVES and db.check() == []


def test_another_model_embeds_in_the_same_type(db: Database, path: Path) -> None:
    db.close()
    with Database(path) as again:
        seen: list[Progress] = []
        again.use_model("all-MiniLM-L6-v2", progress=seen.append)
        assert again.stats().model == "all-MiniLM-L6-v2" and seen
        assert sizes(again) == {"document": {768}, "context": {768}, "vector": {12, 24}}
        assert again.check() == []
        assert again.documents.search("hot beverage", mode="vector")


def test_codes_choose_the_nearest_of_what_is_stored(path: Path) -> None:
    """Codes are made of the rounded values, so that `check` and a rebuild agree with them."""
    random = np.random.default_rng(5)
    words = ["".join(map(chr, random.integers(97, 123, 8))) for _ in range(400)]
    texts = [" ".join(random.choice(words, 6)) for _ in range(300)]
    tuning = Tuning(exact_rows=20, sign_rows=20, sign_candidates=20)
    found = []
    with Database(path, embedder=Letters(), config=FLOAT16) as db:
        db.documents.ingest_many(texts, sources=map(str, range(300)))
        assert db.check() == []
        found.append(ranking(db))
    for _ in range(2):
        with Database(path, embedder=Letters(), tuning=tuning) as db:
            found.append(ranking(db))
            db.rebuild()
    assert found[0] == found[1] == found[2] and len(found[0]) == 10
