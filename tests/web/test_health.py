from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mcpvectordb import Access, Database
from tests.support import Letters
from tests.web.support_page import Looker, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_counts_model_and_space_are_shown(looker: Looker) -> None:
    looker.go("#/health")
    figures = looker.find(".figure")
    looker.wait(".figure", "documents")
    assert figures.locator("b").first.text_content() == "6"
    assert "all found by meaning" in (figures.nth(2).text_content() or "")
    looker.wait(".card", "letters")
    looker.wait(".space li", "texts of documents")
    looker.wait("main", "Every file that was looked at is in here.")


def test_the_file_is_checked_and_compacted_by_a_button(writer: Looker) -> None:
    writer.go("#/health")
    writer.button("Check").click()
    writer.wait(".job.done", "The file is sound.")
    writer.button("Compact").click()
    writer.wait(".job.done", "Compact")


def test_what_others_store_is_counted_without_a_reload(writer: Looker) -> None:
    writer.go("#/health")
    writer.wait(".figure", "documents")
    writer.served.db.documents.ingest_text("Something new.", source="new.md")
    writer.until("document.querySelector('.figure b').textContent === '7'")


def test_running_work_shows_its_progress_and_can_be_stopped(writer: Looker) -> None:
    writer.go("#/health")
    writer.wait(".figure", "documents")
    site = writer.served.site
    progress = {
        "step": "embed",
        "done": 3,
        "total": 12,
        "chunks": 0,
        "chunks_known": 0,
        "seconds_left": 240.0,
    }
    job = {
        "id": "j999",
        "kind": "sync",
        "title": "papers",
        "state": "running",
        "progress": progress,
    }
    writer.page.wait_for_timeout(200)
    site.events.publish(
        "job", {**job, "started_at": "", "ended_at": None, "result": None, "error": None}, "j999"
    )
    row = writer.wait(".job", "papers")
    assert "embedding 3 of 12 · about 4 minutes left" in (row.text_content() or "")
    assert row.locator("progress").get_attribute("max") == "12"
    assert row.get_by_role("button", name="Stop").is_visible()


def test_a_page_out_of_sight_keeps_no_connection_and_catches_up(writer: Looker) -> None:
    writer.go("#/health")
    writer.wait(".figure", "documents")
    see = """hidden => {
      Object.defineProperty(document, 'hidden', { configurable: true, value: hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    writer.page.evaluate(see, True)
    writer.served.db.documents.ingest_text("Something new.", source="new.md")
    writer.page.wait_for_timeout(1500)
    assert writer.find(".figure b").first.text_content() == "6"
    writer.page.evaluate(see, False)
    writer.until("document.querySelector('.figure b').textContent === '7'")


def test_a_deletion_is_among_the_changes_and_undone_by_a_button(writer: Looker) -> None:
    db = writer.served.db
    db.documents.ingest_text("The <b>old</b> text.", source="old.md", title="Old rule")
    [old] = db.documents.search("old text", mode="text", limit=1)
    db.documents.delete(old.item.document.id)
    writer.go("#/health")
    row = writer.wait(".changes li", "deleted Old rule").first
    row.get_by_role("button", name="Differences").click()
    assert "-The <b>old</b> text." in (writer.wait(".diff", "old").first.text_content() or "")
    row.get_by_role("button", name="Undo").click()
    writer.wait(".notice", "Undone")
    assert db.documents.text(old.item.document.id) == "The <b>old</b> text."


def test_the_history_is_a_place_with_filters(writer: Looker) -> None:
    db = writer.served.db
    db.documents.ingest_text("The kettle is blue.", source="kettle.md", title="Kettle")
    db.memories.add("kitchen", "user", "The kettle leaks.")
    writer.go("#/history")
    said = writer.wait(".changes li").text_content() or ""
    assert said.startswith("Remembered The kettle leaks. in kitchen")
    writer.wait(".changes li", "Added Kettle")
    writer.page.get_by_label("What was changed").select_option("memories")
    writer.until(
        "![...document.querySelectorAll('.changes li')].some(e => e.textContent.includes('Kettle'))"
    )
    writer.page.get_by_label("What was changed").select_option("")
    writer.page.get_by_label("Of which item").fill("kettle.md")
    writer.until("document.querySelectorAll('.changes li').length === 1")
    writer.wait(".changes li", "Kettle")


def test_files_that_were_passed_over_are_grouped_by_reason_with_what_helps(
    writer: Looker, tmp_path: Path
) -> None:
    for name in ("one.bin", "two.bin"):
        (tmp_path / name).write_bytes(bytes(range(256)) * 4)
    (tmp_path / "note.md").write_text("# A note\n")
    writer.served.db.documents.add_library("papers", tmp_path)
    writer.served.db.documents.sync("papers")
    writer.go("#/health")
    group = writer.wait(".passed > li", "2 files passed over")
    assert "one.bin" in (group.text_content() or "") and "are not read" in (
        group.text_content() or ""
    )


def test_an_empty_file_does_not_say_that_all_is_found(browser: Browser, path: Path) -> None:
    with (
        Database(path, embedder=Letters()) as db,
        serving(db) as served,
        Looker(browser, served) as each,
    ):
        each.go("#/health")
        each.wait(".figure", "passages")
        assert each.find(".figures", "all found").count() == 0


def test_a_subfolder_has_no_word_null_and_no_line_ends_in_a_dot(looker: Looker) -> None:
    for place in ("#/browse", "#/browse/library/notes/drinks", "#/health", "#/history"):
        looker.go(place)
        looker.wait("main h1")
        looker.page.wait_for_timeout(300)
        text = looker.find("main").inner_text()
        assert "null" not in text and "undefined" not in text
        assert not any(line.rstrip().endswith("·") for line in text.splitlines())


def test_a_client_that_was_let_in_is_shown_and_let_out_by_a_button(writer: Looker) -> None:
    access = Access(writer.served.db.path)
    about = {"client_name": "<b>Phone", "redirect_uris": ["https://phone.test/back"]}
    code = access.consent("c", about, ["read", "write"], "https://notes.test/mcp", {})
    issued = access.exchange(code, "code", ["read"])
    assert issued is not None
    writer.go("#/health")
    writer.wait(".card", "<b>Phone")
    writer.wait(".card", "phone.test · read, write")
    writer.button("Revoke").click()
    writer.until("!document.querySelector('main').textContent.includes('Phone')")
    assert access.token(issued[0], "access") is None
