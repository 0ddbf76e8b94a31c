"""The view inside of a chat, in Chromium, in a frame without network of a host that speaks MCP Apps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.web.support_view import ChatHost
from tests.web.test_xss import RUN, VECTORS, _store

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def db(filled: Path) -> Iterator[Database]:
    with Database(filled, embedder=Letters()) as db:
        yield db


def test_a_search_shows_its_passages_and_reads_one_at_its_place(
    browser: Browser, db: Database
) -> None:
    with ChatHost(browser, db) as host:
        view = host.call("search", query="green tea storage", kind="documents")
        view.get_by_role("heading", name="green tea storage").wait_for()
        assert view.locator(".hit").count() > 2
        assert "green" in view.locator("mark").all_inner_texts()[0].lower()
        view.get_by_role("link", name="Tea").first.click()
        view.locator(".text mark.cited").first.wait_for()
        assert host.frame.evaluate("document.querySelector('.text').scrollTop") >= 0
        assert view.get_by_role("table").count() == 1
        view.get_by_role("button", name="Back").click()
        assert view.locator(".hit").count() > 2
        # Outside of the frame nothing has happened; the host was asked for the one call.
        assert [each["name"] for each in host.seen("tools/call")] == ["read"]


def test_a_document_stands_at_the_place_that_was_read_and_goes_on_both_ways(
    browser: Browser, db: Database
) -> None:
    with ChatHost(browser, db) as host:
        view = host.call("read", place="reports/long.md:1001-1003", around=10)
        cited = view.locator("mark.cited")
        cited.first.wait_for()
        assert "Part 251" in cited.all_inner_texts()[0]
        view.get_by_role("button", name="Show more").click()
        view.get_by_text("The number 260 of").wait_for()
        view.get_by_role("button", name="Show earlier lines, before line 991").click()
        view.get_by_text("The number 230 of").wait_for()
        assert "Part 251" in view.locator("mark.cited").all_inner_texts()[0]
        assert view.locator(".where").inner_text() == "reports/long.md:871–1133"
        lines = host.frame.evaluate(
            "[...document.querySelectorAll('[data-line]')].map((each) => Number(each.dataset.line))"
        )
        assert lines == sorted(set(lines))


@pytest.mark.parametrize(
    ("quotation", "verdict"),
    [
        ("Leaves are kept dry, dark", "It stands there, character by character"),
        ("leaves are KEPT dry", "It stands there, with other capital or small letters"),
        ("Leaves are kept wet", "It stands nowhere"),
    ],
)
def test_a_quotation_has_its_verdict_and_is_read_where_it_stands(
    browser: Browser, db: Database, quotation: str, verdict: str
) -> None:
    with ChatHost(browser, db) as host:
        view = host.call("verify", quotation=quotation)
        assert view.locator(".verdict").inner_text() == verdict
        assert view.locator("blockquote").first.inner_text() == quotation
        there = view.get_by_role("button", name="Read it there")
        if "nowhere" in verdict:
            assert there.count() == 0
        else:
            there.click()
            assert "Leaves are kept dry" in view.locator("mark.cited").first.inner_text()


def test_links_are_opened_by_the_host_and_lead_nowhere_by_themselves(
    browser: Browser, db: Database
) -> None:
    with ChatHost(browser, db) as host:
        view = host.call("read", place="drinks/tea.md")
        link = view.get_by_role("link", name="the society")
        link.click()
        link.click(button="middle")
        host.page.wait_for_function(
            "seen.filter((each) => each.method === 'ui/open-link').length === 2"
        )
        assert host.seen("ui/open-link") == [{"url": "https://example.org/tea"}] * 2
        assert host.frame.url == "https://frame.test/"


def test_light_dark_and_height_are_those_of_the_host(browser: Browser, db: Database) -> None:
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    with ChatHost(browser, db, theme="dark", width=360) as host:
        view = host.call("search", query="tea")
        view.locator(".hit").first.wait_for()
        assert host.frame.evaluate(colour) == "rgb(22, 28, 26)"
        # It is as wide as its frame, and the frame as high as it says.
        host.page.wait_for_function(
            "frame.clientHeight > 200 && frame.clientHeight < 800 &&"
            " Math.abs(frame.clientHeight - seen.findLast((each) =>"
            " each.method === 'ui/notifications/size-changed').params.height) < 2"
        )
        wide = "document.documentElement.scrollWidth <= innerWidth"
        assert host.frame.evaluate(wide)
        host.tell("ui/notifications/host-context-changed", {"theme": "light"})
        host.frame.wait_for_function(f"{colour} === 'rgb(255, 255, 255)'")
        host.call("read", place="memory:1")
        view.get_by_text("The pot is broken").wait_for()
        host.page.wait_for_function("frame.clientHeight < 200")


def test_without_a_view_or_tools_of_the_host_the_text_is_shown(
    browser: Browser, db: Database
) -> None:
    with ChatHost(browser, db, able={}) as host:
        view = host.call("search", query="tea", kind="memories")
        view.get_by_role("link").first.click()  # nothing can be read on
        assert view.locator(".hit").count() and not host.seen("tools/call")
        result = host.called("read", {"place": "nowhere.md"})
        host.tell("ui/notifications/tool-result", result)
        view.get_by_text("there is no nowhere.md").wait_for()
        host.tell(
            "ui/notifications/tool-result", {"content": [{"type": "text", "text": "<b>x</b>"}]}
        )
        view.get_by_text("<b>x</b>").wait_for()
        host.tell("ui/notifications/tool-cancelled", {"reason": "user"})
        view.get_by_text("The call was cancelled.").wait_for()


def test_only_the_host_is_listened_to(browser: Browser, db: Database) -> None:
    with ChatHost(browser, db) as host:
        host.call("read", place="memory:1").get_by_text("The pot is broken").wait_for()
        host.frame.evaluate(
            "window.postMessage({ jsonrpc: '2.0', method: 'ui/notifications/tool-result',"
            " params: { content: [{ type: 'text', text: 'forged' }] } }, '*')"
        )
        host.page.evaluate("send({ id: 7, method: 'ping' }); send({ id: 8, method: 'ui/fly' })")
        host.page.wait_for_function("seen.some((each) => each.id === 8)")
        answers = [
            each
            for each in host.page.evaluate("seen")
            if each.get("id") in (7, 8) and "method" not in each
        ]
        assert answers[0]["result"] == {} and answers[1]["error"]["code"] == -32601
        assert host.view.get_by_text("forged").count() == 0


HARMLESS = """() => window.__xss === undefined
  && document.querySelectorAll('script').length === 1 && document.querySelectorAll('style').length === 1
  && !document.querySelector('main script, iframe, object, embed, main style, link, base, img, math, video, form,'
    + ' main svg script, main svg animate, [onerror], [onload], [onclick], a[href^="javascript" i], a[href^="data" i]')"""


def test_the_view_runs_no_stored_script(browser: Browser, tmp_path: Path) -> None:
    with Database(tmp_path / "hostile.db", embedder=Letters()) as db:
        _store(db)
        huge = "# \u202e" + "كتاب <script>window.__xss=1</script> " * 20_000
        db.documents.ingest_text(huge, source="huge.md", title=VECTORS[0])
        with ChatHost(browser, db) as host:
            for number in range(len(VECTORS)):
                place = {"place": f"memory:{min(number + 1, len(VECTORS) - 1)}"}
                host.call("read", **place).locator("main > *").first.wait_for()
                assert host.frame.evaluate(HARMLESS), VECTORS[number]
            for path in [each.id for each in db.documents.browse(limit=100)]:
                host.call("read", place=path, budget=40_000).locator(".text").wait_for()
                assert host.frame.evaluate(HARMLESS), path
            for offset in (0, 50):
                view = host.call("search", query="canary script", limit=50, offset=offset)
                view.locator(".hit").first.wait_for()
                assert host.frame.evaluate(HARMLESS)
            for vector in VECTORS[:6]:
                host.call("verify", quotation=f"canary {vector}").locator(".verdict").wait_for()
                assert host.frame.evaluate(HARMLESS), vector
            # Nor would it, if something put one into the page: its own policy allows one script.
            host.frame.evaluate(
                f"document.body.append(Object.assign(document.createElement('script'), {{ text: '{RUN}' }}))"
            )
            assert host.frame.evaluate("window.__xss === undefined")
            blocked = [each for each in host.problems if "Content Security Policy" in each]
            assert len(blocked) == len(host.problems) == 1
            host.problems.clear()
