"""Changes are listed, looked up and taken back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database, Image, InvalidInput, NotFound
from mcpvectordb.history import timeline
from tests.support import Letters


@pytest.fixture
def db() -> Iterator[Database]:
    with Database(":memory:", embedder=Letters()) as opened:
        yield opened


def listed(db: Database, name: str | None = None) -> list[tuple[str, str]]:
    return [(item.kind, item.name) for each in db.history(name) for item in each.items]


def test_an_agents_mistaken_deletion_is_back_with_one_call(db: Database) -> None:
    document = db.documents.ingest_text(
        "# Keys\n\nRotate them.", source="keys.md", metadata={"year": 2026}
    ).document
    with db.acting_as("Some Agent (desk)"):
        db.documents.delete(document.id)
    assert db.history()[0].actor == "Some Agent (desk)"
    undone = db.undo()
    assert undone.restored == ("default/keys.md",)
    assert db.documents.get(document.id) == document
    assert db.documents.search("rotate")[0].item.document == document
    assert db.stats().pending == 0 and db.check() == []


def test_a_memory_comes_back_with_its_id_tags_images_and_metadata(db: Database) -> None:
    image = Image(data=b"\x89PNG", mime_type="image/png", metadata={"w": 1})
    stored = db.memories.add(
        "thread", "agent", "Use WAL", tags=["sqlite"], metadata={"status": "open"}, images=[image]
    )
    [before] = db.memories.get([stored.id])
    db.memories.update(stored.id, text="Use DELETE", metadata={}, tags=[], images=[])
    db.memories.delete([stored.id])
    db.undo()
    db.undo(2)
    assert db.memories.get([stored.id]) == [before]
    assert db.memories.search("WAL", mode="text")[0].item.id == stored.id
    assert db.memories.browse(where={"metadata.status": "open"})[0].id == stored.id
    assert db.check() == []


def test_a_vector_comes_back_as_it_was(db: Database) -> None:
    db.vectors.add("v", [1.0, 1 / 3], store="s", namespace="n", metadata={"a": 1}, metric="dot")
    before = db.vectors.get("v", store="s", namespace="n")
    db.vectors.add("v", [5.0], store="s", namespace="n")
    db.undo()
    assert db.vectors.get("v", store="s", namespace="n") == before
    db.vectors.delete("v", store="s", namespace="n")
    assert listed(db)[0] == ("deleted", "s/n/v")
    db.undo()
    assert db.vectors.get("v", store="s", namespace="n") == before and db.check() == []
    assert db.vectors.get("v", store="s", namespace="n", as_of=2).embedding.tolist() == [5.0]


def test_storing_the_same_vector_again_is_no_change(db: Database) -> None:
    db.vectors.add("v", [1.0, 2.0])
    db.vectors.add("v", [1.0, 2.0])
    assert listed(db) == [("added", "default/v")]


def test_the_removal_of_a_library_is_one_change_and_one_undo(db: Database, tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"{number}.md").write_text(f"note {number}")
    db.documents.add_library("notes", tmp_path, description="mine")
    db.documents.describe("notes", "part", "of it")
    db.documents.sync("notes")
    before = db.documents.libraries()[0], {each.id for each in db.documents.browse(limit=200)}
    assert db.documents.remove_library("notes") == 120
    entry = db.history()[0]
    assert (entry.action, entry.count) == ("remove library", 121)
    assert len(db.undo().restored) == 121
    after = db.documents.libraries()[0]
    assert (after.root, after.description, after.documents) == (before[0].root, "mine", 120)
    assert {each.id for each in db.documents.browse(limit=200)} == before[1]
    assert db.documents.descriptions("notes", "part/x.md") == ["mine", "of it"]
    assert len(db.redo().removed) == 121 and db.documents.count() == 0
    assert db.check() == []


def test_an_undo_is_a_change_that_can_be_undone(db: Database) -> None:
    db.documents.ingest_text("one", source="a.md")
    db.documents.ingest_text("two", source="a.md")
    for expected, change in (("one", 2), ("two", 3), ("one", 4)):
        db.undo(change)
        assert db.documents.text(db.documents.browse()[0].id) == expected
    assert [each.action for each in db.history(limit=3)] == ["undo 4", "undo 3", "undo 2"]
    assert db.undo().number == 1 and db.documents.count() == 0  # 2 is undone, whatever the detour
    assert [db.redo().number for _ in range(2)] == [6, 5]
    assert db.documents.text(db.documents.browse()[0].id) == "two"


def test_each_undo_steps_further_back_and_each_redo_forward(db: Database) -> None:
    for text in ("one", "two", "three"):
        db.documents.ingest_text(text, source="a.md")

    def text() -> str:
        return "".join(db.documents.text(each.id) for each in db.documents.browse())

    assert [(db.next_undo().number, db.undo().number, text()) for _ in range(3)] == [
        (3, 3, "two"),
        (2, 2, "one"),
        (1, 1, ""),
    ]
    with pytest.raises(NotFound, match="no change in the history that could be undone"):
        db.undo()
    assert db.next_undo(redo=True).action == "undo 1"
    assert [(db.redo().number, text()) for _ in range(2)] == [(6, "one"), (5, "two")]
    assert [each.action for each in db.history(limit=2)] == ["redo 2", "redo 1"]
    assert (db.undo().number, text()) == (2, "one")  # what was redone counts again
    db.documents.ingest_text("other", source="a.md")
    with pytest.raises(InvalidInput, match=r"change 10 was made after the last undo; .*undo 9`"):
        db.redo()
    assert (db.undo().number, text()) == (10, "one")
    assert (db.redo().number, text()) == (11, "other")


def test_without_an_undo_there_is_nothing_to_redo(db: Database) -> None:
    db.documents.ingest_text("one", source="a.md")
    for act in (db.redo, lambda: db.next_undo(redo=True)):
        with pytest.raises(NotFound, match="no undo in the history"):
            act()


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "undo", "redo"]), st.sampled_from("abc")),
    max_size=12,
)


@given(steps=STEPS, count=st.integers(1, 12))
def test_as_many_redos_as_undos_give_the_state_before(
    steps: list[tuple[str, str]], count: int
) -> None:
    with Database(":memory:", embedder=Letters()) as db:

        def state() -> dict[str, str]:
            return {each.source: db.documents.text(each.id) for each in db.documents.browse()}

        for number, (step, name) in enumerate(steps):
            if step == "put":
                db.documents.ingest_text(f"text {number}", source=name, embed=False)
            elif step == "delete":
                db.documents.delete(where={"source": name})
            else:
                with contextlib.suppress(NotFound, InvalidInput):  # nothing to take back
                    (db.undo if step == "undo" else db.redo)(embed=False)
        states = []
        with contextlib.suppress(NotFound):  # undone is all there is
            for _ in range(count):
                before = state()
                db.undo(embed=False)
                states.append(before)
        assert len(states) == count or state() == {}
        for before in reversed(states):
            db.redo(embed=False)
            assert state() == before


def test_what_was_changed_again_since_is_kept_and_named(db: Database) -> None:
    db.documents.ingest_many(["one", "one b"], sources=["a.md", "b.md"])
    db.documents.ingest_text("two", source="a.md")
    with pytest.raises(InvalidInput, match=r"change 2 cannot be undone.*changed again since"):
        db.documents.ingest_text("three", source="a.md")
        db.undo(2)
    undone = db.undo(1)
    assert (undone.removed, undone.kept) == (("default/b.md",), ("default/a.md",))
    assert db.documents.text(db.documents.lookup("a.md").document.id) == "three"


@pytest.mark.parametrize("change", [99, 0, -1, 2**63, True, "1"])
def test_a_change_that_is_not_there_is_not_undone(db: Database, change: int) -> None:
    with pytest.raises((NotFound, InvalidInput), match="change"):
        db.undo(change)
    with pytest.raises(NotFound, match="no change in the history"):
        db.undo()


def test_documents_are_read_as_they_were(db: Database) -> None:
    first = db.documents.ingest_text("one", source="a.md", metadata={"n": 1}).document
    second = db.documents.ingest_text("two", source="a.md").document
    db.documents.update(second.id, title="Two", metadata={"n": 2}, library="other")
    db.documents.delete(second.id)
    assert [each.number for each in db.history()] == [5, 3, 2, 1]
    assert db.documents.text(first.id, as_of=1) == "one"
    assert db.documents.get(first.id, as_of=1) == first
    assert db.documents.text(second.id, as_of=2) == "two"
    third = db.documents.get(second.id, as_of=3)
    assert (third.title, third.library, third.metadata) == ("Two", "other", {"n": 2})
    with pytest.raises(NotFound, match="not there at that time"):
        db.documents.text(second.id, as_of=5)
    assert [each.id for each in db.documents.browse(as_of=1, where={"metadata.n": 1})] == [first.id]
    assert not db.documents.browse(as_of=3, library="default")
    assert [*db.documents.browse(as_of=3)] == [third] and not db.documents.browse(as_of=5)
    assert [each.id for each in db.documents.browse(as_of=2)] == [second.id]
    with pytest.raises(NotFound, match="no document has, or had"):
        db.documents.get("nothing", as_of=1)
    with pytest.raises(InvalidInput, match="as_of must be a date"):
        db.documents.browse(as_of="some day")


def test_a_document_that_was_deleted_is_found_by_what_it_was_called(db: Database) -> None:
    tea = db.documents.ingest_text("eighty degrees", source="/home/notes/tea.md").document
    db.documents.ingest_text("milk", source="/other/tea.md")
    db.documents.delete(tea.id)
    for name in (tea.id, "tea.md", "notes/tea.md", tea.path, tea.source, f"#{tea.hash[:8]}"):
        assert db.documents.lookup(name, as_of=1).document == tea
    place = db.documents.lookup("notes/tea.md:1:2", as_of=2)
    assert (place.document, place.line, place.lines) == (tea, 1, 2)
    assert db.documents.text(place.document.id, as_of=2) == "eighty degrees"
    # One that was moved since is found by its present name too.
    milk = db.documents.lookup("tea.md").document
    db.documents.update(milk.id, library="drinks")
    assert db.documents.lookup("drinks/other/tea.md", as_of=2).document == milk
    assert db.documents.lookup(["notes/tea.md", "drinks/other/tea.md"], as_of=3)[0] is None
    with pytest.raises(NotFound, match="at that time"):
        db.documents.lookup("drinks/other/tea.md", as_of=1)


def test_memories_are_read_as_they_were(db: Database) -> None:
    one = db.memories.add("t", "user", "one", tags=["x"], images=[Image(data=b"1")]).id
    db.memories.update(one, text="two", tags=["y"])
    two = db.memories.add("t", "agent", "other").id
    db.memories.delete([one])
    assert [each.text for each in db.memories.get([one, two], as_of=1)] == ["one"]
    assert [each.text for each in db.memories.get([one, two], as_of=3)] == ["two", "other"]
    assert db.memories.get([one], as_of=1)[0].images == (Image(data=b"1"),)
    assert [each.id for each in db.memories.browse(as_of=1, tags=["x"])] == [one]
    assert [each.id for each in db.memories.browse(as_of=2, tags=["x"])] == []
    assert [each.id for each in db.memories.browse(as_of=2, content_type="multimodal")] == [one]
    assert [each.id for each in db.memories.browse(as_of=4, source="agent")] == [two]


def test_history_is_listed_by_name_and_time(db: Database) -> None:
    clock = [1.8e9]
    db._history.wall_clock = lambda: clock[0]
    document = db.documents.ingest_text("one", source="notes/a.md", library="work").document
    clock[0] += 2 * 86_400
    db.documents.ingest_text("two", source="notes/a.md", library="work")
    memory = db.memories.add("t", "user", "x").id
    db.vectors.add("v", [1.0])
    db.documents.delete(db.documents.lookup("a.md").document.id)
    changes = [("deleted", "work/notes/a.md"), ("replaced", "work/notes/a.md")]
    for name in ("work/notes/a.md", "a.md", "notes/a.md", document.id):
        assert listed(db, name) == [*changes, ("added", "work/notes/a.md")]
    assert listed(db, f"memory:{memory}") == [("added", f"memory:{memory}")]
    assert db.history(f"memory:{memory}")[0].items[0].shelf == "memories"
    assert listed(db, "v") == listed(db, "default/v") == [("added", "default/v")]
    assert len(db.history(since="1d")) == 4 and len(db.history(limit=2)) == 2
    with pytest.raises(NotFound, match="nothing has, or had, the name"):
        db.history("b.md")


def test_a_diff_shows_texts_and_what_people_said(db: Database) -> None:
    one = db.documents.ingest_text("same\nold\n", source="a.md", title="A").document
    db.documents.update(one.id, metadata={"n": 1})
    db.documents.ingest_text("same\nnew\n", source="a.md")
    db.documents.delete(db.documents.browse()[0].id)
    assert '-metadata: {}\n+metadata: {"n":1}\n' in db.diff(2)
    assert " same\n-old\n+new\n" in db.diff(3)
    assert "+++ /dev/null" in db.diff(4) and "--- /dev/null" in db.diff(1)


def test_a_diff_of_a_name_shows_nothing_else_of_the_change(db: Database) -> None:
    db.documents.ingest_many(["tea", "milk"], sources=["tea.md", "milk.md"])
    assert "+milk" in db.diff(1) and "+tea" in db.diff(1)
    assert "+milk" not in db.diff(1, "tea.md") and "+tea" in db.diff(1, "tea.md")
    with pytest.raises(NotFound, match=r"coffee\.md"):
        db.diff(1, "coffee.md")


def test_no_title_and_no_path_forges_a_line_of_a_diff(db: Database) -> None:
    evil = "x\n+++ /dev/null\r@@ -1 +1 @@\x85-rm\u2028+all"
    one = db.documents.ingest_text("text", source=f"{evil}.md", title=evil).document
    db.documents.update(one.id, metadata={"a\u2028+b": evil}, title=f"{evil} again")
    for number in (each.number for each in db.history()):
        old, new, head, *lines = db.diff(number).splitlines()
        assert old.startswith("--- ") and new.startswith("+++ ") and head.startswith("@@ ")
        assert [each for each in lines if each.startswith(("@@", "++", "--", "-rm", "+all"))] == []


@pytest.mark.parametrize(
    "change", [0, -1, 2**63, 10**23, pytest.param(10**5000, id="of 5000 digits")]
)
def test_a_number_that_is_none_of_a_change_is_a_clear_error(db: Database, change: int) -> None:
    document = db.documents.ingest_text("one", source="a.md").document.id
    memory = db.memories.add("t", "user", "x").id
    db.vectors.add("v", [1.0])
    for ask in (
        lambda: db.documents.get(document, as_of=change),
        lambda: db.documents.text(document, as_of=change),
        lambda: db.documents.browse(as_of=change),
        lambda: db.memories.get([memory], as_of=change),
        lambda: db.memories.browse(as_of=change),
        lambda: db.vectors.get("v", as_of=change),
    ):
        with pytest.raises(InvalidInput, match=r"there is no change .* as_of is a time, or"):
            ask()
    for act in (db.undo, db.diff):
        with pytest.raises(InvalidInput, match="a change is a number of the history"):
            act(change)


@pytest.mark.parametrize("time", ["9999-12-31", "9999", "2200-01-01"])
def test_a_time_after_all_changes_is_the_present(db: Database, time: str) -> None:
    document = db.documents.ingest_text("one", source="a.md").document.id
    assert db.documents.text(document, as_of=time) == "one"
    assert db.history(since=time) == []


@pytest.mark.parametrize("time", ["0001-01-01", "0001", "999999y", "1900-01-01"])
def test_a_time_before_all_clocks_is_a_clear_error(db: Database, time: str) -> None:
    db.documents.ingest_text("one", source="a.md")
    with pytest.raises(InvalidInput, match=f"the history of this file begins at .* after {time}"):
        db.documents.browse(as_of=time)
    assert len(db.history(since=time)) == 1


WORDS = ("zanzibar", "quixot", "xylophon", "wombat", "gazelle")


def test_a_version_of_very_many_lines_is_not_compared(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_LINES", 10)
    db.documents.ingest_text("few\nlines", source="a.md")
    db.documents.ingest_text("x\x0by\n" * 6, source="a.md")
    with pytest.raises(InvalidInput, match=r"default/a.md has more than 10 lines"):
        db.diff(db.history()[0].number)


def test_what_is_forgotten_for_good_is_nowhere_in_the_file(path: Path) -> None:
    with Database(path, embedder=Letters()) as db:
        for number in range(30):
            db.documents.ingest_text(f"apple {number}", source=f"{number}.md")
        kept = db.documents.ingest_text("kept", source="kept.md").document
        db.documents.ingest_text("zanzibar was quixotic", source="zanzibar.md", title="Xylophone")
        db.documents.ingest_text("zanzibar again", source="zanzibar.md")
        db.documents.update(
            db.documents.lookup("zanzibar.md").document.id, metadata={"of": "zanzibar"}, library="b"
        )
        memory = db.memories.add("t", "user", "a wombat", metadata={"of": "a gazelle"}).id
        db.memories.update(memory, text="another wombat")
        db.vectors.add("wombat-vector", [1.0, 2.0], metadata={"of": "gazelle"})
        db.vectors.delete("wombat-vector")
        assert db.forget("b/zanzibar.md").versions >= 3
        assert db.forget(f"memory:{memory}").versions == 1
        assert db.forget("wombat-vector").versions == 2
        content = path.read_bytes() + Path(f"{path}-wal").read_bytes()
        assert [word for word in WORDS if word.encode() in content.lower()] == []
        assert db.check() == [] and db.documents.get(kept.id) == kept
        for name in ("zanzibar.md", f"memory:{memory}", "wombat-vector"):
            with pytest.raises(NotFound):
                db.forget(name)


def test_a_name_of_several_items_is_not_forgotten(db: Database) -> None:
    for library in ("one", "two"):
        db.documents.ingest_text("x", source="a.md", library=library)
    with pytest.raises(InvalidInput, match="may mean 2 items"):
        db.forget("a.md")
    assert db.documents.count() == 2


def test_an_id_means_the_memory_that_has_it_here_whoever_else_had_it(tmp_path: Path) -> None:
    """Deleted memories of other machines are in the history with the ids that they had there."""
    paths = [tmp_path / f"{name}.db" for name in ("here", "b", "c")]
    here, *others = [Database(path, embedder=Letters()) for path in paths]
    here.memories.add("t", "user", "mine")
    for path, other in zip(paths[1:], others, strict=True):
        other.memories.add("t", "user", f"of {path.stem}")
        other.memories.delete([1])
        here.merge(path)
        other.close()
    with here as db:
        assert [each.items[0].kind for each in db.history("memory:1")] == ["added"]
        assert db.forget("memory:1").versions == 0 and db.memories.count() == 0
        with pytest.raises(InvalidInput, match="may mean 2 items") as caught:
            db.forget("memory:1")
        for uid in str(caught.value).partition("items: ")[2].split(", "):
            assert listed(db, uid) == [("deleted", "memory:1"), ("added", "memory:1")]
            assert db.forget(uid).versions == 2
        with pytest.raises(NotFound):
            db.history("memory:1")


def test_a_library_is_not_forgotten_as_if_it_were_its_documents(
    db: Database, tmp_path: Path
) -> None:
    db.documents.add_library("notes", tmp_path)
    with pytest.raises(InvalidInput, match="is a library: name its documents"):
        db.forget("notes")
    assert [each.name for each in db.documents.libraries()] == ["notes"]
