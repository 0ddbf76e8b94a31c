"""Servers that embed and rerank: how they fail, what becomes of the key, what they answer."""

from __future__ import annotations

import base64
import json
import math
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given

from mcpvectordb import Config, EndpointFailed, InvalidInput, ModelDamaged, add_endpoint
from mcpvectordb.embedding import endpoint, weights
from mcpvectordb.embedding.catalogue import FINGERPRINT_TEXT, MOST_DIMENSIONS, PREFIXES, Model
from mcpvectordb.embedding.embedder import checked
from mcpvectordb.embedding.endpoint import (
    EndpointClient,
    EndpointEmbedder,
    EndpointReranker,
    UnusableReply,
    scores_by_index,
    unit_vectors,
)
from mcpvectordb.ranking.rerank import CachedReranker
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
from tests.support_web import drip

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving(EndpointServer()) as state:
        yield state


@pytest.fixture
def model(server: EndpointServer, tmp_path: Path) -> Model:
    return added(server, tmp_path)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which then take no time."""
    found: list[float] = []
    monkeypatch.setattr(EndpointClient, "pause", lambda self, seconds: found.append(seconds))
    return found


def changed(model: Model, **fields: Any) -> Model:
    assert model.endpoint is not None
    return replace(model, endpoint=replace(model.endpoint, **fields))


def error_of(model: Model, *, query: bool = False) -> str:
    with pytest.raises(EndpointFailed) as caught:
        EndpointEmbedder(model, model.digest).embed(["one", "two"], query=query)
    return str(caught.value)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# --- no answer


def test_a_server_that_does_not_run_is_said_at_once(model: Model, pauses: list[float]) -> None:
    nowhere = changed(model, url=f"http://127.0.0.1:{free_port()}/v1")
    assert "refuses connections; perhaps the server is not running" in error_of(nowhere)
    assert not pauses


def unknown(host: str, port: int) -> list[str]:
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("url", "resolver", "reason"),
    [
        ("http://ollama.invalid:11434/v1", unknown, "cannot be found: no address is known for its"),
        ("http://models.example.com/v1", lambda *_: ["93.184.216.34"], r"93\.184\..*: use https"),
        ("https://127.0.0.1:{}/v1", endpoint.system_resolver, "cannot be reached over TLS"),
    ],
)
def test_a_server_that_cannot_be_reached_is_said(
    model: Model,
    server: EndpointServer,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    resolver: Any,
    reason: str,
) -> None:
    monkeypatch.setattr(endpoint, "system_resolver", resolver)
    port = server.url.split(":")[2].removesuffix("/v1")
    assert re.search(reason, error_of(changed(model, url=url.format(port))))
    assert not server.asked


@pytest.mark.parametrize(
    "slow",
    [
        lambda handler, _: handler.rfile.read(1),
        lambda handler, _: (handler.send(200, b"", Content_Length="9999"), drip(handler, b" ")),
    ],
)
def test_a_server_that_drips_or_is_silent_is_cut_at_the_deadline(
    model: Model, server: EndpointServer, slow: Any
) -> None:
    server.fault = slow
    hurried = changed(model, query_timeout=0.3, timeout=0.3)
    assert "did not answer within 0.3 seconds" in error_of(hurried, query=True)
    assert "did not answer within 0.3 seconds" in error_of(hurried)


def test_after_a_query_that_took_too_long_the_next_ones_do_not_wait(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = lambda handler, _: handler.rfile.read(1)  # type: ignore[assignment]
    embedder = EndpointEmbedder(changed(model, query_timeout=0.2), model.digest)
    for _ in range(3):
        with pytest.raises(EndpointFailed, match=r"did not answer within 0\.2 seconds"):
            embedder.embed(["one"], query=True)
    assert len(server.asked) == 1
    server.fault = None
    assert embedder.embed(["one"]).shape == (1, 32)  # passages are sent at any time
    assert embedder.embed(["one"], query=True).shape == (1, 32)


def test_a_query_is_one_request_and_is_not_tried_again(
    model: Model, server: EndpointServer, pauses: list[float]
) -> None:
    EndpointEmbedder(model, model.digest).embed(["one"], query=True)
    assert len(server.asked) == 1
    server.fault = says(503)
    assert "503" in error_of(model, query=True)
    assert len(server.asked) == 2 and not pauses


def test_a_server_that_restarts_is_asked_again(
    server: EndpointServer, model: Model, pauses: list[float]
) -> None:
    embedder = EndpointEmbedder(changed(model, timeout=0.9), model.digest)
    embedder.embed(["one"])
    server.faults = [lambda handler, _: None]  # the connection ends without an answer
    assert embedder.embed(["two"]).shape == (1, 32)
    assert len(pauses) == 1 and 0.2 < pauses[0] < 0.8


def test_a_server_that_is_known_to_be_gone_is_asked_once(
    server: EndpointServer, model: Model, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "RESTART_SECONDS", 1.0)
    embedder = EndpointEmbedder(model, model.digest)
    embedder.embed(["one"])
    server.fault = lambda handler, _: None
    with pytest.raises(EndpointFailed):
        embedder.embed(["two"])
    server.asked.clear()
    pauses.clear()
    for _ in range(3):
        with pytest.raises(EndpointFailed):
            embedder.embed(["three"])
    assert len(server.asked) == 3 and not pauses
    server.fault = None
    assert embedder.embed(["four"]).shape == (1, 32)


# --- answers with another status


def test_passages_are_sent_again_after_pauses_that_grow(
    model: Model, server: EndpointServer, pauses: list[float]
) -> None:
    server.faults = [says(503), says(502), says(429), says(504)]
    assert EndpointEmbedder(model, model.digest).embed(["one"]).shape == (1, 32)
    assert len(pauses) == 4
    for place, pause in enumerate(pauses):
        assert 0.25 * 2**place <= pause <= 0.75 * 2**place


@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_that_a_server_asks_for_is_kept(
    model: Model, server: EndpointServer, pauses: list[float], status: int
) -> None:
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    server.faults = [
        says(status, Retry_After="7"),
        says(status, Retry_After="0.25"),
        says(status, Retry_After=soon),
        says(status, Retry_After="at noon"),
    ]
    EndpointEmbedder(model, model.digest).embed(["one"])
    assert pauses[:2] == [7.0, 0.25]
    assert 25 < pauses[2] <= 30 and 2 <= pauses[3] <= 6


def test_a_pause_beyond_the_deadline_is_an_error_at_once(
    model: Model, server: EndpointServer, pauses: list[float]
) -> None:
    server.fault = says(429, {"error": {"message": "quota"}}, Retry_After="3600")
    assert "answered 429 Too Many Requests 'quota'" in error_of(model)
    assert len(server.asked) == 1 and not pauses


def test_closing_ends_a_pause(model: Model, server: EndpointServer) -> None:
    server.fault = says(429, Retry_After="100")
    embedder = EndpointEmbedder(model, model.digest)
    embedder.close()
    with pytest.raises(EndpointFailed, match="429"):
        embedder.embed(["one"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            says(404, {"error": {"message": "pull it first"}}),
            r"has no model 'letters-1', or its URL is wrong \(most end with /v1\): .* 'pull it first'$",
        ),
        (says(418, {"message": "x" * 10_000}), "answered 418 I'm a Teapot 'x{1,300}… "),
        (says(418, b"<html>" + b"[" * 100_000), "answered 418 I'm a Teapot$"),
    ],
)
def test_a_refusal_is_said_once_with_what_the_server_says_shortly(
    model: Model, server: EndpointServer, answer: Any, reason: str
) -> None:
    server.fault = answer
    assert re.search(reason, error_of(model))
    assert len(server.asked) == 1


def test_a_redirect_is_not_followed(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    with serving(EndpointServer()) as other:
        server.fault = says(307, b"", Location=f"{other.url}/embeddings")
        reason = error_of(changed(model, key_variable="A_KEY"))
        assert other.url in reason and "not followed" in reason
        assert not other.asked and KEY not in reason


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_or_wrong_key_is_said_without_what_the_server_says(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    server.fault = says(status, {"error": {"message": f"Incorrect key: {KEY[:4]}...{KEY[-4:]}"}})
    assert f"wants a key (--key-variable): it answered {status}" in error_of(model)
    monkeypatch.setenv("A_KEY", KEY)
    reason = error_of(changed(model, key_variable="A_KEY"))
    assert f"refuses the key in A_KEY: it answered {status}" in reason
    assert KEY[:4] not in reason and len(server.asked) == 2


# --- answers that are not what was asked for


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (says(200, b"<html>hello", Content_Type="text/html"), "not JSON.*'text/html'"),
        (says(200, b""), "not JSON"),
        (says(200, b"[" * 100_000), "not JSON"),
        (says(200, {"error": "Unexpected endpoint"}), "an error: 'Unexpected endpoint'"),
        (says(200, {"error": {"code": 5}}), "answered with an error:"),
        (says(200, {"data": [1, 2, 3]}), "no list `data` of objects"),
        (says(200, b" " * 3_000_000), "answered with more than"),
        (says(200, b"{}", Content_Length="100"), "98 bytes too early"),
        (lambda handler, _: handler.wfile.write(b"220 smtp\r\n"), "gave no answer"),
        (lambda handler, _: None, "gave no answer"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(
    model: Model, server: EndpointServer, answer: Any, message: str
) -> None:
    server.fault = answer
    with pytest.raises(EndpointFailed, match=message):
        EndpointEmbedder(model, model.digest).embed(["one", "two"], query=True)


# --- the key


def test_the_key_is_sent_and_is_in_no_error_description_or_repr(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    keyed = changed(model, key_variable="A_KEY")
    server.key = KEY
    embedder = EndpointEmbedder(keyed, keyed.digest)
    embedder.embed(["one"])
    assert server.asked[0][1]["authorization"] == f"Bearer {KEY}"
    echo = {"error": {"message": f"what is Bearer {KEY} here?"}}
    for status in (400, 404, 418, 429, 500):
        server.fault = says(status, echo, Retry_After="1000")
        assert KEY not in error_of(keyed) and KEY not in error_of(keyed, query=True)
    assert KEY not in repr(embedder) + repr(vars(embedder))
    assert KEY not in json.dumps(repr(keyed))


def raw(answer: str) -> Any:
    """An answer as it stands, which may break the protocol."""

    def send(handler: EndpointHandler, _: Any) -> None:
        handler.wfile.write(answer.replace("\n", "\r\n").encode("latin-1"))

    return send


FORMS = {
    "as it is": str,
    "in capitals": str.upper,
    "for a URL": lambda key: quote(key, safe=""),
    "every byte for a URL": lambda key: "".join(f"%{ord(each):02x}" for each in key),
    "twice for a URL": lambda key: "".join(f"%25{ord(each):02x}" for each in key),
    "for JSON": lambda key: "".join(f"\\u{ord(each):04x}" for each in key),
    "for HTML": lambda key: "".join(f"&#{ord(each)};" for each in key),
    "as base64": lambda key: base64.b64encode(key.encode()).decode(),
    "as base64 inside of a header": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "in hexadecimal": lambda key: key.encode().hex(),
    "with spaces": " ".join,
    "in part": lambda key: key[2:-2],
}

PLACES = {
    "reason": "HTTP/1.1 418 {}\nContent-Length: 0\n\n",
    "status line": "{}\n\n",
    "status": "HTTP/1.1 {} no\n\n",
    "version": "HTTP/{} 200 OK\n\n",
    "Location": "HTTP/1.1 302 Found\nLocation: http://127.0.0.1/{}\nContent-Length: 0\n\n",
    "long Location": "HTTP/1.1 302 Found\nLocation: http://x/" + "y" * 150 + "{}\n\n",
    "Content-Type": "HTTP/1.1 200 OK\nContent-Type: {}\nContent-Length: 2\n\nno",
    "name of a header": "HTTP/1.1 200 OK\n{}\nContent-Length: 2\n\nno",
    "Content-Length": "HTTP/1.1 200 OK\nContent-Length: {}\n\n[]",
    "chunk": "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n{}\n",
    "Retry-After": "HTTP/1.1 429 No\nRetry-After: {}\nContent-Length: 0\n\n",
    "message": 'HTTP/1.1 400 No\n\n{{"error": {{"message": "{}"}}}}',
    "error": 'HTTP/1.1 200 OK\n\n{{"error": "{}"}}',
    "body": "HTTP/1.1 200 OK\n\n{}",
    "values": 'HTTP/1.1 200 OK\n\n{{"data": [{{"index": "{}", "embedding": "{}"}}]}}',
}


@pytest.mark.parametrize("place", PLACES)
def test_the_key_is_in_no_error_wherever_and_however_a_server_repeats_it(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    keyed = changed(model, key_variable="A_KEY")
    for how, form in FORMS.items():
        repeated = form(KEY)
        server.fault = raw(PLACES[place].format(repeated, repeated))
        reason = error_of(keyed, query=True)
        assert keyed.name in reason
        shown = re.sub(r"\s", "", reason).casefold()
        for leaked in (KEY, repeated, KEY[2:-2]):
            assert re.sub(r"\s", "", leaked).casefold() not in shown, how


def test_what_a_server_says_is_repeated_where_the_key_is_not_in_it(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (KEY, "ollama"):  # a word that people give where no key is needed
        monkeypatch.setenv("A_KEY", key)
        server.fault = says(400, {"error": "the ollama model is loading, b2xsYW1hb2xsYW1h"})
        reason = error_of(changed(model, key_variable="A_KEY"))
        assert "model is loading" in reason


@pytest.mark.parametrize("key", ["sk-\nInjected: header", "ключ", "sk-\x00"])
def test_a_key_that_cannot_be_sent_is_not_repeated(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr("os.environ", {"A_KEY": key})
    reason = error_of(changed(model, key_variable="A_KEY"))
    assert "A_KEY: it is not printable ASCII" in reason and key not in reason
    assert not server.asked


def test_without_the_variable_the_keyring_is_asked(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed, kept = changed(model, key_variable="A_KEY"), {("mcpvectordb", "A_KEY"): KEY}
    module = ModuleType("keyring")
    module.get_password = lambda service, name: kept.get((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "keyring", module)
    EndpointEmbedder(keyed, keyed.digest).embed(["one"])
    assert server.asked[0][1]["authorization"] == f"Bearer {KEY}"
    kept.clear()

    def broken(service: str, name: str) -> str:
        raise RuntimeError("no D-Bus")

    for get in (module.get_password, broken):
        module.get_password = get  # type: ignore[attr-defined]
        reason = error_of(keyed)
        assert "set the environment variable A_KEY" in reason
        assert "keyring set mcpvectordb A_KEY" in reason


def test_nothing_is_taken_from_the_environment_but_the_key(
    model: Model, server: EndpointServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    EndpointEmbedder(model, model.digest).embed(["one"])
    assert "authorization" not in server.asked[0][1]


def test_only_public_servers_are_asked_through_the_proxy(
    model: Model, server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"  # nothing listens there
    EndpointEmbedder(model, model.digest, proxy=proxy).embed(["one"])
    assert len(server.asked) == 1
    monkeypatch.setattr(endpoint, "system_resolver", lambda host, port: ["93.184.216.34"])
    away = changed(model, url="https://models.example.com/v1")
    with pytest.raises(EndpointFailed, match="refuses connections"):
        EndpointEmbedder(away, away.digest, proxy=proxy).embed(["one"])


def embedder(model: Model) -> EndpointEmbedder:
    return EndpointEmbedder(model, model.digest)


def unit(texts: list[str]) -> Any:
    rows = Letters().embed(texts)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_vectors_are_the_servers_in_unit_length(model: Model, server: EndpointServer) -> None:
    texts = ["tea", "budget", "tea"]
    assert checked(embedder(model), texts) == pytest.approx(unit(texts), abs=1e-6)
    assert server.texts() == [["tea", "budget"]]  # equal texts are sent once


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


def test_a_vector_has_as_many_values_as_can_be_stored() -> None:
    assert unit_vectors(rows([1.0] * MOST_DIMENSIONS), 1).shape == (1, MOST_DIMENSIONS)


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
    assert body == {"model": "letters-1", "input": [FINGERPRINT_TEXT, "tea"]}


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
    server.faults = [says(413), lambda handler, _: handler.rfile.read(1)]  # type: ignore[list-item]
    assert "did not answer within 0.3 seconds" in error_of(
        changed(model, query_timeout=0.3), query=True
    )
    assert len(server.asked) == 2


QUERY = "who steeps tea"
PASSAGES = ["the budget was approved in the end", "the one who steeps green tea"]


def add(server: EndpointServer, folder: Path) -> EndpointReranker:
    return EndpointReranker(added(server, folder, kind="reranker"))


def test_the_dialect_of_cohere_and_jina(server: EndpointServer, tmp_path: Path) -> None:
    assert add(server, tmp_path).scores(QUERY, PASSAGES) == [0.0, 1.0]
    path, _, body = server.asked[0]
    assert path == "/v1/rerank" and body == {
        "model": "letters-1",
        "query": QUERY,
        "documents": PASSAGES,
    }


def test_the_dialect_of_tei_is_found_when_it_is_added(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.scores = "score"
    assert add(server, tmp_path).scores(QUERY, PASSAGES) == [0.0, 1.0]
    assert server.asked[0][2] == {"query": QUERY, "texts": PASSAGES, "truncate": True}


def logits(handler: Any, body: Any) -> None:
    """As llama.cpp answers: logits, best first."""
    best = max(range(2), key=lambda n: "tea" in body["documents"][n].casefold())
    results = [
        {"index": best, "relevance_score": 8.6},
        {"index": 1 - best, "relevance_score": -5.4},
    ]
    handler.send(200, {"object": "list", "results": results})


def test_logits_become_scores(server: EndpointServer, tmp_path: Path) -> None:
    server.fault = logits
    assert add(server, tmp_path).scores(QUERY, PASSAGES) == pytest.approx(
        [0.0045, 0.9998], abs=1e-4
    )


GOOD = {"index": 0, "relevance_score": 0.5}


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ("yes", "no list of results"),
        ([1, 2], "no list of results"),
        ([GOOD], "not one for each of 2 passages"),
        ([GOOD, GOOD], "not one for each of 2 passages"),
        *(
            ([GOOD, {"index": index, "relevance_score": 0.1}], "not one for each")
            for index in (2, [1], True)
        ),
        *(
            ([GOOD, {"index": 1, "relevance_score": score}], "not a finite number")
            for score in (10**400, None, float("nan"), "0.1")
        ),
    ],
)
def test_an_answer_that_is_no_scores_is_unusable(results: Any, message: str) -> None:
    for answer in (results, {"results": results}):
        with pytest.raises(UnusableReply, match=message):
            scores_by_index(answer, 2)


def test_scores_beyond_one_where_there_were_none_are_an_error(
    server: EndpointServer, tmp_path: Path
) -> None:
    reranker = add(server, tmp_path)
    server.fault = says(200, {"results": [GOOD, {"index": 1, "relevance_score": 7}]})
    with pytest.raises(EndpointFailed, match="not 0 to 1"):
        reranker.scores(QUERY, PASSAGES)
    server.fault = says(200, {"results": [GOOD]})
    with pytest.raises(EndpointFailed, match="gave an unusable answer"):
        reranker.scores(QUERY, PASSAGES)


@given(json_values(["results", "data", "index", "score", "relevance_score"]))
def test_any_json_is_scores_or_one_error(answer: Any) -> None:
    try:
        assert all(math.isfinite(score) for score in scores_by_index(answer, 2))
    except UnusableReply as error:
        assert len(str(error)) < 100


def refused(folder: Path, message: str, **options: Any) -> str:
    """Check that adding fails with this message and leaves no files."""
    given = {"name": "mine", "url": "http://127.0.0.1:1/v1", "model": "m"} | options
    with pytest.raises((InvalidInput, EndpointFailed), match=message) as caught:
        add_endpoint(**given, config=Config(models_dir=str(folder)))
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


def test_the_configured_reranker_is_asked_once_for_the_same_passages(
    server: EndpointServer, tmp_path: Path
) -> None:
    added(server, tmp_path)
    added(server, tmp_path, "judge", kind="reranker")
    reranking = CachedReranker(Config(models_dir=str(tmp_path), reranker="judge"))
    assert reranking.missing_reason() == "" and not server.asked
    assert reranking.scores(QUERY, PASSAGES) == [0.0, 1.0]
    assert reranking.scores(QUERY, PASSAGES[::-1]) == [1.0, 0.0] and len(server.asked) == 1
    server.fault = says(503)
    assert "503" in str(reranking.scores(QUERY, ["another passage about green tea"]))
    none = CachedReranker(Config(models_dir=str(tmp_path), reranker="mine"))
    assert "no reranker" in str(none.scores(QUERY, PASSAGES))


def test_an_added_endpoint_is_listed_and_found(server: EndpointServer, tmp_path: Path) -> None:
    model = added(server, tmp_path)
    assert weights.added(tmp_path) == [model] and weights.find("mine", tmp_path) == model
    assert weights.installed(model, tmp_path) and weights.locate(model, tmp_path) == {}
    assert (model.dimension, model.max_tokens, model.kind) == (32, 512, "embedder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_the_route_may_be_part_of_the_url(server: EndpointServer, tmp_path: Path) -> None:
    for url in (server.url, server.url + "/", server.url + "/embeddings"):
        model = add_endpoint("mine", url=url, model="m", config=Config(models_dir=str(tmp_path)))
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
    names = list(PREFIXES)
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
