from __future__ import annotations

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import read

HEAD = (
    r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fnil\fcharset0 Calibri;}{\f1\fnil\fcharset204 "
    r"Arial Cyr;}"
    r"{\f2\fnil\fcharset128 MS Mincho;}}{\colortbl;\red0\green0\blue0;}"
    r"{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 heading 1;}{\s2 heading 2;}}"
    r"{\info{\title The Letter}{\author Ann Author}}{\*\generator Some program 1.0;}"
)


def test_paragraphs_headings_and_metadata() -> None:
    raw = (
        HEAD + r"\pard\s1 Fruit\par\pard Apples are \b red\b0 .\line Really.\par\pard\s2 "
        r"Sorts\par\pard\s0 Many.\par}"
    )
    parsed = read(raw, "a.rtf")
    assert parsed.text == "# Fruit\n\nApples are red.\nReally.\n\n## Sorts\n\nMany.\n"
    assert parsed.title == "The Letter" and parsed.metadata == {"author": "Ann Author"}


def test_characters_of_all_encodings_are_read() -> None:
    raw = HEAD + (
        r"\pard Gr\'f6\'dfe \u8364? 5\endash 6 \ldblquote so\rdblquote \uc2\u20013\'96\'7b {\f1 "
        r"\'cc\'e8\'f0} "
        r"{\f2 \'93\'fa} \u-10179?\uc1\u-8704? a\~b\_c\-d\par}"
    )
    assert read(raw, "a.rtf").text == "Größe € 5–6 “so”中 Мир 日 😀 a b-cd\n"


def test_tables_and_lists() -> None:
    raw = HEAD + (
        r"\trowd\cellx1000\cellx2000\pard\intbl Sort\cell Price\cell\row\trowd\pard\intbl "
        r"Boskoop\cell 1.20\cell\row"
        r"\pard{\listtext\bullet\tab}crisp\par{\listtext\bullet\tab}sweet\par\pard After.\par}"
    )
    assert (
        read(raw, "a.rtf").text
        == "| Sort | Price |\n| --- | --- |\n| Boskoop | 1.20 |\n\n- crisp\n\n- sweet\n\nAfter.\n"
    )


def test_pictures_hidden_text_headers_and_fields_are_left_out() -> None:
    raw = HEAD + (
        r"{\header Page header\par}\pard See {\field{\*\fldinst HYPERLINK "
        r"http://a.example}{\fldrslt the page}}"
        r"{\pict\pngblip 89504e47}{\v secret}{\*\unknown junk} now{\bin4 }}\{.\par}"
    )
    assert (
        read(raw.replace(r"{\bin4 }}\{", "{\\bin4 }}\\{}"), "a.rtf").text == "See the page now.\n"
    )


def test_a_truncated_file_keeps_its_text() -> None:
    assert read(HEAD + r"\pard Hello there", "a.rtf").text == "Hello there\n"


def test_deep_nesting_fails_clearly() -> None:
    with pytest.raises(ParseFailed, match=r"a\.rtf has groups nested more than 10000 deep"):
        read(r"{\rtf1" + "{" * 200_000 + "x" + "}" * 200_000, "a.rtf")


def test_bytes_that_only_bear_the_extension_are_not_stored() -> None:
    with pytest.raises(ParseFailed, match="does not begin as RTF does; open it in its program"):
        read(bytes(range(256)) * 4, "a.rtf")
