"""LangChain: a database as a VectorStore, its passages as a Retriever. Needs the extra `langchain`.

A LangChain document is a document of a library here, so it is found by words and by meaning, and by
everything else that searches the file. Embeddings of LangChain are optional: without them the
file's own model is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from numpy.typing import NDArray
from pydantic import ConfigDict

from mcpvectordb import Condition, Database, Document
from mcpvectordb.frameworks import BATCH, among, passages
from mcpvectordb.records import Mode

_TITLE = 80  # characters of a text that name it if its metadata do not

Filter = Mapping[str, Any] | Sequence[Condition]
"""Conditions on metadata, {"author": "ann", "year": {"gte": 2020}}, or any conditions in a list."""


class LangChainEmbedder:
    """Embeddings of LangChain as the embedder of a `Database`.

    `Database("notes.db", embedder=LangChainEmbedder(OpenAIEmbeddings()))`. The name of the model
    goes into the file; `dimension` is asked for by embedding one word if it is not given.
    """

    def __init__(
        self, embeddings: Embeddings, *, name: str | None = None, dimension: int | None = None
    ) -> None:
        self.embeddings = embeddings
        named = (getattr(embeddings, each, None) for each in ("model", "model_name", "model_id"))
        model = next((each for each in named if isinstance(each, str) and each), "")
        self.name = name or f"{type(embeddings).__name__} {model}".strip()
        self.dimension = dimension or len(embeddings.embed_query("dimension"))

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One row for each text; a query may be embedded in another way than a passage."""
        if query:
            rows = [self.embeddings.embed_query(text) for text in texts]
        else:
            rows = self.embeddings.embed_documents(list(texts))
        return np.asarray(rows, np.float32)


class LangChainStore(VectorStore):
    """A library of a database as a LangChain VectorStore; searches return whole documents.

    The id of a LangChain document is its `source` here. `mode` is how searches rank: hybrid, text
    or vector.
    """

    def __init__(self, db: Database, *, library: str = "default", mode: Mode = "hybrid") -> None:
        self.db, self.library, self.mode = db, library, mode

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: str = ":memory:",
        **options: Any,
    ) -> Self:
        """A store with these texts, in a new or existing file; without one it lives in memory."""
        embedder = None if embedding is None else LangChainEmbedder(embedding)
        store = cls(Database(path, embedder=embedder), **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Store texts, and return their ids; a text with the id of another one replaces it."""
        bodies = list(texts)
        values = metadatas or [{} for _ in bodies]
        names = [id or str(uuid.uuid4()) for id in ids or [None] * len(bodies)]
        done = self.db.documents.ingest_many(
            bodies,
            sources=names,
            titles=[_title(*each) for each in zip(bodies, values, strict=True)],
            metadata=values,
            library=self.library,
        )
        for stored, wanted in zip(done, values, strict=True):
            if stored.document.metadata != wanted:  # of the text before, or of its front matter
                self.db.documents.update(stored.document.id, metadata=wanted)
        return names

    def get_by_ids(self, ids: Sequence[str], /) -> list[LangChainDocument]:
        """The documents with these ids, in their order; unknown ids are left out."""
        found = {
            each.source: each
            for some in among("source", ids)
            for each in self.db.documents.browse(library=self.library, where=[some], limit=BATCH)
        }
        return [self._document(found[id]) for id in dict.fromkeys(ids) if id in found]

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete the documents with these ids, or without ids all documents of the library."""
        if ids is None:
            self.db.documents.delete(library=self.library)
        for some in among("source", ids or ()):
            self.db.documents.delete(library=self.library, where=[some])
        return True

    def similarity_search(
        self, query: str, k: int = 4, filter: Filter | None = None, **options: Any
    ) -> list[LangChainDocument]:
        """The documents that answer a query best; `filter` has conditions on their metadata."""
        found = self.similarity_search_with_score(query, k, filter, **options)
        return [document for document, _ in found]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter | None = None, **_: Any
    ) -> list[tuple[LangChainDocument, float]]:
        """The best documents with scores from 0 to 1; higher is better."""
        hits = self.db.documents.search(
            query,
            mode=self.mode,
            unit="document",
            library=self.library,
            where=_where(filter),
            limit=k,
            plain=True,
        )
        return [(self._document(hit.item.document), hit.score) for hit in hits]

    def _select_relevance_score_fn(self) -> Any:
        return float  # scores are 0 to 1, and higher is better

    def _document(self, document: Document) -> LangChainDocument:
        return LangChainDocument(
            id=document.source,
            page_content=self.db.documents.text(document.id),
            metadata=dict(document.metadata),
        )


class LangChainRetriever(BaseRetriever):
    """The passages of a database that answer a question, as a LangChain Retriever.

    Metadata of a passage are those of its document, with title, source, page, lines, a citation,
    the score and the relevance. `filter` is as for `LangChainStore`; the other fields are
    arguments of `Database.documents.search`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    db: Database
    k: int = 4
    library: str | None = None
    mode: Mode = "hybrid"
    filter: Any = None
    rerank: bool = False
    min_relevance: float = 0.0

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LangChainDocument]:
        found = passages(
            self.db,
            query,
            mode=self.mode,
            library=self.library,
            where=_where(self.filter),
            limit=self.k if k is None else k,
            rerank=self.rerank,
            min_relevance=self.min_relevance,
        )
        return [
            LangChainDocument(id=id, page_content=text, metadata={**metadata, "score": score})
            for id, text, metadata, score in found
        ]


def _where(filter: Filter | None) -> Sequence[Condition] | None:
    """The conditions of a filter; the keys of a mapping are those of metadata, as LangChain's."""
    if not isinstance(filter, Mapping):
        return filter
    found = []
    for key, wanted in filter.items():  # {"$gte": 5} or {"gte": 5}, or a value to be equal to
        for name, value in wanted.items() if isinstance(wanted, Mapping) else [("eq", wanted)]:
            operator = str(name).removeprefix("$")
            operator = "not_in" if operator == "nin" else operator
            found.append(Condition(("metadata", *key.split(".")), operator, value))
    return found


def _title(text: str, metadata: Mapping[str, Any]) -> str:
    """The title in the metadata, or the beginning of the text: it is embedded with the text."""
    given = metadata.get("title")
    title = given if isinstance(given, str) else text.strip().partition("\n")[0]
    return " ".join(title.split())[:_TITLE] or "untitled"
