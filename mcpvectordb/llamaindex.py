"""LlamaIndex: a store of vectors as a vector store, passages as a retriever. Needs the extra
`llamaindex`.

LlamaIndex embeds its nodes itself, so these go to the vectors of a database. The retriever finds
passages of documents, by words and by the meaning that the file's own model sees in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from mcpvectordb import Condition, Database, InvalidFilter, InvalidInput, Vector
from mcpvectordb.filters import Where
from mcpvectordb.frameworks import among, passages

_PAGE = 1_000  # vectors that are read at once
_DOCUMENT = ("metadata", "ref_doc_id")

_OPERATORS = {
    FilterOperator.EQ: "eq",
    FilterOperator.NE: "ne",
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
    FilterOperator.IN: "in",
    FilterOperator.NIN: "not_in",
    FilterOperator.CONTAINS: "array_contains",
    FilterOperator.TEXT_MATCH: "contains",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "contains",
}


class LlamaIndexStore(BasePydanticVectorStore):
    """A store of vectors in a database as the vector store of an index of LlamaIndex.

    `StorageContext.from_defaults(vector_store=LlamaIndexStore(db))`. Filters take all operators of
    LlamaIndex but `any` and `is_empty`; all conditions must hold (no `or`, no `not`).
    """

    stores_text: bool = True
    store: str = "llamaindex"
    _db: Database = PrivateAttr()

    def __init__(self, db: Database, *, store: str = "llamaindex") -> None:
        super().__init__(stores_text=True)
        self.store, self._db = store, db

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows this class."""
        return "LlamaIndexStore"

    @property
    def client(self) -> Database:
        """The database."""
        return self._db

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Store nodes with their embeddings, and return their ids; a known id is replaced."""
        self._db.vectors.add_many(
            [node.node_id for node in nodes],
            [node.get_embedding() for node in nodes],
            store=self.store,
            metadata=[
                node_to_metadata_dict(node, remove_text=False, flat_metadata=False)
                for node in nodes
            ],
        )
        return [node.node_id for node in nodes]

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes with these ids that fulfil the filters."""
        return [_node(each) for each in self._chosen(node_ids, filters)]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        self._remove(self._matching([Condition(_DOCUMENT, "eq", ref_doc_id)]))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Delete the nodes with these ids that fulfil the filters; one of both must be given."""
        if node_ids is None and filters is None:
            raise InvalidInput("say which nodes to delete, by node_ids or filters; clear() is all")
        self._remove(self._chosen(node_ids, filters))

    def clear(self) -> None:
        """Delete all nodes of the store."""
        self._remove(self._matching(None))

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The nodes nearest to the embedding of a query; scores are cosines."""
        if query.mode != VectorStoreQueryMode.DEFAULT or query.query_embedding is None:
            raise InvalidInput(
                f"the store ranks by embeddings only, not in mode {query.mode}; "
                "LlamaIndexRetriever searches documents by words and by meaning"
            )
        found = self._db.vectors.search(
            query.query_embedding,
            store=self.store,
            where=[
                *_conditions(query.filters),
                *_among("id", query.node_ids),
                *_among(_DOCUMENT, query.doc_ids),
            ],
            limit=query.similarity_top_k,
        )
        return VectorStoreQueryResult(
            nodes=[_node(hit.item) for hit in found],
            similarities=[hit.score for hit in found],
            ids=[hit.item.id for hit in found],
        )

    def _chosen(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> list[Vector]:
        where = _conditions(filters)
        if node_ids is None:
            return self._matching(where)
        return [each for some in among("id", node_ids) for each in self._matching([*where, some])]

    def _matching(self, where: Where | None) -> list[Vector]:
        found: list[Vector] = []
        while True:
            page = self._db.vectors.browse(
                store=self.store, where=where, limit=_PAGE, offset=len(found)
            )
            found += page
            if len(page) < _PAGE:
                return found

    def _remove(self, vectors: Sequence[Vector]) -> None:
        self._db.vectors.delete((each.id for each in vectors), store=self.store)


class LlamaIndexRetriever(BaseRetriever):
    """The passages of a database that answer a question, as a retriever of LlamaIndex.

    `asked` are further arguments of `Database.documents.search`: library, mode, where, rerank …
    """

    def __init__(
        self,
        db: Database,
        *,
        similarity_top_k: int = 4,
        callback_manager: CallbackManager | None = None,
        **asked: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._db, self._asked = db, {"limit": similarity_top_k, **asked}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = passages(self._db, query_bundle.query_str, **self._asked)
        return [
            NodeWithScore(node=TextNode(id_=id, text=text, metadata=metadata), score=score)
            for id, text, metadata, score in found
        ]


def _node(vector: Vector) -> BaseNode:
    node = metadata_dict_to_node(dict(vector.metadata))
    node.embedding = vector.embedding.tolist()
    return node


def _among(field: str | tuple[str, ...], ids: Sequence[str] | None) -> list[Condition]:
    """The condition that a field has one of these values; LlamaIndex gives no ids to mean any."""
    return [Condition(field, "in", list(ids))] if ids else []


def _conditions(filters: MetadataFilters | None) -> list[Condition]:
    """The conditions of filters, all of which must hold."""
    if filters is None:
        return []
    if filters.condition not in (None, FilterCondition.AND) and (
        len(filters.filters) > 1 or filters.condition == FilterCondition.NOT
    ):
        raise InvalidFilter(
            f"conditions are combined by and, not by {filters.condition.value}; ask once for each"
        )
    found: list[Condition] = []
    for each in filters.filters:
        if isinstance(each, MetadataFilters):
            found += _conditions(each)
        elif each.operator == FilterOperator.ALL:
            members = each.value if isinstance(each.value, list) else [each.value]
            found += [
                Condition(("metadata", each.key), "array_contains", value) for value in members
            ]
        elif each.operator in _OPERATORS:
            folded = each.operator == FilterOperator.TEXT_MATCH_INSENSITIVE
            found.append(
                Condition(("metadata", each.key), _OPERATORS[each.operator], each.value, not folded)
            )
        else:
            raise InvalidFilter(
                f"the operator {each.operator.value} is not known here; there are "
                f"{', '.join(operator.value for operator in (*_OPERATORS, FilterOperator.ALL))}"
            )
    return found
