"""Every way in which a server can fail, and what becomes of the key."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from mcpvectordb import EndpointFailed
from mcpvectordb.embedding import endpoint
from mcpvectordb.embedding.catalogue import Model
from mcpvectordb.embedding.endpoint import EndpointClient, EndpointEmbedder
from tests.support_endpoint import (
    EndpointHandler,
    EndpointServer,
    added,
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


def test_a_name_without_an_address_is_said(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(endpoint, "system_resolver", unknown)
    elsewhere = changed(model, url="http://ollama.invalid:11434/v1")
    assert "cannot be found: no address is known for its name" in error_of(elsewhere)


def test_a_server_without_tls_is_said(model: Model, server: EndpointServer) -> None:
    assert "TLS" in error_of(changed(model, url=server.url.replace("http:", "https:")))


def test_a_public_address_over_http_is_not_asked(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "system_resolver", lambda host, port: ["93.184.216.34"])
    reason = error_of(changed(model, url="http://models.example.com/v1"))
    assert "93.184.216.34" in reason and "use https" in reason


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


def test_an_unknown_model_or_path_is_said(model: Model, server: EndpointServer) -> None:
    server.fault = says(404, {"error": {"message": 'model "letters-1" not found, pull it first'}})
    reason = error_of(model)
    assert "has no model 'letters-1', or its URL is wrong (most end with /v1)" in reason
    assert "pull it first" in reason and len(server.asked) == 1


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


def test_other_failures_quote_the_server_shortly(model: Model, server: EndpointServer) -> None:
    server.fault = says(418, {"message": "x" * 10_000})
    assert len(error_of(model)) < 400
    server.fault = says(418, b"<html>" + b"[" * 100_000)
    assert error_of(model).endswith("answered 418 I'm a Teapot")


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
    assert KEY not in repr(embedder) + repr(vars(embedder)) + repr(vars(embedder._client))
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
    reason = error_of(keyed)
    assert "set the environment variable A_KEY" in reason
    assert "keyring set mcpvectordb A_KEY" in reason


def test_a_broken_keyring_is_like_none(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("keyring")

    def broken(service: str, name: str) -> str:
        raise RuntimeError("no D-Bus")

    module.get_password = broken  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "keyring", module)
    assert "set the environment variable A_KEY" in error_of(changed(model, key_variable="A_KEY"))


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
