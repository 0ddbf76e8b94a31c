"""The page on which a client is let in, as a phone shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from mcpvectordb import Access
from tests.server.support_oauth import PASSPHRASE, Web
from tests.server.test_oauth import serving
from tests.support_web import Site, page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    access = Access(tmp_path / "notes.db", folder=tmp_path)
    access.set_passphrase(PASSPHRASE)
    running = serving(access)
    yield Web(running.url)
    running.stop()


@pytest.fixture
def client() -> Iterator[Site]:
    """Where a client waits for its answer."""
    made = Site()
    made.pages["/back"] = page(b"let in", Content_Type="text/html")
    yield made
    made.close()


@pytest.fixture(params=["light", "dark"])
def phone(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    size: Any = {"width": 390, "height": 844}
    context = browser.new_context(viewport=size, color_scheme=request.param, is_mobile=True)
    yield context.new_page()
    context.close()


def address(web: Web, client: Site) -> str:
    back = client.url("/back")
    id = web.client(redirect_uris=[back])
    return f"{web.url}/authorize?{urlencode(web.wanted(id, redirect_uri=back))}"


def test_a_person_lets_a_client_in_on_a_phone(phone: Page, web: Web, client: Site) -> None:
    phone.goto(address(web, client))
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    for each in phone.locator("button, fieldset label").all():
        box = each.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    phone.fill("input[type=password]", "wrong")
    phone.click("button[value=allow]")
    phone.wait_for_selector("[role=alert]")
    phone.uncheck("input[name=write]")
    phone.fill("input[type=password]", PASSPHRASE)
    phone.click("button[value=allow]")
    phone.wait_for_url("**/back?**")
    assert "let in" in phone.content()
    [(path, headers)] = [each for each in client.seen if each[0].startswith("/back")]
    assert ("code=" in path, "referer" in headers) == (True, False)


def test_no_other_page_frames_it(phone: Page, web: Web, client: Site) -> None:
    frame = f'<iframe src="{address(web, client)}"></iframe>'.replace("&", "&amp;")
    client.pages["/evil"] = page(frame.encode(), Content_Type="text/html")
    phone.goto(client.url("/evil"), wait_until="networkidle")
    assert [each.url for each in phone.frames[1:]] == ["chrome-error://chromewebdata/"]
