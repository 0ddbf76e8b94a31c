from __future__ import annotations

import gzip
import json
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mcpvectordb import Database
from mcpvectordb_server.connections import MAX_BODY
from mcpvectordb_server.web import assets
from mcpvectordb_server.web.api import ROUTES
from tests.server.web.support_web_server import TOKEN, Served
from tests.support import Letters

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "bad_json"),
        (b"[]", 400, "bad_json"),
        (b'"x"', 400, "bad_json"),
        (b"\xff\xfe", 400, "bad_json"),
        (b"[" * 100_000, 400, "bad_json"),
        (b"{}", 400, "invalid_argument"),
        (b'{"query": 1}', 400, "invalid_argument"),
        (b'{"query": null}', 400, "invalid_argument"),
        (b'{"query": "a", "text": null}', 400, "invalid_argument"),
        (b'{"query": "a", "library": null}', 200, ""),
        (b'{"query": "' + b"a" * 10_001 + b'"}', 400, "invalid_argument"),
        (b'{"query": "a", "limit": 0}', 400, "invalid_argument"),
        (b'{"query": "a", "limit": 101}', 400, "invalid_argument"),
        (b'{"query": "a", "limit": 1e999}', 400, "invalid_argument"),
        (b'{"query": "a", "min_relevance": NaN}', 400, "invalid_argument"),
        (b'{"query": "a", "offset": -1}', 400, "invalid_argument"),
        (b'{"query": "a\\ud800"}', 400, "invalid_argument"),
        (b'{"query": "a", "mode": "sql"}', 400, "invalid_argument"),
        (b'{"query": "a", "tags": "drinks"}', 400, "invalid_argument"),
        (b'{"query": "a", "where": {"secret": 1}}', 400, "invalid_filter"),
        (b'{"query": "a", "where": {"metadata.a\'; DROP TABLE x": 1}}', 200, ""),
        (b'{"query": "a", "where": ' + b'{"a":' * 60 + b"1" + b"}" * 61, 400, "invalid_argument"),
        (b'{"query": "a", "since": "soon"}', 400, "invalid_input"),
        (b'{"query": "a", "limt": 1}', 400, "invalid_argument"),
        (b'{"query": "a", "library": "x", "tags": ["y"]}', 400, "invalid_input"),
    ],
)
def test_a_bad_question_is_answered_with_what_is_wrong_with_it(
    body: bytes, status: int, code: str, filled: Served
) -> None:
    got, answer = filled.ask("POST", "/api/search", body, JSON)
    assert got == status and answer.get("error", {}).get("code", "") == code
    assert "Traceback" not in json.dumps(answer) and "SELECT" not in json.dumps(answer)


def test_a_mistyped_parameter_is_named_with_the_one_that_was_meant(filled: Served) -> None:
    status, answer = filled.ask("GET", "/api/documents?libary=notes")
    assert status == 400 and "did you mean library?" in answer["error"]["message"]
    status, answer = filled.ask("GET", "/api/tags?x=1")
    assert status == 400 and "no parameters" in answer["error"]["message"]
    assert filled.ask("GET", "/api/documents?limit=1&limit=2")[0] == 400
    assert filled.ask("GET", "/api/documents?limit=null")[0] == 400
    assert filled.ask("PATCH", "/api/memories/1", {"id": 2})[0] == 400


