from __future__ import annotations

import os
import random
import shutil
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import InvalidInput, Unreadable
from mcpvectordb.ingest.folders import LARGEST_IGNORE_FILE, Skipped, Walk

LIMIT = 1_000_000


def grow(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def walked(root: Path, **options: Any) -> list[str]:
    return [
        Path(path).relative_to(root).as_posix() for path, _ in Walk(root, limit=LIMIT, **options)
    ]


def test_files_come_in_the_order_of_their_paths_with_their_stats(tmp_path: Path) -> None:
    grow(tmp_path, "b/c.md", "b/a.md", "b.md", "b-c/x", "a", "z/y/x", "ä", "Z")
    found = list(Walk(tmp_path, limit=LIMIT))
    paths = [path for path, _ in found]
    assert paths == sorted(str(path) for path in tmp_path.rglob("*") if path.is_file())
    assert all(info == Path(path).lstat() for path, info in found)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*", ["a.md", "b.txt", "d/c.md", "d/e/f.rst"]),
        ("*.md", ["a.md"]),
        ("**/*.md", ["a.md", "d/c.md"]),
        ("d/**", ["d/c.md", "d/e/f.rst"]),
        ("**/*.{txt,rst}", ["b.txt", "d/e/f.rst"]),
        ("nothing", []),
    ],
)
def test_a_pattern_selects_files(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    grow(tmp_path, "a.md", "b.txt", "d/c.md", "d/e/f.rst")
    assert walked(tmp_path, pattern=pattern) == expected


def test_skipped_entries_are_counted_by_reason(tmp_path: Path) -> None:
    root = tmp_path / "root"
    grow(tmp_path, "outside/secret.md")
    grow(root, "a.md", ".hidden", ".git/config", ".git/HEAD", "gone.log", "d/also.log", "cache/x")
    grow(root, "cache/y", "my.db", "my.db-wal")
    (root / ".gitignore").write_text("*.log\ncache/\n")
    (root / "big.bin").write_bytes(b"x" * (LIMIT + 1))
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "out.md").symlink_to("../outside/secret.md")
    (root / "again.md").symlink_to("a.md")
    (root / "loop").symlink_to(root)
    (root / "nowhere").symlink_to("missing")
    (root / "myself").symlink_to("myself")
    os.mkfifo(root / "pipe")
    walk = Walk(root, limit=LIMIT, databases=[root / "my.db"])
    assert [path for path, _ in walk] == [str(root / "a.md")]
    names: dict[str, str] = {
        "hidden": ".git .hidden", "ignored": "also.log cache gone.log", "too large": "big.bin",
        "link out of the root": "out out.md", "link within the root": "again.md loop",
        "broken link": "myself nowhere", "not a file": "pipe", "the database itself": "my.db my.db-wal",
    }  # fmt: skip
    assert walk.skipped.counts == {reason: len(each.split()) for reason, each in names.items()}
    assert walk.too_large == {str(root / "big.bin"): LIMIT + 1} and not walk.failures
    assert sorted((reason, Path(path).name) for path, reason in walk.skipped.paths) == sorted(
        (reason, name) for reason, each in names.items() for name in each.split()
    )
    assert all(Path(path).is_relative_to(root) for path, _ in walk.skipped.paths)


def test_more_skipped_paths_than_the_list_holds_are_counted() -> None:
    skipped = Skipped(most=2)
    for name in "abc":
        skipped.add(name, "hidden")
    assert skipped.counts == {"hidden": 3} and skipped.paths == [("a", "hidden"), ("b", "hidden")]
    more = skipped + skipped
    assert more.counts == {"hidden": 6} and len(more.paths) == 2


@pytest.mark.skipif(os.name != "posix", reason="names are Unicode there")
def test_a_name_that_is_not_unicode_is_skipped(tmp_path: Path) -> None:
    try:
        for name in (b"a\xff.md", b"d\xff"):
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).mkdir()
    except OSError:
        pytest.skip("this file system has Unicode names only")
    walk = Walk(tmp_path, limit=LIMIT)
    assert not list(walk) and walk.skipped.counts == {"name is not Unicode": 2}


def test_ignore_files_apply_to_their_folder_and_below(tmp_path: Path) -> None:
    grow(tmp_path, "a.txt", "b.txt", "d/a.txt", "d/b.txt", "d/e/a.txt", "d/e/b.txt")
    (tmp_path / "d" / ".gitignore").write_text("a.txt\n/b.txt\n")
    assert walked(tmp_path) == ["a.txt", "b.txt", "d/e/b.txt"]


