from __future__ import annotations

import pytest

from mcpvectordb import InvalidInput
from mcpvectordb.ingest.gitignore import of_file, of_patterns


def ignored(lines: str, path: str) -> bool | None:
    """A path with a slash at its end is a folder."""
    folder = path.endswith("/")
    path = path.rstrip("/")
    return of_file(lines).ignores(path, path.rpartition("/")[2], folder=folder)


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        ("*.log", "a.log", True),
        ("*.log", "d/a.log", True),
        ("*.log", "a.txt", None),
        ("build/", "build/", True),
        ("build/", "d/build/", True),
        ("build/", "build", None),
        ("/build", "build", True),
        ("/build", "d/build", None),
        ("docs/*.html", "docs/a.html", True),
        ("docs/*.html", "d/docs/a.html", None),
        ("docs/*.html", "docs/d/a.html", None),
        ("**/logs", "a/logs/", True),
        ("**/logs", "logs", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a/", None),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("**", "a", True),
        ("**", "d/a", True),
        ("*.log\n!keep.log", "keep.log", False),
        ("!keep.log\n*.log", "keep.log", True),
        ("# a", "# a", None),
        (r"\#a", "#a", True),
        (r"\!a", "!a", True),
        ("", "a", None),
        ("  ", "a", None),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("a\r\nb\r\n", "b", True),
        ("\ufeffa", "a", True),
        ("[ab].txt", "b.txt", True),
        ("[a", "[a", None),
        ("a\\", "a", None),
        ("/", "a", None),
        ("a\x0cb", "a\x0cb", True),
    ],
)
def test_a_line_ignores_the_same_paths_as_for_git(
    lines: str, path: str, expected: bool | None
) -> None:
    assert ignored(lines, path) is expected


def test_the_last_matching_pattern_decides() -> None:
    lines = "*\n!*.md\n!*/\nsecret.md\n"
    assert [ignored(lines, path) for path in ("a.txt", "a.md", "d/", "secret.md")] == [
        True,
        False,
        False,
        True,
    ]


def test_given_patterns_may_have_braces_and_are_validated() -> None:
    rules = of_patterns(["*.{tmp,bak}", "/out/"])
    assert rules.ignores("d/a.bak", "a.bak", folder=False) and rules.ignores(
        "out", "out", folder=True
    )
    assert rules.ignores("a.md", "a.md", folder=False) is None
    with pytest.raises(InvalidInput, match=r"\[ without"):
        of_patterns(["[a"])
