"""What machines send each other; that all of it arrives in the end, however it is carried, is held
by `tests/properties/test_remotes_machine.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Config, Damaged, Database, Exchanged, InvalidInput
from mcpvectordb.history.versions import Item, Version, pack, unpack
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.recovery.salvage import salvage
from mcpvectordb.remotes.bundle import Bundle, SentVersion
from tests.core.remotes.conftest import Open
from tests.support import Gated, Letters, scaled

PLAIN = b"mcpvectordb bundle 1\n"
FIRST = next((Path(__file__).parents[2] / "fixtures").glob("*.bundle"))


def sync(db: Database) -> Exchanged:
    [done] = db.remotes.sync()
    assert not done.problem
    return done


def stored(home: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (home / "shared").iterdir()}


def put(home: Path, content: bytes, name: str = "") -> str:
    """Put bytes into the shared folder under the name that they must have."""
    name = name or f"{hashlib.sha256(content).hexdigest()}.bundle"
    (home / "shared" / name).write_bytes(content)
    return name


def texts(db: Database) -> dict[str, str]:
    return {each.source: db.documents.text(each.id) for each in db.documents.browse(limit=1000)}


def test_what_is_written_on_one_machine_is_found_on_the_other_with_its_embeddings(
    machine: Open,
) -> None:
    laptop, desktop = machine("laptop"), machine("desktop", embedder=Gated())
    laptop.documents.ingest_text("apple pie", source="a.md", metadata={"by": "me"})
    laptop.memories.add("thread", "user", "we meet on Monday", tags=["plan"])
    laptop.vectors.add("v", [1.0, 2.0], store="mine")
    assert (sync(laptop).sent, sync(laptop).sent) == (1, 0)
    done = sync(desktop)
    assert set(done.added) == {"default/a.md", "memory:1", "mine/v"} and done.embedded == 2
    assert desktop.stats().pending == 0  # its model embeds nothing
    assert texts(desktop) == {"a.md": "apple pie"}
    assert desktop.documents.lookup("a.md").document.metadata == {"by": "me"}
    assert desktop.memories.get(1).tags == ("plan",)
    assert sync(desktop).sent == sync(laptop).received == 0  # nothing goes to and fro
    assert {each.action for each in laptop.history()} == {each.action for each in desktop.history()}


def test_texts_of_another_model_are_embedded_anew(machine: Open) -> None:
    class Others(Letters):
        name = "others"

    laptop, desktop = machine("laptop"), machine("desktop", embedder=Others())
    desktop.documents.ingest_text("pear", source="b.md")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    done = sync(desktop)
    assert done.embedded == 0 and done.note == "waiting for their embeddings: 1 passage"
    assert desktop.embed_pending() == 1


def test_changes_deletions_and_undos_travel_and_the_later_change_wins(machine: Open) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    for name in "abc":
        laptop.documents.ingest_text(f"{name} of before", source=f"{name}.md")
    sync(laptop), sync(desktop)
    laptop.documents.ingest_text("a of the laptop", source="a.md")
    desktop.documents.ingest_text("a of the desktop", source="a.md")
    desktop.documents.delete(desktop.documents.lookup("b.md").document.id)
    sync(laptop)
    assert sync(desktop).lost == ("default/a.md",)
    done = sync(laptop)
    assert done.updated == ("default/a.md",) and done.deleted == ("default/b.md",)
    assert texts(laptop) == texts(desktop) == {"a.md": "a of the desktop", "c.md": "c of before"}
    deleted = next(each for each in laptop.history("b.md") if each.items[0].kind == "deleted")
    laptop.undo(deleted.number)
    sync(laptop)
    assert sync(desktop).added == ("default/b.md",)
    assert texts(desktop)["b.md"] == "b of before"


def test_only_what_changed_is_sent(machine: Open, home: Path) -> None:
    laptop = machine("laptop")
    for number in range(50):
        laptop.documents.ingest_text(f"text {number} " * 50, source=f"{number}.md")
    whole = sync(laptop)
    laptop.memories.add("t", "user", "short")
    changed = sync(laptop)
    assert (whole.items, changed.items) == (50, 1) and changed.bytes < whole.bytes / 10


def test_what_came_by_a_merge_is_sent_although_it_is_older(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    with Database(home / "old.db", embedder=Letters()) as old:
        old.documents.ingest_text("from long ago", source="old.md")
    laptop.documents.ingest_text("new", source="new.md")
    sync(laptop)
    laptop.merge(home / "old.db")
    assert sync(laptop).items == 1 and set(sync(desktop).added) == {
        "default/new.md",
        "default/old.md",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no bundle"),
        (b"\x00" * 1000, "no bundle"),
        (b"mcpvectordb bundle 2\n{}", "newer version"),
        (b"mcpvectordb bundle 1 encrypted\n" + b"x" * 100, "encrypted"),
        (PLAIN + b"not compressed", "no bundle that is ever written"),
        (PLAIN + pack([]), "no bundle that is ever written"),
        (PLAIN + pack({"writer": 1}), "no bundle that is ever written"),
        # 30 MB of nothing, packed a thousand times smaller, and a million lists.
        (PLAIN + zlib.compress(b" " * 30_000_000), "no bundle that is ever written"),
        (PLAIN + zlib.compress(b"[" * 5_000_000), "no bundle that is ever written"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_no_bundle_is_refused_and_the_others_are_merged(
    machine: Open, home: Path, content: bytes, reason: str
) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    name = put(home, content)
    done = sync(desktop)
    assert done.received == 1 and texts(desktop) == {"a.md": "apple"}
    [refused] = done.refused
    assert refused.startswith(name) and reason in refused
    assert reason in desktop.remotes.browse()[0].problem and desktop.check() == []


def test_a_torn_bundle_is_refused_until_it_is_whole(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    [(name, content)] = stored(home).items()
    put(home, content[:-10], name)
    [refused] = sync(desktop).refused
    assert "not (or not yet) the whole file" in refused and desktop.documents.count() == 0
    put(home, content, name)
    assert sync(desktop).refused == () and texts(desktop) == {"a.md": "apple"}


def test_a_copy_that_a_sync_program_renamed_is_named(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    [content] = stored(home).values()
    put(home, content, "bundle (conflicted copy).bundle")
    done = sync(desktop)
    assert done.received == 1 and "conflicted copy" in done.refused[0]


def test_a_link_is_no_bundle(machine: Open, home: Path) -> None:
    laptop = machine("laptop")
    (home / "secret").write_text("not for others")
    (home / "shared" / f"{'a' * 64}.bundle").symlink_to(home / "secret")
    assert sync(laptop).refused == ()


def made(home: Path, **changes: object) -> str:
    """Put a bundle into the folder that is right but for some fields."""
    version = Version(Item("vectors", "default", "v"), 1, {"hash": ""})
    bundle = Bundle(
        writer="w", machine="m", sequence=1, first=1, clock=10, header={"model": None},
        stores=[], projects={}, forgotten={}, changes=[],
        versions=[SentVersion(version, None, -1, b"", {})],
    )._replace(**changes)  # fmt: skip
    return put(home, bundle.encode("", b"")[1])


@pytest.mark.parametrize(
    "changes",
    [
        {},  # a vector that is none
        {"versions": [SentVersion(Version(Item("documents", "", "../../x"), 1, {}), None, -1, b"", {})]},
        {"versions": [SentVersion(Version(Item("nowhere", "", "x"), 1, {}), None, -1, b"", {})]},
        {"versions": [SentVersion(Version(Item("libraries", "", "x"), 1, {"root": 1}), 5, -1, b"", {})]},
        {"versions": [SentVersion(Version(Item("contexts", "", "x"), 99, None), 99, -1, b"", {})]},
        {"stores": [("s", "no metric", 1)], "versions": []},
        {"stores": [("s", "cosine", 99)], "versions": []},
        {"projects": {"path:/x": {"p": "no stamp"}}, "versions": []},
        {"header": {"model": {"name": "m", "digest": "d", "dimension": 10**9}, "settings": {}}},
        {"machine": 7},
        {"clock": 2**62 - 1},
        {"clock": int((time.time() + 3 * 86_400) * 1000) << 20, "versions": []},
        {"sequence": -1},
        {"forgotten": {"no digest": 5}, "versions": []},
        {"forgotten": {"00" * 16: 11}, "versions": []},  # later than its clock
    ],
)  # fmt: skip
def test_a_bundle_that_says_what_nobody_writes_is_refused_and_changes_nothing(
    machine: Open, home: Path, changes: dict[str, object]
) -> None:
    laptop = machine("laptop")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    before = laptop.data_version()
    name = made(home, **changes)
    done = sync(laptop)
    assert done.received == 0 and done.refused[0].startswith(name)
    assert texts(laptop) == {"a.md": "apple"} and laptop.data_version() == before
    assert laptop.vectors.stores() == [] and laptop.check() == []


JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Every place in a JSON value."""
    yield path
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inside:
        yield from places(each, (*path, key))


