from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput
from mcpvectordb.ingest.globs import (
    LONGEST_EXPANSION,
    LONGEST_PATTERN,
    MOST_ALTERNATIVES,
    MOST_BRACES,
    alternatives,
    compile_glob,
    rules_of_file,
    rules_of_patterns,
)

NAMES = st.text(st.sampled_from("ab.c-"), min_size=1, max_size=8)


def fits(pattern: str, path: str) -> bool:
    return compile_glob(pattern).fullmatch(path) is not None


@pytest.mark.parametrize(("pattern", "fitting", "other"), [
    ("*.md", ["a.md", ".md", "a.b.md"], ["d/a.md", "a.md/x", "a.txt", "amd"]), ("**/*", ["a", "d/a", "d/e/a.md"], []),
    ("**/*.md", ["a.md", "d/a.md", "d/e/a.md"], ["a.txt", "d/a.md/x"]), ("**", ["a", "d/a"], []),
    ("docs/**", ["docs/a", "docs/d/a"], ["docs", "other/a", "mydocs/a"]), ("docs/*", ["docs/a"], ["docs/d/a", "a"]),
    ("docs/**/a.md", ["docs/a.md", "docs/x/y/a.md"], ["a.md", "docs/xa.md"]),
    ("**/x/**/y", ["x/y", "p/x/q/x/r/y"], ["x", "xy", "p/y"]), ("a?c", ["abc", "a.c", "aéc"], ["ac", "a/c", "abbc"]),
    ("[a-c]x", ["ax", "cx"], ["dx", "x"]), ("[!a-c]x", ["dx"], ["ax", "/x"]), ("[^a]x", ["bx"], ["ax"]),
    ("[]a]", ["]", "a"], ["[]a]"]), ("[a-]", ["a", "-"], ["b"]), (r"\*", ["*"], ["a"]), (r"[\]]", ["]"], ["\\"]),
    ("a.md", ["a.md"], ["axmd"]), ("a**b", ["ab", "axxb"], ["a/b"]), ("*a*b*", ["ab", "xaxxbx"], ["ba"]),
    ("*.{md,txt}", ["a.md", "a.txt"], ["a.rst", "a.{md,txt}"]), (r"\{a", ["{a"], ["a"]), ("a}", ["a}"], []),
    ("{docs,notes/{a,b}}/*", ["docs/x", "notes/a/x", "notes/b/x"], ["notes/x", "a/x"]), ("a{,b}", ["a", "ab"], ["b"]),
])  # fmt: skip
def test_a_pattern_matches_the_same_paths_as_in_a_shell(
    pattern: str, fitting: list[str], other: list[str]
) -> None:
    assert [path for path in fitting if not fits(pattern, path)] == []
    assert [path for path in other if fits(pattern, path)] == []


@given(pattern=st.text(st.sampled_from("ab.*?"), min_size=1, max_size=8), name=NAMES)
def test_within_a_folder_patterns_match_as_in_fnmatch(pattern: str, name: str) -> None:
    if pattern != "**":
        assert fits(pattern, name) == fnmatchcase(name, pattern)


@given(parts=st.lists(NAMES, min_size=1, max_size=5), kept=st.data())
def test_double_stars_match_any_folders(parts: list[str], kept: st.DataObject) -> None:
    flags = kept.draw(st.lists(st.booleans(), min_size=len(parts) - 1, max_size=len(parts) - 1))
    folders = [part if flag else "**" for part, flag in zip(parts[:-1], flags, strict=True)]
    assert fits("/".join([*folders, parts[-1]]), "/".join(parts))


@pytest.mark.parametrize("pattern", ["[a", "[", "[!", "a\\", "{a", "{a,b"])
def test_an_invalid_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="pattern"):
        compile_glob(pattern)


def test_no_pattern_backtracks_exponentially() -> None:
    assert not fits("*a" * 60 + "b", "a" * 250)
    assert not fits("**/a/" * 40 + "b", "a/" * 500 + "c")
    assert len(alternatives("{aa,a}{a,aa}" * 15)) == 31


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [
        ("{a,b}" * 10, MOST_ALTERNATIVES),
        ("{" + ",".join(map(str, range(1_001))) + "}", MOST_ALTERNATIVES),
        ("{a,b}" * 9 + "x" * 100, LONGEST_EXPANSION),
        ("{a}" * (MOST_BRACES + 1), MOST_BRACES),
        ("{" * 20_000 + "}" * 20_000, MOST_BRACES),
        ("{a,b}" * 5 + "x" * LONGEST_PATTERN, LONGEST_PATTERN),
    ],
)
def test_a_pattern_is_bounded_in_length_braces_and_alternatives(pattern: str, bound: int) -> None:
    with pytest.raises(InvalidInput, match=f"{bound:,}") as caught:
        compile_glob(pattern)
    assert len(str(caught.value)) < 500
    assert len(alternatives("{a,b}" * 9)) == 512
    assert alternatives("{a}" * MOST_BRACES) == ["a" * MOST_BRACES]


# --- ignore rules; that they mean the same as for git is tested with git, in test_folders


def ignored(lines: str, path: str) -> bool | None:
    """A path with a slash at its end is a folder."""
    folder = path.endswith("/")
    path = path.rstrip("/")
    return rules_of_file(lines).ignores(path, path.rpartition("/")[2], folder=folder)


@pytest.mark.parametrize(("lines", "path", "expected"), [
    ("*.log", "a.log", True), ("*.log", "d/a.log", True), ("*.log", "a.txt", None), ("build/", "build/", True),
    ("build/", "d/build/", True), ("build/", "build", None), ("/build", "build", True), ("/build", "d/build", None),
    ("docs/*.html", "docs/a.html", True), ("docs/*.html", "d/docs/a.html", None), ("docs/*.html", "docs/d/a.html", None),
    ("**/logs", "a/logs/", True), ("**/logs", "logs", True), ("a/**", "a/b/c", True), ("a/**", "a/", None),
    ("a/**/b", "a/b", True), ("a/**/b", "a/x/y/b", True), ("**", "a", True), ("**", "d/a", True),
    ("*.log\n!keep.log", "keep.log", False), ("!keep.log\n*.log", "keep.log", True), ("# a", "# a", None),
    (r"\#a", "#a", True), (r"\!a", "!a", True), ("", "a", None), ("  ", "a", None), ("a  ", "a", True), ("a\\ ", "a ", True),
    ("a\r\nb\r\n", "b", True), ("\ufeffa", "a", True), ("[ab].txt", "b.txt", True), ("[a", "[a", None), ("a\\", "a", None),
    ("/", "a", None), ("a\x0cb", "a\x0cb", True), ("*\n!*.md\n!*/\ns.md\n", "a.txt", True),
    ("*\n!*.md\n!*/\ns.md\n", "a.md", False), ("*\n!*.md\n!*/\ns.md\n", "d/", False), ("*\n!*.md\n!*/\ns.md\n", "s.md", True),
    ("a\n!a/", "a", True), ("a\n!a/", "a/", False),
])  # fmt: skip
def test_a_line_ignores_the_same_paths_as_for_git(
    lines: str, path: str, expected: bool | None
) -> None:
    assert ignored(lines, path) is expected


def test_given_patterns_may_have_braces_and_are_validated() -> None:
    rules = rules_of_patterns(["*.{tmp,bak}", "/out/"])
    assert rules.ignores("d/a.bak", "a.bak", folder=False)
    assert rules.ignores("out", "out", folder=True)
    assert rules.ignores("a.md", "a.md", folder=False) is None
    with pytest.raises(InvalidInput, match=r"\[ without"):
        rules_of_patterns(["[a"])
