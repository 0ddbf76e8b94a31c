"""The second look: a cross-encoder reads a query and a passage together and says how well the one
answers the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mcpvectordb.embedding.onnx import OnnxModel, spread
from mcpvectordb.embedding.pooling import sigmoid
from mcpvectordb.errors import EmbeddingFailed

DEFAULT = "ms-marco-MiniLM-L-12-v2"


class Reranker(OnnxModel):
    """A reranker on ONNX Runtime: `Reranker(model, weights.locate(model, folder))`.

    Each pair is a run of its own, so its score does not depend on its company, and short pairs cost
    no padding.
    """

    kind = "reranker"

    def logits(self, query: str, passages: Sequence[str]) -> list[float]:
        """The model's own figures, one per passage, higher is better; where a pair is too long the
        passage is cut.
        """
        distinct = sorted(
            set(passages), key=len, reverse=True
        )  # the longest first, so that all threads end together
        found = spread(lambda passage: self._logit(query, passage), distinct, self.threads)
        by_passage = dict(zip(distinct, found, strict=True))
        return [by_passage[passage] for passage in passages]

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers the query, 0 to 1."""
        return [sigmoid(logit) for logit in self.logits(query, passages)]

    def _logit(self, query: str, passage: str) -> float:
        output = self.run(*self.tokens.encode_pair(query, passage, self.max_tokens))
        logit = float(output.reshape(-1)[0])
        if output.size != 1 or not math.isfinite(logit):
            raise EmbeddingFailed(
                f"{self.name} gave {output.reshape(-1)[:4]} instead of one figure for a pair"
            )
        return logit
