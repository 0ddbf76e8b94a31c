"""/api/stores and /api/vectors: embeddings that users bring along."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from mcpvectordb import InvalidInput, Namespace, Store, Vector
from mcpvectordb_server.web.api.documents import Limit, Offset
from mcpvectordb_server.web.shown import Shown
from mcpvectordb_server.web.site import Site

StoreName = Annotated[str, "The store"]
NamespaceName = Annotated[str | None, "Of this namespace only"]
Numbers = Annotated[list[float], "The embedding", Field(min_length=1, max_length=16_384)]
Metric = Literal["cosine", "dot", "euclidean"]


NamespaceEntry = Annotated[Namespace, Shown("NamespaceEntry", "A namespace of a store.")]


StoreEntry = Annotated[
    dict[str, Any],
    Shown(
        "StoreEntry",
        "A store: how it ranks, and how many vectors it has.",
        Store,
        namespaces=list[NamespaceEntry],
    ),
]


class StoreList(TypedDict):
    """All stores, by name."""

    stores: list[StoreEntry]


VectorReply = Annotated[
    dict[str, Any],
    Shown(
        "VectorReply",
        "A vector; its numbers only on request.",
        Vector,
        without="raw",
        embedding=NotRequired[list[float]],
    ),
]


class VectorList(TypedDict):
    """A page of vectors, newest first, and their number in all."""

    vectors: list[VectorReply]
    total: int
    note: str


class VectorHit(TypedDict):
    """A vector that was found; `value` is that of the store's metric."""

    vector: VectorReply
    score: float
    value: float | None


class VectorHits(TypedDict):
    """The nearest vectors, and why there is none if a name is mistaken."""

    hits: list[VectorHit]
    note: str


class AddedVector(TypedDict):
    """A stored vector; "updated" if one with its id was replaced."""

    status: Literal["added", "updated"]
    vector: VectorReply


class DeletedVector(TypedDict):
    """Whether there was a vector with this id."""

    deleted: bool


def stores(site: Site) -> StoreList:
    """All stores of vectors, with their namespaces."""
    return StoreList(
        stores=[
            {**vars(each), "namespaces": site.db.vectors.namespaces(each.name)}
            for each in site.db.vectors.stores()
        ]
    )


def list_vectors(
    site: Site,
    *,
    store: StoreName = "default",
    namespace: NamespaceName = None,
    limit: Limit = 50,
    offset: Offset = 0,
    numbers: Annotated[bool, "With the numbers"] = False,
) -> VectorList:
    """List vectors, newest first."""
    vectors = site.db.vectors
    found = vectors.browse(store=store, namespace=namespace, limit=limit, offset=offset)
    return VectorList(
        vectors=[_reply(each, numbers=numbers) for each in found],
        total=vectors.count(store=store, namespace=namespace),
        note="" if found or offset else vectors.why_empty(store=store, namespace=namespace),
    )


def search_vectors(
    site: Site,
    *,
    embedding: Annotated[list[float] | None, "What to be near to"] = None,
    like: Annotated[str | None, "The id of a stored vector to be near to"] = None,
    store: StoreName = "default",
    namespace: NamespaceName = None,
    where: Annotated[dict[str, Any] | None, "Conditions on metadata"] = None,
    limit: Annotated[int, "How many", Field(ge=1, le=100)] = 10,
) -> VectorHits:
    """The vectors of a store nearest to an embedding, or to one of its own."""
    if (embedding is None) == (like is None):
        raise InvalidInput("give either an embedding, or in `like` the id of a stored one")
    vectors = site.db.vectors
    query: Any = embedding
    if like is not None:
        query = vectors.get(like, store=store, namespace=namespace or "").embedding
    found = vectors.search(query, store=store, namespace=namespace, where=where, limit=limit)
    return VectorHits(
        hits=[
            VectorHit(vector=_reply(hit.item), score=hit.score, value=hit.scores.vector)
            for hit in found
        ],
        note=found.note,
    )


def add_vector(
    site: Site,
    *,
    id: Annotated[str, "Its id in the namespace"],
    embedding: Numbers,
    store: StoreName = "default",
    namespace: Annotated[str, "The namespace"] = "",
    metadata: Annotated[dict[str, Any] | None, "What else there is to say of it"] = None,
    metric: Annotated[Metric | None, "How a new store ranks"] = None,
) -> AddedVector:
    """Store a vector, or replace the one with this id."""
    done = site.db.vectors.add(
        id, embedding, store=store, namespace=namespace, metadata=metadata, metric=metric
    )
    return AddedVector(status=done.status, vector=_reply(done.vector))


def delete_vector(
    site: Site,
    *,
    id: Annotated[str, "Its id in the namespace"],
    store: StoreName = "default",
    namespace: Annotated[str, "The namespace"] = "",
) -> DeletedVector:
    """Remove a vector."""
    deleted = site.db.vectors.delete(id, store=store, namespace=namespace)
    return DeletedVector(deleted=deleted > 0)


def _reply(vector: Vector, *, numbers: bool = False) -> VectorReply:
    return {**vars(vector), **({"embedding": vector.embedding.tolist()} if numbers else {})}
