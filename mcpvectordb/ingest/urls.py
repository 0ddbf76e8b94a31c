"""Fetch web pages; protects against hostile URLs and servers (SSRF, DNS rebinding, endless bodies).

Every hop of a fetch is checked: the URL must be plain http or https, all addresses that its host
resolves to must be public by the lists of `addresses`, and the connection goes to one of exactly
these addresses, while TLS and the Host header keep the name. So a name that resolves differently a
moment later (DNS rebinding) gains nothing. Redirects are followed here, at most five. One deadline
covers resolving, connecting, headers, body and redirects; the size limit applies to the bytes
received and to the decompressed ones. Nothing is taken from the environment, neither proxies nor
.netrc.

A configured proxy resolves the name again: then the guard checks the addresses that this machine
resolves, and the connection is not pinned to them. Behind a proxy without local DNS set
`allow_private_urls`; then only literal addresses are checked.

robots.txt is not fetched: it addresses crawlers, and here a person names each page. Between two
pages of one host there is a pause (`host_interval`).
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, responses
from ipaddress import ip_address
from urllib.parse import unquote, urljoin, urlsplit

from mcpvectordb import __version__, network
from mcpvectordb.config import Config, how_to_allow
from mcpvectordb.errors import FetchFailed, IngestError, Refused, RetryLater, TooLarge
from mcpvectordb.network import Deadline, ParsedUrl, Resolver
from mcpvectordb.network import system_resolver as _system_resolver
from mcpvectordb.records import Progress, ProgressCallback, Source

MAX_REDIRECTS = 5
REDIRECTS = {301, 302, 303, 307, 308}
_IF_PRIVATE = (
    f" (allow_private_urls is false); set {Config.ENV_PREFIX}ALLOW_PRIVATE_URLS=true to allow it"
)


def fetch(
    url: str,
    *,
    config: Config,
    etag: str = "",
    modified: str = "",
    progress: ProgressCallback | None = None,
    wait: bool = True,
    redirects: int = MAX_REDIRECTS,
    resolve: Resolver | None = None,
) -> Source | None:
    """Return the page, or None if the version with this `etag` or `modified` time is current.

    `modified` is an ISO 8601 time as in `Source.modified`. `resolve` returns the addresses of a
    host and port. Without `wait` a pause (`host_interval`) raises RetryLater. Raises Refused (the
    URL or an address of its host is not allowed), FetchFailed (the network failed, the status is
    not 2xx, or the deadline passed) or TooLarge (more than `config.max_source_bytes`).
    """
    if not config.allow_urls:
        raise Refused(
            f"{url}: URLs are switched off (allow_urls is false); set "
            f"{Config.ENV_PREFIX}ALLOW_URLS=true to allow them"
        )
    headers = _headers(etag, modified)
    here, deadline = url, Deadline(config.fetch_timeout)
    for hop in range(redirects + 1):
        parsed = network.parse_url(here)
        if hop == 0 and not wait:
            _check_turn(parsed.host)  # once more below: resolving takes its time
        try:
            addresses = _checked_addresses(parsed, config, resolve or _system_resolver, deadline)
            if hop == 0 and (pause := _turn(parsed.host, config.host_interval, wait=wait)):
                time.sleep(pause)
                deadline = Deadline(config.fetch_timeout)
            with network.request(
                "GET", parsed, addresses, headers, proxy=config.proxy, deadline=deadline
            ) as response:
                if response.status == 304 and (etag or modified):
                    return None
                if response.status not in REDIRECTS or not response.getheader("Location"):
                    return _source(url, response, config, deadline, progress)
                here = _redirected(here, response)
        except IngestError:
            raise
        except (OSError, HTTPException, ValueError) as error:
            # http.client raises ValueError for a chunk of negative size.
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if deadline.passed():
                reason = f"it took longer than {deadline.seconds:g} seconds (fetch_timeout)"
            raise FetchFailed(f"{parsed.host} could not be fetched from: {reason[:300]}") from error
    raise FetchFailed(f"{url} redirects more than {redirects} times")


# --- the guard


def _checked_addresses(
    parsed: ParsedUrl, config: Config, resolve: Resolver, deadline: Deadline
) -> list[str]:
    """The addresses to connect to, all allowed; none if only a proxy resolves the name."""
    private = config.allow_private_urls
    try:
        addresses = [str(ip_address(parsed.host))]
    except ValueError:
        if not private and network.PRIVATE_NAMES.fullmatch(parsed.host):
            raise Refused(f"{parsed.host} is a name of private networks{_IF_PRIVATE}") from None
        by_proxy = config.proxy and private
        addresses = (
            [] if by_proxy else network.resolved(parsed.host, parsed.port, resolve, deadline)
        )
    for address in addresses:
        if reason := network.blocked(address, allow_private=private):
            never = private or network.blocked(address, allow_private=True)
            hint = "" if never else _IF_PRIVATE
            raise Refused(f"{parsed.host} leads to {address}, which is {reason}{hint}")
    return addresses


# --- the request


def _headers(etag: str, modified: str) -> dict[str, str]:
    headers = {
        "User-Agent": f"mcpvectordb/{__version__}",
        "Accept": "text/html, application/xhtml+xml, application/pdf, text/*;q=0.9, */*;q=0.8",
        "Accept-Encoding": "gzip",
        "Connection": "close",
    }
    # Both were read from the file, which others may have written; without them the page is fetched.
    if etag and etag.isascii() and etag.isprintable():
        headers["If-None-Match"] = etag
    with suppress(ValueError, OverflowError):
        headers["If-Modified-Since"] = format_datetime(
            datetime.fromisoformat(modified).astimezone(UTC), usegmt=True
        )
    return headers


def _redirected(here: str, response: HTTPResponse) -> str:
    # Headers come as Latin-1; a Location that is not ASCII is UTF-8 in practice.
    location = str(response.getheader("Location")).encode("latin-1").decode("utf-8", "replace")
    try:
        return urljoin(here, location.strip())
    except ValueError:
        raise Refused(f"{here} redirects to {location!r}, which is not a URL") from None


# --- the response


def _source(
    url: str,
    response: HTTPResponse,
    config: Config,
    deadline: Deadline,
    progress: ProgressCallback | None,
) -> Source:
    if not 200 <= response.status < 300:
        raise FetchFailed(
            f"{url} answered {response.status} {responses.get(response.status, '')}".rstrip()
        )
    limit, encoding = config.max_source_bytes, response.getheader("Content-Encoding", "")
    kept, size = [], 0
    for piece in decompressed(_received(response, limit, deadline, progress), encoding):
        size += len(piece)
        if size > limit:
            raise TooLarge(f"{url} has more than {limit} bytes {how_to_allow('max_source_bytes')}")
        kept.append(piece)
    modified = ""
    with suppress(ValueError, OverflowError):  # no date, or out of range with its time zone
        moment = parsedate_to_datetime(response.getheader("Last-Modified", ""))
        # HTTP dates are always UTC.
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        modified = moment.isoformat(timespec="seconds")
    parts = urlsplit(url)
    return Source(
        source=url,
        name=unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc,
        raw=b"".join(kept),
        file_type="url",
        modified=modified,
        media_type=response.getheader("Content-Type", ""),
        etag=response.getheader("ETag", ""),
    )


def _received(
    response: HTTPResponse,
    limit: int,
    deadline: Deadline,
    progress: ProgressCallback | None,
) -> Iterator[bytes]:
    """The pieces of the body; a body that ends too early is an error, not a short page."""
    total, done = response.length, 0
    if total is not None and total > limit:
        raise TooLarge(
            f"the page has {total} bytes, more than the limit of {limit} "
            f"{how_to_allow('max_source_bytes')}"
        )
    while piece := response.read(PIECE):
        deadline.left()
        done += len(piece)
        if progress:
            progress(Progress(step="fetch", done=done, total=total))
        yield piece
    deadline.left()
    if total is not None and done < total:
        raise HTTPException(f"the connection ended after {done} of {total} bytes")


# --- the pause between two fetches

_turns: dict[str, float] = {}
_turns_lock = threading.Lock()


def _turn(host: str, interval: float, *, wait: bool) -> float:
    """Take the next turn at a host, `interval` seconds after the last one; the seconds until then.

    Without `wait` a turn that is not now is not taken and raises RetryLater.
    """
    with _turns_lock:
        now = time.monotonic()
        for past in [each for each, moment in _turns.items() if moment <= now]:
            del _turns[past]
        if not wait:
            _check_turn(host)
        turn = _turns.get(host, now)
        _turns[host] = turn + interval
    return turn - now


def _check_turn(host: str) -> None:
    """Raise RetryLater if the host is to be left alone yet."""
    pause = _turns.get(host, 0.0) - time.monotonic()
    if pause > 0:
        raise RetryLater(
            f"{host} is left alone for {pause:.1f} more seconds (host_interval); try again then",
            pause,
        )


# --- compressed bodies, in small steps, so that the size limit stops a decompression bomb early

PIECE = 65_536
# zlib's window size argument for data with a gzip header.
GZIP = 31


def decompressed(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Undo a Content-Encoding, in pieces of about PIECE bytes; HTTPException for damaged data."""
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise HTTPException(f"it sent Content-Encoding {encoding!r}, which was not asked for")
    return _gunzipped(pieces) if "gzip" in encoding else pieces


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
