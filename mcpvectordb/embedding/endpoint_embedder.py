"""An embedder behind an endpoint: OpenAI's `/embeddings`."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcpvectordb.embedding import fingerprint
from mcpvectordb.embedding.catalogue import Model
from mcpvectordb.embedding.embedder import LARGEST_NORM, SMALLEST_NORM
from mcpvectordb.embedding.endpoint import EndpointClient, InputRefused
from mcpvectordb.embedding.onnx import MAX_PARTS
from mcpvectordb.embedding.tokenizer import tokenizer_of
from mcpvectordb.errors import EndpointFailed, quoted
from mcpvectordb.network.connection import Deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_DIMENSIONS = 8192  # that sqlite-vec stores
BYTES_PER_VALUE = 32  # of a float in JSON, with room for white space
ENVELOPE_BYTES = 1 << 20
REQUEST_SECONDS = 1.5  # that a request should take; a query may have to wait for it
HALVINGS = 3
"""How often a text that the server rejects is halved; its vector is the mean of the parts'."""


class EndpointEmbedder:
    """An Embedder that asks a server: `EndpointEmbedder(model, model.digest)`.

    Every request also has the text of the fingerprint in `digest`, so that no vector is used that
    another model has made; "" accepts any.
    """

    def __init__(self, model: Model, digest: str, *, proxy: str = "") -> None:
        self.model = model
        self.name, self.digest, self.dimension = model.name, digest, model.dimension
        self.vector_weight = model.vector_weight
        self._client = EndpointClient(model, proxy=proxy)
        self._endpoint = self._client.endpoint
        self.batch = self._endpoint.batch_size - 1
        """How many texts the next request should have, beside the one of the fingerprint."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one unit vector per text, in their order; raises EndpointFailed.

        The vector of a text above `max_tokens`, by the tokens of this package's vocabulary, or of
        one that the server rejects, is the mean of the vectors of its parts.
        """
        import numpy as np

        deadline = Deadline(self._endpoint.query_timeout) if query else None
        prefix = self.model.query_prefix if query else self.model.document_prefix
        distinct = list(dict.fromkeys(texts))
        parts = {text: [prefix + part for part in self._parts(text, prefix)] for text in distinct}
        inputs = [part for text in distinct for part in parts[text]]
        vectors = iter(self._batches(inputs, deadline))
        found = {text: _mean([next(vectors) for _ in parts[text]]) for text in distinct}
        return np.array([found[text] for text in texts], np.float32).reshape(
            len(texts), self.dimension
        )

    def trial(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the vectors of texts as they are, of any dimension, in one request."""
        return self._answered(texts, Deadline(self._endpoint.timeout), query=False)

    def close(self) -> None:
        """End the pauses between attempts of other threads."""
        self._client.close()

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
                self.batch = min(self._endpoint.batch_size - 1, max(1, int(fitting)))
        return vectors

    def _vectors(self, inputs: Sequence[str], deadline: Deadline | None) -> list[NDArray[Any]]:
        """The vectors of a batch; a batch that the server rejects is halved, then its text is.

        So the limits of a server on texts, tokens and bytes need not be known.
        """
        try:
            return self._verified(inputs, deadline)
        except InputRefused as error:
            middle = len(inputs) // 2
            if middle:
                first = self._vectors(inputs[:middle], deadline)
                return first + self._vectors(inputs[middle:], deadline)
            try:
                return [self._halved(inputs[0], deadline, HALVINGS, error)]
            except InputRefused as last:
                raise EndpointFailed(f"{last}, for the text {quoted(inputs[0])}") from None

    def _halved(
        self, text: str, deadline: Deadline | None, halvings: int, error: InputRefused
    ) -> NDArray[Any]:
        """The mean of the halves' vectors, for a text that the server rejected with this error."""
        halves = _halves(text)
        if not halvings or not halves:
            raise error
        vectors = []
        for half in halves:
            try:
                vectors += self._verified([half], deadline)
            except InputRefused as again:
                vectors.append(self._halved(half, deadline, halvings - 1, again))
        return _mean(vectors)

    def _verified(self, inputs: Sequence[str], deadline: Deadline | None) -> list[NDArray[Any]]:
        """The vectors of a request whose fingerprint is the expected one."""
        query = deadline is not None
        vectors = self._answered(
            [fingerprint.TEXT, *inputs], deadline or Deadline(self._endpoint.timeout), query=query
        )
        if vectors.shape[1] != self.dimension:
            raise self._client.failed(
                f"gave vectors of {vectors.shape[1]} values, not {self.dimension}: another model "
                f"answers there. {self._remedy}"
            )
        cosine = fingerprint.similarity(self.digest, vectors[0])
        if self.digest and cosine < fingerprint.SAME:
            raise self._client.failed(
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

    def _answered(
        self, inputs: Sequence[str], deadline: Deadline, *, query: bool
    ) -> NDArray[np.float64]:
        """One unit vector per input, in their order, checked."""
        body: dict[str, Any] = {"model": self._endpoint.model, "input": list(inputs)}
        if self._endpoint.dimensions:
            body["dimensions"] = self._endpoint.dimensions
        most = ENVELOPE_BYTES + len(inputs) * MOST_DIMENSIONS * BYTES_PER_VALUE
        answer = self._client.post("embeddings", body, deadline, most=most, query=query)
        try:
            return unit_vectors(answer, len(inputs))
        except UnusableReply as error:
            raise self._client.failed(f"gave an unusable answer: {error}") from None


class UnusableReply(ValueError):
    """A reply that is JSON, but not what was asked for."""


def unit_vectors(answer: Any, count: int) -> NDArray[np.float64]:
    """Return the unit vectors of a reply, one for each of `count` texts; raises UnusableReply."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    return _unit([_values(row) for row in _ordered(rows, count)])


def _ordered(rows: Any, count: int) -> list[Any]:
    """The rows in the order of the inputs: by their `index`, where they have one."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnusableReply("it has no list `data` of objects")
    if len(rows) != count:
        raise UnusableReply(f"it has {len(rows)} embeddings for {count} texts")
    places = [row.get("index", place) for place, row in enumerate(rows)]
    by_place = {place: row for place, row in zip(places, rows, strict=True) if type(place) is int}
    if by_place.keys() != set(range(count)):
        raise UnusableReply(f"the values of `index` are not 0 to {count - 1}")
    return [by_place[place] for place in range(count)]


def _values(row: dict[str, Any]) -> NDArray[Any]:
    """The values of an embedding: numbers, or base64 of little-endian float32."""
    import numpy as np

    given = row.get("embedding")
    try:
        if isinstance(given, str):
            return np.frombuffer(base64.b64decode(given, validate=True), "<f4")
        values = np.asarray(given, np.float64)
    except (binascii.Error, TypeError, ValueError, OverflowError):
        raise UnusableReply("an `embedding` is neither a list of numbers nor base64") from None
    if values.ndim != 1 or not values.size:
        raise UnusableReply(f"an `embedding` has the shape {values.shape}, not one row of numbers")
    return values


def _unit(rows: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    import numpy as np

    sizes = {row.size for row in rows}
    if len(sizes) > 1 or max(sizes) > MOST_DIMENSIONS:
        found = " and ".join(f"{size:,}" for size in sorted(sizes))
        raise UnusableReply(f"its embeddings have {found} values")
    vectors = np.array(rows, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not ((norms >= SMALLEST_NORM) & (norms <= LARGEST_NORM)).all():  # NaN is neither
        raise UnusableReply("an `embedding` is zero, infinite or not a number")
    units: NDArray[np.float64] = vectors / norms
    return units


def _mean(vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The direction of the mean of unit vectors; of opposite ones that of the first."""
    import numpy as np

    mean = np.mean(vectors, axis=0)
    norm = np.linalg.norm(mean)
    return vectors[0] if norm < SMALLEST_NORM else mean / norm


def _halves(text: str) -> list[str]:
    """A text in two parts, cut at white space near its middle; none if it is too short."""
    middle = len(text) // 2
    space = max(text.rfind(mark, middle // 2, middle) for mark in " \n\t")
    cut = space if space > 0 else middle
    return [text[:cut], text[cut:]] if middle else []
