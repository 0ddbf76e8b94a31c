from __future__ import annotations

import random
import struct
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import pymupdf
import pytest

from mcpvectordb.errors import NoText, ParseFailed, UnsupportedFormat
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.formats import FORMATS, TEXT, detect, parse
from mcpvectordb.ingest.formats.charset import unicode_encoding
from mcpvectordb.records import Parsed, Source
from tests.support import python
from tests.support_formats import read
from tests.support_formats import source as made

PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"


def source(name: str, raw: bytes = b"some text", media_type: str = "") -> Source:
    return made(raw, name, media_type)


def archive(*members: str) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for each in members:
            file.writestr(zipfile.ZipInfo(each), "x")  # always the same time stamp
    return buffer.getvalue()


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
def test_every_format_has_a_parser(each: formats.Format) -> None:
    assert callable(formats.reader_of(each))


def test_names_extensions_and_media_types_of_formats_are_unique() -> None:
    lines = Path(formats.__file__).with_name("known_as.txt").read_text("utf-8").splitlines()
    named = [line.partition(": ") for line in lines]
    assert [name for name, _, _ in named] == [each.name for each in FORMATS]
    words = [word for _, _, line in named for word in line.split()]
    assert sorted(words) == sorted(set(words)) and words == list(map(str.lower, words))


