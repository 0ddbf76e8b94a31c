"""The surface vector_store: four tools over the vectors shelf, for embeddings that clients make."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from mcpvectordb import Condition, Database, MCPVectorDBError
from mcpvectordb_server.arguments import ArgumentError, not_blank
from mcpvectordb_server.replies import MAX_REPLY, noted
from mcpvectordb_server.shown import JsonReply, shows
from mcpvectordb_server.surface import OVERWRITES, READS, Surface, Tool
from mcpvectordb_server.surfaces import prose

VERSION = "1"

# More results never fit into a reply, however short their ids are.
MOST_RESULTS = MAX_REPLY // 40

# The specification has one message for everything that can be wrong with an embedding.
_INVALID = {
    "embedding": "Embedding must be a non-empty array of numbers",
    "query": "Query embedding must be a non-empty array",
}


class VectorMatch(TypedDict):
    """One vector that a search found."""

    id: str
    score: float
    metadata: dict[str, Any]


# Any, because a number that is sent as text must be refused here; `_numbers` checks the items.
Number = Annotated[Any, WithJsonSchema({"type": "number"})]
Id = Annotated[str, "The vector's id, unique in its namespace; kept exactly as given"]
StoreName = Annotated[str, "Which store; one is made by the first vector that is added to it"]
AddNamespace = Annotated[str | None, "Namespace within the store; null is the unnamed one"]
ReadNamespace = Annotated[str | None, "Only this namespace; null covers the whole store"]


@shows(status=str, id=str, dimension=int, error=str)
def vector_add(
    db: Database,
    *,
    id: Id,
    embedding: Annotated[list[Number], "The embedding vector, of any dimension"],
    metadata: Annotated[
        dict[str, Any] | None, "Arbitrary key-value metadata, returned by searches"
    ] = None,
    store_name: StoreName = "default",
    namespace: AddNamespace = None,
) -> JsonReply:
    """Store one embedding with its metadata, so that similar ones can be searched for.

    Use this when you have embeddings of your own; no text is embedded here. An id that exists is
    overwritten, metadata too, and the status is then "updated". Vectors of different dimensions may
    share a store, but only those of a query's dimension can be near it.
    """
    added = db.vectors.add(
        id,
        _numbers("embedding", embedding),
        store=_store(store_name),
        namespace=namespace or "",
        metadata=metadata,
    )
    return {"status": added.status, "id": id, "dimension": added.vector.dimension}


@shows(results=list[VectorMatch], total_searched=int, note=str, truncated=str, error=str)
def vector_search(
    db: Database,
    *,
    query: Annotated[list[Number], "Query embedding, of the dimension of what it looks for"],
    k: Annotated[int, "How many results to return"] = 10,
    store_name: StoreName = "default",
    namespace: ReadNamespace = None,
    metadata_filter: Annotated[
        dict[str, Any] | None,
        'Metadata keys and the values they must have, all of them. Example: {"source": "arxiv"}',
    ] = None,
) -> JsonReply:
    """Find the stored vectors that are most similar to a query embedding, best first.

    Scores are cosines, 1 for the same direction and -1 for the opposite (unless the store was made
    with another metric). Vectors of another dimension score 0 and come last. `total_searched` is
    the number of vectors that were compared: those of the store, or of its namespace, that match
    the filter.
    """
    numbers, store = _numbers("query", query), _store(store_name)
    where = [
        Condition(("metadata", key), "eq", value) for key, value in (metadata_filter or {}).items()
    ]
    total = db.vectors.count(store=store, namespace=namespace, where=where)
    hits = db.vectors.search(
        numbers,
        store=store,
        namespace=namespace,
        where=where,
        limit=max(0, min(k, total, MOST_RESULTS)),
    )
    # A distance is positive here, as in the store's metric, and not negated.
    results = [
        VectorMatch(
            id=each.item.id, score=each.scores.vector or 0.0, metadata=dict(each.item.metadata)
        )
        for each in hits
    ]
    reply = {"results": results, "total_searched": total}
    return noted(reply, hits.note if db.vectors.stores() else "")


@shows(deleted=bool, id=str, error=str)
def vector_delete(
    db: Database, *, id: Id, store_name: StoreName = "default", namespace: AddNamespace = None
) -> JsonReply:
    """Remove one vector by its id, for good.

    An id that is not there is no error: `deleted` is then false. The same id in another namespace
    stays.
    """
    deleted = db.vectors.delete(id, store=_store(store_name), namespace=namespace or "")
    return {"deleted": deleted > 0, "id": id}


@shows(count=int, store_name=str, error=str)
def vector_count(
    db: Database, *, store_name: StoreName = "default", namespace: ReadNamespace = None
) -> JsonReply:
    """Count the vectors of a store, or of one of its namespaces; a store that does not exist has
    0.
    """
    return {
        "count": db.vectors.count(store=_store(store_name), namespace=namespace),
        "store_name": store_name,
    }


def failure(tool: str, error: MCPVectorDBError) -> dict[str, Any]:
    """An error as this surface reports it: a normal result with nothing but an error in it."""
    argument = error.argument if isinstance(error, ArgumentError) else ""
    return {"error": _INVALID.get(argument, str(error))}


def _numbers(name: str, items: list[Any]) -> list[Any]:
    if not items or not {type(item) for item in items} <= {int, float}:
        raise ArgumentError(name, f"{name} must be an array of numbers")
    return items


def _store(name: str) -> str:
    not_blank("store_name", name)
    return name


SURFACE = Surface(
    name="vector_store",
    version=VERSION,
    instructions=prose("vector_store"),
    tools=(
        Tool(vector_add, "Store a vector", OVERWRITES),
        Tool(vector_search, "Search vectors", READS, more="lower k, or narrow by metadata_filter"),
        Tool(vector_delete, "Delete a vector", OVERWRITES),
        Tool(vector_count, "Count vectors", READS),
    ),
    failure=failure,
)
