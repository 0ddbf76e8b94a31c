"""Truncated, damaged and mislabelled files of every format give their text or a clear error."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import docx
import openpyxl
import pptx
import pymupdf
import pytest
import xlwt
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.config import Config
from mcpvectordb.errors import IngestError, NoText, ParseFailed, UnsupportedFormat
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.worker import Worker
from tests.support_formats import epub, odf, read, saved, source

FIXTURES = Path(__file__).parents[3] / "fixtures"
WORDS = "Some words about apples and pears. "


def a_docx() -> bytes:
    document = docx.Document()
    document.add_heading("Fruit", 1)
    document.add_paragraph(WORDS)
    return saved(document)


def a_pptx() -> bytes:
    presentation = pptx.Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[5]).shapes.title.text = WORDS
    return saved(presentation)


def an_xlsx() -> bytes:
    book = openpyxl.Workbook()
    book.active.append(["Sort", WORDS])
    return saved(book)


def an_xls() -> bytes:
    book = xlwt.Workbook()
    book.add_sheet("Fruit").write(0, 0, WORDS)
    return saved(book)


def a_pdf() -> bytes:
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), WORDS)
    return bytes(document.tobytes())


SAMPLES: dict[str, Callable[[], bytes]] = {
    "pdf": a_pdf,
    "docx": a_docx,
    "pptx": a_pptx,
    "xlsx": an_xlsx,
    "xls": an_xls,
    "epub": lambda: epub(f"<p>{WORDS}</p>"),
    "odt": lambda: odf(
        "text", f'<text:h text:outline-level="1">Fruit</text:h><text:p>{WORDS}</text:p>'
    ),
    "fb2": lambda: (
        f"<?xml version='1.0'?><FictionBook><body><p>{WORDS}</p></body></FictionBook>".encode()
    ),
    "html": lambda: (
        f"<html><body><h1>Fruit</h1><p>{WORDS}</p><table><tr><td>a<td>b</table></body></html>".encode()
    ),
    "rtf": lambda: rf"{{\rtf1\ansi{{\fonttbl{{\f0 Arial;}}}}\pard {WORDS}\par}}".encode(),
    "json": lambda: json.dumps({"fruit": [{"name": WORDS, "n": 1}]}).encode(),
    "ipynb": lambda: json.dumps({"cells": [{"cell_type": "markdown", "source": [WORDS]}]}).encode(),
    "xml": lambda: f"<?xml version='1.0'?><a><b c='d'>{WORDS}</b></a>".encode(),
    "csv": lambda: b"name,words\nfruit," + WORDS.encode() + b"\n",
    "eml": lambda: f"From: a@b.example\nMIME-Version: 1.0\nSubject: Fruit\n\n{WORDS}\n".encode(),
    "rst": lambda: f"Fruit\n=====\n\n.. note:: {WORDS}\n\n* a\n* b\n".encode(),
    "org": lambda: f"* Fruit\n{WORDS}\n#+begin_src\nx\n#+end_src\n".encode(),
    "tex": lambda: (
        rf"\documentclass{{a}}\begin{{document}}\section{{Fruit}} {WORDS}\end{{document}}".encode()
    ),
    "srt": lambda: f"1\n00:00:01,000 --> 00:00:02,000\n{WORDS}\n".encode(),
    "doc": lambda: gzip.decompress((FIXTURES / "fruit.doc.gz").read_bytes()),
    "ppt": lambda: gzip.decompress((FIXTURES / "fruit.ppt.gz").read_bytes()),
}
# What a file of each kind begins with, and the characters that have a meaning in it.
GRAMMARS = {
    "csv": ("", ',;"\t\n ab1'),
    "eml": ("", 'From: Content-Typeubjcmaxd/;="<>@\n -1'),
    "tex": ("", "\\{}[]$%&~_ abegindtmsc\n"),
    "rst": ("", ":.`=-*|>+#_ abc\n"),
    "org": ("", "#+*:|=-begindsrc_ \n"),
    "rtf": ("{\\rtf1 ", "\\{}'*u-19 abcfstyleheading\n"),
    "xml": ("", "<>/ab =\"'&;[]!"),
}


def attempt(raw: bytes, name: str) -> None:
    try:
        read(raw, name)
    except IngestError as error:
        assert name in str(error) or "save it as UTF-8" in str(error)
        assert "\n" not in str(error)


@pytest.mark.parametrize("kind", SAMPLES)
def test_an_intact_file_gives_its_words(kind: str) -> None:
    words = "come later" if kind == "doc" else "are green" if kind == "ppt" else WORDS.strip()
    assert words in read(SAMPLES[kind](), f"a.{kind}").text


@pytest.mark.parametrize("kind", GRAMMARS)
@given(data=st.data())
def test_arbitrary_text_gives_text_or_an_ingest_error(kind: str, data: st.DataObject) -> None:
    begin, characters = GRAMMARS[kind]
    text = begin + data.draw(st.text(characters, max_size=120))
    found = formats.by_name(f"a.{kind}")
    assert found is not None
    with suppress(IngestError):  # the parser's own, not what `formats.parse` makes of any error
        formats.reader_of(found)(source(text, f"a.{kind}"))


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_truncated_file_gives_text_or_a_clear_error(kind: str) -> None:
    raw = SAMPLES[kind]()
    for kept in random.Random(kind).sample(range(len(raw)), min(25, len(raw))):
        attempt(raw[:kept], f"a.{kind}")


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_damaged_file_gives_text_or_a_clear_error(kind: str) -> None:
    rng, raw = random.Random(kind), SAMPLES[kind]()
    for _ in range(25):
        damaged = bytearray(raw)
        for _ in range(rng.choice((1, 5, 50))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        attempt(bytes(damaged), f"a.{kind}")


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.docx", "a.bin", "a"])
def test_a_file_with_a_wrong_name_is_recognised_by_its_bytes(kind: str, name: str) -> None:
    raw = SAMPLES[kind]()
    recognisable = kind not in ("json", "ipynb", "csv", "rst", "org")
    try:
        found = formats.detect(source(raw, name)).name
    except UnsupportedFormat:
        found = ""
    assert not recognisable or found == formats.detect(source(raw, f"a.{kind}")).name


@pytest.mark.parametrize(
    "kind", [*SAMPLES, "mobi", "xps", "xlsb", "ods", "odp", "mbox", "vtt", "tsv", "jsonl"]
)
def test_an_empty_file_is_an_error_with_its_name(kind: str) -> None:
    with pytest.raises((NoText, ParseFailed), match=rf"a\.{kind}"):
        read(b"", f"a.{kind}")


def sparse_xlsx() -> bytes:
    """Two cells in opposite corners of a sheet: the reader allocates all the cells between them."""
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "near", "far"
    return saved(book)


@pytest.mark.long
def test_a_parser_that_runs_out_of_memory_gives_a_clear_error_and_the_next_file_is_read() -> None:
    with Worker(Config()) as worker:
        with pytest.raises(ParseFailed, match=r"sparse\.xlsx"):
            worker.parse(source(sparse_xlsx(), "sparse.xlsx"))
        assert worker.parse(source(a_docx(), "a.docx")).title == "Fruit"


def test_a_small_docx_that_unpacks_to_much_text_is_refused() -> None:
    document = docx.Document()
    for _ in range(12):
        document.add_paragraph(WORDS * 30_000)
    raw = saved(document)
    assert len(raw) < 90_000
    with (
        Worker(Config()) as worker,
        pytest.raises(ParseFailed, match=r"100 times its size .*MCPVECTORDB_PARSE_OUTPUT_RATIO"),
    ):
        worker.parse(source(raw, "bomb.docx"))
