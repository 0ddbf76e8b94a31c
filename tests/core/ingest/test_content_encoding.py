from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.ingest.content_encoding import PIECE, decompressed

PACKERS = {"": bytes, "identity": bytes, "gzip": gzip.compress, "br": brotli.compress}


def cut(packed: bytes, size: int) -> Iterator[bytes]:
    return (packed[start : start + size] for start in range(0, len(packed), size))


@given(
    st.binary(max_size=500),
    st.integers(1, 50),
    st.sampled_from(sorted(PACKERS)),
    st.integers(1, 400),
)
def test_a_body_is_decompressed_from_pieces_of_any_size(
    part: bytes, times: int, encoding: str, size: int
) -> None:
    body = part * times
    assert b"".join(decompressed(cut(PACKERS[encoding](body), size), encoding)) == body


@given(st.binary(max_size=300), st.sampled_from(["gzip", "br"]))
def test_arbitrary_bytes_are_decompressed_or_refused(junk: bytes, encoding: str) -> None:
    with suppress(HTTPException):
        b"".join(decompressed(iter([junk]), encoding))


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "br"]), st.data())
def test_a_truncated_body_is_an_error(body: bytes, encoding: str, data: st.DataObject) -> None:
    packed = PACKERS[encoding](body)
    kept = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(HTTPException):
        b"".join(decompressed(iter([packed[:kept]]), encoding))


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_decompression_bomb_is_decompressed_in_small_pieces(encoding: str) -> None:
    packed = PACKERS[encoding](bytes(20_000_000))
    pieces = decompressed(iter([packed]), encoding)
    assert all(len(next(pieces)) <= 2 * PIECE for _ in range(20))


@pytest.mark.parametrize("encoding", ["deflate", "zstd", "gzip, gzip", "compress"])
def test_an_encoding_that_was_not_requested_is_reported(encoding: str) -> None:
    with pytest.raises(HTTPException, match=encoding):
        decompressed(iter([b"x"]), encoding)
