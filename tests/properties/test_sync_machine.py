"""After any changes of files and folders, a sync makes the library equal to the folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mcpvectordb import Database, Synced
from tests.properties.machines import DatabaseMachine
from tests.support import Letters, scaled

NAMES = st.sampled_from(["a.md", "b.txt", "c.md"])
FOLDERS = st.sampled_from(["", "d/", "d/e/", "d-f/", "z/", ".hidden/"])
PATHS = st.builds(str.__add__, FOLDERS, NAMES)
BINARY = b"\x7fELF\2" + b"\0" * 20
CONTENTS = st.sampled_from(
    [b"apple", b"grape", b"# Pear\n\ngreen", b"plum pudding", BINARY, b" \n"]
)
IGNORED = st.sampled_from([[], ["a.md"], ["d/"], ["*.md", "!c.md"], ["/z/b.txt", "e"]])


def readable(content: bytes) -> bool:
    return content != BINARY and bool(content.strip())


def ignored(path: str, lines: list[str]) -> bool:
    """Whether one of the five lists in IGNORED excludes a path."""
    *folders, name = path.split("/")
    if lines == ["*.md", "!c.md"]:
        return name == "a.md"
    return any(
        name == line or path == line.lstrip("/") or line.rstrip("/") in folders for line in lines
    )


class SyncMachine(DatabaseMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        (self.root / ".stays").touch()
        self.files: dict[str, bytes] = {}
        self.ignore: list[str] = []
        # path: id and content, as of the last sync
        self.stored: dict[str, tuple[str, bytes]] = {}

    def opened(self, path: Path) -> Database:
        db = Database(path, embedder=Letters())
        # A copy is another file, whose folders a person confirms.
        for library in db.documents.libraries():
            db.documents.confirm_library(library.name)
        return db

    @initialize(files=st.dictionaries(PATHS, CONTENTS, min_size=1, max_size=4))
    def start(self, files: dict[str, bytes]) -> None:
        self.open()
        self.db.documents.add_library("notes", self.root)
        for path, content in files.items():
            self.write(path, content)
        self.sync()

    @rule(path=PATHS, content=CONTENTS)
    def write(self, path: str, content: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)
        self.files[path] = content

    @precondition(lambda self: self.files)
    @rule(data=st.data(), when=st.sampled_from([1, 10**9, 2 * 10**9]))
    def touch(self, data: st.DataObject, when: int) -> None:
        os.utime(self.root / data.draw(st.sampled_from(sorted(self.files))), (when, when))

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.files)))
        (self.root / path).unlink()
        del self.files[path]

    @precondition(lambda self: self.files)
    @rule(data=st.data(), to=PATHS)
    def move(self, data: st.DataObject, to: str) -> None:
        path = data.draw(st.sampled_from(sorted(self.files)))
        (self.root / to).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).replace(self.root / to)
        self.files[to] = self.files.pop(path)

    @precondition(lambda self: any(path.startswith("d/") for path in self.files))
    @rule()
    def move_a_folder(self) -> None:
        shutil.rmtree(self.root / "z", ignore_errors=True)
        (self.root / "d").rename(self.root / "z")
        moved = {
            f"z/{path[2:]}": content
            for path, content in self.files.items()
            if path.startswith("d/")
        }
        self.files = {
            path: content
            for path, content in self.files.items()
            if not path.startswith(("d/", "z/"))
        } | moved

    @rule(lines=IGNORED, name=st.sampled_from([".gitignore", ".mcpvectordbignore"]))
    def change_what_is_ignored(self, lines: list[str], name: str) -> None:
        for old in (".gitignore", ".mcpvectordbignore"):
            (self.root / old).unlink(missing_ok=True)
        (self.root / name).write_text("\n".join(lines))
        self.ignore = lines

    @rule()
    def sync(self) -> None:
        (done,) = self.db.documents.sync(embed=False)
        found = {
            path: content
            for path, content in self.files.items()
            if not path.startswith(".") and not ignored(path, self.ignore)
        }
        self.agree(found)
        self.identities_agree(found)
        self.counts_agree(found, done)
        self.stored = self.documents()

    @rule()
    def sync_again(self) -> None:
        self.sync()
        before = self.db.documents.browse(limit=1000)
        (done,) = self.db.documents.sync(embed=False)
        assert (done.indexed, done.replaced, done.moved, done.removed) == (0, 0, 0, 0)
        assert self.db.documents.browse(limit=1000) == before

    def assert_file_equals_model(self) -> None:
        assert self.documents() == self.stored

    def documents(self) -> dict[str, tuple[str, bytes]]:
        """Path: id and content of all documents in the file."""
        return {
            self.inside(each.source): (each.id, self.db.documents.text(each.id).encode())
            for each in self.db.documents.browse(limit=1000)
        }

    def inside(self, source: str) -> str:
        return Path(source).relative_to(self.root).as_posix()

    def agree(self, found: dict[str, bytes]) -> None:
        """Readable files are stored; of one that has become unreadable, the old version is."""
        kept = {
            path: self.stored[path][1]
            for path, content in found.items()
            if path in self.stored and not readable(content)
        }
        texts = {path: content for path, (_, content) in self.documents().items()}
        assert (
            texts == {path: content for path, content in found.items() if readable(content)} | kept
        )

    def identities_agree(self, found: dict[str, bytes]) -> None:
        """An unchanged file keeps its id, and so does one that moved to a single new place."""
        ids = {path: id for path, (id, _) in self.documents().items()}
        for path, (id, content) in self.stored.items():
            if path in found:
                assert (ids[path] == id) == (found[path] == content or not readable(found[path])), (
                    path
                )
        for content in {content for _, content in self.stored.values()}:
            left = [
                id
                for path, (id, old) in self.stored.items()
                if old == content and path not in found
            ]
            came = [
                path
                for path, new in found.items()
                if new == content and self.stored.get(path, ("", b""))[1] != content
            ]
            if len(left) == len(came) == 1:
                assert ids[came[0]] == left[0], content

    def counts_agree(self, found: dict[str, bytes], done: Synced) -> None:
        texts = [path for path, content in found.items() if readable(content)]
        assert done.indexed + done.replaced + done.moved + done.unchanged == len(texts)
        assert sorted(self.inside(path) for path, _ in done.failures) == sorted(
            path for path in found if path in self.stored and path not in texts
        )
        for reason, content in (("of no readable type", BINARY), ("without text", b" \n")):
            assert done.skipped.get(reason, 0) == sum(
                found[path] == content for path in found if path not in self.stored
            ), reason

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


TestSync = SyncMachine.TestCase
TestSync.settings = settings(max_examples=scaled(40), stateful_step_count=25)
