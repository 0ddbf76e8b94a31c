"""Three files that were changed in any way exchange bundles through folders, each with a folder of
its own. What carries files between the folders loses, repeats, reorders, delays and tears them.
When it has carried everything in the end, all files hold the same.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from mcpvectordb import Database
from mcpvectordb.history.versions import unpack
from mcpvectordb.index.tuning import Tuning
from mcpvectordb.remotes.bundle import Bundle
from mcpvectordb.remotes.targets import SUFFIX
from tests.properties.test_merge_machine import CONFIG, FILES, TEXTS, MergeMachine, readable
from tests.support import Letters, scaled

FEW = Tuning(bundles=4, bundle_bytes=3_000, slice_chunks=2, slice_characters=150, deleted_rows=0)


def said(content: bytes) -> str:
    """All texts in a bundle."""
    bundle = Bundle.decode(hashlib.sha256(content).hexdigest() + SUFFIX, content, "")
    bodies = [str(unpack(each.body)) for each in bundle.versions if each.body[:1] == b"x"]
    return "".join([str(bundle), *bodies])


class RemotesMachine(MergeMachine):
    the_order_of_merges_does_not_matter = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.environment = dict(os.environ)
        os.environ["XDG_DATA_HOME"] = os.environ["LOCALAPPDATA"] = str(self.folder / "data")
        os.environ["HOME"] = str(self.folder)
        self.written: dict[str, bytes] = {}  # every bundle that there ever was
        self.forgotten: set[str] = set()

    def open(self, path: Path, number: int) -> Database:
        db = Database(path, embedder=Letters(), config=CONFIG, tuning=FEW)

        def wall_clock() -> float:
            self.clocks[number] += 0.5
            return self.clocks[number]

        db._history.wall_clock = wall_clock
        return db

    @initialize(text=TEXTS, alike=st.booleans())
    def start(self, text: str, alike: bool) -> None:
        super().start(text, alike)
        for number, db in enumerate(self.dbs):
            self.place(number).mkdir()
            db.remotes.add("others", self.place(number))

    def place(self, number: int) -> Path:
        return self.folder / f"shared-{number}"

    def whole(self, number: int) -> set[str]:
        """The bundles in a machine's folder that are not torn."""
        found = {each.name: each.read_bytes() for each in self.place(number).iterdir()}
        return {name for name, content in found.items() if content == self.written.get(name)}

    def exchange(self, number: int) -> None:
        [done] = self.dbs[number].remotes.sync()
        assert not done.problem, done.problem
        assert all("not yet" in each for each in done.refused), done.refused
        for each in self.place(number).iterdir():
            self.written.setdefault(each.name, each.read_bytes())

    @rule(file=FILES)
    def sync(self, file: int) -> None:
        self.exchange(file)

    @rule(source=FILES, into=FILES, data=st.data(), torn=st.booleans())
    def carry(self, source: int, into: int, data: st.DataObject, torn: bool) -> None:
        """Bring some bundles to another machine, perhaps only half of one."""
        for name in sorted(self.whole(source) - self.whole(into)):
            if data.draw(st.booleans()):
                content = self.written[name]
                content = content[: len(content) // 2] if torn else content
                (self.place(into) / name).write_bytes(content)

    @rule(file=FILES, data=st.data())
    def repeat(self, file: int, data: st.DataObject) -> None:
        """Bring a bundle again, which may have been replaced long ago."""
        if self.written:
            name = data.draw(st.sampled_from(sorted(self.written)))
            (self.place(file) / name).write_bytes(self.written[name])

    @rule(file=FILES, data=st.data(), torn=st.booleans())
    def lose(self, file: int, data: st.DataObject, torn: bool) -> None:
        """Lose a bundle, perhaps half of it."""
        if here := sorted(each.name for each in self.place(file).iterdir()):
            path = self.place(file) / data.draw(st.sampled_from(here))
            if torn:
                path.write_bytes(path.read_bytes()[:-20])
            else:
                path.unlink()

    @rule(file=FILES, data=st.data())
    def restore_a_backup(self, file: int, data: st.DataObject) -> None:
        """Take a copy of the file, change the file, exchange, and put the copy in its place."""
        db = self.dbs[file]
        copy = self.folder / "backup.db"
        db.copy_to(copy, overwrite=True)
        if data.draw(st.booleans()):
            db.documents.ingest_text("after the backup", source="late.md", library="one")
        self.exchange(file)
        path = db.path
        db.close()
        copy.replace(path)
        self.dbs[file] = self.open(path, file)

    @rule(file=FILES, data=st.data())
    def forget_for_good(self, file: int, data: st.DataObject) -> None:
        found = self.dbs[file].memories.browse(limit=100).items
        if found:
            text = f"unforgettable {len(self.forgotten)}"
            chosen = data.draw(st.sampled_from([each.id for each in found]))
            self.dbs[file].memories.update(chosen, text=text)
            if data.draw(st.booleans()):
                self.exchange(file)
            self.dbs[file].forget(f"memory:{chosen}")
            self.forgotten.add(text)

    def converge(self) -> None:
        """Carry all that is whole, and take away what is damaged, until nothing is new."""
        for _ in range(5):
            for number in range(len(self.dbs)):
                self.exchange(number)
                there = set().union(*(self.whole(each) for each in range(len(self.dbs))))
                for each in range(len(self.dbs)):
                    for path in self.place(each).iterdir():
                        if path.name not in self.whole(each):
                            path.unlink()
                    for name in there:
                        (self.place(each) / name).write_bytes(self.written[name])
                # What this machine has replaced is removed everywhere.
                before = self.whole(number)
                self.exchange(number)
                for name in before - self.whole(number):
                    for each in range(len(self.dbs)):
                        (self.place(each) / name).unlink(missing_ok=True)

    def teardown(self) -> None:
        try:
            if self.dbs:
                self.converge()
                results = [readable(each) for each in self.dbs]
                for each in results:
                    del each["versions"]  # what was dropped or forgotten need not be everywhere
                assert results[0] == results[1] == results[2]
                for number, db in enumerate(self.dbs):
                    [done] = db.remotes.sync()
                    assert not (done.received or done.sent or done.refused or done.missing), done
                    assert db.check() == []
                    bundles = [each.read_bytes() for each in self.place(number).iterdir()]
                    sent = "".join(map(said, bundles))
                    for text in self.forgotten:
                        assert text.encode() not in db.path.read_bytes() and text not in sent
        finally:
            os.environ.clear()
            os.environ.update(self.environment)
            super().teardown()


TestRemotes = RemotesMachine.TestCase
TestRemotes.settings = settings(max_examples=scaled(8), stateful_step_count=14, deadline=None)