def test_a_deeper_ignore_file_wins(tmp_path: Path) -> None:
    grow(tmp_path, "a.log", "d/a.log", "d/e/a.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "d" / ".gitignore").write_text("!*.log\n")
    (tmp_path / "d" / "e" / ".gitignore").write_text("a.*\n")
    assert walked(tmp_path) == ["d/a.log"]


def test_an_ignored_folder_is_never_entered(tmp_path: Path) -> None:
    grow(tmp_path, "build/keep.md", "a.md")
    (tmp_path / ".gitignore").write_text("build/\n!keep.md\n")
    (tmp_path / "build" / ".gitignore").write_text("!*\n")
    assert walked(tmp_path) == ["a.md"]


def test_our_ignore_file_wins_over_gitignore_and_given_patterns_over_both(
    tmp_path: Path,
) -> None:
    grow(tmp_path, "a.log", "b.log", "c.md", "d/e.md")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / ".mcpvectordbignore").write_text("!a.log\nc.md\n")
    assert walked(tmp_path) == ["a.log", "d/e.md"]
    assert walked(tmp_path, ignore=["!b.log", "d/"]) == ["a.log", "b.log"]
    with pytest.raises(InvalidInput):
        Walk(tmp_path, limit=LIMIT, ignore=["[a"])


def test_a_folder_with_an_unusable_ignore_file_is_a_failure(tmp_path: Path) -> None:
    grow(tmp_path, "a.md", "d/b.md", "e/c.md")
    (tmp_path / "d" / ".gitignore").write_text("x" * (LARGEST_IGNORE_FILE + 1))
    walk = Walk(tmp_path, limit=LIMIT)
    assert [Path(path).name for path, _ in walk] == ["a.md", "c.md"]
    assert (
        list(walk.failures) == [str(tmp_path / "d")]
        and "too large" in walk.failures[str(tmp_path / "d")]
    )


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root"
)
def test_a_folder_without_permission_is_a_failure_and_does_not_stop_the_walk(
    tmp_path: Path,
) -> None:
    grow(tmp_path, "a.md", "d/b.md", "e/c.md")
    (tmp_path / "d").chmod(0)
    walk = Walk(tmp_path, limit=LIMIT)
    assert [Path(path).name for path, _ in walk] == ["a.md", "c.md"]
    assert list(walk.failures) == [str(tmp_path / "d")]
    (tmp_path / "d").chmod(0o700)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_root_that_is_not_a_folder_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unreadable, match=name):
        list(Walk(tmp_path / name, limit=LIMIT))


def test_files_and_folders_may_vanish_during_the_walk(tmp_path: Path) -> None:
    grow(tmp_path, "a", "b", "c/d", "e")
    walk = Walk(tmp_path, limit=LIMIT)
    steps = iter(walk)
    assert next(steps)[0].endswith("a")
    (tmp_path / "b").unlink()
    shutil.rmtree(tmp_path / "c")
    assert [Path(path).name for path, _ in steps] == ["e"] and not walk.failures


def test_a_very_deep_folder_is_walked_through(tmp_path: Path) -> None:
    chain = [tmp_path / "d"]
    while len(chain) < 1500:
        chain.append(chain[-1] / "d")
    for folder in chain:
        folder.mkdir()
    (chain[-1] / "a").touch()
    assert [path for path, _ in Walk(tmp_path, limit=LIMIT)] == [str(chain[-1] / "a")]
    (chain[-1] / "a").unlink()
    for folder in reversed(chain):  # too deep for rmtree
        folder.rmdir()


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    peaks = []
    for folders in range(2):
        for folder in range(10 * folders, 10 + 30 * folders):
            grow(tmp_path, *(f"{folder:02}/{number}" for number in range(30)))
        tracemalloc.start()
        assert sum(1 for _ in Walk(tmp_path, limit=LIMIT)) == (300, 1200)[folders]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 20_000


NAMES = ["a", "b", "ab", "a.md", "b.txt", "x y", "foo", "build", "a]", "*", "[a]", "#c", "!d", "d "]
PIECES = r"""
    a b * ? ** *.md a* *b* foo build [ab] [!a] [^b]* [a-c]? x* \* []a] [a\]] *a*b* [z-a] [-a] [a-] \#c \!d #c !d **a a**b
""".split()
PIECES += [r"d\ ", "d "]


def jungle(chance: random.Random, folder: Path, depth: int) -> None:
    folder.mkdir()
    for name in chance.sample(NAMES, chance.randint(2, 6)):
        if depth and chance.random() < 0.5:
            jungle(chance, folder / name, depth - 1)
        else:
            (folder / name).touch()
    if chance.random() < (0.9 if depth == 3 else 0.3):
        (folder / ".gitignore").write_text(
            "\n".join(line(chance) for _ in range(chance.randint(1, 5)))
        )


def line(chance: random.Random) -> str:
    pattern = "/".join(chance.choices(PIECES, k=chance.choice([1, 1, 1, 2, 2, 3])))
    return (
        chance.choice(["", "", "!"])
        + chance.choice(["", "", "/"])
        + pattern
        + chance.choice(["", "", "", "/"])
    )


@pytest.mark.skipif(
    os.name != "posix" or shutil.which("git") is None,
    reason="git is not installed, or names are not free",
)
def test_ignore_files_have_the_same_meaning_as_for_git(tmp_path: Path) -> None:
    for seed in range(40):
        root = tmp_path / str(seed)
        jungle(random.Random(seed), root, 3)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        git = "git -c core.excludesFile= ls-files -z --others --exclude-standard".split()
        done = subprocess.run(git, cwd=root, check=True, capture_output=True, text=True)
        listed = done.stdout.split("\0")
        assert walked(root) == sorted(
            path for path in listed if path and not path.endswith(".gitignore")
        ), seed