def test_parsers_and_their_libraries_are_imported_on_first_use() -> None:
    done = python("import sys, mcpvectordb.ingest.formats; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert "mcpvectordb.ingest.formats" in loaded, done.stderr
    assert not loaded & {
        "yaml",
        "charset_normalizer",
        "pymupdf",
        "lxml",
        "mcpvectordb.ingest.formats.pdf",
    }


@pytest.mark.parametrize(("name", "format_name"), [
    ("a.txt", "plain text"), ("A.TXT", "plain text"), ("README", "plain text"), (".gitignore", "plain text"),
    ("a.md", "Markdown"), ("a.b.markdown", "Markdown"), ("a.py", "source code"), ("Makefile", "source code"),
    ("CMakeLists.txt", "source code"), ("Dockerfile", "source code"),
    ("a.html", "HTML"), ("a.csv", "CSV"), ("notes without extension", "plain text"),
])  # fmt: skip
def test_the_format_of_text_is_detected_by_its_name(name: str, format_name: str) -> None:
    assert detect(source(name)).name == format_name


@pytest.mark.parametrize(("name", "raw", "format_name"), [
    ("a.txt", PDF, "PDF"), ("a.docx", PDF, "PDF"), ("a", PDF, "PDF"), ("a.xyz", PDF, "PDF"), ("a.py", PDF, "PDF"),
    ("a.pdf", archive("[Content_Types].xml", "word/document.xml"), "DOCX"), ("a.zip", archive("xl/workbook.xml"), "XLSX"),
    ("a.pdf", b"<!DOCTYPE html><p>log in first", "HTML"), ("a.txt", b"\n <html lang=en>", "HTML"),
    ("a.doc", b"{\\rtf1 x}", "RTF"),
    ("a.md", "<!doctype html>".encode("utf-16"), "HTML"), ("a.txt", b"\xef\xbb\xbf<!doctype html>", "HTML"),
    ("a.pdf", b"really only text", "plain text"), ("a.docx", b"really only text", "plain text"),
])  # fmt: skip
def test_content_wins_over_a_wrong_extension(name: str, raw: bytes, format_name: str) -> None:
    assert detect(source(name, raw)).name == format_name


@pytest.mark.parametrize("name", ["a.php", "a.vue", "a.svelte"])
def test_source_code_may_begin_with_markup(name: str) -> None:
    assert detect(source(name, b"<!doctype html><?php echo 1;")).name == "source code"


@pytest.mark.parametrize(("name", "media_type", "format_name"), [
    ("article", "text/html; charset=utf-8", "HTML"), ("page.php", "Text/HTML", "HTML"), ("README.md", "text/plain", "Markdown"),
    ("README.md", "text/html", "HTML"), ("raw.xyz", "text/plain", "plain text"), ("raw.xyz", "text/x-unheard-of", "plain text"),
    ("a.py", "application/octet-stream", "source code"), ("a", "application/octet-stream", "plain text"),
])  # fmt: skip
def test_a_specific_media_type_wins_over_the_extension(
    name: str, media_type: str, format_name: str
) -> None:
    assert detect(source(name, media_type=media_type)).name == format_name


@pytest.mark.parametrize(("raw", "what"), [
    (b"\x89PNG\r\n\x1a\n", "a PNG image"), (b"\xff\xd8\xff\xe0", "a JPEG image"), (b"GIF89a\1\0\1\0", "a GIF image"),
    (b"RIFF\1\2\3\4WEBP", "a WebP image"), (b"ID3\4\0", "an MP3 sound"), (b"\0\0\0 ftypisom", "an MP4 or HEIC file"),
    (b"\x1f\x8b\x08", "a gzip archive"), (archive("a.txt"), "a ZIP archive"), (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x7fELF\2", "a program"), (b"\0asm\1", "a program"), (b"SQLite format 3\0", "an SQLite database"),
    (b"some\0thing", "binary data"),
])  # fmt: skip
def test_an_unsupported_format_is_named_with_any_extension(raw: bytes, what: str) -> None:
    for name in (
        ("a.md", "a.pdf", "a.xyz", "a")
        if what not in ("a ZIP archive", "binary data")
        else ("a.md", "a")
    ):
        with pytest.raises(
            UnsupportedFormat,
            match=f"^Unsupported format of {name}: {what}; supported are .*Markdown",
        ):
            detect(source(name, raw))


CALENDAR = b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nSUMMARY:Apple day\r\nEND:VCALENDAR\r\n"


@pytest.mark.parametrize(("name", "raw"), [
    ("a.adoc", b"= Fruit\n\n== Apples\n\nApples are red.\n"), ("a.bib", b"@book{a, title = {Apples}}\n"),
    ("a.diff", b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-apple\n+pear\n"), ("a.ics", CALENDAR),
    ("a.vcf", b"BEGIN:VCARD\r\nFN:Ann Apple\r\nEND:VCARD\r\n"), ("a.xyz", "Äpfel und Birnen".encode()),
    ("a.xyz", "Äpfel und Birnen, Pflaumen".encode("latin-1")), ("a.doc", b"really only text"),
    ("a.xyz", "яблоки и груши и сливы".encode("koi8-r")), ("a.xyz", "りんごと梨".encode()),
])  # fmt: skip
def test_any_text_is_read_whatever_its_extension(name: str, raw: bytes) -> None:
    assert detect(source(name, raw)) == TEXT
    assert parse(source(name, raw)).text.strip()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    "text", ["Apples, pears", "Äpfel\r\nund Birnen\r\n", "りんご、梨と\n桃の木 1"]
)
def test_utf_16_is_read_with_and_without_a_mark(text: str, encoding: str) -> None:
    for name in ("a.txt", "a.xyz", "a.md"):
        assert parse(source(name, text.encode(encoding))).text.removeprefix("\ufeff") == text


def test_a_page_in_utf_16_without_a_mark_is_still_a_page() -> None:
    assert detect(source("a.txt", "<!doctype html>".encode("utf-16-le"))).name == "HTML"


@pytest.mark.parametrize("seed", range(20))
def test_binary_data_without_a_known_form_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    for raw in (
        rng.randbytes(3000),
        bytes(rng.choice(range(1, 256)) for _ in range(3000)),  # without a byte 0
        zlib.compress(rng.randbytes(500) + b"text " * 500),
        struct.pack("<200d", *(rng.random() for _ in range(200))),
        struct.pack("<500i", *(rng.randrange(100_000) for _ in range(500))),
        struct.pack("<500H", *(rng.randrange(2000) for _ in range(500))),
    ):
        for name in ("a.xyz", "a"):
            with pytest.raises(UnsupportedFormat, match="binary data"):
                detect(source(name, raw))


def test_the_error_for_an_unsupported_format_lists_every_format() -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        detect(source("a.xyz", b"some\0thing"))
    listed = [each.name for each in FORMATS if each.name != "MSG"]  # which is mail
    assert str(caught.value).endswith("; supported are " + ", ".join(listed))
    assert "\n" not in str(caught.value)


def test_words_that_begin_like_a_magic_number_are_text() -> None:
    for text in (
        b"GIF89a is a format",
        b"OTTO von Bismarck",
        b"ID3 tags",
        b"BM25 ranks",
        b"MZ begins it",
    ):
        assert detect(source("a.txt", text)).name == "plain text"


def test_a_damaged_file_has_the_format_of_its_extension() -> None:
    assert detect(source("a.docx", archive("word/document.xml")[:40])).name == "DOCX"
    assert detect(source("a.pdf", b"\0\0\0\0")).name == "PDF"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.json", "a.eml", "a.md"])
def test_an_empty_file_is_said_to_be_empty(name: str) -> None:
    with pytest.raises(NoText, match="it is empty"):
        read(b"", name)


@pytest.mark.parametrize(("raw", "what"), [
    (b"\0\x01\0\0Standard ACE DB\0", "a database of Access; export tables as CSV"),
    (b"\xffWPC\x10\0", "a document of WordPerfect; save it as DOCX"),
    (archive("visio/document.xml"), "a drawing of Visio; export it as PDF"),
    (archive("Index/Document.iwa"), "a document of Pages, Numbers or Keynote"),
])  # fmt: skip
def test_a_file_of_another_program_is_named_with_what_to_do(raw: bytes, what: str) -> None:
    with pytest.raises(UnsupportedFormat, match=what):
        read(raw, "a.bin")


@pytest.mark.parametrize("raw", [b" \r\n\t", "\ufeff\n".encode(), " \u3000".encode()])
def test_a_source_of_white_space_has_no_text(raw: bytes) -> None:
    with pytest.raises(NoText, match=r"No text found in a\.md; .*supply the text directly"):
        parse(source("a.md", raw))


def test_a_source_is_parsed_by_its_format() -> None:
    assert parse(source("a.md", b"# Head\n\ntext")) == Parsed(
        text="# Head\n\ntext", title="Head", kind="markdown"
    )
    assert parse(source("a.py", b"# Head\n")) == Parsed(text="# Head\n", title="a.py", kind="code")


def test_a_format_that_the_caller_has_detected_is_not_detected_again() -> None:
    assert parse(source("a.md", b"_head_\n===\n"), TEXT) == Parsed(
        text="_head_\n===\n", title="a.md"
    )


def test_any_error_of_a_parser_is_a_parse_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpvectordb.ingest.formats import text

    def broken(source: Source) -> Parsed:
        raise KeyError("no\nroot")

    monkeypatch.setattr(text, "parse", broken)
    with pytest.raises(ParseFailed, match=r"a\.txt cannot be read as plain text: 'no.*root'"):
        parse(source("a.txt"))


def test_an_ingest_error_of_a_parser_is_not_changed() -> None:
    with pytest.raises(ParseFailed, match="not valid utf-16"):
        parse(source("a.txt", b"\xff\xfe\x00"))


def test_a_small_pdf_whose_bytes_could_be_utf_16_is_a_pdf() -> None:
    document = pymupdf.open()
    document.new_page(width=595, height=842).insert_text((20, 20), "alpha alpha", fontsize=6)
    raw = document.tobytes()
    assert unicode_encoding(raw)  # or this test tests nothing
    assert read(raw, "a.pdf").text.split() == ["alpha", "alpha"]
