from __future__ import annotations

from mcpvectordb.ingest.formats.text import parse
from mcpvectordb.records import Parsed, Source


def test_text_is_kept_as_it_is_and_titled_by_its_file() -> None:
    raw = "\ufeff# No heading here\r\n\r\n  text\t\n".encode()
    parsed = parse(Source(source="/folder/notes.txt", name="notes.txt", raw=raw, file_type="txt"))
    assert parsed == Parsed(text=raw.decode(), title="notes.txt", kind="text")
    assert parsed.text.encode() == raw


def test_the_charset_of_the_media_type_is_used() -> None:
    raw = "Съешь".encode("koi8-r")
    found = parse(
        Source(source="a", name="a", raw=raw, file_type="", media_type="text/plain; charset=koi8-r")
    )
    assert found.text == "Съешь"
