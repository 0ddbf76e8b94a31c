from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcpvectordb import Config, EndpointFailed, InvalidInput, ModelDamaged, add_endpoint
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.endpoint import PREFIXES
from tests.support import Letters
from tests.support_endpoint import EndpointServer, Mirrored, added, says, serving

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving(EndpointServer()) as state:
        yield state


def refused(folder: Path, message: str, **options: Any) -> str:
    """Check that adding fails with this message and leaves no files."""
    given = {"name": "mine", "url": "http://127.0.0.1:1/v1", "model": "m"} | options
    with pytest.raises((InvalidInput, EndpointFailed), match=message) as caught:
        add_endpoint(**given, config=Config(models_dir=str(folder)))
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


def test_an_added_endpoint_is_listed_and_found(server: EndpointServer, tmp_path: Path) -> None:
    model = added(server, tmp_path)
    assert weights.added(tmp_path) == [model] and weights.find("mine", tmp_path) == model
    assert weights.installed(model, tmp_path) and weights.locate(model, tmp_path) == {}
    assert (model.dimension, model.max_tokens, model.kind) == (32, 512, "embedder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_the_route_may_be_part_of_the_url(server: EndpointServer, tmp_path: Path) -> None:
    for given in (server.url, server.url + "/", server.url + "/embeddings"):
        model = add_endpoint("mine", url=given, model="m", config=Config(models_dir=str(tmp_path)))
        assert model.endpoint is not None and model.endpoint.url == server.url


def test_an_endpoint_is_replaced_by_one_of_its_name(server: EndpointServer, tmp_path: Path) -> None:
    first = added(server, tmp_path)
    server.embedder = Mirrored()
    second = added(server, tmp_path, max_tokens=1024)
    assert weights.added(tmp_path) == [second] and second.digest != first.digest


def test_a_model_with_files_is_not_replaced(server: EndpointServer, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.onnx").write_bytes(b"weights")
    with pytest.raises(InvalidInput, match="there is a model mine already"):
        added(server, tmp_path)
    with pytest.raises(InvalidInput, match="model of the catalogue"):
        added(server, tmp_path, "all-MiniLM-L6-v2")
    assert not server.asked


def test_the_key_is_in_no_file(
    server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    server.key = KEY
    added(server, tmp_path, key_variable="A_KEY")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(KEY.encode() in path.read_bytes() for path in files)
    assert b"A_KEY" in files[0].read_bytes()


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("nomic-embed-text:latest", "search_query: ", "search_document: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("snowflake-arctic-embed2", "query: ", ""),
        ("text-embedding-3-small", "", ""),
    ],
)
def test_known_models_get_their_prefixes(
    server: EndpointServer, tmp_path: Path, model: str, query: str, passage: str
) -> None:
    config = Config(models_dir=str(tmp_path))
    found = add_endpoint("mine", url=server.url, model=model, config=config)
    assert (found.query_prefix, found.document_prefix) == (query, passage)
    found = add_endpoint(
        "mine", url=server.url, model=model, query_prefix="", document_prefix="d ", config=config
    )
    assert (found.query_prefix, found.document_prefix) == ("", "d ")


def test_no_known_prefix_hides_a_longer_one() -> None:
    names = [name for name, _, _ in PREFIXES]
    for place, name in enumerate(names):
        assert not any(name.startswith(before) for before in names[:place])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "a model's name is made of"),
        ({"url": "localhost:11434"}, "only http:// and https://"),
        ({"url": "ftp://localhost/v1"}, "only http:// and https://"),
        ({"url": "http://localhost:99999/v1"}, "no port 99999"),
        ({"url": "https://h/v1?api-key=x"}, "nothing after its path: https://h/v1$"),
        ({"url": "https://h/v1#x"}, "nothing after its path"),
        ({"kind": "chat"}, "kind must be embedder or reranker"),
        ({"max_tokens": 5}, "max_tokens must be"),
        ({"dimensions": 0}, "dimensions must be 1 to 8192"),
        ({"batch_size": 1}, "batch_size must be 2"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"query_timeout": float("nan")}, "query_timeout must be above 0"),
        ({"key_variable": "MCPVECTORDB_KEY"}, "are settings"),
        ({}, "refuses connections"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    refused(tmp_path / "models", message, **options)


def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path: Path) -> None:
    for options in (
        {"key_variable": KEY},
        {"url": f"https://me:{KEY}@h/v1"},
        {"url": f"https://h/v1?key={KEY}"},
    ):
        assert KEY not in refused(tmp_path / "models", "variable|path", **options)


def test_a_server_without_the_route_is_refused(server: EndpointServer, tmp_path: Path) -> None:
    server.fault = says(404, b"404 page not found", Content_Type="text/plain")
    refused(tmp_path / "models", "most end with /v1", url=server.url.removesuffix("/v1"))


def test_a_server_that_ignores_the_dimensions_is_refused(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.faults = [lambda handler, body: server.embeddings(handler, {"input": body["input"]})] * 3
    refused(
        tmp_path / "models",
        "asked for vectors of 16 values and gave 32",
        url=server.url,
        dimensions=16,
    )


def test_a_server_that_mixes_texts_up_is_refused(server: EndpointServer, tmp_path: Path) -> None:
    class Mixed(Letters):
        def embed(self, texts: Any, *, query: bool = False) -> Any:
            rows = np.eye(32, dtype=np.float32)[[sum(map(ord, text)) % 32 for text in texts]]
            return np.roll(rows, 1, axis=0)

    server.embedder = Mixed()
    refused(tmp_path / "models", "another vector alone than among others", url=server.url)


def test_a_reranker_that_does_not_rank_is_refused(server: EndpointServer, tmp_path: Path) -> None:
    rows = [{"index": n, "relevance_score": 0.5} for n in range(2)]
    server.fault = says(200, {"results": rows})
    refused(tmp_path / "models", "does not rank", url=server.url, kind="reranker")


def test_a_damaged_description_is_an_error_that_names_it(
    server: EndpointServer, tmp_path: Path
) -> None:
    added(server, tmp_path)
    path = tmp_path / "mine" / weights.DESCRIPTION
    content = json.loads(path.read_text())
    good = content["endpoint"]
    for damaged in ([1], {"url": 1}, {**good, "url": 1}, {**good, "timeout": "5"}, good | {"x": 1}):
        path.write_text(json.dumps({**content, "endpoint": damaged}))
        with pytest.raises(ModelDamaged, match="add the model again"):
            weights.find("mine", tmp_path)
