from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from mcpvectordb import Config, Database
from tests.server.web.support_web_server import Served
from tests.support import Letters
from tests.support_files import KEYS


def upload(served: Served, path: str, raw: bytes, more: str = "") -> tuple[int, dict[str, object]]:
    return served.ask("PUT", f"/api/files?path={quote(path)}{more}", raw)


def test_a_file_is_ingested_under_its_relative_path_and_embedded_later(served: Served) -> None:
    status, started = upload(
        served,
        "/notes/täglich/tea.md",
        "# Tee\n\ngrün".encode(),
        "&library=my&modified=2025-11-29T10:00:00Z",
    )
    assert status == 202
    job = served.job(started)
    assert job["result"]["status"] == "indexed"
    document = job["result"]["document"]
    assert (document["path"], document["title"]) == ("my/notes/täglich/tea.md", "Tee")
    assert document["modified"].startswith("2025-11-29")
    changed = ("notes/täglich/tea.md", b"# Tee\n\nschwarz", "&library=my&replace=true")
    again = served.job(upload(served, *changed)[1])
    assert again["result"]["status"] == "replaced" and served.db.documents.count() == 1
    deadline = time.monotonic() + 60
    while served.get("/api/status")["pending"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert served.get("/api/status")["pending"] == 0


@pytest.mark.parametrize(
    "path", ["", "..", "../a.md", "a/../../b.md", "a/", "a\nb.md", "/", "..\\x.md"]
)
def test_a_path_that_leaves_the_folder_is_refused(path: str, served: Served) -> None:
    status, _ = upload(served, path, b"x")
    # "a/" is a file name without its slash
    assert status == (202 if path == "a/" else 400)


@pytest.mark.parametrize(
    ("path", "raw", "code"),
    [
        (".env", b"TOKEN=1", "refused"),
        ("home/.ssh/id_rsa", b"x", "refused"),
        ("a.bin", b"\x00\x01\x02\x03" * 50, "unsupported_format"),
        ("a.pdf", b"%PDF-1.4 broken", "parse_failed"),
        ("a.md", b"  ", "no_text"),
    ],
)
def test_a_file_that_cannot_be_ingested_says_why(
    path: str, raw: bytes, code: str, served: Served
) -> None:
    job = served.job(upload(served, path, raw)[1])
    assert (job["state"], job["error"]["code"]) == ("failed", code) and job["error"]["message"]
    assert served.db.documents.count() == 0


def test_a_key_is_refused_by_its_content(served: Served) -> None:
    for name, key in list(KEYS.items())[:2] if isinstance(KEYS, dict) else enumerate(KEYS[:2]):
        raw = key if isinstance(key, bytes) else str(key).encode()
        assert served.job(upload(served, f"notes/{name}.txt", raw)[1])["state"] == "failed"


def test_a_file_that_is_too_large_is_refused_while_it_comes(tmp_path: Path) -> None:
    config = Config(max_source_bytes=1_000)
    with Database(tmp_path / "small.db", embedder=Letters(), config=config) as db:
        served = Served(db)
        try:
            status, answer = upload(served, "a.md", b"x" * 1_001)
            assert status == 413 and "1,000 bytes" in str(answer)
            assert served.job(upload(served, "a.md", b"x" * 1_000)[1])["state"] == "done"
        finally:
            served.stop()


def test_more_files_than_wait_at_once_all_come_in(served: Served) -> None:
    started = [upload(served, f"{number}.md", f"# {number}".encode())[1] for number in range(30)]
    assert {served.job(each)["state"] for each in started} == {"done"}
    assert served.db.documents.count() == 30


def test_texts_without_a_name_get_names_of_their_own_also_at_once(served: Served) -> None:
    with ThreadPoolExecutor(6) as pages:
        texts = [f"note {number}" for number in range(12)]
        done = list(pages.map(lambda text: served.post("/api/ingest/text", text=text), texts))
    sources = {each["document"]["source"] for each in done}
    assert len(sources) == 12 and {each["status"] for each in done} == {"indexed"}
    assert all(re.fullmatch(r"note-\d{4}-\d\d-\d\d-\d{4}(-\d+)?\.md", each) for each in sources)
    assert sorted(
        served.db.documents.text(each.id) for each in served.db.documents.browse(limit=50)
    ) == sorted(texts)


def test_a_file_replaces_another_of_its_name_only_when_asked(served: Served) -> None:
    assert served.job(upload(served, "a.md", b"first")[1])["result"]["status"] == "indexed"
    assert served.job(upload(served, "a.md", b"first")[1])["result"]["status"] == "unchanged"
    status, answer = upload(served, "a.md", b"second")
    assert (status, answer["error"]["code"]) == (409, "exists")
    assert served.job(upload(served, "b.md", b"second")[1])["state"] == "done"
    status, answer = served.ask("PUT", "/api/files?path=a.md&replace=true", b"second")
    assert served.job(answer)["result"]["status"] == "replaced"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest", "http://10.0.0.1/x"],
)
def test_addresses_of_private_networks_are_refused(url: str, served: Served) -> None:
    job = served.job(served.post("/api/ingest/url", url=url))
    assert (job["state"], job["error"]["code"]) == ("failed", "refused")


def test_a_folder_is_ingested_once(served: Served, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "tea.md").write_text("# Tea")
    (tmp_path / "in" / "cup.txt").write_text("a cup")
    asked = {"folder": str(tmp_path / "in"), "library": "x", "pattern": "**/*.md"}
    tried = served.job(served.post("/api/ingest/folder", **asked, dry_run=True))
    assert [what for what, _ in tried["result"]["planned"]] == ["index"]
    assert served.db.documents.count() == 0
    done = served.job(served.post("/api/ingest/folder", **asked))
    assert done["result"]["indexed"] == 1 and done["progress"]["done"] == done["progress"]["total"]
    assert (
        served.job(served.post("/api/ingest/folder", folder="/proc"))["error"]["code"] == "refused"
    )


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "javascript:alert(1)", ""])
def test_only_web_addresses_are_fetched(url: str, served: Served) -> None:
    assert served.ask("POST", "/api/ingest/url", {"url": url})[0] == 400
