"""The cross-encoder of a database: loaded when first needed, its scores cached."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpvectordb.config import Config
from mcpvectordb.errors import ModelError, ModelMissing
from mcpvectordb.storage import cache, deadline
from mcpvectordb.storage.cache import Cache
from mcpvectordb.text.tokens import is_non_latin

if TYPE_CHECKING:
    from mcpvectordb.embedding.catalogue import Model
    from mcpvectordb.embedding.embedder import Reranker
    from mcpvectordb.embedding.endpoint import EndpointReranker


class CachedReranker:
    """A cross-encoder whose scores are cached; the first use loads the model."""

    def __init__(self, config: Config, cache: Cache) -> None:
        self._config, self._cache = config, cache
        self._lock = threading.Lock()
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
        keys = [cache.key("rerank", model.digest, query, passage) for passage in passages]
        known = self._cache.read(keys)
        missing = {
            key: passage for key, passage in zip(keys, passages, strict=True) if key not in known
        }
        if missing:
            new = dict(
                zip(
                    missing,
                    self._reranker(model).scores(query, list(missing.values())),
                    strict=True,
                )
            )
            self._cache.write(new)
            known |= new
        return [known[key] for key in keys]

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
