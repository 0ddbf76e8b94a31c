from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcpvectordb import Config, Database
from mcpvectordb_server.web.assets import FOLDER
from tests.external.judges import installed
from tests.server.web.support_web_server import Served
from tests.support import Letters
from tests.web.support_page import Looker, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FILES = sorted(each for each in FOLDER.rglob("*") if each.is_file())
VIEWS = (
    "#/search",
    "#/search?q=tea",
    "#/search?q=tea&mode=compare",
    "#/browse",
    "#/browse/library/notes",
    "#/browse/memories",
    "#/browse/tags",
    "#/add",
    "#/add/text",
    "#/add/folder",
    "#/add/memory",
    "#/health",
    "#/history",
    "#/map",
    "#/memory/1",
)
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|"
    r"new Function|setTimeout\(\s*[\"'`]|setAttribute\(\s*[\"']on|javascript:|cssText|setAttribute\(\s*[\"']style"
)
UNNAMED = """() => [...document.querySelectorAll('button, a, input, select, textarea, canvas, [role=tab], progress')]
  .filter(each => each.offsetParent && !each.closest('[aria-hidden=true]'))
  .filter(each => !(each.textContent.trim() || each.ariaLabel || each.title || each.labels?.length))
  .map(each => each.outerHTML)"""
WIDE = """() => [...document.querySelectorAll('main *')].filter(each => each.getBoundingClientRect().right > innerWidth + 1
  && !each.closest('.columns, .table, pre, .unseen')).map(each => each.className + ' ' + each.tagName).slice(0, 5)"""
# The lowest contrast of visible text with what is behind it, by WCAG's formula.
CONTRAST = """() => {
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const channels = colour => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1); return [...probe.getImageData(0, 0, 1, 1).data]; };
  const light = rgb => rgb.slice(0, 3).map(each => each / 255).map(each => each <= .03928 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [.2126, .7152, .0722][at], 0);
  const behind = each => { for (; each; each = each.parentElement) { const rgb = channels(getComputedStyle(each).backgroundColor); if (rgb[3] > 200) return rgb; } return [255, 255, 255, 255]; };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !each.offsetParent || each.closest('.unseen, :disabled, noscript, .skip')) continue;
    const [one, other] = [light(channels(getComputedStyle(each).color)), light(behind(each))];
    const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${each.className} ${walker.currentNode.data.slice(0, 30)}`);
  }
  return low;
}"""
SHIFTS = """() => new Promise(resolve => {
  let sum = 0;
  new PerformanceObserver(list => list.getEntries().forEach(each => { if (!each.hadRecentInput) sum += each.value; }))
    .observe({ type: 'layout-shift', buffered: true });
  setTimeout(() => resolve(sum), 300);
})"""


def _settled(looker: Looker, place: str) -> None:
    looker.go(place)
    looker.wait("main h1, main .state")
    looker.page.wait_for_timeout(250)


def test_the_sources_have_no_way_to_turn_text_into_markup_or_code() -> None:
    for file in FILES:
        assert not FORBIDDEN.findall(file.read_text("utf-8")), file.name


def test_the_sources_name_no_other_host_and_have_nothing_inline() -> None:
    for file in FILES:
        text = file.read_text("utf-8")
        assert set(re.findall(r"https?://[\w.-]+", text)) <= {
            "http://www.w3.org",
            "https://example.org",
        }, file.name
        assert file.suffix != ".html" or not re.search(r"\sstyle=|\son\w+=|<style|<script>", text)


def test_the_whole_page_comes_in_less_than_90_kilobytes(looker: Looker) -> None:
    """Its sources are sent gzipped; as they stand they have three times as many bytes."""
    of_chats = ("view.js", "view.css")  # which the page does not load
    names = [
        name for each in FILES if (name := each.relative_to(FOLDER).as_posix()) not in of_chats
    ]
    sizes = looker.page.evaluate(
        """async names => {
          for (const name of names) await (await fetch('/static/' + name, { cache: 'reload' })).text();
          const entries = performance.getEntriesByType('resource').map(each => [each.name, each.encodedBodySize]);
          return Object.fromEntries(entries);
        }""",
        names,
    )
    sent = {name: sizes[f"{looker.served.url}static/{name}"] for name in names}
    assert all(sent.values())
    assert sum(sent.values()) < 90 * 1024
    assert sum(each.stat().st_size for each in FILES) < 270 * 1024


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_view_fits_is_named_and_has_contrast(
    browser: Browser, shared: Served, width: int, scheme: str
) -> None:
    axe = _axe()
    options: dict[str, Any] = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    read = f"#/document/{shared.db.documents.browse(library='notes').items[0].id}"
    with Looker(browser, shared, bypass_csp=bool(axe), **options) as looker:
        for place in (*VIEWS, read):
            _settled(looker, place)
            problems = [looker.page.evaluate(each) for each in (WIDE, UNNAMED, CONTRAST)]
            assert problems == [[], [], []], place
            assert looker.find("main").count() == looker.find("nav[aria-label=Views]").count() == 1
            assert looker.find("h1").count() == 1, place
            assert not axe or not _serious(looker, axe), place


