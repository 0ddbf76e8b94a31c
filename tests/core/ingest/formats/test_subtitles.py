from __future__ import annotations

import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import read

SRT = """1
00:00:01,000 --> 00:00:03,500
<i>Where were you</i>

2
00:00:03,600 --> 00:00:05,000
last night?

3
00:01:10,000 --> 00:01:12,000
{\\an8}At home.
"""


def test_spoken_text_is_in_paragraphs_with_their_time() -> None:
    parsed = read(SRT, "film.srt")
    assert parsed.text == "[00:00:01] Where were you last night?\n\n[00:01:10] At home.\n"
    assert parsed.title == "film.srt" and parsed.metadata == {"duration": "00:01:12"}


def test_webvtt_keeps_speakers_and_leaves_notes_and_styles_out() -> None:
    raw = """WEBVTT - A talk

NOTE nobody reads this

STYLE
::cue { color: red }

intro
00:01.000 --> 00:04.000 align:start position:0%
<v.loud Ann Author>Good <c.big>morning</c>, <00:00:02.000>everyone.

00:04.000 --> 00:05.000
Good &amp; early.
"""
    assert (
        read(raw, "talk.vtt").text
        == "[00:00:01] Ann Author: Good morning, everyone. Good & early.\n"
    )


def test_a_long_speech_is_split_at_the_ends_of_sentences() -> None:
    cue = "{0}\n00:{1:02}:{2:02},000 --> 00:{1:02}:{2:02},900\nSentence {0}{3}\n"
    raw = "\n".join(
        cue.format(n, n // 60, n % 60, "." if n % 10 == 0 else "") for n in range(1, 200)
    )
    paragraphs = read(raw, "a.srt").text.strip().split("\n\n")
    assert 5 <= len(paragraphs) <= 8 and all(each.endswith(".") for each in paragraphs[:-1])


def test_scrolling_captions_are_not_repeated() -> None:
    raw = "1\n00:00:01,000 --> 00:00:02,000\nHello\n\n2\n00:00:02,000 --> 00:00:03,000\nHello\n"
    assert read(raw, "a.srt").text == "[00:00:01] Hello\n"


def test_windows_line_ends_and_other_encodings_are_read() -> None:
    raw = (
        SRT.replace("At home", "Zu Hause, schön über dem Fluß")
        .replace("\n", "\r\n")
        .encode("cp1252")
    )
    assert "schön über dem Fluß" in read(raw, "a.srt").text


def test_a_file_without_times_fails_clearly() -> None:
    with pytest.raises(
        ParseFailed, match=r"^a\.srt has no lines such as 00:00:01,000 --> 00:00:02,000"
    ):
        read("just words", "a.srt")
