from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ingest.chunking import split
from mcpvectordb.ingest.formats import CODE, detect
from mcpvectordb.ingest.formats.text import MOST, parse, parse_code, parse_markdown
from mcpvectordb.metadata import encode
from mcpvectordb.records import Parsed
from tests.support_formats import source

LANGUAGES = """
    py js ts tsx jsx java c h cpp hpp cc cs go rs rb php swift kt scala sh bash zsh ps1 sql lua r pl hs ex exs erl clj dart
    vue svelte css scss toml yaml yml ini cfg make dockerfile cmake proto graphql tf
"""


def markdown(text: str, *, vault: bool = False) -> Parsed:
    return parse_markdown(replace(source(text, "notes.md"), vault=vault))


# --- plain text


@pytest.mark.parametrize(("text", "title"), [
    ("\ufeffNo # heading here\r\n\r\n  text\t\n", "notes.txt"), ("# Tea\nwater", "Tea"), ("\ufeff# Tea\r\nwater", "Tea"),
    ("first\n\n###Green tea  \n# Later", "Green tea"), ("#\n##  \n# Tea #1", "Tea #1"),
    ("water\n # indented\nx # y", "notes.txt"), ("#\ntext that follows", "notes.txt"), ("##### \n", "notes.txt"),
    ("# " + "x" * 500, "x" * 200),
])  # fmt: skip
def test_text_is_kept_and_titled_by_its_first_line_with_a_hash_or_its_file(
    text: str, title: str
) -> None:
    assert parse(source(text, "notes.txt")) == Parsed(text=text, title=title, kind="text")


def test_the_charset_of_the_media_type_is_used() -> None:
    assert (
        parse(source("Съешь".encode("koi8-r"), "a", "text/plain; charset=koi8-r")).text == "Съешь"
    )


# --- source code


def test_code_is_kept_as_it_is_and_titled_by_its_file() -> None:
    raw = "# comment, not a heading\r\n\tx = 1\r\n"
    assert parse_code(source(raw, "a.py")) == Parsed(text=raw, title="a.py", kind="code")


@pytest.mark.parametrize("extension", LANGUAGES.split())
def test_common_languages_are_recognised_by_their_extension(extension: str) -> None:
    assert detect(source("code", f"name.{extension}")) is CODE


def test_chunks_of_code_have_no_headings_and_begin_with_definitions() -> None:
    text = "# One\ndef one():\n    return 1\n\n\n# Two\ndef two():\n    return 2\n"
    spans = split(text, starts=range(len(text)), size=40, overlap=0, kind="code")
    assert [text[each.start : each.end].splitlines()[0] for each in spans] == ["# One", "# Two"]
    assert {each.headings for each in spans} == {()}


# --- Markdown


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
    assert markdown(text).title == title


def test_the_text_is_unchanged_and_includes_its_front_matter() -> None:
    text = "\ufeff---\r\ntitle: A\r\n---\r\n\r\n# B  \r\n"
    assert (markdown(text).text, markdown(text).kind, markdown(text).pages) == (
        text,
        "markdown",
        (),
    )


@pytest.mark.parametrize(("yaml", "metadata"), [
    ("tags: [a, b]\nyear: 2026\nscore: 0.5\ndraft: true\nnothing:\n",
     {"tags": ["a", "b"], "year": 2026, "score": 0.5, "draft": True, "nothing": None}),
    ("date: 2026-05-01\ntime: 2026-05-01T12:00:00Z\n", {"date": "2026-05-01", "time": "2026-05-01T12:00:00+00:00"}),
    ("author:\n  name: Å\n  2: two\n", {"author": {"name": "Å", "2": "two"}}),
    ("text: |\n  two\n  lines\n", {"text": "two\nlines\n"}),
])  # fmt: skip
def test_front_matter_becomes_metadata_of_json_values(yaml: str, metadata: dict[str, Any]) -> None:
    assert markdown(f"---\n{yaml}---\n\ntext").metadata == metadata
    assert markdown(f"---\n{yaml}---\n\ntext".replace("\n", "\r\n")).metadata == metadata


@pytest.mark.parametrize("yaml", [
    "a: [1\n", "a: b: c\n", "a: !!python/object/apply:os.system [exit]\n", "a: !!bool x\n", "a: !!timestamp x\n",
    "a: 2026-99-99\n", "a: .nan\n", "a: .inf\n", "a: 99999999999999999999\n", f"a: {'9' * 5000}\n", 'a: "\\ud800"\n',
    "a: !!binary aGk=\n", "a: &x [1]\nb: *x\n", "a: " + "[" * 30_000 + "\n", "a: " + "[" * 40 + "]" * 40 + "\n",
    f"a: {'x' * 40_000}\n", "a: \x07\n", "'text': \"\n", "a: 1\n---x\n--- b\n",
])  # fmt: skip
def test_invalid_front_matter_is_only_text(yaml: str) -> None:
    text = f"---\n{yaml}---\n\n# Head\n"
    assert (markdown(text).metadata, markdown(text).title, markdown(text).text) == (
        {},
        "Head",
        text,
    )


@given(st.text("ab:-[]{}&*!|>'\"#\n 0.,?%@`\t~=<", max_size=80))
def test_arbitrary_front_matter_gives_storable_metadata(yaml: str) -> None:
    encode(markdown(f"---\na: {yaml}\n---\n\ntext").metadata)


# --- notes of an Obsidian vault


def noted(text: str, *, vault: bool = True) -> dict[str, Any]:
    return dict(markdown(text, vault=vault).metadata)


@pytest.mark.parametrize(("text", "links"), [
    ("See [[Tea]].", ["Tea"]), ("See [[Tea|the drink]] and [[Tea#Water]] and [[Tea#^block]].", ["Tea"]),
    ("![[Tea]] ![[cup.png]]", ["Tea", "cup.png"]), ("[[drinks/Green Tea.md]]", ["drinks/Green Tea", "Green Tea"]),
    ("[tea](drinks/Green%20Tea.md#Water)", ["drinks/Green Tea", "Green Tea"]), ("[web](https://example.org/a.md)", []),
    ("[[#Only a heading]] [[]] [[ ]]", []), ("```\n[[Code]]\n```\n`[[Code]]` %%[[Hidden]]%% [[Seen]]", ["Seen"]),
    ('---\nup: "[[Above]]"\n---\nText.', ["Above"]), ("~~~\n[[Code]] without an end", []),
])  # fmt: skip
def test_links_have_the_names_of_notes(text: str, links: list[str]) -> None:
    assert noted(text).get("links", []) == links


@pytest.mark.parametrize(("text", "tags"), [
    ("#tea and (#milk), #Grün_1", ["tea", "milk", "Grün_1"]), ("#inbox/to-read", ["inbox/to-read", "inbox"]),
    ("# Heading\n\n## Second\n\nissue #12, a#b, &#39;", []), ("`#code`\n\n```\n#include\n```\n", []),
    ("---\ntags: [a, b/c, '#d']\n---\n#a", ["a", "b/c", "b", "d"]), ("---\ntags: a, b c\n---\n", ["a", "b", "c"]),
    ("---\ntag: one\n---\n", ["one"]), ("---\ntags: 5\n---\n", []),
])  # fmt: skip
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
