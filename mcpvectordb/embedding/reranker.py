"""A cross-encoder, which scores how well a passage answers a query by reading both together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mcpvectordb.embedding.onnx import OnnxModel, spread
from mcpvectordb.embedding.pooling import sigmoid
from mcpvectordb.errors import EmbeddingFailed

DEFAULT = "ms-marco-MiniLM-L-12-v2"


class Reranker(OnnxModel):
    """A reranker on ONNX Runtime: `Reranker(model, weights.locate(model, folder))`.

    Each pair is a separate run, so its score does not depend on other pairs and needs no padding.
    """

    kind = "reranker"

    def logits(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return the logit per passage, higher is better; long passages are truncated."""
        # The longest first, so that all threads end at about the same time.
        distinct = sorted(set(passages), key=len, reverse=True)
        found = spread(lambda passage: self._logit(query, passage), distinct, self.threads)
        by_passage = dict(zip(distinct, found, strict=True))
        return [by_passage[passage] for passage in passages]

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """Return how well each passage answers the query, 0 to 1."""
        return [sigmoid(logit) for logit in self.logits(query, passages)]

    def _logit(self, query: str, passage: str) -> float:
        output = self.run(*self.tokens.encode_pair(query, passage, self.max_tokens))
        logit = float(output.reshape(-1)[0])
        if output.size != 1 or not math.isfinite(logit):
            raise EmbeddingFailed(
                f"{self.name} gave {output.reshape(-1)[:4]} instead of one finite number for a pair"
            )
        return logit
