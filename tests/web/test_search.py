from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mcpvectordb import Database
from tests.support import Gated, Letters
from tests.web.support_page import Looker, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_typing_finds_passages_with_their_place_what_matched_and_how(looker: Looker) -> None:
    looker.search("green tea")
    hit = looker.wait(".hit", "notes/drinks/tea.md")
    assert "Green" in hit.locator("mark").all_text_contents()
    assert hit.locator(".where").text_content() == "notes/drinks/tea.md:6"
    assert "words" in (hit.locator(".ranks").text_content() or "")
    assert "by words and meaning" in (looker.find(".how").text_content() or "")
    assert "How sure the matches are is not known" in (looker.find(".said").text_content() or "")


def test_only_the_last_of_fast_typing_is_answered_and_the_url_has_it(looker: Looker) -> None:
    for typed in ("m", "mi", "min", "mint"):
        looker.page.fill("[data-search]", typed)
    looker.wait(".hit", "garden")
    assert looker.page.url.endswith("#/search?q=mint")
    looker.page.reload()
    assert looker.wait(".hit", "garden").is_visible()
    assert looker.page.input_value("[data-search]") == "mint"


def test_who_steps_through_hits_stays_there_when_they_are_drawn_anew(looker: Looker) -> None:
    page = looker.page
    page.fill("[data-search]", "brewed")
    looker.wait(".hit mark")
    page.keyboard.press("ArrowDown")
    page.evaluate("""() => {
      document.querySelector('.hits').id = 'before';
      document.querySelector('[data-search]').dispatchEvent(new Event('input', { bubbles: true }));
    }""")
    looker.until("!document.querySelector('#before')")
    looker.until("document.activeElement.className === 'hit-link'")


def test_the_keyboard_is_enough(looker: Looker) -> None:
    page = looker.page
    page.locator("#theme").focus()
    page.keyboard.press("/")
    page.keyboard.type("brewed")
    looker.wait(".hit mark")
    page.keyboard.press("ArrowDown")
    first = looker.focused()
    page.keyboard.press("ArrowDown")
    second = looker.focused()
    assert first and second and page.evaluate("document.activeElement.className") == "hit-link"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.matches('[data-search]')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    opened = looker.focused()
    page.keyboard.press("Enter")
    looker.wait(".reading h1")
    page.keyboard.press("Escape")
    looker.wait(".hit")
    looker.until("document.activeElement.textContent.trim() === it", opened)
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('[data-search]')")
    page.keyboard.press("Escape")
    looker.wait(".recent")


def test_words_meaning_and_both_stand_side_by_side(looker: Looker) -> None:
    looker.page.get_by_text("Side by side").click()
    looker.search("mint shed")
    columns = looker.find(".column h2").all_text_contents()
    assert [each.split()[0] for each in columns] == ["Words", "Meaning", "Both"]
    assert looker.find(".column").nth(0).locator(".brief").count() == 1
    assert looker.find(".column").nth(1).locator(".brief").count() > 1
    looker.find(".column").nth(0).locator(".brief").hover()
    looker.until("document.querySelectorAll('.paired').length === 3")
    looker.find(".column").nth(0).locator(".hit-link").focus()
    looker.page.keyboard.press("ArrowRight")
    assert looker.page.evaluate("document.activeElement.closest('.column').ariaLabel") == "Meaning"


def test_one_leg_alone_on_request(looker: Looker) -> None:
    looker.search("mint shed")
    looker.page.get_by_text("Words", exact=True).click()
    looker.wait(".how", "by words")
    looker.until("document.querySelectorAll('.hit').length === 1")
    assert "mode=text" in looker.page.url


def test_filters_narrow_the_search_are_shown_and_removed(looker: Looker) -> None:
    looker.search("brew")
    looker.button("Filter").click()
    for name, value, label in (
        ("library", "code", "library: code"),
        ("file_type", "py", "type: py"),
    ):
        looker.page.select_option(f"[data-filter={name}]", value)
        looker.wait(".chosen .button", label)
    looker.until("document.querySelectorAll('.hit').length === 1")
    assert looker.wait(".hit .where").text_content() == "code/brew.py:1"
    looker.button("type: py", exact=False).click()
    looker.button("library: code", exact=False).click()
    looker.until("document.querySelectorAll('.hit').length > 1")
    assert looker.page.input_value("[data-filter=library]") == ""
    looker.page.select_option("[data-filter=tag]", "plants")
    looker.until("document.querySelectorAll('.hit').length === 1")
    looker.wait(".hit", "garden")
    looker.page.select_option("[data-filter=tag]", "")
    looker.page.fill("[data-filter=until]", "2001")
    looker.page.keyboard.press("Tab")
    assert "Nothing was found" in (looker.wait(".results .state").text_content() or "")


def test_a_chip_of_a_result_becomes_a_filter(looker: Looker) -> None:
    looker.search("pot")
    looker.find(".hit .chip", "todo").first.click()
    looker.wait(".chosen .button", "tag: todo")
    assert "tag=todo" in looker.page.url
    looker.page.go_back()
    looker.until("!document.querySelector('.chosen .button')")


