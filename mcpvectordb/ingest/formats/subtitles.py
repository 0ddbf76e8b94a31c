"""SRT and WebVTT subtitles: the spoken text in paragraphs that begin with their time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import markdown
from mcpvectordb.ingest.formats.charset import text_of
from mcpvectordb.records import Parsed, Source

PARAGRAPH_SECONDS = 30
PAUSE_SECONDS = 5

_TIMES = re.compile(
    r"^\s*(?:(\d+):)?(\d{1,2}):(\d{1,2})[.,]\d{1,3}\s*-->\s*(?:(\d+):)?(\d{1,2}):(\d{1,2})"
)
_VOICE = re.compile(r"<v(?:\.[\w.-]*)?\s+([^>]{1,100})>")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>|<\d[\d:.]*>|\{\\[^{}]{0,200}\}")


def parse(source: Source) -> Parsed:
    """Return the spoken text; the title is the file's name."""
    text = markdown.clean(text_of(source))
    cues = list(_cues(text))
    if not cues:
        raise ParseFailed(
            f"{source.name} has no lines such as 00:00:01,000 --> 00:00:02,000, as subtitles do"
        )
    metadata = {"duration": _clock(max(end for _, end, _ in cues))}
    return markdown.finish(source, "\n\n".join(_paragraphs(cues)), metadata, headings=0)


def _cues(text: str) -> Iterator[tuple[int, int, str]]:
    """When each text is shown and hidden, in seconds, and the text."""
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.strip("\n").split("\n")
        at = next((at for at, line in enumerate(lines[:2]) if _TIMES.match(line)), None)
        if at is not None and (found := _TIMES.match(lines[at])):
            numbers = [int(number or 0) for number in found.groups()]
            spoken = unescape(_TAG.sub("", _VOICE.sub(r"\1: ", " ".join(lines[at + 1 :]))))
            start, end = (
                hours * 3600 + minutes * 60 + seconds
                for hours, minutes, seconds in (numbers[:3], numbers[3:])
            )
            yield start, end, markdown.line(spoken)


def _paragraphs(cues: list[tuple[int, int, str]]) -> Iterator[str]:
    """Join cues until a pause, or until a sentence ends after half a minute."""
    start, said = cues[0][0], list[str]()
    for at, (_, end, text) in enumerate(cues):
        # Scrolling captions repeat the text of the cue before.
        if text and text != (said[-1] if said else ""):
            said.append(text)
        following = cues[at + 1][0] if at + 1 < len(cues) else None
        most = PARAGRAPH_SECONDS * (1 if said and said[-1][-1] in ".!?…。！？" else 3)
        if following is None or following - end >= PAUSE_SECONDS or following - start >= most:
            if said:
                yield f"[{_clock(start)}] {' '.join(said)}"
            start, said = following or 0, []


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
