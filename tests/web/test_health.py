from __future__ import annotations

from tests.web.support_page import Looker


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
