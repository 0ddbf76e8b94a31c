from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from mcpvectordb import EndpointFailed
from mcpvectordb.embedding import endpoint, fingerprint
from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from mcpvectordb.embedding.embedder import checked
from mcpvectordb.embedding.endpoint import (
    EndpointEmbedder,
    UnusableReply,
    unit_vectors,
)
from mcpvectordb.embedding.onnx import OnnxEmbedder
from mcpvectordb.embedding.weights import locate
from tests.support import Letters
from tests.support_endpoint import (
    EndpointHandler,
    EndpointServer,
    Mirrored,
    added,
    json_values,
    says,
    serving,
)


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving(EndpointServer()) as state:
        yield state


@pytest.fixture
def model(server: EndpointServer, tmp_path: Path) -> Model:
    return added(server, tmp_path)


def embedder(model: Model) -> EndpointEmbedder:
    return EndpointEmbedder(model, model.digest)


def unit(texts: list[str]) -> Any:
    rows = Letters().embed(texts)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_vectors_are_the_servers_in_unit_length(model: Model, server: EndpointServer) -> None:
    texts = ["tea", "budget", "tea"]
    assert checked(embedder(model), texts) == pytest.approx(unit(texts), abs=1e-6)
    assert server.texts() == [["tea", "budget"]]  # equal texts are sent once


def test_a_server_over_our_own_session_gives_our_own_vectors(tmp_path: Path) -> None:
    ours = CATALOGUE["all-MiniLM-L6-v2"]
    session = OnnxEmbedder(ours, locate(ours, tmp_path))
    texts = ["Water is boiled for tea.", "The budget was approved.", "量子力学"]
    with serving(EndpointServer(session)) as server:
        found = embedder(added(server, tmp_path, max_tokens=256)).embed(texts)
    assert found == pytest.approx(session.embed(texts), abs=1e-6)


FLOATS = base64.b64encode(np.array([3, 4], "<f4").tobytes()).decode()


def rows(*values: Any) -> dict[str, Any]:
    return {"data": [{"index": n, "embedding": each} for n, each in enumerate(values)]}


@pytest.mark.parametrize(
    "answer",
    [
        rows([3, 4], [1, 0]),
        {"data": rows([3, 4], [1, 0])["data"][::-1]},  # the index decides and not the order
        {"data": [{"embedding": [3, 4]}, {"embedding": [1, 0]}]},
        rows(FLOATS, [1, 0]),
    ],
)
def test_an_answer_is_read_by_index_as_numbers_or_base64(answer: Any) -> None:
    assert unit_vectors(answer, 2) == pytest.approx(np.array([[0.6, 0.8], [1, 0]]), abs=1e-6)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"result": "ok"}, "no list `data` of objects"),
        ([1, 2], "no list `data` of objects"),
        ({"data": [1, 2]}, "no list `data` of objects"),
        (rows([1, 2]), "1 embeddings for 2 texts"),
        (rows([1, 2], [1, 2], [1, 2]), "3 embeddings for 2 texts"),
        ({"data": [{"index": 0, "embedding": [1]}] * 2}, "`index` are not 0 to 1"),
        ({"data": [{"index": n, "embedding": [1]} for n in (1, 2)]}, "`index` are not 0 to 1"),
        ({"data": [{"index": n, "embedding": [1]} for n in "01"]}, "`index` are not 0 to 1"),
        (rows([1, 2], [float("nan")] * 2), "zero, infinite or not a number"),
        (rows([1, 2], [1e999] * 2), "zero, infinite or not a number"),
        (rows([1, 2], [0.0] * 2), "zero, infinite or not a number"),
        (rows([1, 2], [1e-30] * 2), "zero, infinite or not a number"),
        (rows([1, 2], ["a"] * 2), "neither a list of numbers nor base64"),
        (rows([1, 2], "not base64!"), "neither a list of numbers nor base64"),
        (rows([1, 2], "AAAA"), "neither a list of numbers nor base64"),
        (rows([1, 2], {"values": 1}), "neither a list of numbers nor base64"),
        (rows([1, 2], 10**400), "neither a list"),
        (rows([1, 2], None), "not one row of numbers|not a number"),
        (rows([1, 2], []), "not one row of numbers"),
        (rows([1, 2], [[1.0] * 2] * 5), "not one row of numbers"),
        (rows([1, 2], [1.0]), "1 and 2 values"),
        (rows([1.0] * 9000, [1.0] * 9000), "9,000 values"),
    ],
)
def test_an_answer_that_is_no_vectors_is_unusable(answer: Any, message: str) -> None:
    with pytest.raises(UnusableReply, match=message):
        unit_vectors(answer, 2)


def test_vectors_of_another_dimension_are_another_model(
    model: Model, server: EndpointServer
) -> None:
    server.fault = says(200, rows([1.0] * 16, [1.0] * 16))
    with pytest.raises(EndpointFailed, match=r"16 values, not 32: another model answers there"):
        embedder(model).embed(["tea"])


def test_prefixes_are_put_in_front_of_queries_and_passages(
    server: EndpointServer, tmp_path: Path
) -> None:
    model = added(server, tmp_path, query_prefix="query: ", document_prefix="passage: ")
    embedder(model).embed(["tea"])
    embedder(model).embed(["tea"], query=True)
    assert server.texts() == [["passage: tea"], ["query: tea"]]


