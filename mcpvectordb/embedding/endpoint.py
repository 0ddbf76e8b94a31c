"""Requests to a server that embeds or reranks: OpenAI's interface, as Ollama and others have it.

The user named the server's URL on this machine, so it may be a private one; no file and no MCP
client can name another. Redirects are not followed, because the key and the texts are for that
server alone, and over http they go to this machine or a private network only.

A server may repeat the key that it was sent, anywhere in its answer. So every error is made by
`EndpointClient.failed`, which leaves the key out, and what a server said goes into one through
`EndpointClient.told`, which leaves it out before a long text is shortened.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, responses
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import unquote

from mcpvectordb import __version__
from mcpvectordb.embedding.catalogue import Endpoint, Model
from mcpvectordb.errors import EndpointFailed, Refused, quoted
from mcpvectordb.network.addresses import ParsedUrl, blocked, parse_url
from mcpvectordb.network.connection import Deadline, request, resolved, system_resolver

KEYRING = "mcpvectordb"
"""The service under which keys are looked for in the keyring."""

REST_SECONDS = 15.0
"""For how long queries are not sent to a server that did not answer one in time."""

CONNECT_SECONDS = 10.0
RESTART_SECONDS = 10.0
PAUSE_SECONDS, LONGEST_PAUSE = 0.5, 20.0  # before the second attempt, doubled before each more
PIECE = 1 << 16
LONGEST_SAID = 10_000  # characters of an answer that are looked at; far fewer are shown
KEY_PART = 12  # characters of a key in a row that count as the key, if it has so many
SHORT_KEY = 8  # characters; a shorter one is no secret, but a word such as "ollama"

# The server may answer differently a moment later, to the same request or to a smaller one.
_PASSING = {408, 425, 429, 502, 503, 504, 529}
_REFUSED = {400, 413, 422, 500}


class InputRefused(EndpointFailed):
    """The server rejected this input: too many texts, or too long ones."""


class _PassingFailure(EndpointFailed):
    """The server may answer later; `pause` is for how long it wants to be left alone."""

    def __init__(self, message: str, *, answered: bool, pause: float | None = None) -> None:
        super().__init__(message)
        self.answered, self.pause = answered, pause


Failure = TypeVar("Failure", bound=EndpointFailed)


class EndpointClient:
    """Sends requests for one model to its endpoint; threads may share it.

    A failed request is sent again after a pause, which grows exponentially with a random part or
    is the server's Retry-After, until the deadline; if the server is gone, for a few seconds, in
    which it may be restarted. What cannot change in a moment is not tried again: a refused key, an
    unknown model, or a server of which it is known that it is gone.
    """

    def __init__(self, model: Model, *, proxy: str = "") -> None:
        if model.endpoint is None:
            raise ValueError(f"{model.name} has no endpoint")
        self.endpoint: Endpoint = model.endpoint
        self._title = f"the endpoint {model.name} ({self.endpoint.url})"
        self._proxy = proxy
        # The key that was sent last; a function, so that no representation shows it.
        self._key: Callable[[], str] = str
        self._closed = threading.Event()
        self._answered = False
        self._resting, self._rest_reason = 0.0, ""

    def close(self) -> None:
        """End the pauses of other threads."""
        self._closed.set()

    def pause(self, seconds: float) -> bool:
        """Wait so long; returns whether it was closed meanwhile."""
        return self._closed.wait(seconds)

    def post(
        self, route: str, body: Mapping[str, Any], deadline: Deadline, *, most: int, query: bool
    ) -> Any:
        """Return the JSON that the server answers, at most so many bytes; raises EndpointFailed.

        A query is sent once, and not at all shortly after one that took too long.
        """
        if query and self._resting > time.monotonic():
            raise EndpointFailed(f"{self._rest_reason}; it is asked again in a few seconds")
        try:
            url = parse_url(f"{self.endpoint.url}/{route}")
        except Refused as error:  # the description was edited
            raise self.failed(f"has no URL: {error}") from None
        content = json.dumps(body).encode()
        known, restart, pause = self._answered, Deadline(RESTART_SECONDS), PAUSE_SECONDS
        while True:
            try:
                return self._attempt(url, content, deadline, most, query)
            except _PassingFailure as failure:
                self._answered = failure.answered
                hopeless = query or not (failure.answered or known)
                end = deadline if failure.answered else restart
                wait = failure.pause
                if wait is None:
                    wait = pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
                if hopeless or end.ends_within(wait) or self.pause(wait):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE)

    def failed(self, reason: str) -> EndpointFailed:
        """An error that names this endpoint, without its key."""
        return self._failure(EndpointFailed, reason)

    def told(self, text: str) -> str:
        """What the server said, for the reason of an error: without the key, and short."""
        return quoted(without_key(text[:LONGEST_SAID], self._key()))

    def _failure(self, kind: type[Failure], reason: str, **more: Any) -> Failure:
        return kind(f"{self._title} {without_key(reason, self._key())}", **more)

    def _attempt(
        self, url: ParsedUrl, content: bytes, deadline: Deadline, most: int, query: bool
    ) -> Any:
        headers = self._headers()
        try:
            addresses, proxy = self._route(url, deadline)
            with request(
                "POST",
                url,
                addresses,
                headers,
                body=content,
                proxy=proxy,
                deadline=deadline,
                connect_timeout=CONNECT_SECONDS,
            ) as response:
                answer = _received(response, most)
                deadline.left()  # a connection that was shut down may look like a whole answer
        except (OSError, HTTPException, ValueError) as error:
            raise self._unanswered(error, deadline, query) from None
        self._answered, self._resting = True, 0.0
        if response.status != 200:
            raise self._rejected(response, answer)
        if answer is None:
            raise self.failed(f"answered with more than {most:,} bytes")
        return self._parsed(answer, response)

    def _route(self, url: ParsedUrl, deadline: Deadline) -> tuple[list[str], str]:
        """The addresses to connect to, and the proxy for public ones."""
        try:
            addresses = resolved(url.host, url.port, system_resolver, deadline)
        except socket.gaierror:
            if not self._proxy or url.scheme == "http":
                raise
            return [], self._proxy  # which resolves the name
        public = not all(map(blocked, addresses))
        if public and url.scheme == "http":
            raise self.failed(
                f"has the public address {addresses[0]}, where everybody on the way could read "
                "what is sent over http: use https"
            )
        return addresses, self._proxy if public else ""

    def _headers(self) -> dict[str, str]:
        """The headers of a request, with the key."""
        headers = {
            "User-Agent": f"mcpvectordb/{__version__}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Connection": "close",
        }
        variable = self.endpoint.key_variable
        if not variable:
            return headers
        key = (os.environ.get(variable) or _from_keyring(variable)).strip()
        self._key = lambda: key
        if not key:
            raise self.failed(
                f"needs a key: set the environment variable {variable}, or with the package "
                f"keyring installed run: keyring set {KEYRING} {variable}"
            )
        if not (key.isascii() and key.isprintable()):
            raise self.failed(f"cannot be sent the key in {variable}: it is not printable ASCII")
        return {**headers, "Authorization": f"Bearer {key}"}

    def _unanswered(self, error: Exception, deadline: Deadline, query: bool) -> EndpointFailed:
        """The error for a request without an answer."""
        if isinstance(error, TimeoutError) or deadline.passed():
            seconds = deadline.seconds if deadline.passed() else CONNECT_SECONDS
            reason = f"did not answer within {seconds:g} seconds"
            if query:
                self._resting = time.monotonic() + REST_SECONDS
                self._rest_reason = str(self.failed(reason))
            return self.failed(reason)
        if isinstance(error, socket.gaierror):
            return self.failed("cannot be found: no address is known for its name")
        if isinstance(error, ssl.SSLError):
            return self.failed(f"cannot be reached over TLS: {self._cause(error)}")
        if isinstance(error, ConnectionRefusedError):
            reason = "refuses connections; perhaps the server is not running"
        else:
            reason = f"gave no answer: {self._cause(error)}"
        return self._failure(_PassingFailure, reason, answered=False)

    def _cause(self, error: Exception) -> str:
        """What an error says: the server's words, where it broke the protocol."""
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return without_key(said[:LONGEST_SAID], self._key())[:300]

    def _rejected(self, response: HTTPResponse, answer: bytes | None) -> EndpointFailed:
        """The error for an answer with another status than 200."""
        status, variable = response.status, self.endpoint.key_variable
        if 300 <= status < 400:
            to = self.told(response.getheader("Location", ""))
            return self.failed(f"redirects to {to}, which is not followed: name that URL itself")
        if status in (401, 403):
            # What it says is not repeated: it may quote parts of the key.
            wanted = (
                f"refuses the key in {variable}" if variable else "wants a key (--key-variable)"
            )
            return self.failed(f"{wanted}: it answered {status}")
        said = f"{status} {responses.get(status, '')}".rstrip() + self._message(_json(answer))
        if status == 404:
            return self.failed(
                f"has no model {quoted(self.endpoint.model)}, or its URL is wrong (most end with "
                f"/v1): it answered {said}"
            )
        if status in _PASSING:
            return self._failure(
                _PassingFailure, f"answered {said}", answered=True, pause=_retry_after(response)
            )
        if status in _REFUSED:
            return self._failure(InputRefused, f"answered {said}")
        return self.failed(f"answered {said}")

    def _parsed(self, answer: bytes, response: HTTPResponse) -> Any:
        try:
            content = json.loads(answer)
        except (ValueError, RecursionError):
            kind = self.told(response.getheader("Content-Type", ""))
            raise self.failed(f"answered what is not JSON (its type is {kind})") from None
        if isinstance(content, dict) and content.get("error"):  # LM Studio, for an unknown path
            raise self.failed(f"answered with an error:{self._message(content)}")
        return content

    def _message(self, content: Any) -> str:
        """What an error's body says; "" if it says nothing that is known."""
        for name in ("error", "message", "detail"):
            if isinstance(content, dict):
                content = content.get(name, content)
        return f" {self.told(content)}" if isinstance(content, str) else ""