def test_kinds_and_further_pages(looker: Looker) -> None:
    looker.search("subject number report")
    looker.button("Show more").click()
    looker.until("Number(/\\d+/.exec(document.querySelector('.more-of').textContent)[0]) > 25")
    looker.page.get_by_text("Memories", exact=True).click()
    looker.until(
        "![...document.querySelectorAll('.hit .where')].some(each => each.textContent.includes('/'))"
    )


def test_what_was_not_searched_is_said(browser: Browser, path: Path) -> None:
    gated = Gated()
    with Database(path, embedder=gated) as db:
        db.documents.ingest_text("Green tea.", source="tea.md", embed=False)
        with serving(db) as served, Looker(browser, served) as looker:
            looker.search("green")
            looker.wait(".hit mark", "Green")
            looker.wait(".said .warn", "no passage is embedded yet")
            gated.gate.set()


def test_an_empty_file_says_what_to_do(browser: Browser, db: Database) -> None:
    with serving(db) as served, Looker(browser, served) as looker:
        looker.wait(".results .state", "This file is empty")
        looker.find("a", "Bring something in").click()
        looker.wait("h1", "Bring in")
        looker.go("#/map")
        looker.wait(".state", "There is nothing to map yet")
        looker.go("#/browse")
        looker.wait("main", "No documents yet")
        looker.go("#/nowhere")
        looker.wait(".state", "There is no such page")


def test_a_server_that_is_gone_is_named_with_what_to_do(writer: Looker) -> None:
    writer.expected = ("net::ERR", "Failed to load resource")
    writer.served.stop()
    writer.page.fill("[data-search]", "tea")
    assert "Start `mcpvectordb web` again" in (writer.wait(".results .state").text_content() or "")


def test_what_others_store_meanwhile_is_offered(writer: Looker) -> None:
    writer.search("zanzibar")
    writer.served.db.documents.ingest_text("Zanzibar has cloves.", source="spice.md")
    writer.button("The file has changed: search again").click()
    writer.wait(".hit mark", "Zanzibar")


def test_a_document_is_one_card_and_its_other_passages_unfold(looker: Looker) -> None:
    looker.search("long report subject 650")
    card = looker.wait(".hit", "reports/long.md")
    assert looker.find(".hit", "reports/long.md").count() == 1
    assert all(
        height < 125
        for height in looker.page.evaluate(
            "[...document.querySelectorAll('.hit')].map(each => each.getBoundingClientRect().height)"
        )
    )
    card.get_by_role("button", name="more").click()
    looker.wait(".others-of .brief")
    assert card.locator(".ranks").is_hidden()
    card.locator("summary").click()
    assert "rank" in (card.locator(".ranks").text_content() or "")


def test_what_has_the_focus_is_read_beside_the_results(looker: Looker) -> None:
    page = looker.page
    looker.search("brewed")
    looker.wait(".preview header", looker.find(".hit-link").first.text_content() or "")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = looker.find(".hits .hit-link").nth(1).text_content() or ""
    looker.wait(".preview header", second)
    looker.wait(".preview .prose > *")
    page.set_viewport_size({"width": 900, "height": 800})
    looker.until("document.querySelector('.preview').hidden")


def test_reading_goes_from_hit_to_hit_and_back_to_the_results(looker: Looker) -> None:
    page = looker.page
    looker.search("brewed")
    looker.wait(".hit")
    titles = looker.find(".hits > .hit .hit-link").all_text_contents()
    looker.find(".hits .hit-link").first.click()
    looker.wait(".hit-steps", f"hit 1 of {len(titles)}")
    assert looker.find(".views [aria-current]").text_content() == "Search"
    page.keyboard.press("j")
    looker.wait(".hit-steps", f"hit 2 of {len(titles)}")
    page.keyboard.press("k")
    looker.wait(".hit-steps", f"hit 1 of {len(titles)}")
    looker.button("Results").click()
    looker.wait(".hits")
    assert page.input_value("[data-search]") == "brewed"
    looker.go("#/browse/library/notes")
    looker.find(".long-row a", "Tea").first.click()
    looker.wait(".reading h1", "Tea")


def test_a_hit_whose_file_changed_says_so(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "hose.md").write_text("# Hose\n\nThe hose is long.\n")
    with Database(tmp_path / "test.db", embedder=Letters()) as db:
        db.documents.ingest(tmp_path / "hose.md")
        (tmp_path / "hose.md").write_text("# Hose\n\nThe hose is rather short now.\n")
        with serving(db) as served, Looker(browser, served) as looker:
            looker.go("#/search?q=hose")
            looker.wait(".hit p", "The file has changed since it was read.")


def test_a_word_that_is_typed_half_is_found_by_words_and_marked(looker: Looker) -> None:
    looker.find(".segments label", "Words").click()
    looker.page.focus("[data-search]")
    for typed in ("c", "o", "f", "f", "e"):
        looker.page.keyboard.type(typed)
    looker.wait(".hit", "notes/drinks/coffee.txt")
    looker.until(
        "[...document.querySelectorAll('.hit mark')].some(each => each.textContent === 'Coffee')"
    )
    # What is said of the place stays what was typed, and a space ends the word.
    looker.until("new URLSearchParams(location.hash.split('?')[1]).get('q') === 'coffe'")
    looker.page.keyboard.press("Space")
    looker.wait(".results .state")
    assert looker.find(".hit").count() == 0
