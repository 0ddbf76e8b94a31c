from __future__ import annotations

import pytest

from mcpvectordb.ingest.formats.text import parse
from mcpvectordb.records import Parsed, Source


def parsed(raw: bytes) -> Parsed:
    return parse(Source(source="/folder/notes.txt", name="notes.txt", raw=raw, file_type="txt"))


def test_text_is_kept_as_it_is_and_titled_by_its_file() -> None:
    raw = "\ufeffNo # heading here\r\n\r\n  text\t\n".encode()
    assert parsed(raw) == Parsed(text=raw.decode(), title="notes.txt", kind="text")
    assert parsed(raw).text.encode() == raw


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Tea\nwater", "Tea"),
        ("\ufeff# Tea\r\nwater", "Tea"),
        ("first\n\n###Green tea  \n# Later", "Green tea"),
        ("#\n##  \n# Tea #1", "Tea #1"),
        ("water\n # indented\nx # y", "notes.txt"),
        ("#\ntext that follows", "notes.txt"),
        ("##### \n", "notes.txt"),
        ("# " + "x" * 500, "x" * 200),
    ],
)
def test_the_first_line_that_begins_with_a_hash_is_the_title(text: str, title: str) -> None:
    assert parsed(text.encode()).title == title


def test_the_charset_of_the_media_type_is_used() -> None:
    raw = "Съешь".encode("koi8-r")
    found = parse(
        Source(source="a", name="a", raw=raw, file_type="", media_type="text/plain; charset=koi8-r")
    )
    assert found.text == "Съешь"
