"""A line that is cited is one of the file, or is called a line of the extracted text."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpvectordb import Database
from mcpvectordb.ingest.formats import known_as
from mcpvectordb.records import EXTRACTED

WORDS = "Apples ripen early"
FILES = {
    "a.md": f"# Fruit\n\n\n{WORDS} here.\n",
    "a.txt": f"Fruit\n\n\n{WORDS} here.\n",
    "a.py": f"# Fruit\n\n\n\ndef f():\n    {WORDS!r}\n",
    "a.rst": f"Fruit\n=====\n\n.. _there:\n\n{WORDS} here.\n",
    "a.org": f"#+TITLE: Fruit\n# no\n\n* One\n{WORDS} here.\n",
    "a.tex": f"\\title{{Fruit}}\n\\begin{{document}}\n\n% no\n{WORDS}.\n\\end{{document}}\n",
    "a.srt": f"1\n00:00:01,000 --> 00:00:02,000\n{WORDS}.\n",
    "a.csv": f"sort,said\npear,no\napple,{WORDS}\n",
    "a.json": f'{{\n "sort": "pear",\n\n "said": "{WORDS}"\n}}\n',
    "a.html": f"<html>\n<title>Fruit</title>\n<body>\n\n<p>{WORDS} here.</p></body></html>\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_cited_line_is_one_of_the_file_or_called_a_line_of_its_text(
    db: Database, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    file.write_text(FILES[name])
    db.documents.ingest(str(file))
    [found] = db.documents.search(WORDS, mode="text", limit=1)
    quotation = db.verify(WORDS)
    document = found.item.document
    text = db.documents.text(document.id)
    lines = (text if document.extracted else FILES[name]).split("\n")
    assert WORDS in lines[found.line - 1]
    assert WORDS in lines[quotation.first_line - 1]
    assert found.item.text.split("\n")[0].lstrip("# ") in lines[found.item.first_line - 1]
    assert ("text line" in found.item.citation) == document.extracted
    said = document.place(found.line)
    named = db.documents.lookup(said)
    assert (named.document, named.line, named.lines) == (document, found.line, None)
    several = db.documents.lookup(document.place(2, 4))
    assert (several.document, several.line, several.lines) == (document, 2, 3)
    assert said.endswith(f", text line {found.line}" if document.extracted else f":{found.line}")


def test_the_formats_whose_text_is_extracted_are_those_that_a_parser_rewrites() -> None:
    extensions = {name: each for name, each in known_as().items() if "/" not in name}
    inline = {name for name, each in extensions.items() if each.inline}
    keeps_lines = inline | {name for name, each in extensions.items() if each.module == "markup"}
    pictures = set("png jpg jpeg gif bmp tif tiff".split())
    assert EXTRACTED - pictures - {"url"} == extensions.keys() - keeps_lines
    assert not inline & EXTRACTED
