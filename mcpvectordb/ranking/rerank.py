"""The cross-encoder of a database: loaded when first needed, its scores cached.

They are in memory, per process: a search changes nothing in the file, so that a tool that searches
is read-only in fact. Earlier versions kept them in the table `cache`, which `maintenance` empties.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpvectordb.config import Config
from mcpvectordb.errors import ModelError, ModelMissing
from mcpvectordb.storage import deadline
from mcpvectordb.text.tokens import is_non_latin

if TYPE_CHECKING:
    from mcpvectordb.embedding.catalogue import Model
    from mcpvectordb.embedding.embedder import Reranker
    from mcpvectordb.embedding.endpoint import EndpointReranker

MOST_CACHED = 20_000  # scores under digests of their inputs; the oldest are dropped first


class CachedReranker:
    """A cross-encoder whose scores are cached; the first use loads the model."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._cache: dict[bytes, float] = {}
        self._loaded: Reranker | EndpointReranker | None = None

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._loaded is not None

    def scores(self, query: str, passages: Sequence[str]) -> list[float] | str:
        """How well each passage answers the query, 0 to 1, or the reason why that is unknown."""
        from statistics import median

        if not passages:
            return "there is nothing to rerank"
        if len(query) > median(map(len, passages)):
            return (
                "the query is longer than the passages, and the reranker was made for short "
                "questions"
            )
        try:
            model = self._model()
            if model.latin_only and is_non_latin(query):
                return f"{model.name} reads Latin letters only"
            with deadline.paused():
                return self._scores(model, query, passages)
        except ModelError as error:
            return str(error)

    def missing_reason(self) -> str:
        """Why the model is not available on this machine; "" if its files are there."""
        from mcpvectordb.embedding import weights

        try:
            weights.locate(self._model(), self._config.models_folder())
        except ModelError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Release the model."""
        if self._loaded is not None:
            self._loaded.close()

    def _scores(self, model: Model, query: str, passages: Sequence[str]) -> list[float]:
        inputs = {each: json.dumps([model.digest, query, each]).encode() for each in passages}
        keys = {each: hashlib.sha256(said).digest() for each, said in inputs.items()}
        with self._lock:
            known = {each: self._cache[key] for each, key in keys.items() if key in self._cache}
        if missing := [each for each in keys if each not in known]:
            new = dict(zip(missing, self._reranker(model).scores(query, missing), strict=True))
            known |= new
            with self._lock:
                self._cache |= {keys[each]: score for each, score in new.items()}
                for oldest in list(self._cache)[: max(0, len(self._cache) - MOST_CACHED)]:
                    del self._cache[oldest]
        return [known[each] for each in passages]

    def _model(self) -> Model:
        from mcpvectordb.embedding import weights
        from mcpvectordb.embedding.catalogue import RERANKER

        model = weights.find(self._config.reranker or RERANKER, self._config.models_folder())
        if model.kind != "reranker":
            raise ModelMissing(f"{model.name}, which MCPVECTORDB_RERANKER names, is no reranker")
        return model

    def _reranker(self, model: Model) -> Reranker | EndpointReranker:
        from mcpvectordb.embedding import weights
        from mcpvectordb.embedding.embedder import Reranker

        with self._lock:
            if self._loaded is None and model.endpoint:
                from mcpvectordb.embedding.endpoint import EndpointReranker

                self._loaded = EndpointReranker(model, proxy=self._config.proxy)
            elif self._loaded is None:
                self._loaded = Reranker(model, weights.locate(model, self._config.models_folder()))
            return self._loaded