def _axe() -> str:
    """axe-core from npm, which is a judge from outside; "" where these are not wanted."""
    if not os.environ.get("EXTERNAL_JUDGES"):
        return ""
    folder = installed("axe", "axe-core@4") / "node_modules" / "axe-core"
    return (folder / "axe.min.js").read_text("utf-8")


def _serious(looker: Looker, axe: str) -> list[Any]:
    looker.page.evaluate(axe)
    found = looker.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        (each["id"], each["nodes"][0]["html"])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_the_theme_is_chosen_kept_and_does_not_flash(looker: Looker) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = looker.page.evaluate(paper)
    looker.button("Theme: system").click()
    assert looker.page.evaluate(paper) != light
    looker.page.reload()
    looker.button("Theme: dark").wait_for()
    assert looker.page.evaluate(paper) != light
    looker.button("Theme: dark").click()
    looker.button("Theme: light").click()
    assert looker.page.evaluate(paper) == light


def test_nothing_jumps_while_a_page_is_built(browser: Browser, shared: Served) -> None:
    with Looker(browser, shared) as looker:
        looker.wait(".recent li")
        assert looker.page.evaluate(SHIFTS) < 0.02


def test_motion_is_off_where_it_is_not_wanted(browser: Browser, shared: Served) -> None:
    with Looker(browser, shared, reduced_motion="reduce") as looker:
        _settled(looker, "#/health")
        assert looker.page.evaluate(
            "getComputedStyle(document.querySelector('.button')).transitionDuration"
        ).startswith(("1e-05s", "0"))


def test_a_new_view_is_announced_and_takes_the_focus(looker: Looker) -> None:
    looker.page.keyboard.press("Tab")
    looker.find("nav a", "Health").focus()
    looker.page.keyboard.press("Enter")
    looker.wait("h1", "Health")
    looker.until("document.getElementById('live').textContent === 'Health'")
    assert looker.page.title() == "Health – mcpvectordb"
    assert looker.find("nav [aria-current=page]").text_content() == "Health"
    looker.page.keyboard.press("/")
    looker.wait("[data-search]")
    looker.until("document.activeElement.matches('[data-search]')")


def test_the_first_tab_stop_skips_to_the_content(looker: Looker) -> None:
    _settled(looker, "#/health")
    looker.page.evaluate("document.activeElement.blur()")
    looker.find("#skip").focus()
    looker.page.keyboard.press("Enter")
    assert looker.page.evaluate("document.activeElement.id") == "main"
    assert looker.page.url.endswith("#/health")


def test_a_read_only_page_offers_no_changes(browser: Browser, _original: Path) -> None:
    with (
        Database(_original, config=Config(read_only=True), embedder=Letters()) as db,
        serving(db) as served,
        Looker(browser, served) as looker,
    ):
        looker.wait("#file", "read-only")
        for place in ("#/memory/1", "#/browse/library/notes", "#/browse/memories", "#/health"):
            _settled(looker, place)
            offered = looker.find("main button").all_text_contents()
            assert not {"Edit", "Delete", "Compact", "Sync", "Describe"} & set(offered), place
            assert not looker.find("main .row-check").count()
        looker.go("#/add")
        looker.wait(".state", "without --read-only")


def test_a_session_that_ended_says_how_to_go_on(writer: Looker) -> None:
    writer.expected = ("Failed to load resource",)
    writer.page.evaluate("localStorage.clear()")
    writer.page.reload()
    writer.wait(".state", "Open the URL that `mcpvectordb web` printed")


def test_offsets_in_code_points_mark_the_right_characters(looker: Looker) -> None:
    marked = looker.page.evaluate(
        """async () => {
          const { ranges, split } = await import('/static/offsets.js');
          const text = '🙂 tea 🍵 and 茶';
          const marks = ranges(text, [[2, 5], [6, 7], [12, 13], [3, 5], [99, 100]]);
          return split(text, 0, text.length, marks);
        }"""
    )
    assert marked == [
        ["🙂 ", False],
        ["tea", True],
        [" ", False],
        ["🍵", True],
        [" and ", False],
        ["茶", True],
    ]


