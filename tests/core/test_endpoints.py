"""A database whose model is a server's: found by meaning while it answers, by words when not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Config, Database, ModelMissing
from tests.support import Letters, embed_in_the_background
from tests.support_endpoint import EndpointServer, Mirrored, added, says, serving

KEY = "sk-secret-0123456789abcdef"
TEXTS = ["Green tea is steeped at 80 degrees.", "The budget of 2025 was approved in May."]


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving(EndpointServer()) as state:
        yield state


@pytest.fixture
def config(server: EndpointServer, tmp_path: Path) -> Config:
    added(server, tmp_path / "models")
    return Config(model="mine", models_dir=str(tmp_path / "models"))


def ingest(db: Database, texts: list[str] = TEXTS) -> None:
    for text in texts:
        db.documents.ingest_text(text, source=f"{text.split()[1]}.md")


def test_texts_are_embedded_and_found_by_meaning(
    server: EndpointServer, config: Config, path: Path
) -> None:
    with Database(path, config=config) as db:
        ingest(db)
        server.asked.clear()
        found = db.documents.search("green tea degrees")
        assert found.legs == ("text", "vector") and found[0].item.text == TEXTS[0]
        assert len(server.asked) == 1  # one request per query
        assert db.stats().model == "mine" and db.stats().pending == 0


def test_the_file_has_the_fingerprint_and_neither_the_url_nor_the_key(
    server: EndpointServer, config: Config, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    server.key = KEY
    added(server, Path(config.models_dir), "keyed", key_variable="A_KEY")
    with Database(path, config=config) as db:
        db.use_model("keyed")
        ingest(db)
    content = path.read_bytes()
    assert b"endpoint:" in content and b"keyed" in content
    assert KEY.encode() not in content and server.url.encode() not in content
    assert b"A_KEY" not in content and b"127.0.0.1" not in content


def test_a_dead_endpoint_means_words_only_and_the_results_say_so(
    server: EndpointServer, config: Config, path: Path
) -> None:
    with Database(path, config=config) as db:
        ingest(db)
        server.fault = says(418)
        found = db.documents.search("green tea")
        assert found.legs == ("text",) and found[0].item.text == TEXTS[0]
        assert "the endpoint mine" in found.reasons["vector"]
        assert "418" in found.reasons["vector"]


def test_what_is_stored_while_the_endpoint_is_dead_waits_and_is_embedded_later(
    server: EndpointServer, config: Config, path: Path
) -> None:
    server.fault = says(418)
    with Database(path, config=config) as db:
        done = db.documents.ingest_text(TEXTS[0], source="tea.md")
        assert done.status == "indexed" and "418" in done.note
        stored = db.memories.add("t", "user", "Remember the green tea.")
        assert "418" in stored.note
        assert db.stats().pending == 2 and db.documents.search("tea").legs == ("text",)
        with pytest.raises(ModelMissing, match="418"):
            db.embed_pending()
        server.fault = None
        assert db.embed_pending() == 2
        assert db.documents.search("tea").legs == ("text", "vector")


def test_the_background_waits_between_its_attempts_and_goes_on(
    server: EndpointServer, config: Config, path: Path
) -> None:
    server.fault = says(418)
    with Database(path, config=config) as db:
        db.embed_in_background(wait=5, start=False)
        done = db.documents.ingest_text(TEXTS[0], source="tea.md")
        assert "418" in done.note
        asked = len(server.asked)
        assert asked <= 2  # one attempt for the ingest; the next is a minute later
        assert "418" in db.documents.search("tea").reasons["vector"]
        time.sleep(0.3)
        assert len(server.asked) == asked
        server.fault = None
        assert embed_in_the_background(db) == "" and db.stats().pending == 0


def test_another_model_behind_the_endpoint_is_noticed_and_can_be_taken(
    server: EndpointServer, config: Config, path: Path
) -> None:
    with Database(path, config=config) as db:
        ingest(db)
        server.embedder = Mirrored()
        found = db.documents.search("green tea")
        assert found.legs == ("text",) and "another model answers" in found.reasons["vector"]
        added(server, Path(config.models_dir))
    with Database(path, config=config) as db:
        assert "mcpvectordb model use mine" in db.documents.search("tea").reasons["vector"]
        db.use_model("mine")
        assert db.documents.search("green tea").legs == ("text", "vector")


def test_the_same_model_at_another_server_needs_no_new_embeddings(
    server: EndpointServer, config: Config, path: Path, tmp_path: Path
) -> None:
    class Rounded(Letters):
        def embed(self, texts: Any, *, query: bool = False) -> Any:
            return super().embed(texts).round(0) + 0.02

    with Database(path, config=config) as db:
        ingest(db)
    with serving(EndpointServer(Rounded())) as other:
        added(other, tmp_path / "elsewhere")
        with Database(path, config=Config(models_dir=str(tmp_path / "elsewhere"))) as db:
            assert db.documents.search("green tea").legs == ("text", "vector")
            assert len(other.asked) == 1


def test_a_received_file_makes_this_machine_ask_nobody(
    server: EndpointServer, config: Config, path: Path, tmp_path: Path
) -> None:
    with Database(path, config=config) as db:
        ingest(db)
    server.asked.clear()
    with Database(path, config=Config(models_dir=str(tmp_path / "none"))) as db:
        found = db.documents.search("green tea")
        assert found.legs == ("text",)
        assert "mcpvectordb model add-endpoint mine --url URL" in found.reasons["vector"]
        db.documents.ingest_text("More tea.", source="more.md")
        assert db.stats().pending == 1
    assert not server.asked


def test_a_forged_digest_asks_nobody_and_a_damaged_one_is_another_model(
    server: EndpointServer, config: Config, path: Path
) -> None:
    with Database(path, config=config) as db:
        ingest(db)
        for digest in (f"endpoint:{server.url}:", "endpoint:", f"endpoint:x:{'A' * 88}", "☃"):
            with db._file.writing() as sql:
                sql.execute("UPDATE models SET digest = ?", (digest,))
            server.asked.clear()
            assert "mcpvectordb model use mine" in db.documents.search("tea").reasons["vector"]
            assert not server.asked


def test_a_search_loads_no_weights_for_an_endpoint(
    server: EndpointServer, config: Config, path: Path
) -> None:
    from tests.support import python

    with Database(path, config=config) as db:
        ingest(db)
    done = python(
        f"import sys; from mcpvectordb import Config, Database\n"
        f"with Database({str(path)!r}, config=Config(models_dir={config.models_dir!r})) as db:\n"
        f"    print(db.documents.search('green tea').legs)\n"
        f"print({{'onnxruntime', 'tokenizers', 'requests', 'urllib3'}} & set(sys.modules))"
    )
    assert done.stdout.split("\n")[:2] == ["('text', 'vector')", "set()"], done.stderr
