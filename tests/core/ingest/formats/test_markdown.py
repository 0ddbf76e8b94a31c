from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ingest.formats.markdown import MOST, parse
from mcpvectordb.metadata import encode
from mcpvectordb.records import Parsed, Source


def read(text: str) -> Parsed:
    return parse(
        Source(source="/folder/notes.md", name="notes.md", raw=text.encode(), file_type="md")
    )


@pytest.mark.parametrize(("text", "title"), [
    ("# First\n\n# Second", "First"), ("text\n\n### Deep\n\n# Top", "Deep"), ("Over\n====\n", "Over"),
    ("\ufeff# Marked\r\n", "Marked"), ("# **Bold** [link](http://a.b) `code` ##\n", "Bold link code"),
    ("# " + "x" * 300, "x" * 200), ("#\n\n## Second\n", "Second"),
    ("no heading", "notes.md"), ("#tag\n", "notes.md"), ("```\n# code\n```\n", "notes.md"),
    ("---\ntitle: Given\n---\n# Head\n", "Given"), ("---\ntitle: 2024\n---\n# Head\n", "2024"),
    ("---\ntitle: 2024-05-01\n---\n", "2024-05-01"), ("---\ntitle:\n---\n# Head\n", "Head"),
    ("---\ntitle: [a]\n---\n# Head\n", "Head"), ("---\ntitle: yes\n---\n# Head\n", "Head"), ("---\ntags: a\n---\n", "notes.md"),
    ("# Notes\n\n# Other\n\n## Meeting\n", "Meeting"), ("# 📝 Notes\n## Meeting\n", "Meeting"), ("# Notes\n\ntext\n", "Notes"),
])  # fmt: skip
def test_the_title_is_that_of_the_front_matter_or_the_first_heading_or_the_file_name(
    text: str, title: str
) -> None:
    assert read(text).title == title


def test_the_text_is_unchanged_and_includes_its_front_matter() -> None:
    text = "\ufeff---\r\ntitle: A\r\n---\r\n\r\n# B  \r\n"
    assert (read(text).text, read(text).kind, read(text).pages) == (text, "markdown", ())


@pytest.mark.parametrize(("yaml", "metadata"), [
    ("tags: [a, b]\nyear: 2026\nscore: 0.5\ndraft: true\nnothing:\n",
     {"tags": ["a", "b"], "year": 2026, "score": 0.5, "draft": True, "nothing": None}),
    ("date: 2026-05-01\ntime: 2026-05-01T12:00:00Z\n", {"date": "2026-05-01", "time": "2026-05-01T12:00:00+00:00"}),
    ("author:\n  name: Å\n  2: two\n", {"author": {"name": "Å", "2": "two"}}),
    ("text: |\n  two\n  lines\n", {"text": "two\nlines\n"}),
])  # fmt: skip
def test_front_matter_becomes_metadata_of_json_values(yaml: str, metadata: dict[str, Any]) -> None:
    assert read(f"---\n{yaml}---\n\ntext").metadata == metadata
    assert read(f"---\n{yaml}---\n\ntext".replace("\n", "\r\n")).metadata == metadata


@pytest.mark.parametrize("yaml", [
    "a: [1\n", "a: b: c\n", "a: !!python/object/apply:os.system [exit]\n", "a: !!bool x\n", "a: !!timestamp x\n",
    "a: 2026-99-99\n", "a: .nan\n", "a: .inf\n", "a: 99999999999999999999\n", f"a: {'9' * 5000}\n", 'a: "\\ud800"\n',
    "a: !!binary aGk=\n", "a: &x [1]\nb: *x\n", "a: " + "[" * 30_000 + "\n", "a: " + "[" * 40 + "]" * 40 + "\n",
    f"a: {'x' * 40_000}\n", "a: \x07\n", "'text': \"\n", "a: 1\n---x\n--- b\n",
])  # fmt: skip
def test_invalid_front_matter_is_only_text(yaml: str) -> None:
    text = f"---\n{yaml}---\n\n# Head\n"
    assert (read(text).metadata, read(text).title, read(text).text) == ({}, "Head", text)


@given(st.text("ab:-[]{}&*!|>'\"#\n 0.,?%@`\t~=<", max_size=80))
def test_arbitrary_front_matter_gives_storable_metadata(yaml: str) -> None:
    encode(read(f"---\na: {yaml}\n---\n\ntext").metadata)


# --- notes of an Obsidian vault


def noted(text: str, *, vault: bool = True) -> dict[str, Any]:
    raw = text.encode()
    source = Source(source="/v/n.md", name="n.md", raw=raw, file_type="md", vault=vault)
    return dict(parse(source).metadata)


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("See [[Tea]].", ["Tea"]),
        ("See [[Tea|the drink]] and [[Tea#Water]] and [[Tea#^block]].", ["Tea"]),
        ("![[Tea]] ![[cup.png]]", ["Tea", "cup.png"]),
        ("[[drinks/Green Tea.md]]", ["drinks/Green Tea", "Green Tea"]),
        ("[tea](drinks/Green%20Tea.md#Water)", ["drinks/Green Tea", "Green Tea"]),
        ("[web](https://example.org/a.md)", []),
        ("[[#Only a heading]] [[]] [[ ]]", []),
        ("```\n[[Code]]\n```\n`[[Code]]` %%[[Hidden]]%% [[Seen]]", ["Seen"]),
        ('---\nup: "[[Above]]"\n---\nText.', ["Above"]),
        ("~~~\n[[Code]] without an end", []),
    ],
)
def test_links_have_the_names_of_notes(text: str, links: list[str]) -> None:
    assert noted(text).get("links", []) == links


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#tea and (#milk), #Grün_1", ["tea", "milk", "Grün_1"]),
        ("#inbox/to-read", ["inbox/to-read", "inbox"]),
        ("# Heading\n\n## Second\n\nissue #12, a#b, &#39;", []),
        ("`#code`\n\n```\n#include\n```\n", []),
        ("---\ntags: [a, b/c, '#d']\n---\n#a", ["a", "b/c", "b", "d"]),
        ("---\ntags: a, b c\n---\n", ["a", "b", "c"]),
        ("---\ntag: one\n---\n", ["one"]),
        ("---\ntags: 5\n---\n", []),
    ],
)
def test_tags_come_from_text_and_front_matter(text: str, tags: list[str]) -> None:
    assert noted(text).get("tags", []) == tags


def test_aliases_are_a_list() -> None:
    assert noted("---\naliases: Green Tea, Sencha\n---\n")["aliases"] == ["Green Tea", "Sencha"]
    assert noted("---\nalias: [Sencha]\nyear: 1\n---\n") == {"aliases": ["Sencha"], "year": 1}


def test_outside_of_a_vault_nothing_is_read_from_the_text() -> None:
    assert noted("---\ntags: a, b\n---\n[[Tea]] #x", vault=False) == {"tags": "a, b"}


@given(st.text(st.sampled_from("[]|#^`~%!()\n/ aä1.md-"), max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    found = noted(text)
    assert all(isinstance(each, str) and each for values in found.values() for each in values)


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    """Patterns that would be tried again at every place of these never end."""
    for piece in ("[[", "`", "%%", "```\n", "#/", "](", "[[a|"):
        assert len(noted(piece * 200_000).get("links", [])) <= MOST
