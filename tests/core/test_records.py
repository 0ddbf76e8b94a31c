from __future__ import annotations

import pytest

from mcpvectordb import Embedded, Progress


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(step="fetch", done=1, total=None), ""),
        (
            Progress(
                step="sync",
                done=1,
                total=9,
                chunks=32,
                chunks_known=70,
                tokens_per_second=7110.4,
                seconds_left=3725.6,
            ),
            "32/70 chunks, 7,110 tokens/s, 1:02:06 left",
        ),
        (
            Progress(
                step="embed",
                done=32,
                total=70,
                chunks=32,
                chunks_known=70,
                tokens_per_second=12.0,
                seconds_left=0.0,
            ),
            "12 tokens/s, 0:00:00 left",
        ),
        (Progress(step="ingest", done=3, total=9, seconds_left=61), "0:01:01 left"),
    ],
)
def test_the_pace_says_what_is_known(progress: Progress, words: str) -> None:
    assert progress.pace == words


def test_what_was_embedded_adds_up() -> None:
    both = Embedded(chunks=1, tokens=10, seconds=0.5) + Embedded(chunks=2, tokens=20, seconds=1.0)
    assert (both.chunks, both.tokens, both.seconds, both.tokens_per_second) == (3, 30, 1.5, 20.0)
    assert Embedded().tokens_per_second == 0 and both == Embedded(chunks=3, tokens=30)
