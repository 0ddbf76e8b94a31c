"""Everything that a page could be tricked by is stored everywhere, and every view is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcpvectordb import Database
from tests.support import Letters
from tests.web.support_page import Looker, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RUN = "window.__xss=1"
VECTORS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<img src=https://evil.example/pixel.png onerror={RUN}>",
    f"<svg onload={RUN}></svg>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x></svg>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}>",
    f"<iframe src='javascript:{RUN}'></iframe>",
    f"<iframe srcdoc='<script>parent.{RUN[7:]}</script>'></iframe>",
    f"<object data='javascript:{RUN}'></object><embed src='javascript:{RUN}'>",
    f"<details open ontoggle={RUN}>x</details>",
    f"<input autofocus onfocus={RUN}>",
    f"<video><source onerror={RUN}></video><audio src=x onerror={RUN}>",
    f"<body onload={RUN}><marquee onstart={RUN}>",
    f"<a href='javascript:{RUN}'>click</a>",
    f"<form action='javascript:{RUN}'><button>go</button></form>",
    f"<template><script>{RUN}</script></template><noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    "<link rel=stylesheet href=https://evil.example/x.css><style>@import 'https://evil.example/y.css';</style>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'><base href='https://evil.example/'>",
    f'"><script>{RUN}</script>',
    f"' onmouseover='{RUN}' x='",
    f"`onmouseover={RUN}`",
    f"[click](javascript:{RUN})",
    f"[click](JaVaScRiPt:{RUN})",
    f"[click](java\tscript:{RUN})",
    f"[click](\x01javascript:{RUN})",
    f"[click](&#106;avascript:{RUN})",
    "[click](data:text/html;base64,PHNjcmlwdD53aW5kb3cuX194c3M9MTwvc2NyaXB0Pg==)",
    f"[click](vbscript:{RUN})",
    "[click](blob:https://evil.example/x) [click](file:///etc/passwd)",
    f'[a](https://example.org"onmouseover="{RUN})',
    f'![x](https://evil.example/pixel.png) ![x](x"onerror="{RUN})',
    f"![x](javascript:{RUN}) ![x](data:image/svg+xml,<svg/onload={RUN}>)",
    f"<javascript:{RUN}> <https://evil.example/x>",
    f"[x]: javascript:{RUN}\n[x]",
    f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;img src=x onerror={RUN}&#62;",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e %3Cscript%3E{RUN}%3C/script%3E",
    f"＜script＞{RUN}＜/script＞ <ſcript>{RUN}</ſcript> <scr\0ipt>{RUN}</scr\0ipt>",
    "{{constructor.constructor('window.__xss=1')()}} ${window.__xss=1} <%= 1 %> #{window.__xss=1}",
    f"'-({RUN})-' \";{RUN};// \n{RUN}//",
    "__proto__ constructor prototype toString hasOwnProperty innerHTML",
    "a‮gnp.exe⁦x⁩ \u202a\u202b\u2066 \u200b\u200d\ufeff\u00ad",
    f"```js\n</code></pre><script>{RUN}</script>\n```",
    f"| <script>{RUN}</script> | b |\n|---|---|\n| <img src=x onerror={RUN}> | [c](javascript:{RUN}) |",
    f"# <img src=x onerror={RUN}>\n\n> <script>{RUN}</script>\n\n- <svg onload={RUN}>\n\n1. [x](javascript:{RUN})",
    "# " + "*" * 3000 + "[" * 3000 + "`" * 3001 + "> " * 300 + "- " * 300,
)
POLLUTED = {"__proto__": {"polluted": True}, "constructor": {"prototype": {"polluted": True}}}
NAMES = tuple(each.replace("\0", "").replace("\n", " ").strip() for each in VECTORS[:-1])


def _store(db: Database) -> list[str]:
    """Store each vector as text, title, path, metadata, tag, thread and library."""
    for number, (text, name) in enumerate(zip(VECTORS, NAMES, strict=False)):
        metadata = {name[:60]: name, **POLLUTED, "tags": [name], "ocr_pages": [name]}
        db.documents.ingest_text(
            f"canary {text}\n\n{text}",
            source=f"{number}-{name[:80]}.md",
            title=name,
            library="hostile",
            metadata=metadata,
        )
        db.memories.add(
            thread=name[:100],
            source="agent",
            text=f"canary {text}",
            tags=[name[:60]],
            metadata=dict(metadata),
        )
    db.documents.ingest_text("canary " + VECTORS[-1], source="last.md", library="hostile")
    libraries = [f"<img src=x onerror={RUN}>", f"'\"><svg onload={RUN}>", "__proto__"]
    for library in libraries:
        db.documents.ingest_text(f"canary of {library}", source="a.md", library=library)
    return ["hostile", *libraries]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=window.__xss=1>.db"
    with Database(path, embedder=Letters()) as db:
        _store(db)
    return path


def test_stored_text_never_becomes_markup_in_any_view(browser: Browser, hostile: Path) -> None:
    with (
        Database(hostile, embedder=Letters()) as db,
        serving(db) as served,
        Looker(browser, served) as looker,
    ):
        _search(looker)
        for library in ("hostile", f"<img src=x onerror={RUN}>", "__proto__"):
            looker.page.evaluate(
                "name => { location.hash = '#/browse/library/' + encodeURIComponent(name) }",
                library,
            )
            looker.wait("h1", library)
            looker.wait(".long-row .row-link")
        _scroll(looker)
        for place in (
            "#/browse",
            "#/browse/memories",
            "#/browse/threads",
            "#/browse/tags",
            "#/map",
            "#/health",
            "#/add",
        ):
            looker.go(place)
            looker.wait("main h1")
            looker.page.wait_for_timeout(150)
            _scroll(looker)
        _lists(looker)
        assert _harmless(looker)


def test_every_hostile_document_and_memory_is_read(browser: Browser, hostile: Path) -> None:
    with (
        Database(hostile, embedder=Letters()) as db,
        serving(db) as served,
        Looker(browser, served) as looker,
    ):
        for document in db.documents.browse(limit=100):
            looker.go(f"#/document/{document.id}")
            looker.until(
                "document.querySelector('#panel-about')?.textContent.includes(it)", document.id
            )
            looker.wait(".prose > *")
            assert looker.page.evaluate("({}).polluted === undefined")
            assert _harmless(looker)
        for memory in db.memories.browse(limit=100):
            looker.go(f"#/memory/{memory.id}")
            looker.until(
                "document.querySelector('#panel-about')?.textContent.includes(it)",
                f"memory:{memory.id}",
            )
            assert _harmless(looker)
        looker.button("Edit").click()
        looker.wait("dialog textarea")
        looker.button("Cancel").click()
        looker.button("Delete").click()
        looker.wait("dialog .names li")
        looker.button("Cancel").click()


def test_hostile_routes_and_file_names_run_nothing(browser: Browser, hostile: Path) -> None:
    with (
        Database(hostile, embedder=Letters()) as db,
        serving(db) as served,
        Looker(browser, served) as looker,
    ):
        looker.expected = ("Failed to load resource",)
        for vector in (
            *NAMES[:6],
            f"javascript:{RUN}",
            "../../etc",
            "__proto__",
            "%00",
            "%E0%A4%A",
        ):
            for place in (
                "#/document/",
                "#/memory/",
                "#/browse/thread/",
                "#/browse/library/",
                "#/search?q=",
                "#/",
            ):
                looker.go(place + vector)
                looker.page.wait_for_timeout(20)
                assert _harmless(looker)
        looker.go("#/add")
        looker.wait(".drop")
        looker.page.evaluate(
            """names => {
              const transfer = new DataTransfer();
              for (const name of names) transfer.items.add(new File(['canary of a file'], name + '.txt'));
              document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, cancelable: true }));
            }""",
            [each.replace("/", "|") for each in NAMES[:8]],
        )
        looker.wait(".sending", "of 8 files brought in")
        looker.wait(".job.done")
        assert _harmless(looker)


def _search(looker: Looker) -> None:
    for query in ("canary", f"<img src=x onerror={RUN}>", "script", "__proto__"):
        looker.search(query)
    looker.search("canary")
    looker.page.get_by_text("Side by side").click()
    looker.wait(".column .brief")
    looker.button("Filter").click()
    looker.wait("[data-filter=tag]")
    looker.page.select_option("[data-filter=tag]", index=3)
    looker.wait(".chosen .button", "tag:")


def _lists(looker: Looker) -> None:
    looker.go("#/map")
    looker.button("List what is in view").click()
    looker.wait(".map-panel .brief")
    looker.button("Near-duplicates").click()
    looker.wait(".map-panel h2", "near-duplicates")


def _scroll(looker: Looker) -> None:
    for _ in range(4):
        looker.page.mouse.wheel(0, 1500)
        looker.page.wait_for_timeout(60)


def _harmless(looker: Looker) -> bool:
    """Whether the page has no element that could only come from stored text."""
    return looker.page.evaluate(
        """() => window.__xss === undefined && !document.querySelector(
          'main script, main iframe, main object, main embed, main style, main link, main meta, main base, main img, '
          + 'main math, main video, main marquee, main svg script, main svg animate, [onerror], [onload], [onclick], '
          + 'a[href^="javascript" i], a[href^="data" i], a[href^="vbscript" i], a[href^="blob" i], a[href^="file" i], main form[action]')
          && [...document.querySelectorAll('main a')].every(a => a.getAttribute('href').startsWith('#')
            || (/^https?:$/.test(a.protocol) && a.rel.includes('noopener') && a.target === '_blank'))"""
    )
