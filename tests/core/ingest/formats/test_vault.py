from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ingest.formats import markdown, vault
from mcpvectordb.records import Source


def parsed(text: str, *, vault: bool = True) -> dict[str, Any]:
    raw = text.encode()
    source = Source(source="/v/n.md", name="n.md", raw=raw, file_type="md", vault=vault)
    return dict(markdown.parse(source).metadata)


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
    assert parsed(text).get("links", []) == links


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
    assert parsed(text).get("tags", []) == tags


def test_aliases_are_a_list() -> None:
    assert parsed("---\naliases: Green Tea, Sencha\n---\n")["aliases"] == ["Green Tea", "Sencha"]
    assert parsed("---\nalias: [Sencha]\nyear: 1\n---\n") == {"aliases": ["Sencha"], "year": 1}


def test_outside_of_a_vault_nothing_is_read_from_the_text() -> None:
    assert parsed("---\ntags: a, b\n---\n[[Tea]] #x", vault=False) == {"tags": "a, b"}


def test_a_vault_is_known_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    assert vault.is_in_vault(tmp_path / "vault" / "a" / "b" / "n.md")
    assert not vault.is_in_vault(tmp_path / "n.md")


@given(st.text(st.sampled_from("[]|#^`~%!()\n/ aä1.md-"), max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    found = vault.metadata(text, "", {})
    assert all(isinstance(each, str) and each for values in found.values() for each in values)


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    """Patterns that would be tried again at every place of these never end."""
    for piece in ("[[", "`", "%%", "```\n", "#/", "](", "[[a|"):
        assert len(vault.metadata(piece * 200_000, "", {}).get("links", [])) <= vault.MOST
