"""Requests to a server that embeds or reranks: OpenAI's interface, as Ollama and others have it.

The user named the server's URL on this machine, so it may be a private one; no file and no MCP
client can name another. Redirects are not followed, because the key and the texts are for that
server alone, and over http they go to this machine or a private network only.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, responses
from importlib import import_module
from typing import Any

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
        """An error that names this endpoint."""
        return EndpointFailed(f"{self._title} {reason}")

    def _attempt(
        self, url: ParsedUrl, content: bytes, deadline: Deadline, most: int, query: bool
    ) -> Any:
        headers, key = self._headers()
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
            raise self._rejected(response, answer, key)
        if answer is None:
            raise self.failed(f"answered with more than {most:,} bytes")
        return self._parsed(answer, response, key)

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

    def _headers(self) -> tuple[dict[str, str], str]:
        """The headers of a request, and the key that is in them."""
        headers = {
            "User-Agent": f"mcpvectordb/{__version__}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Connection": "close",
        }
        variable = self.endpoint.key_variable
        if not variable:
            return headers, ""
        key = (os.environ.get(variable) or _from_keyring(variable)).strip()
        if not key:
            raise self.failed(
                f"needs a key: set the environment variable {variable}, or with the package "
                f"keyring installed run: keyring set {KEYRING} {variable}"
            )
        if not (key.isascii() and key.isprintable()):
            raise self.failed(f"cannot be sent the key in {variable}: it is not printable ASCII")
        return {**headers, "Authorization": f"Bearer {key}"}, key

    def _unanswered(self, error: Exception, deadline: Deadline, query: bool) -> EndpointFailed:
        """The error for a request without an answer."""
        if isinstance(error, TimeoutError) or deadline.passed():
            seconds = deadline.seconds if deadline.passed() else CONNECT_SECONDS
            reason = f"did not answer within {seconds:g} seconds"
            if query:
                self._resting = time.monotonic() + REST_SECONDS
                self._rest_reason = f"{self._title} {reason}"
            return self.failed(reason)
        if isinstance(error, socket.gaierror):
            return self.failed("cannot be found: no address is known for its name")
        if isinstance(error, ssl.SSLError):
            return self.failed(f"cannot be reached over TLS: {_told(error)}")
        if isinstance(error, ConnectionRefusedError):
            reason = "refuses connections; perhaps the server is not running"
        else:
            reason = f"gave no answer: {_told(error)}"
        return _PassingFailure(f"{self._title} {reason}", answered=False)

    def _rejected(self, response: HTTPResponse, answer: bytes | None, key: str) -> EndpointFailed:
        """The error for an answer with another status than 200."""
        status, variable = response.status, self.endpoint.key_variable
        if 300 <= status < 400:
            to = quoted(response.getheader("Location", ""))
            return self.failed(f"redirects to {to}, which is not followed: name that URL itself")
        if status in (401, 403):
            # What it says is not repeated: it may quote parts of the key.
            wanted = f"refuses the key in {variable}" if key else "wants a key (--key-variable)"
            return self.failed(f"{wanted}: it answered {status}")
        said = f"{status} {responses.get(status, '')}".rstrip() + _message(_json(answer), key)
        if status == 404:
            return self.failed(
                f"has no model {quoted(self.endpoint.model)}, or its URL is wrong (most end with "
                f"/v1): it answered {said}"
            )
        if status in _PASSING:
            return _PassingFailure(
                f"{self._title} answered {said}", answered=True, pause=_retry_after(response)
            )
        if status in _REFUSED:
            return InputRefused(f"{self._title} answered {said}")
        return self.failed(f"answered {said}")

    def _parsed(self, answer: bytes, response: HTTPResponse, key: str) -> Any:
        try:
            content = json.loads(answer)
        except (ValueError, RecursionError):
            kind = quoted(response.getheader("Content-Type", ""))
            raise self.failed(f"answered what is not JSON (its type is {kind})") from None
        if isinstance(content, dict) and content.get("error"):  # LM Studio, for an unknown path
            raise self.failed(f"answered with an error:{_message(content, key)}")
        return content


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


def _message(content: Any, key: str) -> str:
    """What an error's body says, without the key; "" if it says nothing that is known."""
    for name in ("error", "message", "detail"):
        if isinstance(content, dict):
            content = content.get(name, content)
    if not isinstance(content, str):
        return ""
    return f" {quoted(content.replace(key, '[key]') if key else content)}"


def _told(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:300]


def _from_keyring(name: str) -> str:
    """The key of this name in the user's keyring; "" if there is none or no package for it."""
    try:
        return import_module("keyring").get_password(KEYRING, name) or ""
    except Exception:  # backends raise what they like; the caller says that there is no key
        return ""