@given(data=st.data())
@settings(max_examples=scaled(100), deadline=None)
def test_whatever_a_bundle_says_is_merged_or_refused(data: st.DataObject) -> None:
    """A sound bundle in which anything was replaced by anything."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        home = Path(folder)
        for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME"):
            patch.setenv(name, str(home / "data"))
        (home / "shared").mkdir()
        said = unpack(FIRST.read_bytes().removeprefix(PLAIN))
        path = data.draw(st.sampled_from(sorted(places(said), key=str)))
        value, replaced = data.draw(JSON), said
        if path:
            for key in path[:-1]:
                replaced = replaced[key]
            replaced[path[-1]] = value
        put(home, PLAIN + pack(said if path else value))
        with Database(home / "a.db", embedder=Letters()) as db:
            db.documents.ingest_text("mine", source="boats.md")
            db.remotes.add("others", home / "shared")
            done = sync(db)
            assert done.received + len(done.refused) == 1
            assert db.check() == []
            if done.refused:
                assert texts(db) == {"boats.md": "mine"} and db.memories.count() == 0


def test_a_clock_that_is_ahead_is_not_sent(machine: Open, home: Path) -> None:
    laptop = machine("laptop")
    laptop._history.wall_clock = lambda: time.time() + 30 * 86_400
    laptop.documents.ingest_text("from the future", source="a.md")
    laptop._history.wall_clock = time.time
    with pytest.raises(Damaged, match="rebuild --clock"):
        laptop.remotes.sync("others")
    assert stored(home) == {}
    laptop.rebuild(clock=True)
    assert sync(laptop).items == 1


def test_bundles_that_are_not_there_yet_are_named(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    written = []
    for number in range(3):
        laptop.memories.add("t", "user", f"number {number}")
        before = stored(home)
        sync(laptop)
        written += [stored(home).keys() - before.keys()]
    [late] = written[1]
    content = stored(home)[late]
    (home / "shared" / late).unlink()
    [missing] = sync(desktop).missing
    assert missing.endswith(": bundles 2 to 2") and desktop.memories.count() == 2
    put(home, content)
    assert sync(desktop).missing == () and desktop.memories.count() == 3


def test_a_bundle_that_vanishes_is_written_again_by_its_machine(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    [lost] = (home / "shared").iterdir()
    lost.unlink()
    assert sync(laptop).items == 1
    done = sync(desktop)
    assert texts(desktop) == {"a.md": "apple"} and done.missing == ()


def test_many_bundles_become_few_and_a_new_machine_gets_all(machine: Open, home: Path) -> None:
    laptop = machine("laptop", tuning=Tuning(bundles=8))
    for number in range(30):
        laptop.memories.add("t", "user", f"number {number}")
        sync(laptop)
        assert len(stored(home)) <= 8
    laptop.memories.delete([1])
    sync(laptop)
    desktop = machine("desktop")
    done = sync(desktop)
    assert desktop.memories.count() == 29 and done.missing == () and done.refused == ()


def test_what_was_deleted_long_ago_does_not_come_back(machine: Open, home: Path) -> None:
    """Not even after the history has dropped the deletion, and from a machine that was away."""
    laptop, desktop = (
        machine(each, config=Config(history_days=1)) for each in ("laptop", "desktop")
    )
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop), sync(desktop)
    [old] = stored(home)
    desktop.documents.delete(desktop.documents.lookup("a.md").document.id)
    sync(desktop), sync(laptop)
    later = time.time() + 40 * 3600
    for db in (laptop, desktop):
        db._history.wall_clock = lambda: later
        db.documents.ingest_text(f"of {db.path.stem}", source=f"{db.path.stem}.md")
        db.compact()
        assert db.history("a.md") == [] if db.history(limit=0) is None else True
    for number in range(40):  # its bundles become few, and are written anew
        desktop.memories.add("t", "user", f"number {number}")
        sync(desktop)
    sync(laptop)
    new = machine("new", config=Config(history_days=1))
    new._history.wall_clock = lambda: later
    content = stored(home)[old]
    (home / "shared" / old).unlink()
    sync(new)
    put(home, content)  # the first bundle comes last
    sync(new), sync(laptop), sync(desktop)
    for db in (laptop, desktop, new):
        assert sorted(texts(db)) == ["desktop.md", "laptop.md"]


def test_what_is_forgotten_is_forgotten_everywhere(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("the password is zebra", source="zebra.md")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop), sync(desktop)
    desktop.documents.ingest_text("the password is zebra crossing", source="zebra.md")
    sync(desktop), sync(laptop)
    laptop.forget("zebra.md")
    sync(laptop)
    assert sync(desktop).forgotten == 1
    sync(laptop)
    for db in (laptop, desktop):
        assert texts(db) == {"a.md": "apple"} and b"zebra" not in db.path.read_bytes()
    for content in stored(home).values():
        said = unpack(content.removeprefix(PLAIN))
        bundle = Bundle.decode(hashlib.sha256(content).hexdigest() + ".bundle", content, "")
        bodies = [unpack(each.body) for each in bundle.versions]
        assert "zebra" not in f"{said}{bodies}"
    for path in (home / "data").rglob("*"):
        assert path.is_dir() or b"zebra" not in path.read_bytes(), path


def test_what_is_forgotten_leaves_the_target_also_after_the_remote_was_added_again(
    machine: Open, home: Path
) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("secret", source="a.md")
    sync(laptop), sync(desktop)
    [old] = stored(home)
    laptop.remotes.remove("others")
    laptop.remotes.add("again", home / "shared")
    assert sync(laptop).sent == 0
    laptop.forget("a.md")
    laptop.documents.ingest_text("pear", source="b.md")
    sync(laptop)
    assert old not in stored(home)
    done = sync(desktop)
    assert done.forgotten == 1 and done.missing == () and texts(desktop) == {"b.md": "pear"}
    assert laptop.remotes.browse()[0].machines == ()  # its own bundles are not another's


def test_what_is_forgotten_does_not_come_back_from_a_bundle_but_may_be_written_again(
    machine: Open, home: Path
) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("secret", source="a.md")
    sync(laptop), sync(desktop)
    [(name, content)] = stored(home).items()
    laptop.forget("a.md")
    sync(laptop)
    put(home, content, name)
    sync(laptop), sync(desktop)
    assert texts(laptop) == texts(desktop) == {} and name not in stored(home)
    desktop.documents.ingest_text("harmless", source="a.md")
    sync(desktop), sync(laptop)
    assert texts(laptop) == texts(desktop) == {"a.md": "harmless"}


def test_a_restored_backup_gets_back_what_was_exchanged_since(machine: Open, home: Path) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("apple", source="a.md")
    sync(laptop)
    laptop.copy_to(home / "backup.db")
    laptop.documents.ingest_text("pear", source="b.md")
    desktop.documents.ingest_text("plum", source="c.md")
    sync(laptop), sync(desktop), sync(laptop)
    laptop.close()
    shutil.copy(home / "backup.db", home / "laptop.db")
    laptop = machine("laptop")
    assert set(sync(laptop).added) == {"default/b.md", "default/c.md"}
    (home / "laptop.db").rename(home / "away.db")
    laptop = machine("laptop")  # an empty file in its place
    sync(laptop)
    assert sorted(texts(laptop)) == ["a.md", "b.md", "c.md"]


def test_a_restored_backup_does_not_bring_back_what_was_forgotten(
    machine: Open, home: Path
) -> None:
    laptop, desktop = machine("laptop"), machine("desktop")
    laptop.documents.ingest_text("secret", source="a.md")
    laptop.documents.ingest_text("pear", source="b.md")
    sync(laptop), sync(desktop)
    laptop.copy_to(home / "backup.db")
    laptop.forget("a.md")
    sync(laptop), sync(desktop)
    laptop.close()
    shutil.copy(home / "backup.db", home / "laptop.db")
    laptop = machine("laptop")
    assert sync(laptop).forgotten == 1
    sync(desktop)
    assert texts(laptop) == texts(desktop) == {"b.md": "pear"}
    assert b"secret" not in laptop.path.read_bytes()


def test_a_salvaged_file_asks_its_remotes_for_everything_again(machine: Open, home: Path) -> None:
    laptop = machine("laptop")
    laptop.documents.ingest_text("apple", source="a.md")
    laptop.documents.ingest_text("pear", source="b.md")
    sync(laptop)
    laptop.close()
    with contextlib.closing(apsw.Connection(str(home / "laptop.db"))) as raw:  # one is lost
        raw.execute("DELETE FROM document_chunks WHERE owner = 1")
    salvage(home / "laptop.db", home / "saved.db")
    (home / "saved.db").replace(home / "laptop.db")
    laptop = machine("laptop")
    assert sync(laptop).received == 1
    assert texts(laptop) == {"a.md": "apple", "b.md": "pear"} and laptop.check() == []


def test_without_a_history_nothing_is_exchanged(machine: Open, home: Path) -> None:
    laptop = machine("laptop")
    laptop.keep_history(False)
    with pytest.raises(InvalidInput, match="history on"):
        laptop.remotes.sync("others")
    [done] = laptop.remotes.sync()
    assert "history on" in done.problem


_EXCHANGE = """
import sys
from mcpvectordb import Database
from tests.support import Letters
with Database(sys.argv[1], embedder=Letters()) as db:
    print("ready", flush=True)
    for _ in range(20):
        db.memories.add("t", "user", f"of {sys.argv[2]}")
        db.memories.add("t", "agent", f"for {sys.argv[2]}")
        try:
            db.remotes.sync("others")
        except Exception as error:
            if type(error).__name__ != "Busy":
                raise
