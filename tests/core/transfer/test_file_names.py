from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.transfer.file_names import LONGEST_NAME, FileNames

RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)\s*(\.|$)")  # on Windows


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("notes/tea.md", "notes/tea.md"),
        ("report.pdf", "report.pdf.md"),
        ("../../etc/passwd", "etc/passwd.md"),
        ("C:\\Users\\me\\a.txt", "C_/Users/me/a.txt.md"),
        ("con/aux.md", "_con/_aux.md"),
        (".env", "_.env.md"),
        ("a.md/b.md", "a.md_/b.md"),
        ("x\x00y\nz", "x_y_z.md"),
        ("...", "_.md"),
        ("ends. /with. ", "ends/with.md"),
    ],
)
def test_a_source_becomes_a_path_that_stays_inside(source: str, name: str) -> None:
    assert FileNames().of(["documents"], source, "id") == f"documents/{name}"


def test_equal_names_are_told_apart_by_the_id_also_where_case_does_not_count() -> None:
    names = FileNames()
    first, second, third = (names.of(["d"], each, each) for each in ("Tea.md", "tea.md", "TEA"))
    assert first == "d/Tea.md" and second == "d/tea tea.md.md" and third == "d/TEA TEA.md"


@pytest.mark.parametrize("thread", ["../../x", "/etc", "..\\x", "a/../../b", "..", "."])
def test_a_thread_does_not_leave_its_folder_either(thread: str) -> None:
    place, inner, name = FileNames().of(["contexts", thread], "1", "1").split("/")
    assert place == "contexts" and name == "1.md" and not inner.startswith(".")


texts = st.text(st.characters(codec="utf-8"), max_size=300) | st.text("./\\ aA:", max_size=12)


@given(texts, st.lists(texts, min_size=1, max_size=20))
def test_any_source_gets_a_path_of_its_own_on_any_system(library: str, sources: list[str]) -> None:
    names = FileNames()
    found = [names.of(["d", library], each, str(place)) for place, each in enumerate(sources)]
    assert len({unicodedata.normalize("NFC", each).casefold() for each in found}) == len(found)
    for each in found:
        posix, windows = PurePosixPath(each), PureWindowsPath(each)
        assert posix.parts == windows.parts and posix.parts[0] == "d" and len(posix.parts) > 2
        assert not windows.drive and not any(map(RESERVED.match, posix.parts))
        for part in posix.parts:
            assert 0 < len(part.encode()) <= LONGEST_NAME + 4
            assert not part.startswith(".") and not part.endswith((".", " ")) and "\x00" not in part
        assert each.endswith(".md") and not any(part.endswith(".md") for part in posix.parts[:-1])
