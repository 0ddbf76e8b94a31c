"""/api/stores and /api/vectors: embeddings that users bring along."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field

from mcpvectordb import InvalidInput, Namespace, Store, Vector
from mcpvectordb_server.shown import JsonReply, Shown, rows, shows
from mcpvectordb_server.web.api.documents import Limit, Offset
from mcpvectordb_server.web.site import Site

StoreName = Annotated[str, "The store"]
NamespaceName = Annotated[str | None, "Of this namespace only"]
Numbers = Annotated[list[float], "The embedding", Field(min_length=1, max_length=16_384)]
Metric = Literal["cosine", "dot", "euclidean"]
VectorReply = Annotated[JsonReply, Shown(Vector, without="raw", embedding=NotRequired[list[float]])]


@shows(stores=rows(Store, namespaces=list[Namespace]))
def stores(site: Site) -> JsonReply:
    """All stores of vectors by name, with their namespaces."""
    vectors = site.db.vectors
    return {
        "stores": [
            {**vars(each), "namespaces": vectors.namespaces(each.name)} for each in vectors.stores()
        ]
    }


@shows(vectors=list[VectorReply], total=int, note=str)
def list_vectors(
    site: Site,
    *,
    store: StoreName = "default",
    namespace: NamespaceName = None,
    limit: Limit = 50,
    offset: Offset = 0,
    numbers: Annotated[bool, "With the numbers"] = False,
) -> JsonReply:
    """List vectors, newest first."""
    vectors = site.db.vectors
    found = vectors.browse(store=store, namespace=namespace, limit=limit, offset=offset)
    return {
        "vectors": [_reply(each, numbers=numbers) for each in found],
        "total": vectors.count(store=store, namespace=namespace),
        "note": "" if found or offset else vectors.why_empty(store=store, namespace=namespace),
    }


@shows(hits=rows(vector=VectorReply, score=float, value=float | None), note=str)
def search_vectors(
    site: Site,
    *,
    embedding: Annotated[list[float] | None, "What to be near to"] = None,
    like: Annotated[str | None, "The id of a stored vector to be near to"] = None,
    store: StoreName = "default",
    namespace: NamespaceName = None,
    where: Annotated[dict[str, Any] | None, "Conditions on metadata"] = None,
    limit: Annotated[int, "How many", Field(ge=1, le=100)] = 10,
) -> JsonReply:
    """The vectors of a store nearest to an embedding, or to one of its own.

    `value` is that of the store's metric; `note` says why there is none if a name is mistaken.
    """
    if (embedding is None) == (like is None):
        raise InvalidInput("give either an embedding, or in `like` the id of a stored one")
    vectors = site.db.vectors
    query: Any = embedding
    if like is not None:
        query = vectors.get(like, store=store, namespace=namespace or "").embedding
    found = vectors.search(query, store=store, namespace=namespace, where=where, limit=limit)
    return {
        "hits": [
            {"vector": _reply(hit.item), "score": hit.score, "value": hit.scores.vector}
            for hit in found
        ],
        "note": found.note,
    }


@shows(status=Literal["added", "updated"], vector=VectorReply)
def add_vector(
    site: Site,
    *,
    id: Annotated[str, "Its id in the namespace"],
    embedding: Numbers,
    store: StoreName = "default",
    namespace: Annotated[str, "The namespace"] = "",
    metadata: Annotated[dict[str, Any] | None, "What else there is to say of it"] = None,
    metric: Annotated[Metric | None, "How a new store ranks"] = None,
) -> JsonReply:
    """Store a vector, or replace the one with this id."""
    done = site.db.vectors.add(
        id, embedding, store=store, namespace=namespace, metadata=metadata, metric=metric
    )
    return {"status": done.status, "vector": _reply(done.vector)}


@shows(deleted=bool)
def delete_vector(
    site: Site,
    *,
    id: Annotated[str, "Its id in the namespace"],
    store: StoreName = "default",
    namespace: Annotated[str, "The namespace"] = "",
) -> JsonReply:
    """Remove a vector."""
    deleted = site.db.vectors.delete(id, store=store, namespace=namespace)
    return {"deleted": deleted > 0}


def _reply(vector: Vector, *, numbers: bool = False) -> VectorReply:
    return {**vars(vector), **({"embedding": vector.embedding.tolist()} if numbers else {})}
