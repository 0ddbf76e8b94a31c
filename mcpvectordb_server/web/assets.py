"""The files of the page, read once from the package: a request can name these and no others."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from mcpvectordb_server.web.errors import HttpError

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


@cache
def assets() -> dict[str, tuple[bytes, str, str, bytes]]:
    """All files of the page by their path in the folder: bytes, type, tag, and gzipped bytes."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            raw = path.read_bytes()
            # Weak, because it is that of the bytes as they are and of the gzipped ones.
            etag = f'W/"{hashlib.sha256(raw).hexdigest()[:32]}"'
            zipped = gzip.compress(raw, mtime=0)
            found[path.relative_to(FOLDER).as_posix()] = (raw, TYPES[path.suffix], etag, zipped)
    return found


async def serve(request: Request) -> Response:
    """The file that a request names, index.html for the page itself."""
    name = request.path_params.get("name", "index.html")
    if name not in assets():
        raise HttpError(404, "unknown_route", "there is no such file")
    raw, media, etag, zipped = assets()[name]
    headers = {"ETag": etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(zipped, media_type=media, headers=headers)
    return Response(raw, media_type=media, headers=headers)
