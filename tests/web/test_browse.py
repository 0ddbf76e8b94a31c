from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from mcpvectordb import Database
from tests.support import Letters
from tests.web.support_page import Looker, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_libraries_folders_and_documents_are_steps_that_back_undoes(looker: Looker) -> None:
    looker.go("#/browse")
    looker.wait(".library", "notes").locator("a").click()
    looker.wait(".folders", "drinks").locator("a").click()
    looker.wait(".long-row", "tea.md")
    looker.until("document.querySelectorAll('.long-row').length === 2")
    assert looker.find(".crumbs li").all_text_contents() == ["Browse", "notes", "drinks"]
    looker.find(".long-row a", "Tea").click()
    looker.wait(".reading h1", "Tea")
    looker.page.go_back()
    looker.wait(".long-row", "tea.md")
    looker.page.go_back()
    looker.wait(".folders", "drinks")
    looker.until("document.querySelectorAll('.long-row').length === 2")


def test_documents_are_filtered_by_title_and_put_in_order(looker: Looker) -> None:
    looker.go("#/browse/library/notes")
    looker.wait(".long-row")
    looker.page.fill("[aria-label='Title contains']", "coff")
    looker.until("document.querySelectorAll('.long-row').length === 1")
    assert "coffee" in (looker.find(".long-row").text_content() or "")
    looker.page.fill("[aria-label='Title contains']", "")
    looker.page.select_option("[aria-label=Order]", "size")
    looker.wait(".long-row", "copy.md")


def test_memories_have_threads_tags_and_a_timeline(looker: Looker) -> None:
    looker.go("#/browse")
    looker.wait(".cloud a", "plants").click()
    looker.wait(".memory-row", "Mint")
    looker.until("document.querySelectorAll('.memory-row').length === 1")
    looker.go("#/browse/thread/kitchen")
    looker.until("document.querySelectorAll('.memory-row').length === 2")
    looker.page.select_option("[aria-label='By whom']", "user")
    looker.until("document.querySelectorAll('.memory-row').length === 1")
    looker.go("#/browse/memories")
    looker.until("document.querySelectorAll('.memory-row').length === 3")
    assert looker.find(".memory-text").first.text_content() == "Mint grows behind the shed."
    looker.go("#/browse/tags")
    looker.page.fill("[aria-label='Filter tags']", "po")
    looker.until("document.querySelectorAll('.name-row').length === 1")


def test_several_are_changed_and_deleted_at_once_after_saying_what_happens(writer: Looker) -> None:
    writer.go("#/browse/library/notes/drinks")
    for box in writer.wait(".long-row").page.locator(".row-check").all():
        box.check()
    writer.wait(".selection", "2 documents selected")
    writer.button("Change metadata").click()
    writer.page.get_by_label("Field", exact=True).fill("reviewed")
    writer.page.get_by_label("Value", exact=False).fill("true")
    writer.button("Change", exact=True).click()
    writer.wait(".notice", "2 documents changed")
    assert writer.served.db.documents.count(where={"metadata.reviewed": True}) == 2
    writer.until("document.querySelector('.selection').hidden")
    for box in writer.page.locator(".row-check").all():
        box.check()
    writer.button("Delete").click()
    writer.wait("dialog", "Delete 2 documents?")
    writer.button("Delete 2 documents").click()
    writer.wait(".notice", "2 documents deleted")
    writer.until("!document.querySelector('.long-row')")
    writer.go("#/browse/thread/kitchen")
    for box in writer.wait(".memory-row").page.locator(".row-check").all():
        box.check()
    writer.button("Change metadata").click()
    writer.page.get_by_label("Tags to add", exact=False).fill("seen")
    writer.button("Change", exact=True).click()
    writer.wait(".memory-row .chip", "seen")
    assert writer.served.db.memories.count(tags=["seen"]) == 2


def test_a_library_is_described_and_deleted(writer: Looker, tmp_path: Path) -> None:
    (tmp_path / "herbs").mkdir()
    (tmp_path / "herbs" / "sage.md").write_text("Sage is grey.")
    writer.served.db.documents.add_library("herbs", tmp_path / "herbs")
    writer.served.db.documents.sync("herbs")
    writer.go("#/browse/library/herbs")
    writer.button("Describe").click()
    writer.page.get_by_label("Description", exact=False).fill("What grows")
    writer.button("Save").click()
    writer.wait("main", "What grows")
    writer.button("Delete").click()
    assert "1 document" in (writer.wait("dialog").text_content() or "")
    writer.button("Stop following, keep documents").click()
    writer.wait(".library", "notes")
    assert writer.served.db.documents.count(library="herbs") == 1
    writer.go("#/browse/library/herbs")
    writer.button("Delete").click()
    writer.find("dialog button", "Delete").click()
    writer.wait(".notice", "was deleted")
    # The notice may be that of the library, of which the documents were kept.
    deadline = time.monotonic() + 60
    while writer.served.db.documents.count(library="herbs") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not writer.served.db.documents.count(library="herbs")


def test_long_lists_have_few_elements_and_every_row(browser: Browser, path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        names = [f"{number:05}.md" for number in range(2500)]
        db.documents.ingest_many((f"Text of {each}." for each in names), sources=names, embed=False)
        with serving(db) as served, Looker(browser, served) as looker:
            looker.go("#/browse/library/default")
            looker.wait(".long-row", "00000.md")
            assert looker.find(".long-row").count() < 60
            looker.find(".long-row .row-link").first.focus()
            looker.page.keyboard.press("End")
            looker.until(
                "document.activeElement.closest('.long-row')?.textContent.includes('02499.md')"
            )
            assert looker.find(".long-row").count() < 60
            looker.page.keyboard.press("ArrowUp")
            looker.until(
                "document.activeElement.closest('.long-row')?.textContent.includes('02498.md')"
            )
            looker.page.keyboard.press(" ")
            looker.wait(".selection", "1 document selected")
            looker.page.evaluate("scrollTo(0, 1250 * 62)")
            looker.wait(".long-row", "01255.md")


def test_what_others_store_appears_in_the_list(writer: Looker) -> None:
    writer.go("#/browse/library/code")
    writer.wait(".long-row", "brew.py")
    writer.served.db.documents.ingest_text("x = 1", source="other.py", library="code")
    writer.wait(".long-row", "other.py")


def test_the_timeline_is_narrowed_to_a_project_and_a_session_of_it(
    browser: Browser, tmp_path: Path
) -> None:
    with Database(tmp_path / "test.db", embedder=Letters()) as db:
        for thread in ("plant", "plant/claude-code 1", "works"):
            db.memories.add(thread, "user", f"Said in {thread}.")
        for name in ("plant", "works"):
            db.projects.chosen(name, new=True)
        with serving(db) as served, Looker(browser, served) as looker:
            looker.go("#/browse/memories")
            looker.until("document.querySelectorAll('.memory-row').length === 3")
            looker.page.select_option("[aria-label=Project]", "plant")
            looker.until("document.querySelectorAll('.memory-row').length === 2")
            looker.page.select_option("[aria-label=Session]", "plant/claude-code 1")
            looker.until("document.querySelectorAll('.memory-row').length === 1")
            looker.page.select_option("[aria-label=Project]", "")
            looker.until("document.querySelectorAll('.memory-row').length === 3")
            looker.go("#/browse")
            looker.wait(".cloud a", "works").click()
            looker.until("document.querySelectorAll('.memory-row').length === 1")
