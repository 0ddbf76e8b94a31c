from __future__ import annotations

import pytest

from mcpvectordb.ingest.chunking import split
from mcpvectordb.ingest.formats import detect
from mcpvectordb.ingest.formats.code import parse
from mcpvectordb.records import Parsed, Source

LANGUAGES = """
    py js ts tsx jsx java c h cpp hpp cc cs go rs rb php swift kt scala sh bash zsh ps1 sql lua r pl hs ex exs erl clj dart
    vue svelte css scss toml yaml yml ini cfg make dockerfile cmake proto graphql tf
"""


def source(name: str, raw: bytes) -> Source:
    return Source(source=f"/folder/{name}", name=name, raw=raw, file_type="")


def test_code_is_kept_as_it_is_and_titled_by_its_file() -> None:
    raw = b"# comment, not a heading\r\n\tx = 1\r\n"
    assert parse(source("a.py", raw)) == Parsed(text=raw.decode(), title="a.py", kind="code")


@pytest.mark.parametrize("extension", LANGUAGES.split())
def test_common_languages_are_recognised_by_their_extension(extension: str) -> None:
    assert detect(source(f"name.{extension}", b"code")).module == "code"


def test_chunks_of_code_have_no_headings_and_begin_with_definitions() -> None:
    text = parse(
        source("a.py", b"# One\ndef one():\n    return 1\n\n\n# Two\ndef two():\n    return 2\n")
    ).text
    spans = split(text, starts=range(len(text)), size=40, overlap=0, kind="code")
    assert [text[each.start : each.end].splitlines()[0] for each in spans] == ["# One", "# Two"]
    assert {each.headings for each in spans} == {()}