def test_a_body_of_another_type_is_refused(filled: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        status, answer = filled.ask(
            "POST", "/api/search", b'{"query": "a"}', {"Content-Type": kind}
        )
        assert (status, answer["error"]["code"]) == (415, "unsupported_media_type")


def test_a_body_that_is_too_long_is_refused_also_without_a_length(filled: Served) -> None:
    body = b'{"query": "' + b"a" * MAX_BODY + b'"}'
    assert filled.ask("POST", "/api/search", body, JSON)[0] == 413
    head = (
        f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1:{filled.port}\r\nAuthorization: Bearer "
        f"{TOKEN}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    part = b"100000\r\n" + b"a" * 2**20 + b"\r\n"
    with socket.create_connection(("127.0.0.1", filled.port), timeout=20) as client:
        client.sendall(head.encode())
        try:
            for _ in range(MAX_BODY // 2**20 + 8):
                client.sendall(part)
        except OSError:
            pass  # it was answered and closed before everything was sent
        else:
            assert b" 413 " in client.recv(100)
    assert filled.get("/api/tags")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../gate.py",
        "/static/%2e%2e/gate.py",
        "/static/..%2fgate.py",
        "/static//etc/passwd",
        "/static/%2fetc/passwd",
        "/static/....//gate.py",
        "/static/app.js%00.html",
        "/static/",
        "/gate.py",
        "/static/..\\gate.py",
        "/api/../gate.py",
    ],
)
def test_only_the_files_of_the_page_can_be_asked_for(path: str, filled: Served) -> None:
    status, _, body = filled.raw("GET", path)
    assert status == 404 and b"import" not in body and b"root:" not in body


def test_the_files_of_the_page_are_sent_with_their_type_and_only_if_they_changed(
    filled: Served,
) -> None:
    kept = assets.assets()
    assert "index.html" in kept and sum(len(zipped) for *_, zipped in kept.values()) < 150_000
    for name, (raw, media, *_) in kept.items():
        status, headers, body = filled.raw("GET", f"/static/{name}")
        assert (status, body, headers["Content-Type"]) == (200, raw, media)
        again = filled.raw("GET", f"/static/{name}", headers={"If-None-Match": headers["ETag"]})
        assert (again[0], again[2]) == (304, b"")
    assert filled.raw("GET", "/")[2] == kept["index.html"][0]
    for accepted, packed in (("gzip, br", True), ("br", False)):
        _, found, body = filled.raw("GET", "/", headers={"Accept-Encoding": accepted})
        assert (found.get("Content-Encoding") == "gzip") is packed
        assert found["Vary"] == "Accept-Encoding"
        assert (gzip.decompress(body) if packed else body) == kept["index.html"][0]
    assert filled.raw("HEAD", "/")[0] == 200


def test_what_does_not_exist_is_said_so(filled: Served) -> None:
    assert filled.ask("GET", "/api/nothing")[1]["error"]["code"] == "unknown_route"
    assert filled.ask("DELETE", "/api/documents")[1]["error"]["code"] == "method_not_allowed"
    assert filled.ask("GET", "/api/documents/none")[0] == 404
    assert filled.ask("GET", "/api/memories/99999")[0] == 404
    assert filled.ask("GET", "/api/chunks/99999")[0] == 404
    assert filled.ask("GET", "/api/chunks/99999/similar")[0] == 404
    assert filled.ask("GET", f"/api/memories/{2**70}")[0] == 400
    assert filled.ask("GET", "/api/memories/x")[0] == 400
    assert filled.ask("GET", "/api/jobs/j99")[0] == 404


def test_an_internal_error_says_nothing_of_the_inside(
    filled: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("/home/me/secret SELECT * FROM passwords")

    monkeypatch.setattr(filled.db.documents, "values", fail)
    status, answer = filled.ask("GET", "/api/file_types")
    assert (status, answer["error"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(answer) and "passwords" in caplog.text


WRITES = [each for each in ROUTES if each.writes]


@pytest.mark.parametrize("route", WRITES, ids=[f"{each.method} {each.path}" for each in WRITES])
def test_a_page_that_only_looks_changes_nothing(route: Any, looking: Served) -> None:
    path = route.path.replace("{name:path}", "notes").replace("{id}", "1")
    status, answer = looking.ask(route.method, path, {})
    assert (status, answer["error"]["code"]) == (403, "read_only")
    assert "--read-only" in answer["error"]["message"]


def test_a_page_that_only_looks_sees_everything(looking: Served) -> None:
    assert looking.get("/api/session")["read_only"] is True
    assert looking.post("/api/search", query="tea")["hits"]
    assert looking.get("/api/status")["documents"] == 13
    assert looking.get("/api/map")["points"] > 0
    assert looking.job(looking.post("/api/check"))["result"] == {"problems": []}


def test_of_several_files_each_request_names_its_own_and_no_other_can_be_opened(
    tmp_path: Path,
) -> None:
    places = [tmp_path / "notes.db", tmp_path / "Büro.db", tmp_path / "old" / "notes.db"]
    places[2].parent.mkdir()
    with ExitStack() as stack:
        databases = [stack.enter_context(Database(place, embedder=Letters())) for place in places]
        for number, db in enumerate(databases):
            db.documents.ingest_text(f"text of file {number}", source=f"{number}.md")
        served = Served(*databases)
        stack.callback(served.stop)
        names = ["notes.db", "Büro.db", "notes.db (2)"]
        for number, name in enumerate(names):
            headers = {"X-Database": quote(name)}
            session = served.ask("GET", "/api/session", headers=headers)[1]
            assert session["file"] == name and session["path"] == databases[number].place
            assert [each["name"] for each in session["files"]] == names
            found = served.ask("POST", "/api/search", {"query": "text"}, headers)[1]
            assert [hit["path"] for hit in found["hits"]] == [f"default/{number}.md"]
            note = {"text": f"note {number}", "source": "note.md"}
            assert served.ask("POST", "/api/ingest/text", note, headers)[0] == 200
        assert [db.documents.count() for db in databases] == [2, 2, 2]
        assert served.get("/api/session")["file"] == "notes.db"
        other = tmp_path / "other.db"
        Database(other, embedder=Letters()).close()
        for name in ("other.db", str(other), "../notes.db", "%00"):
            status, answer = served.ask("GET", "/api/status", headers={"X-Database": quote(name)})
            assert status == 404 and answer["error"]["code"] == "unknown_file"
        refused = served.raw("GET", "/api/status", headers={"Authorization": None})
        assert refused[0] == 401


def test_the_model_of_a_file_is_not_loaded_before_somebody_asks_for_it(tmp_path: Path) -> None:
    with (
        Database(tmp_path / "a.db", embedder=Letters()) as one,
        Database(tmp_path / "b.db", embedder=Letters()) as other,
    ):
        warmed: list[str] = []
        for db in (one, other):
            db.warm = partial(warmed.append, db.path.name)  # type: ignore[method-assign]
        served = Served(one, other)
        try:
            served.get("/api/status")
            assert warmed == ["a.db"]
            for _ in range(2):
                served.ask("GET", "/api/status", headers={"X-Database": "b.db"})
            assert warmed == ["a.db", "b.db"]
        finally:
            served.stop()
