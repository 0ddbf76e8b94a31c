"""A reranker behind an endpoint: `/rerank` as Cohere, Jina, vLLM, llama.cpp and TEI have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcpvectordb.embedding.catalogue import Model
from mcpvectordb.embedding.endpoint import EndpointClient
from mcpvectordb.embedding.endpoint_embedder import UnusableReply
from mcpvectordb.embedding.pooling import sigmoid
from mcpvectordb.network.connection import Deadline

ENVELOPE_BYTES = 1 << 20
LARGEST = 1e6  # score; NaN and infinity are not below it
ECHO = 8  # times as many bytes as a passage has characters: a server may repeat it, escaped


class EndpointReranker:
    """Scores passages by asking a server, in one request: `EndpointReranker(model)`.

    Cohere and Jina call the passages `documents` and answer with `results` of `relevance_score`;
    TEI calls them `texts` and answers with a list of `score`. llama.cpp's scores are logits.
    """

    def __init__(self, model: Model, *, proxy: str = "") -> None:
        self.name = model.name
        self._client = EndpointClient(model, proxy=proxy)
        self._endpoint = self._client.endpoint

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return how well each passage answers the query, 0 to 1; raises EndpointFailed."""
        found = self.raw_scores(query, passages, Deadline(self._endpoint.query_timeout))
        if self._endpoint.logits:
            return [sigmoid(score) for score in found]
        if not all(0 <= score <= 1 for score in found):
            raise self._client.failed(
                "gave scores that are not 0 to 1, as they were when it was added; add it again"
            )
        return found

    def raw_scores(self, query: str, passages: Sequence[str], deadline: Deadline) -> list[float]:
        """Return what the server answers, in the order of the passages."""
        body: dict[str, Any] = {"query": query, self._endpoint.passages: list(passages)}
        if self._endpoint.passages == "texts":
            body["truncate"] = True
        else:
            body["model"] = self._endpoint.model
        most = ENVELOPE_BYTES + ECHO * sum(map(len, passages))
        answer = self._client.post("rerank", body, deadline, most=most, query=True)
        try:
            return scores_by_index(answer, len(passages))
        except UnusableReply as error:
            raise self._client.failed(f"gave an unusable answer: {error}") from None

    def close(self) -> None:
        """End the pauses between attempts of other threads."""
        self._client.close()


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