def without_key(text: str, key: str) -> str:
    """A text with [key] in place of a key; nothing of it if the key is in it in another form.

    That is: encoded for URLs, JSON, HTML, as base64 or in hexadecimal, with spaces, or a part of
    it. Of a short key only the key itself is looked for.
    """
    if not key:
        return text
    text = re.sub(re.escape(key), "[key]", text, flags=re.IGNORECASE)
    if len(key) < SHORT_KEY:
        return text
    folded = key.casefold()
    parts = {folded[at : at + KEY_PART] for at in range(max(1, len(folded) - KEY_PART + 1))}
    for form in _decoded(text):
        packed = re.sub(r"\s+", "", form).casefold()
        if any(part in packed for part in parts):
            return "[not repeated: the key is in it]"
    return text


def _decoded(text: str) -> Iterator[str]:
    """What a text may mean."""
    yield text
    yield unquote(unquote(text))
    yield html.unescape(text)
    yield re.sub(r"\\(?:[ux]\{?0*([0-9A-Fa-f]{2})\}?|(.))", _unescaped, text)
    for word in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        for start in range(4):  # it may begin inside of a group of four
            coded = word[start:].translate(_URL_SAFE)
            yield base64.b64decode(coded[: len(coded) // 4 * 4]).decode("latin-1")
    for digits in re.findall(r"(?:[0-9A-Fa-f]{2}){4,}", text):
        yield binascii.unhexlify(digits).decode("latin-1")
        yield binascii.unhexlify(digits[1:-1]).decode("latin-1")


_URL_SAFE = str.maketrans("-_", "+/")


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else str(match[2])


def _received(response: HTTPResponse, most: int) -> bytes | None:
    """The body; None if it has more than `most` bytes."""
    pieces, size = [], 0
    while piece := response.read(PIECE):
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
    if response.length:
        raise HTTPException(f"the connection ended {response.length} bytes too early")
    return b"".join(pieces)


def _retry_after(response: HTTPResponse) -> float | None:
    """The seconds that the server asks to wait; None if it does not say."""
    value = response.getheader("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _json(answer: bytes | None) -> Any:
    """An error's body; None if it is not JSON."""
    try:
        return json.loads(answer or b"")
    except (ValueError, RecursionError):
        return None


def _from_keyring(name: str) -> str:
    """The key of this name in the user's keyring; "" if there is none or no package for it."""
    try:
        return import_module("keyring").get_password(KEYRING, name) or ""
    except Exception:  # backends raise what they like; the caller says that there is no key
        return ""
