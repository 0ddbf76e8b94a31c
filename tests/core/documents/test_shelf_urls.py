"""Ingesting a URL again fetches it only if it has changed (conditional requests)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mcpvectordb import Config, Database
from tests.support import Letters

CHANGED = "Wed, 21 Oct 2015 07:28:00 GMT"


class Site:
    """One page on loopback, and which conditions it was asked under."""

    def __init__(self) -> None:
        self.text, self.marks, self.conditional = (
            "first",
            {"ETag": '"1"', "Last-Modified": CHANGED},
            True,
        )
        self.asked: list[tuple[str | None, str | None]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(
                    (self.headers["If-None-Match"], self.headers["If-Modified-Since"])
                )
                known = (self.headers["If-None-Match"], self.headers["If-Modified-Since"]) == (
                    site.marks.get("ETag"),
                    site.marks.get("Last-Modified"),
                )
                if site.conditional and known:
                    self.send_response(304)
                    self.end_headers()
                    return
                self.send_response(200)
                headers = {
                    **site.marks,
                    "Content-Type": "text/markdown",
                    "Content-Length": str(len(site.text)),
                }
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(site.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/page.md"


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=[0.02])
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


@pytest.fixture
def web(path: Path) -> Iterator[Database]:
    with Database(
        path, embedder=Letters(), config=Config(allow_private_urls=True, host_interval=0)
    ) as db:
        yield db


def test_a_page_that_has_not_changed_is_skipped(web: Database, site: Site) -> None:
    first = web.documents.ingest(site.url)
    again = web.documents.ingest(site.url)
    assert (first.status, again.status) == ("indexed", "skipped")
    assert again.document == first.document and again.pending == 0
    assert site.asked == [(None, None), ('"1"', CHANGED)]


def test_a_changed_page_replaces_the_old_document_and_its_etag(web: Database, site: Site) -> None:
    web.documents.ingest(site.url)
    site.text, site.marks = "second", {"ETag": '"2"'}
    assert web.documents.ingest(site.url).status == "replaced"
    assert web.documents.ingest(site.url).status == "skipped"
    assert site.asked[-1] == ('"2"', None)
    assert web.documents.text(web.documents.browse()[0].id) == "second"


def test_a_page_of_a_server_without_conditional_requests_is_compared_by_content(
    web: Database, site: Site
) -> None:
    site.conditional = False
    assert [web.documents.ingest(site.url).status for _ in range(2)] == ["indexed", "skipped"]


def test_a_page_is_known_only_in_its_own_library(web: Database, site: Site) -> None:
    web.documents.ingest(site.url, library="one")
    assert web.documents.ingest(site.url, library="two").status == "indexed"
    assert site.asked == [(None, None), (None, None)]


def test_a_deleted_page_is_fetched_whole(web: Database, site: Site) -> None:
    web.documents.delete(web.documents.ingest(site.url).document.id)
    assert web.documents.ingest(site.url).status == "indexed"
    assert site.asked == [(None, None), (None, None)]