def test_many_texts_are_sent_in_batches(server: EndpointServer, tmp_path: Path) -> None:
    model = added(server, tmp_path, batch_size=4)
    texts = [f"text {n}" for n in range(8)]
    assert embedder(model).embed(texts) == pytest.approx(unit(texts), abs=1e-6)
    assert [len(each) for each in server.texts()] == [3, 3, 2]


def test_a_slow_server_gets_fewer_texts_at_a_time(
    server: EndpointServer, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {n}" for n in range(40)]
    using = embedder(model)
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", 0.0)
    assert using.embed(texts) == pytest.approx(unit(texts), abs=1e-6)
    assert [len(each) for each in server.texts()] == [31] + [1] * 9 and using.batch == 1
    monkeypatch.setattr(endpoint, "REQUEST_SECONDS", 1e6)
    using.embed(texts)
    assert using.batch == 31


@pytest.mark.parametrize("most", [2, 3, 8])
def test_a_batch_that_is_too_large_for_the_server_is_halved(
    model: Model, server: EndpointServer, most: int
) -> None:
    server.most_texts = most
    texts = [f"text {n}" for n in range(9)]
    assert embedder(model).embed(texts) == pytest.approx(unit(texts), abs=1e-6)


def test_a_text_that_is_too_long_for_the_server_is_halved(
    model: Model, server: EndpointServer
) -> None:
    server.longest_text = 100
    long = "aaaa " * 30 + "bbbb " * 30
    found = embedder(model).embed(["tea", long])
    assert found[0] == pytest.approx(unit(["tea"])[0], abs=1e-6)
    assert found[1] @ unit([long])[0] > 0.9
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_a_text_that_the_server_always_refuses_is_named(
    model: Model, server: EndpointServer
) -> None:
    def refuses(handler: EndpointHandler, body: Any) -> None:
        if any("y" in text for text in body["input"][1:]):
            handler.send(500, {"error": "unsupported value: NaN"})
        else:
            server.embeddings(handler, body)

    server.fault = refuses
    with pytest.raises(EndpointFailed, match="unsupported value: NaN', for the text 'try y'"):
        embedder(model).embed(["tea", "try y", "budget"])
    assert embedder(model).embed(["tea", "budget"]).shape == (2, 32)


def test_a_text_above_max_tokens_is_sent_in_parts(server: EndpointServer, tmp_path: Path) -> None:
    model = added(server, tmp_path, max_tokens=32)
    words = [f"word{n % 7}" for n in range(90)]
    long = " ".join(words)
    embedder(model).embed(["tea", long])
    (sent,) = server.texts()
    assert sent[0] == "tea" and len(sent) > 3
    assert "".join(sent[1:]) == long  # nothing is lost, and nothing is sent twice
    server.asked.clear()
    embedder(model).embed([" ".join(words * 40)])
    assert len(server.texts()[0]) == 8  # as of the models on this machine, the first eight parts


def test_another_model_behind_the_same_name_is_noticed(
    model: Model, server: EndpointServer
) -> None:
    using = embedder(model)
    using.embed(["tea"])
    server.embedder = Mirrored()
    for query in (False, True):
        with pytest.raises(EndpointFailed) as caught:
            using.embed(["tea"], query=query)
        reason = str(caught.value)
        assert "no longer gives the vectors that the file was embedded with" in reason
        assert "mcpvectordb model add-endpoint mine" in reason
        assert "mcpvectordb model use mine" in reason
    server.embedder = Letters()
    assert using.embed(["tea"]).shape == (1, 32)


def test_fewer_values_are_asked_for_and_expected(server: EndpointServer, tmp_path: Path) -> None:
    model = added(server, tmp_path, dimensions=16)
    assert model.dimension == 16 and embedder(model).embed(["tea"]).shape == (1, 16)
    assert server.asked[0][2]["dimensions"] == 16


def test_the_request_is_openais(model: Model, server: EndpointServer) -> None:
    embedder(model).embed(["tea"])
    path, headers, body = server.asked[0]
    assert path == "/v1/embeddings" and headers["content-type"] == "application/json"
    assert body == {"model": "letters-1", "input": [fingerprint.TEXT, "tea"]}


@given(json_values(["data", "index", "embedding"]))
def test_any_json_is_unit_vectors_or_one_error(answer: Any) -> None:
    try:
        vectors = unit_vectors(answer, 2)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1])
    except UnusableReply as error:
        assert len(str(error)) < 200


def test_the_deadline_of_a_query_covers_all_of_its_parts(
    model: Model, server: EndpointServer
) -> None:
    assert model.endpoint is not None
    server.faults = [says(413), lambda handler, _: handler.rfile.read(1)]  # type: ignore[list-item]
    hurried = replace(model, endpoint=replace(model.endpoint, query_timeout=0.3))
    with pytest.raises(EndpointFailed, match=r"did not answer within 0\.3 seconds"):
        embedder(hurried).embed(["tea and water"], query=True)
    assert len(server.asked) == 2