"""


def begun(home: Path, name: str, word: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _EXCHANGE, str(home / f"{name}.db"), word],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_exchange_at_once(machine: Open, home: Path) -> None:
    for each in ("laptop", "desktop"):
        machine(each).close()
    running = [begun(home, *each) for each in (("laptop", "1"), ("laptop", "2"), ("desktop", "3"))]
    for each in running:
        each.communicate(timeout=120)
    assert [each.returncode for each in running] == [0, 0, 0]
    laptop, desktop = machine("laptop"), machine("desktop")
    sync(laptop), sync(desktop), sync(laptop)
    assert laptop.memories.count() == desktop.memories.count() == 120
    assert laptop.check() == desktop.check() == []


@pytest.mark.skipif(os.name == "nt", reason="a signal that kills")
def test_an_exchange_that_is_killed_loses_nothing(machine: Open, home: Path) -> None:
    for each in ("laptop", "desktop"):
        machine(each).close()
    for wait in (0.05, 0.1, 0.2, 0.3, 0.5):
        running = [begun(home, each, f"{each} {wait}") for each in ("laptop", "desktop")]
        for each in running:
            assert each.stdout is not None
            each.stdout.readline()
        time.sleep(wait)
        for each in running:
            each.send_signal(signal.SIGKILL)
            each.communicate()
    laptop, desktop = machine("laptop"), machine("desktop")
    for _ in range(2):
        assert sync(laptop).refused == sync(desktop).refused == ()
    assert {each.text for each in laptop.memories.browse(limit=999)} == {
        each.text for each in desktop.memories.browse(limit=999)
    }
    assert laptop.memories.count() == desktop.memories.count()
    assert laptop.check() == desktop.check() == []


def test_a_bundle_of_the_first_version_stays_readable(machine: Open, home: Path) -> None:
    shutil.copy(FIRST, home / "shared")
    laptop = machine("laptop")
    done = sync(laptop)
    assert done.refused == () and texts(laptop) == {"boats.md": "# Boats\n\nA sloop has one mast."}
    assert [each.text for each in laptop.memories.browse()] == ["The harbour opens at six."]
    assert laptop.vectors.get("v").raw == b"\x00\x00\x80?\x00\x00\x00@"
    assert laptop.stats().pending == 0 and done.embedded == 2


def test_what_is_known_of_bundles_does_not_grow_when_others_make_one_of_many(
    machine: Open, home: Path
) -> None:
    laptop, desktop = machine("laptop", tuning=Tuning(bundles=4)), machine("desktop")
    for number in range(40):
        laptop.memories.add("t", "user", f"number {number}")
        sync(laptop), sync(desktop)
    with desktop.remotes._state.sql() as sql:
        assert sql.execute("SELECT count(*) FROM sent").get < 60
    assert desktop.memories.count() == 40