HOSTILE_TEXTS = (
    "*" * 50_000,
    "[" * 50_000,
    "`" * 50_001,
    "> " * 20_000,
    "- " * 20_000,
    "**a **" * 10_000,
    "[a](" * 20_000,
    "_a_ " * 20_000,
    "|" * 20_000 + "\n|-|\n",
    "\n".join(["a *b"] * 10_000),
    "# " * 20_000,
    "<b>" * 20_000,
    "<!--" * 20_000,
    "<a href=" * 10_000,
    "![" * 20_000 + "](x)" * 5_000,
    "```py\n" + '"' * 20_000,
    "```py\n" + "'\\" * 20_000,
)


def test_markdown_keeps_every_word_and_takes_hostile_texts(looker: Looker) -> None:
    # A parser that takes quadratic time would need minutes for these.
    blocks = looker.page.evaluate(
        """async texts => {
          const { markdown } = await import('/static/markdown.js');
          return texts.map(text => markdown(text).length);
        }""",
        list(HOSTILE_TEXTS),
    )
    assert len(blocks) == len(HOSTILE_TEXTS)
    kept = looker.page.evaluate(
        """async text => {
          const { markdown } = await import('/static/markdown.js');
          return markdown(text).map(each => each.textContent).join(' ');
        }""",
        "a **b** *c* ~~d~~ `e` \\*f\\* <g> &amp; [h](x:y) __i__ snake_case_word 2*3*4\n\n    indented\n\nSetext\n===\n\n***\n- one\n\n  two\n- three",
    )
    for word in (
        "a",
        "b",
        "c",
        "d",
        "e",
        "*f*",
        "<g>",
        "<g> & ",
        "h",
        "i",
        "snake_case_word",
        "indented",
        "Setext",
        "one",
        "two",
        "three",
    ):
        assert word in kept, (word, kept)


def test_html_inside_of_markdown_is_structure_and_never_markup(looker: Looker) -> None:
    shown = looker.page.evaluate(
        """async text => {
          const { markdown } = await import('/static/markdown.js');
          const root = document.createElement('div');
          root.append(...markdown(text));
          return [root.textContent, [...root.querySelectorAll('*')].map(each => each.localName), root.innerHTML];
        }""",
        '<div align="center">\n\n<h1 onclick="evil()">Kettle</h1>\n\n<b>blue</b><br>pot <img src=x onerror=evil() alt="a badge"> '
        '<script>evil()</script> <a href="javascript:evil()">go</a> <a href="https://example.org">there</a> List<T> <!-- hidden -->\n\n'
        "[![build](https://example.org/b.svg)][ci] and [the docs][]\n\n[ci]: https://example.org/ci\n[the docs]: https://example.org/docs\n",
    )
    text, elements, markup = shown
    assert "div align" not in text and "hidden" not in text and "[ci]" not in text
    assert all(
        each in text for each in ("Kettle", "blue", "a badge", "<script>", "List<T>", "build")
    )
    assert {"h2", "strong", "br", "a"} <= set(elements)
    assert not {"script", "img"} & set(elements)
    assert "onclick" not in markup and "onerror" not in markup
    assert 'href="javascript' not in markup and 'href="https://example.org/docs"' in markup


def test_what_readmes_and_parts_of_long_texts_are_made_of_is_read_as_what_it_is(
    looker: Looker,
) -> None:
    shown = looker.page.evaluate(
        """async ([text, mail]) => {
          const { markdown, Marks } = await import('/static/markdown.js');
          const root = document.createElement('div');
          root.append(...markdown(text));
          const letter = document.createElement('div');
          letter.append(...markdown(mail, new Marks(), 1, '', true));
          return {
            words: root.innerText ?? root.textContent,
            heading: root.querySelector('h2')?.textContent.trim(),
            raised: [...root.querySelectorAll('sup')].map(each => each.textContent),
            rows: [...root.querySelectorAll('tr')].map(row => [...row.children].map(each => each.textContent)),
            breaks: letter.querySelectorAll('br').length,
            side: root.querySelector('blockquote').dir,
          };
        }""",
        [
            '| 7 | calm |\n| 8 | storm |\n\n<h1 align="center">\n  <img src="l.png" alt="Logo"><br>\n  Lamp\n</h1>\n\n'
            "Oil &mdash; &#233; &unknown; [the `vent`][vents] and [fog][] but a[0][1][^1]\n\n"
            "[^1]: A note below.\n[hint]: this is no definition\n\n> اقتباس",
            "From: Ana\nTo: Ben\n\nHello",
        ],
    )
    assert shown["heading"] and shown["heading"].endswith("Lamp") and "</h1>" not in shown["words"]
    assert "Oil — é &unknown; the vent and fog but a[0][1]" in shown["words"]
    assert shown["raised"] == ["1", "1"] and "A note below." in shown["words"]
    assert "this is no definition" in shown["words"]
    assert shown["rows"] == [["7", "calm"], ["8", "storm"]]
    assert (shown["breaks"], shown["side"]) == (1, "rtl")


