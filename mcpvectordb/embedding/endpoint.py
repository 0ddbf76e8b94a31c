"""Servers that embed or rerank: OpenAI's `/embeddings` and `/rerank`, as others have them.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPException, HTTPResponse, responses
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from mcpvectordb import __version__
from mcpvectordb.config import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.add_model import USUAL_TOKENS, check_name
from mcpvectordb.embedding.catalogue import (
    FINGERPRINT_TEXT,
    MOST_DIMENSIONS,
    PREFIXES,
    SAME_MODEL,
    Endpoint,
    Model,
    ModelKind,
    fingerprint_of,
    similarity,
)
from mcpvectordb.embedding.embedder import LARGEST_NORM, MAX_PARTS, SMALLEST_NORM, sigmoid
from mcpvectordb.embedding.tokenizer import tokenizer_of
from mcpvectordb.errors import EndpointFailed, InvalidInput, Refused, quoted
from mcpvectordb.network import (
    Deadline,
    ParsedUrl,
    blocked,
    parse_url,
    request,
    resolved,
    system_resolver,
)
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

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


class UnusableReply(ValueError):
    """A reply that is JSON, but not what was asked for."""


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
        self.model, self.name = model, model.name
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
        self,
        route: str,
        body: Mapping[str, Any],
        read: Callable[[Any], T],
        deadline: Deadline,
        *,
        most: int,
        query: bool,
    ) -> T:
        """Return what `read` makes of the JSON that the server answers; raises EndpointFailed.

        It has at most so many bytes. A query is sent once, and not at all shortly after one that
        took too long.
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
                return read(self._attempt(url, content, deadline, most, query))
            except UnusableReply as error:
                raise self.failed(f"gave an unusable answer: {error}") from None
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

    def failed(
        self, reason: str, kind: type[EndpointFailed] = EndpointFailed, **more: Any
    ) -> EndpointFailed:
        """An error that names this endpoint, without its key."""
        return kind(f"{self._title} {without_key(reason, self._key())}", **more)

    def told(self, text: str) -> str:
        """What the server said, for the reason of an error: without the key, and short."""
        return quoted(without_key(text[:LONGEST_SAID], self._key()))

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
        try:
            said = json.loads(answer)
        except (ValueError, RecursionError):
            kind = self.told(response.getheader("Content-Type", ""))
            raise self.failed(f"answered what is not JSON (its type is {kind})") from None
        if isinstance(said, dict) and said.get("error"):  # LM Studio, for an unknown path
            raise self.failed(f"answered with an error:{self._message(said)}")
        return said

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
        found = os.environ.get(variable)
        if not found:
            with suppress(Exception):  # backends of the keyring, or none, raise what they like
                found = import_module("keyring").get_password(KEYRING, variable)
        key = (found or "").strip()
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
        return self.failed(reason, _PassingFailure, answered=False)

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
        said = f"{status} {responses.get(status, '')}".rstrip()
        with suppress(ValueError, RecursionError):
            said += self._message(json.loads(answer or b""))
        if status == 404:
            return self.failed(
                f"has no model {quoted(self.endpoint.model)}, or its URL is wrong (most end with "
                f"/v1): it answered {said}"
            )
        if status in _PASSING:
            pause = _retry_after(response)
            return self.failed(f"answered {said}", _PassingFailure, answered=True, pause=pause)
        return self.failed(
            f"answered {said}", InputRefused if status in _REFUSED else EndpointFailed
        )

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
    yield re.sub(
        r"\\(?:[ux]\{?0*([0-9A-Fa-f]{2})\}?|(.))",
        lambda match: chr(int(match[1], 16)) if match[1] else str(match[2]),
        text,
    )
    for word in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        for start in range(4):  # it may begin inside of a group of four
            coded = word[start:].replace("-", "+").replace("_", "/")
            yield base64.b64decode(coded[: len(coded) // 4 * 4]).decode("latin-1")
    for digits in re.findall(r"(?:[0-9A-Fa-f]{2}){4,}", text):
        yield binascii.unhexlify(digits).decode("latin-1")
        yield binascii.unhexlify(digits[1:-1]).decode("latin-1")


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


# --- an embedder: OpenAI's `/embeddings`

BYTES_PER_VALUE = 32  # of a float in JSON, with room for white space
ENVELOPE_BYTES = 1 << 20
REQUEST_SECONDS = 1.5  # that a request should take; a query may have to wait for it
HALVINGS = 3
"""How often a text that the server rejects is halved; its vector is the mean of the parts'."""


class EndpointEmbedder(EndpointClient):
    """An Embedder that asks a server: `EndpointEmbedder(model, model.digest)`.

    Every request also has the text of the fingerprint in `digest`, so that no vector is used that
    another model has made; "" accepts any.
    """

    def __init__(self, model: Model, digest: str, *, proxy: str = "") -> None:
        super().__init__(model, proxy=proxy)
        self.digest, self.dimension = digest, model.dimension
        self.vector_weight = model.vector_weight
        self.batch = self.endpoint.batch_size - 1
        """How many texts the next request should have, beside the one of the fingerprint."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one unit vector per text, in their order; raises EndpointFailed.

        The vector of a text above `max_tokens`, by the tokens of this package's vocabulary, or of
        one that the server rejects, is the mean of the vectors of its parts.
        """
        deadline = Deadline(self.endpoint.query_timeout) if query else None
        prefix = self.model.query_prefix if query else self.model.document_prefix
        distinct = list(dict.fromkeys(texts))
        parts = {text: [prefix + part for part in self._parts(text, prefix)] for text in distinct}
        inputs = [part for text in distinct for part in parts[text]]
        vectors = iter(self._batches(inputs, deadline))
        found = {text: _mean([next(vectors) for _ in parts[text]]) for text in distinct}
        return np.array([found[text] for text in texts], np.float32).reshape(
            len(texts), self.dimension
        )

    def _parts(self, text: str, prefix: str) -> list[str]:
        """The text in as few parts as `max_tokens` needs, at most MAX_PARTS of them."""
        if 3 * (len(text) + len(prefix)) <= self.model.max_tokens:  # no character is more tokens
            return [text]
        counter = tokenizer_of()
        room = max(16, self.model.max_tokens - counter.count(prefix) - 2)
        starts = counter.token_starts(text)
        seen = min(len(starts), MAX_PARTS * room)
        count = max(1, -(-seen // room))
        cuts = [int(starts[seen * part // count]) for part in range(1, count)]
        end = int(starts[seen]) if seen < len(starts) else len(text)
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, end], strict=True)]

    def _batches(self, inputs: Sequence[str], deadline: Deadline | None) -> list[NDArray[Any]]:
        """The vectors of all inputs; a slow server gets fewer texts at a time.

        Many servers work on one request after the other, and a query would wait for a long one.
        """
        vectors: list[NDArray[Any]] = []
        while len(vectors) < len(inputs):
            began, texts = time.monotonic(), inputs[len(vectors) : len(vectors) + self.batch]
            try:
                vectors += self._vectors(texts, deadline)
            finally:  # also when it took too long
                fitting = len(texts) * REQUEST_SECONDS / max(1e-3, time.monotonic() - began)
                self.batch = min(self.endpoint.batch_size - 1, max(1, int(fitting)))
        return vectors

    def _vectors(
        self, inputs: Sequence[str], deadline: Deadline | None, halvings: int = HALVINGS
    ) -> list[NDArray[Any]]:
        """The vectors of a batch; a batch that the server rejects is halved, then its text is.

        So the limits of a server on texts, tokens and bytes need not be known.
        """
        try:
            return self._verified(inputs, deadline)
        except InputRefused as error:
            middle, refused = len(inputs) // 2, error
        if middle:
            first = self._vectors(inputs[:middle], deadline)
            return first + self._vectors(inputs[middle:], deadline)
        [text] = inputs
        middle = len(text) // 2
        space = max(text.rfind(mark, middle // 2, middle) for mark in " \n\t")
        cut = space if space > 0 else middle
        try:
            if not halvings or not middle:
                raise refused
            halves = text[:cut], text[cut:]
            parts = [self._vectors([half], deadline, halvings - 1) for half in halves]
        except InputRefused as last:
            if halvings < HALVINGS:
                raise
            raise EndpointFailed(f"{last}, for the text {quoted(text)}") from None
        return [_mean([vector for part in parts for vector in part])]

    def _verified(self, inputs: Sequence[str], deadline: Deadline | None) -> list[NDArray[Any]]:
        """The vectors of a request whose fingerprint is the expected one."""
        vectors = self.unit_vectors([FINGERPRINT_TEXT, *inputs], deadline)
        if vectors.shape[1] != self.dimension:
            raise self.failed(
                f"gave vectors of {vectors.shape[1]} values, not {self.dimension}: another model "
                f"answers there. {self._remedy}"
            )
        cosine = similarity(self.digest, vectors[0])
        if self.digest and cosine < SAME_MODEL:
            raise self.failed(
                "no longer gives the vectors that the file was embedded with (a fixed text has a "
                f"cosine of {cosine:.2f} to what it was): another model answers there. "
                f"{self._remedy}"
            )
        return list(vectors[1:])

    @property
    def _remedy(self) -> str:
        return (
            f"Serve the former model again, or run `mcpvectordb model add-endpoint {self.name}` "
            f"anew and then `mcpvectordb model use {self.name}` to embed the file again"
        )

    def unit_vectors(
        self, inputs: Sequence[str], deadline: Deadline | None = None
    ) -> NDArray[np.float64]:
        """One unit vector of any dimension per input, in their order, by one request.

        Only a query has a deadline of its own.
        """
        query, deadline = deadline is not None, deadline or Deadline(self.endpoint.timeout)
        body: dict[str, Any] = {"model": self.endpoint.model, "input": list(inputs)}
        if self.endpoint.dimensions:
            body["dimensions"] = self.endpoint.dimensions
        most = ENVELOPE_BYTES + len(inputs) * MOST_DIMENSIONS * BYTES_PER_VALUE
        read = partial(unit_vectors, count=len(inputs))
        return self.post("embeddings", body, read, deadline, most=most, query=query)


def unit_vectors(answer: Any, count: int) -> NDArray[np.float64]:
    """Return the unit vectors of a reply, one for each of `count` texts; raises UnusableReply."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnusableReply("it has no list `data` of objects")
    if len(rows) != count:
        raise UnusableReply(f"it has {len(rows)} embeddings for {count} texts")
    # Rows without an `index` are in the order of the inputs.
    places = [row.get("index", place) for place, row in enumerate(rows)]
    by_place = {place: row for place, row in zip(places, rows, strict=True) if type(place) is int}
    if by_place.keys() != set(range(count)):
        raise UnusableReply(f"the values of `index` are not 0 to {count - 1}")
    found = [_values(by_place[place].get("embedding")) for place in range(count)]
    sizes = {row.size for row in found}
    if len(sizes) > 1 or max(sizes) > MOST_DIMENSIONS:
        said = " and ".join(f"{size:,}" for size in sorted(sizes))
        raise UnusableReply(f"its embeddings have {said} values")
    vectors = np.array(found, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not ((norms >= SMALLEST_NORM) & (norms <= LARGEST_NORM)).all():  # NaN is neither
        raise UnusableReply("an `embedding` is zero, infinite or not a number")
    units: NDArray[np.float64] = vectors / norms
    return units


def _values(given: Any) -> NDArray[Any]:
    """The values of an embedding: numbers, or base64 of little-endian float32."""
    try:
        if isinstance(given, str):
            return np.frombuffer(base64.b64decode(given, validate=True), "<f4")
        values = np.asarray(given, np.float64)
    except (binascii.Error, TypeError, ValueError, OverflowError):
        raise UnusableReply("an `embedding` is neither a list of numbers nor base64") from None
    if values.ndim != 1 or not values.size:
        raise UnusableReply(f"an `embedding` has the shape {values.shape}, not one row of numbers")
    return values


def _mean(vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The direction of the mean of unit vectors; of opposite ones that of the first."""
    mean = np.mean(vectors, axis=0)
    norm = np.linalg.norm(mean)
    return vectors[0] if norm < SMALLEST_NORM else mean / norm


# --- a reranker: `/rerank` as Cohere, Jina, vLLM, llama.cpp and TEI have it

LARGEST = 1e6  # score; NaN and infinity are not below it
ECHO = 8  # times as many bytes as a passage has characters: a server may repeat it, escaped


class EndpointReranker(EndpointClient):
    """Scores passages by asking a server, in one request: `EndpointReranker(model)`.

    Cohere and Jina call the passages `documents` and answer with `results` of `relevance_score`;
    TEI calls them `texts` and answers with a list of `score`. llama.cpp's scores are logits.
    """

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return how well each passage answers the query, 0 to 1; raises EndpointFailed."""
        found = self.raw_scores(query, passages, Deadline(self.endpoint.query_timeout))
        if self.endpoint.logits:
            return [sigmoid(score) for score in found]
        if not all(0 <= score <= 1 for score in found):
            raise self.failed(
                "gave scores that are not 0 to 1, as they were when it was added; add it again"
            )
        return found

    def raw_scores(self, query: str, passages: Sequence[str], deadline: Deadline) -> list[float]:
        """Return what the server answers, in the order of the passages."""
        body: dict[str, Any] = {"query": query, self.endpoint.passages: list(passages)}
        if self.endpoint.passages == "texts":
            body["truncate"] = True
        else:
            body["model"] = self.endpoint.model
        most = ENVELOPE_BYTES + ECHO * sum(map(len, passages))
        read = partial(scores_by_index, count=len(passages))
        return self.post("rerank", body, read, deadline, most=most, query=True)


def scores_by_index(answer: Any, count: int) -> list[float]:
    """Return the scores of a reply in the order of `count` passages; raises UnusableReply."""
    if isinstance(answer, dict):
        answer = answer.get("results", answer.get("data"))
    if not isinstance(answer, list) or not all(isinstance(row, dict) for row in answer):
        raise UnusableReply("it has no list of results")
    found = {
        row["index"]: row.get("relevance_score", row.get("score"))
        for row in answer
        if type(row.get("index")) is int
    }
    if len(answer) != count or found.keys() != set(range(count)):
        raise UnusableReply(f"its results are not one for each of {count} passages")
    scores = [found[place] for place in range(count)]
    if not all(type(score) in (int, float) and abs(score) <= LARGEST for score in scores):
        raise UnusableReply("a score is not a finite number")
    return [float(score) for score in scores]


# --- adding an endpoint: it is described on this machine after a trial


_TEXTS = ("Tea is steeped for three minutes.", "The budget of the year 2025 was approved.")
_QUESTION = "How long does tea steep?"


def add_endpoint(
    name: str,
    *,
    url: str,
    model: str,
    kind: ModelKind = "embedder",
    key_variable: str = "",
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    max_tokens: int = USUAL_TOKENS,
    dimensions: int | None = None,
    batch_size: int = 32,
    timeout: float = 120.0,
    query_timeout: float = 5.0,
    config: Config | None = None,
) -> Model:
    """Try a server's `/embeddings` or `/rerank`, and keep its description under a name.

    The name is then one for `Config(model=...)`, `Database.use_model` and, of a reranker,
    `Config(reranker=...)`. An endpoint that has the name already is replaced.

    url              the server's URL up to the route, such as http://localhost:11434/v1; http only
                     for this machine and private networks
    model            what the server calls the model
    key_variable     the environment variable that has the key, or its entry in the keyring under
                     the service mcpvectordb; the key itself is kept nowhere
    query_prefix     text in front of queries, and document_prefix in front of passages; without
                     them those that the model is known to need
    max_tokens       the longest text of the model; longer ones are sent in parts
    dimensions       values per vector to ask for, of models that can give fewer
    batch_size       most texts in a request
    timeout          seconds for a request with passages, retries included
    query_timeout    seconds for a query; words alone find what there is then
    """
    config = config or Config()
    folder = config.models_folder()
    check_name(name, folder, endpoint=True)
    if kind not in ("embedder", "reranker"):
        raise InvalidInput(f"kind must be embedder or reranker, not {kind!r}")
    _check_variable(key_variable)
    if not 32 <= max_tokens <= 1_000_000:
        raise InvalidInput(f"max_tokens must be 32 to 1000000, not {max_tokens}")
    server = Endpoint(
        url=_base(url, "rerank" if kind == "reranker" else "embeddings"),
        model=model,
        key_variable=key_variable,
        dimensions=dimensions,
        batch_size=batch_size,
        timeout=timeout,
        query_timeout=query_timeout,
    )
    family = model.rpartition("/")[2].lower()
    known = next((PREFIXES[name] for name in PREFIXES if family.startswith(name)), ("", ""))
    described = Model(
        name=name,
        dimension=1,
        max_tokens=max_tokens,
        files={},
        query_prefix=known[0] if query_prefix is None else query_prefix,
        document_prefix=known[1] if document_prefix is None else document_prefix,
        kind=kind,
        endpoint=server,
    )
    try_out = _tried_reranker if kind == "reranker" else _tried_embedder
    tried = try_out(described, server, config.proxy)
    with weights.adding(folder, name) as made:
        weights.describe(tried, made)
    return tried


def _check_variable(name: str) -> None:
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
        # It is not repeated: somebody may have given the key itself.
        raise InvalidInput(
            "key_variable is the name of an environment variable, such as OPENAI_API_KEY, never "
            "the key itself"
        )
    if name.startswith(Config.ENV_PREFIX):
        raise InvalidInput(
            f"variables that begin with {Config.ENV_PREFIX} are settings; name the key's "
            "variable differently"
        )


def _base(url: str, route: str) -> str:
    """The URL without the route; InvalidInput if there is anything in it that could be a secret."""
    try:
        parse_url(url)
    except Refused as error:
        if "@" in url:  # what stands before it is not repeated
            raise InvalidInput(
                "the URL of an endpoint has no user and password; name the key's variable instead"
            ) from None
        raise InvalidInput(str(error)) from None
    if "?" in url or "#" in url:
        raise InvalidInput(
            f"the URL of an endpoint has nothing after its path: {re.split('[?#]', url)[0]}"
        )
    return url.rstrip("/").removesuffix(f"/{route}")


def _tried_embedder(model: Model, server: Endpoint, proxy: str) -> Model:
    """The model with its dimension and fingerprint, after a trial of texts alone and together."""
    embedder = EndpointEmbedder(model, "", proxy=proxy)
    together = embedder.unit_vectors([FINGERPRINT_TEXT, *_TEXTS])
    alone = [embedder.unit_vectors([text])[0] for text in _TEXTS]
    dimension = together.shape[1]
    if server.dimensions not in (None, dimension):
        raise InvalidInput(
            f"{server.url} was asked for vectors of {server.dimensions} values and gave "
            f"{dimension}: {server.model} has no others, or the server does not pass that on"
        )
    for row, single in zip(together[1:], alone, strict=True):
        if row.shape != single.shape or row @ single < SAME_MODEL:
            raise InvalidInput(
                f"{server.url} gives a text another vector alone than among others (their cosine "
                f"is below {SAME_MODEL}), so that nothing would be found again by it"
            )
    server = replace(server, fingerprint=fingerprint_of(together[0]))
    return replace(model, dimension=dimension, endpoint=server)


def _tried_reranker(model: Model, server: Endpoint, proxy: str) -> Model:
    """The model with the dialect of its server, after a trial of a passage against another."""

    def scores() -> list[float]:
        reranker = EndpointReranker(replace(model, endpoint=server), proxy=proxy)
        return reranker.raw_scores(_QUESTION, _TEXTS, Deadline(server.timeout))

    try:
        found = scores()
    except InputRefused:
        server = replace(server, passages="texts")
        found = scores()
    if found[0] <= found[1]:
        raise InvalidInput(
            f"{server.url} does not rank: to {quoted(_QUESTION)} it prefers {quoted(_TEXTS[1])}"
        )
    logits = not all(0 <= score <= 1 for score in found)
    return replace(model, endpoint=replace(server, logits=logits))
