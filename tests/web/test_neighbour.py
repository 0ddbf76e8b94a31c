"""Another server of this machine, which the same browser visits: it learns and changes nothing."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.support_page import Looker

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What a page of another port can try, with `ours` as the address of the page that it is after.
ATTACK = """async ours => {
  const found = {};
  const attempt = async (name, act) => {
    try { found[name] = String(await act()); } catch (error) { found[name] = 'refused'; }
  };
  const write = { method: 'POST', body: '{"thread": "t", "text": "planted"}', credentials: 'include' };
  await attempt('read', async () => (await fetch(`${ours}api/status`, { credentials: 'include' })).text());
  await attempt('read page', async () => (await fetch(ours, { credentials: 'include' })).text());
  await attempt('write', async () => (await fetch(`${ours}api/memories`, write)).text());
  await attempt('blind write', async () => (await fetch(`${ours}api/memories`, { ...write, mode: 'no-cors' })).type);
  await attempt('typed write', async () =>
    (await fetch(`${ours}api/memories`, { ...write, headers: { 'Content-Type': 'application/json' } })).text());
  await attempt('beacon', () => navigator.sendBeacon(`${ours}api/memories`, write.body));
  await attempt('form', async () => {
    const form = document.createElement('form');
    const frame = document.createElement('iframe');
    frame.name = 'target';
    form.method = 'POST'; form.action = `${ours}api/memories`; form.target = 'target'; form.enctype = 'text/plain';
    document.body.append(frame, form);
    await new Promise(done => { frame.onload = done; form.submit(); });
    return frame.contentDocument?.body.textContent ?? 'refused';
  });
  await attempt('image', () => new Promise((done, fail) => {
    const image = new Image(); image.onload = () => done('shown'); image.onerror = fail;
    image.src = `${ours}api/memories/1/images/0`;
  }));
  await attempt('script', () => new Promise((done, fail) => {
    const script = document.createElement('script'); script.onload = () => done('run'); script.onerror = fail;
    script.src = `${ours}static/theme.js`; document.body.append(script);
  }));
  await attempt('frame', () => new Promise((done, fail) => {
    const frame = document.createElement('iframe');
    frame.onload = () => { try { done(frame.contentWindow.localStorage.getItem('token')); } catch (error) { fail(error); } };
    frame.src = ours; document.body.append(frame);
  }));
  await attempt('events', () => new Promise((done, fail) => {
    const stream = new EventSource(`${ours}api/events`, { withCredentials: true });
    stream.onmessage = () => done('told'); stream.onerror = error => { stream.close(); fail(error); };
  }));
  await attempt('own storage', () => localStorage.getItem('token') ?? sessionStorage.getItem('token') ?? 'refused');
  await attempt('cookies', () => document.cookie || 'refused');
  window.opened = window.open(ours);
  return found;
}"""


class Neighbour:
    """A server on another port, which keeps all that it is sent."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        neighbour = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                neighbour.seen.append(f"{self.requestline}\n{self.headers}")
                body = b"<!doctype html><title>Neighbour</title><link rel=icon href=data:,>Hello"
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    made = Neighbour()
    yield made
    made.stop()


def _visit(writer: Looker, url: str) -> Page:
    page = writer.memory.new_page()
    page.goto(url)
    assert page.title() == "Neighbour"
    return page


def _kept(writer: Looker) -> str:
    token = writer.page.evaluate("localStorage.getItem('token')")
    assert len(token) > 30
    return str(token)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_another_port_is_sent_nothing_that_lets_it_in(
    host: str, writer: Looker, neighbour: Neighbour
) -> None:
    token = _kept(writer)
    assert writer.memory.cookies() == []
    page = _visit(writer, f"http://{host}:{neighbour.port}/")
    page.evaluate("fetch('/again', { credentials: 'include' }).then(reply => reply.text())")
    page.goto(f"http://{host}:{neighbour.port}/third")
    assert len(neighbour.seen) >= 3
    everything = "\n".join(neighbour.seen)
    assert "cookie" not in everything.lower() and "authorization" not in everything.lower()
    assert token not in everything and writer.served.url not in everything


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_port_can_neither_read_nor_write(
    host: str, writer: Looker, neighbour: Neighbour
) -> None:
    token = _kept(writer)
    before = writer.served.db.memories.count()
    page = _visit(writer, f"http://{host}:{neighbour.port}/")
    with writer.memory.expect_page() as event:
        found = page.evaluate(ATTACK, writer.served.url)
    # A request that is only sent is no success yet; nor are answers that cannot be read.
    assert found.pop("beacon") == "true" and found.pop("blind write") in ("refused", "opaque")
    assert set(found.values()) == {"refused"}, found
    opened = event.value
    opened.wait_for_selector("#file:not(:empty)")  # our page: the person is let in, not its opener
    assert opened.evaluate("window.opener") is None
    assert page.evaluate("window.opened.closed")
    assert writer.served.db.memories.count() == before
    assert token not in "\n".join(neighbour.seen)


def test_our_page_has_one_name_only(writer: Looker) -> None:
    """`localhost` may be ::1, where others may listen on the same port: no page of that origin."""
    port = writer.served.port
    page = writer.memory.new_page()
    answer = page.goto(f"http://localhost:{port}/#token={_kept(writer)}")
    assert answer is not None and answer.status == 421
    assert f"use http://127.0.0.1:{port}/" in answer.text()
    assert page.evaluate("localStorage.getItem('token')") is None
    connection = http.client.HTTPConnection("::1", port, timeout=10)
    with pytest.raises(OSError):
        connection.request("GET", "/")


def test_the_token_leaves_the_address_and_serves_every_tab_and_reload(writer: Looker) -> None:
    address = writer.served.url
    assert writer.page.url == address and writer.page.evaluate("history.length") <= 2
    writer.page.reload()
    writer.wait("#file", "notes.db")
    tab = writer.memory.new_page()
    tab.goto(f"{address}#/health")
    tab.wait_for_selector("#file:not(:empty)")
    assert tab.url == f"{address}#/health"
    # The printed address, opened in a tab that shows the page already, is not a place of the page.
    tab.evaluate("location.hash = '#token=wrong-or-used-already'")
    tab.wait_for_url(address)
    tab.wait_for_selector("#file:not(:empty)")
