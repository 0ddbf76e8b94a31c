"""Decompress HTTP bodies in small steps, so that a size limit stops decompression bombs early."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from http.client import HTTPException

ACCEPTED = "gzip, br"
PIECE = 65_536
# zlib's window size argument for data with a gzip header.
GZIP = 31


def decompressed(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Undo a Content-Encoding, in pieces of about PIECE bytes; HTTPException for damaged data."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return pieces
    if encoding in ("gzip", "x-gzip"):
        return _gunzipped(pieces)
    if encoding == "br":
        return _unbrotlied(pieces)
    raise HTTPException(f"it sent Content-Encoding {encoding!r}, which was not asked for")


def _gunzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(GZIP)
    try:
        for piece in pieces:
            rest = piece
            while rest:
                if member.eof:  # a gzip file may be several, one after the other
                    member = zlib.decompressobj(GZIP)
                yield member.decompress(rest, PIECE)
                rest = member.unconsumed_tail or member.unused_data
        yield member.flush()
    except zlib.error as error:
        raise HTTPException("its gzip data is damaged") from error
    if not member.eof:
        raise HTTPException("its gzip data ends too early")


def _unbrotlied(pieces: Iterator[bytes]) -> Iterator[bytes]:
    import brotli

    stream = brotli.Decompressor()
    try:
        for piece in pieces:
            out = stream.process(piece, output_buffer_limit=PIECE)
            while out:
                yield out
                out = stream.process(b"", output_buffer_limit=PIECE)
    except brotli.error as error:
        raise HTTPException("its brotli data is damaged") from error
    if not stream.is_finished():
        raise HTTPException("its brotli data ends too early")
