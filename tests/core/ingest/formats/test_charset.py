from __future__ import annotations

import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats.charset import bom, charset, decode

GERMAN = "Über die Größe der Bäume läßt sich nicht streiten, sagte der Förster überzeugt.\r\n"
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю.\n"
JAPANESE = "日本語のテキストです。\n"


@given(st.text())
@example("a\r\nb\rc\n\n \td \x0be\x0cf")
@example("\ufeffa")
def test_utf_8_is_decoded_without_loss(text: str) -> None:
    assert decode(text.encode()) == text


@given(st.text(), st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]))
def test_a_byte_order_mark_selects_the_encoding_and_is_kept(text: str, encoding: str) -> None:
    raw = f"\ufeff{text}".encode(encoding)
    # A mark followed by a null character looks like the mark of UTF-32.
    if encoding != "utf-16-le" or not text.startswith("\0"):
        assert decode(raw) == f"\ufeff{text}"


@pytest.mark.parametrize(("text", "encoding"), [
    (GERMAN, "latin-1"), (GERMAN, "cp1252"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (JAPANESE, "shift_jis"),
    ("中文文本，用于测试。", "gb18030"),
])  # fmt: skip
def test_a_declared_charset_is_used_where_utf_8_does_not_fit(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding), declared=encoding) == text


@pytest.mark.parametrize(
    ("text", "encoding"), [(GERMAN, "cp1252"), (RUSSIAN, "cp1251"), (JAPANESE, "shift_jis")]
)
def test_an_undeclared_charset_is_recognised(text: str, encoding: str) -> None:
    assert decode((text * 9).encode(encoding)) == text * 9


def test_utf_8_wins_over_a_declaration_that_also_fits() -> None:
    assert decode("naïve".encode(), declared="latin-1") == "naïve"


@pytest.mark.parametrize(
    "declared", ["", "ascii", "no-such-charset", "hex", "zip", "undefined", "idna", "a\0b"]
)
def test_a_declared_charset_that_does_not_fit_is_ignored(declared: str) -> None:
    assert decode((GERMAN * 3).encode("cp1252"), declared=declared) == GERMAN * 3


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xfe\x00", b"\xff\xfe\x00\xd8", b"\xef\xbb\xbf\xff", b"\0\0\xfe\xff\xff\xff\xff\xff"],
)
def test_bytes_that_contradict_their_byte_order_mark_are_an_error(raw: bytes) -> None:
    with pytest.raises(ParseFailed, match=r"not valid utf.*save it as UTF-8"):
        decode(raw)


def test_bytes_that_no_encoding_fits_are_an_error() -> None:
    with pytest.raises(ParseFailed, match="not valid utf-8, and no other encoding fits"):
        decode(bytes(range(128, 256)) * 4 + bytes(range(32)))


def test_a_declared_codec_that_is_not_a_charset_is_not_used() -> None:
    with pytest.raises(ParseFailed):
        decode(zlib.compress(b"bomb" * 1000), declared="zlib")


@given(st.binary())
def test_no_bytes_become_replacement_characters(raw: bytes) -> None:
    try:
        text = decode(raw)
    except ParseFailed:
        return
    assert "\ufffd" not in text or "\ufffd".encode() in raw or bom(raw)[0]


@pytest.mark.parametrize(("media_type", "expected"), [
    ("text/html; charset=ISO-8859-1", "ISO-8859-1"), ('text/plain; CHARSET="utf-8"; x=y', "utf-8"), ("text/plain", ""),
])  # fmt: skip
def test_a_charset_is_read_from_a_media_type(media_type: str, expected: str) -> None:
    assert charset(media_type) == expected
