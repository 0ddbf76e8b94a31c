from __future__ import annotations

from pathlib import Path

from tests.web.support_page import Looker

DROP = """files => {
  const transfer = new DataTransfer();
  for (const [name, text] of files) transfer.items.add(new File([text], name));
  document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def test_files_are_dropped_and_each_says_how_it_ended(writer: Looker) -> None:
    writer.go("#/add")
    writer.wait(".drop")
    writer.page.evaluate(
        DROP, [["ginger.md", "# Ginger\n\nGinger is hot."], ["picture.bin", "\0\1\2"]]
    )
    writer.wait(".sending", "1 of 2 files brought in, 1 failed")
    writer.wait(".job.done", "ginger.md").get_by_role("link", name="Read it").click()
    writer.wait(".prose", "Ginger is hot.")
    writer.page.go_back()
    assert writer.wait(".job.failed", "picture.bin").locator(".job-outcome").text_content()


def test_files_and_folders_are_chosen_into_a_library(writer: Looker, tmp_path: Path) -> None:
    folder = tmp_path / "herbs"
    (folder / "wild").mkdir(parents=True)
    (folder / "basil.txt").write_text("Basil likes sun.")
    (folder / "wild" / "thyme.txt").write_text("Thyme grows on rocks.")
    writer.go("#/add")
    writer.wait(".drop")
    writer.page.fill("[list=libraries]", "herbs")
    writer.page.locator("input[type=file]").nth(0).set_input_files(folder / "basil.txt")
    writer.wait(".job.done", "basil.txt")
    writer.page.locator("input[type=file]").nth(1).set_input_files(folder)
    writer.wait(".job.done", "wild/thyme.txt")
    found = {each.path for each in writer.served.db.documents.browse(library="herbs")}
    assert {"herbs/basil.txt", "herbs/wild/thyme.txt"} <= found


def test_a_text_is_stored_and_can_be_read_at_once(writer: Looker) -> None:
    writer.go("#/add/text")
    writer.page.get_by_label("Text", exact=True).fill("# Sage\n\nSage is grey.")
    writer.page.get_by_label("Name", exact=True).fill("sage.md")
    writer.button("Store the text").click()
    writer.wait(".stored a", "Sage").click()
    writer.wait(".prose", "Sage is grey.")


def test_a_text_whose_name_is_taken_is_stored_as_it_is_wished(writer: Looker) -> None:
    writer.expected = ("Failed to load resource",)  # 409
    documents = writer.served.db.documents
    old = {each.source: documents.text(each.id) for each in documents.browse(library="notes")}

    def store(text: str, choice: str | None) -> None:
        writer.page.get_by_label("Text", exact=True).fill(text)
        writer.page.get_by_label("Name", exact=True).fill("drinks/coffee.txt")
        writer.page.get_by_label("Into the library").fill("notes")
        writer.button("Store the text").click()
        writer.wait("dialog", "Another text has this name")
        if choice:
            writer.button(choice).click()
        else:
            writer.page.get_by_label("Another name").press("Enter")
        writer.until("!document.querySelector('dialog')")

    def now() -> dict[str, str]:
        return {each.source: documents.text(each.id) for each in documents.browse(library="notes")}

    writer.go("#/add/text")
    store("Coffee is hot.", "Cancel")
    assert now() == old
    assert writer.page.get_by_label("Text", exact=True).input_value() == "Coffee is hot."
    store("Coffee is hot.", None)
    assert now() == old | {"drinks/coffee-2.txt": "Coffee is hot."}
    store("Coffee is black.", "Replace it")
    assert now()["drinks/coffee.txt"] == "Coffee is black."


def test_a_dropped_file_replaces_another_only_when_asked(writer: Looker) -> None:
    writer.expected = ("Failed to load resource",)  # 409
    writer.go("#/add")
    writer.wait(".drop")
    writer.page.evaluate(DROP, [["ginger.md", "Ginger is hot."]])
    writer.wait(".job.done", "ginger.md")
    writer.page.evaluate(DROP, [["ginger.md", "Ginger is sharp."], ["mint.md", "Mint is cool."]])
    writer.wait("dialog", "Replace 1 file?")
    [ginger] = writer.served.db.documents.browse(where=[("source", "eq", "ginger.md")])
    assert writer.served.db.documents.text(ginger.id) == "Ginger is hot."
    writer.button("Replace").click()
    writer.wait(".job.done", "replaced")
    [ginger] = writer.served.db.documents.browse(where=[("source", "eq", "ginger.md")])
    assert writer.served.db.documents.text(ginger.id) == "Ginger is sharp."


def test_an_address_that_may_not_be_fetched_says_why(writer: Looker) -> None:
    writer.go("#/add/url")
    writer.page.get_by_label("Address", exact=False).fill(writer.served.url)
    writer.button("Fetch it").click()
    assert writer.wait(".job.failed, form .bad:not([hidden])").text_content()


def test_a_folder_is_followed_after_its_plan_was_seen(writer: Looker, tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "one.md").write_text("# One\n\nThe first paper.")
    (folder / "two.jpg").write_bytes(b"\xff\xd8\xff")
    writer.go("#/add/folder")
    writer.page.get_by_label("Folder on this machine").fill(str(tmp_path))
    writer.button("Choose …").click()
    writer.wait(".directory", "papers").click()
    writer.until("document.querySelector('form input').value.endsWith('papers')")
    writer.page.get_by_label("Name of the library").fill("papers")
    writer.button("See what would happen").click()
    writer.wait(".plan", "This would index")
    assert not writer.served.db.documents.count(library="papers")
    writer.button("Follow this folder").click()
    writer.wait(".job.done", "papers")
    writer.find("a", "Look into the library").click()
    writer.wait(".long-row", "one.md")
    (folder / "three.md").write_text("The third paper.")
    writer.button("Sync").click()
    writer.wait(".long-row", "three.md")
    writer.go("#/health")
    writer.wait(".passed li", "two.jpg")


def test_a_folder_that_is_not_there_is_an_error_in_the_form(writer: Looker) -> None:
    writer.expected = ("Failed to load resource",)
    writer.go("#/add/folder")
    writer.page.get_by_label("Folder on this machine").fill("/nowhere/at/all")
    writer.page.get_by_label("Name of the library").fill("nowhere")
    writer.button("See what would happen").click()
    assert "/nowhere/at/all" in (writer.wait("form .bad:not([hidden])").text_content() or "")


def test_a_memory_is_written(writer: Looker) -> None:
    writer.go("#/add/memory")
    writer.page.get_by_label("What to remember").fill("The kettle whistles.")
    writer.page.get_by_label("Thread").fill("kitchen")
    writer.page.get_by_label("Tags", exact=False).fill("kettle, sound")
    writer.button("Remember it").click()
    writer.wait(".stored a").click()
    writer.wait(".prose", "The kettle whistles.")
    assert writer.served.db.memories.count(tags=["kettle"]) == 1


def test_two_notes_of_one_day_are_two_documents(writer: Looker) -> None:
    documents = writer.served.db.documents
    before = documents.count()
    writer.go("#/add/text")
    for number, text in enumerate(["The first note.", "The second note."], 1):
        writer.page.get_by_label("Text", exact=True).fill(text)
        writer.button("Store the text").click()
        writer.until("!document.querySelector('textarea').value")
        assert documents.count() == before + number