def test_names_keep_the_joiners_that_their_script_needs(looker: Looker) -> None:
    shown = looker.page.evaluate(
        """async names => {
          const { plain } = await import('/static/dom.js');
          return names.map(plain);
        }""",
        ["👩\u200d🚀.md", "می\u200cخواهم", "pay\u200dpal", "\u202egnp.exe"],
    )
    assert shown == [
        "👩\u200d🚀.md",
        "می\u200cخواهم",
        "pay⟨U+200D⟩pal",
        "⟨U+202E⟩gnp.exe",
    ]


def test_programs_are_coloured_without_changing_a_character(looker: Looker) -> None:
    program = 'def brew(minutes):  # warm\n    """Two\n    lines."""\n    return f"{minutes} tea" if minutes > 2 else None\n'
    text, kinds = looker.page.evaluate(
        """async text => {
          const { code } = await import('/static/markdown.js');
          const root = document.createElement('div');
          root.append(...code(text, undefined, 1, 'py'));
          return [root.textContent, [...root.querySelectorAll('[class^=token]')].map(each => [each.className, each.textContent])];
        }""",
        program,
    )
    assert text == program + "\n"
    assert ["token-keyword", "def"] in kinds and ["token-comment", "# warm\n"] not in kinds
    assert ["token-comment", "# warm"] in kinds and ["token-string", '    lines."""'] in kinds
    assert ["token-number", "2"] in kinds


def test_ctrl_k_goes_anywhere_and_a_question_mark_shows_the_keys(looker: Looker) -> None:
    page = looker.page
    page.keyboard.press("Control+k")
    looker.wait("dialog.palette")
    page.keyboard.type("health")
    looker.wait(".palette [aria-selected=true]", "Health")
    page.keyboard.press("Enter")
    looker.wait("h1", "Health")
    page.keyboard.press("Control+k")
    page.keyboard.type("tea")
    looker.wait(".palette li", "Tea")
    page.keyboard.press("ArrowUp")  # the last is always a search
    page.keyboard.press("Enter")
    looker.wait(".hit", "tea")
    assert page.input_value("[data-search]") == "tea"
    page.locator("#theme").focus()
    page.keyboard.press("?")
    looker.wait("dialog.keys", "next and previous hit")
    page.keyboard.press("Escape")
    looker.until("!document.querySelector('dialog')")


def test_ctrl_k_finds_every_document_by_its_title_and_one_escape_leaves(writer: Looker) -> None:
    for number in range(60):
        writer.served.db.documents.ingest_text(f"Note {number}.", source=f"{number}", embed=False)
    page = writer.page
    page.keyboard.press("Control+k")
    page.keyboard.type("coffee.t")
    writer.wait(".palette li", "coffee.txt")  # older than those that are at hand
    page.keyboard.press("Escape")
    writer.until("!document.querySelector('dialog')")
    page.keyboard.press("Control+k")
    page.keyboard.type("coffee.t")
    writer.wait(".palette [aria-selected=true]", "coffee.txt")
    page.keyboard.press("Enter")
    writer.wait(".reading h1", "coffee.txt")


def test_the_page_switches_between_the_files_that_the_server_was_started_with(
    browser: Browser, filled: Path, tmp_path: Path
) -> None:
    with (
        Database(filled, embedder=Letters()) as one,
        Database(tmp_path / "work & play.db", embedder=Letters()) as other,
    ):
        other.documents.ingest_text("Zebras are striped.", source="zebra.md")
        served = Served(one, other)
        try:
            with Looker(browser, served) as looker:
                choice = looker.page.get_by_label("Database file")
                assert choice.input_value() == "notes.db"
                looker.search("zebras striped")
                assert not looker.find(".hit", "zebra.md").count()
                choice.select_option("work & play.db")
                looker.until(
                    "location.search.includes('play') && document.querySelector('.counts')"
                )
                looker.search("zebras striped")
                looker.wait(".hit", "zebra.md").locator(".hit-link").click()
                looker.wait(".prose", "Zebras are striped.")
                looker.page.reload()  # a place is its address
                looker.wait(".prose", "Zebras are striped.")
                looker.page.keyboard.press("Control+k")
                looker.page.keyboard.type("open notes.db")
                looker.page.keyboard.press("Enter")
                looker.until("document.querySelector('#file select')?.value === 'notes.db'")
                looker.search("green tea sencha")
                looker.wait(".hit", "notes/drinks/tea.md")
        finally:
            served.stop()
