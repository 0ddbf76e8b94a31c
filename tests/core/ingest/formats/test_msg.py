from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.errors import IngestError
from mcpvectordb.ingest.formats.msg import FIRST_TIME, unpacked_rtf
from tests.support_formats import ole, read

SENT = int((datetime(2024, 5, 1, 8, tzinfo=UTC) - FIRST_TIME).total_seconds()) * 10_000_000
RTF = rb"{\rtf1\ansi Please send apples.\par }"


def numbers(header: int, **values: int) -> bytes:
    """The stream with the properties of 8 bytes, by their tags as `x0039`."""
    entries = (struct.pack("<HHIQ", 0x14, int(tag[1:], 16), 6, it) for tag, it in values.items())
    return bytes(header) + b"".join(entries)


def text(tag: str, value: str) -> dict[str, bytes]:
    return {f"__substg1.0_{tag}001F": value.encode("utf-16-le")}


def within(path: str, streams: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{path}/{name}": content for name, content in streams.items()}


def message(header: int = 32, subject: str = "Apples") -> dict[str, bytes]:
    recipient = {"__properties_version1.0": numbers(8, x0C15=1)}
    recipient |= text("3001", "Bob") | text("39FE", "bob@example.org")
    return {
        "__properties_version1.0": numbers(header, x0039=SENT),
        **text("0037", subject),
        **text("0C1A", "Ann Author"),
        **text("5D01", "ann@example.org"),
        **within("__recip_version1.0_#00000000", recipient),
    }


PLAIN = text("1000", "Please send apples.\r\n")


def test_a_message_has_sender_recipients_date_and_text() -> None:
    parsed = read(ole(message() | PLAIN), "a.msg")
    assert parsed.text == (
        "# Apples\n\nFrom: Ann Author <ann@example.org>\nTo: Bob <bob@example.org>\n"
        "Date: Wed, 01 May 2024 08:00:00 +0000\n\nPlease send apples.\n"
    )
    assert parsed.title == "Apples"
    assert parsed.metadata["date"] == "2024-05-01T08:00:00+00:00"


def test_the_header_lines_of_a_message_win_over_its_properties() -> None:
    lines = "From: Cy <cy@example.org>\r\nMessage-ID: <1@example.org>\r\n"
    parsed = read(ole(message() | PLAIN | text("007D", lines)), "a.msg")
    assert parsed.metadata["from"] == "Cy <cy@example.org>"
    assert parsed.metadata["message_id"] == "<1@example.org>"


@pytest.mark.parametrize("body", [
    text("1013", "<html><body><p>Please send <b>apples</b>.</p></body></html>"),
    {"__substg1.0_10130102": b"<html><body>Please send apples.</body></html>"},
    {"__substg1.0_10090102": struct.pack("<II4sI", 0, 0, b"MELA", 0) + RTF},
    {"__substg1.0_1000001E": b"Please send apples."},
])  # fmt: skip
def test_a_body_may_be_html_or_rtf_or_in_an_older_charset(body: dict[str, bytes]) -> None:
    assert "Please send apples." in read(ole(message() | body), "a.msg").text


def test_attached_files_and_messages_are_read() -> None:
    file = text("3707", "prices.csv") | {
        "__substg1.0_37010102": b"sort,price\nBoskoop,1.20\n" * 200
    }
    inner = within("__substg1.0_3701000D", message(24, "Pears") | PLAIN)
    streams = message() | PLAIN | within("__attach_version1.0_#00000000", file)
    parsed = read(ole(streams | within("__attach_version1.0_#00000001", inner)), "a.msg")
    assert parsed.metadata["attachments"] == ["prices.csv"]
    assert "Boskoop" in parsed.text
    assert "# Pears" in parsed.text


def test_a_message_without_a_body_and_with_names_of_any_kind_is_read() -> None:
    streams = message() | text("0C1A", 'Äpfel, "Ann"') | text("5D01", "日本@example.org")
    inner = within("__substg1.0_3701000D", message(24, "Pears"))
    parsed = read(ole(streams | within("__attach_version1.0_#00000000", inner)), "a.msg")
    assert 'From: "Äpfel, Ann" <日本@example.org>' in parsed.text
    assert "# Pears" in parsed.text


def test_compressed_rtf_is_unpacked() -> None:
    packed = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af3206865"
        "6c090020627705b06c647d0a800fa0"
    )
    assert unpacked_rtf(packed) == rb"{\rtf1\ansi\ansicpg1252\pard hello world}" + b"\r\n"


@given(st.binary(max_size=300))
def test_any_bytes_are_unpacked_without_an_error(packed: bytes) -> None:
    assert len(unpacked_rtf(packed)) <= 17 * len(packed)


@given(st.integers(0, 20_000), st.integers(0, 255))
def test_a_damaged_message_is_read_or_refused(place: int, byte: int) -> None:
    raw = bytearray(ole(message() | PLAIN))
    raw[place % len(raw)] = byte
    for damaged in (bytes(raw), bytes(raw[:place])):
        try:
            read(damaged, "a.msg")
        except IngestError as error:
            assert "a.msg" in str(error)
