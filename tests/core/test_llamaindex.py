"""LlamaIndex publishes no tests for vector stores, so these follow its interface, and its index."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it imports of others may be deprecated in a new Python
    pytest.importorskip("llama_index.core", reason="the extra llamaindex is not installed")

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from mcpvectordb import Database, InvalidFilter, InvalidInput
from mcpvectordb.llamaindex import LlamaIndexRetriever, LlamaIndexStore
from tests.support import Letters


def node(id: str, text: str, embedding: list[float], **metadata: Any) -> TextNode:
    made = TextNode(id_=id, text=text, embedding=embedding, metadata=metadata)
    made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=f"doc-{id[0]}")
    return made


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "test.db", embedder=Letters()) as db:
        yield db


@pytest.fixture
def store(db: Database) -> LlamaIndexStore:
    store = LlamaIndexStore(db)
    store.add(
        [
            node("a1", "Green tea", [1.0, 0.0], year=2023, tags=["hot", "green"]),
            node("a2", "Black tea", [0.9, 0.1], year=2024, tags=["hot"]),
            node("b1", "Milk", [0.0, 1.0], year=2025, name="Cow"),
        ]
    )
    return store


def found(store: LlamaIndexStore, embedding: list[float], k: int = 5, **query: Any) -> list[str]:
    result = store.query(VectorStoreQuery(query_embedding=embedding, similarity_top_k=k, **query))
    return list(result.ids or ())


def test_the_nearest_nodes_come_back_as_they_were(store: LlamaIndexStore) -> None:
    result = store.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=2))
    assert result.ids == ["a1", "a2"] and result.nodes is not None
    assert result.nodes[0].get_content() == "Green tea"
    assert result.nodes[0].metadata == {"year": 2023, "tags": ["hot", "green"]}
    assert result.nodes[0].ref_doc_id == "doc-a"
    assert result.similarities is not None and result.similarities[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("key", "operator", "value", "ids"),
    [
        ("year", FilterOperator.EQ, 2024, {"a2"}),
        ("year", FilterOperator.NE, 2024, {"a1", "b1"}),
        ("year", FilterOperator.GT, 2023, {"a2", "b1"}),
        ("year", FilterOperator.GTE, 2024, {"a2", "b1"}),
        ("year", FilterOperator.LT, 2024, {"a1"}),
        ("year", FilterOperator.LTE, 2024, {"a1", "a2"}),
        ("year", FilterOperator.IN, [2023, 2025], {"a1", "b1"}),
        ("year", FilterOperator.NIN, [2023, 2025], {"a2"}),
        ("tags", FilterOperator.CONTAINS, "green", {"a1"}),
        ("tags", FilterOperator.ALL, ["hot", "green"], {"a1"}),
        ("name", FilterOperator.TEXT_MATCH, "Co", {"b1"}),
        ("name", FilterOperator.TEXT_MATCH_INSENSITIVE, "COW", {"b1"}),
    ],
)
def test_filters_mean_what_llamaindex_means(
    store: LlamaIndexStore, key: str, operator: FilterOperator, value: Any, ids: set[str]
) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])
    assert set(found(store, [1.0, 0.0], filters=filters)) == ids
    assert {each.node_id for each in store.get_nodes(filters=filters)} == ids


def test_what_cannot_be_asked_is_said(store: LlamaIndexStore) -> None:
    either = MetadataFilters(
        filters=[MetadataFilter(key="year", value=1), MetadataFilter(key="year", value=2)],
        condition=FilterCondition.OR,
    )
    with pytest.raises(InvalidFilter, match="not by or"):
        found(store, [1.0, 0.0], filters=either)
    empty = MetadataFilter(key="year", operator=FilterOperator.IS_EMPTY, value=None)
    with pytest.raises(InvalidFilter, match="is_empty"):
        found(store, [1.0, 0.0], filters=MetadataFilters(filters=[empty]))
    with pytest.raises(InvalidInput, match="by embeddings only"):
        found(store, [1.0, 0.0], mode=VectorStoreQueryMode.HYBRID)
    with pytest.raises(InvalidInput, match="say which nodes"):
        store.delete_nodes()


def test_nodes_are_found_and_deleted_by_their_ids_and_documents(store: LlamaIndexStore) -> None:
    assert found(store, [1.0, 0.0], node_ids=["b1"]) == ["b1"]
    assert found(store, [1.0, 0.0], doc_ids=["doc-b"]) == ["b1"]
    store.delete_nodes([])
    assert len(store.get_nodes()) == 3 and store.get_nodes([]) == []
    store.delete_nodes(["a1"])
    assert {each.node_id for each in store.get_nodes()} == {"a2", "b1"}
    store.delete("doc-a")
    assert {each.node_id for each in store.get_nodes()} == {"b1"}
    store.clear()
    assert store.get_nodes() == [] and found(store, [1.0, 0.0]) == []


class LettersEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        embedding: list[float] = Letters().embed([text])[0].tolist()
        return embedding

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def test_an_index_of_llamaindex_lives_in_the_file(tmp_path: Path) -> None:
    path, model = tmp_path / "index.db", LettersEmbedding()
    with Database(path) as db:
        index = VectorStoreIndex.from_documents(
            [Document(text="Zebras graze.", id_="z"), Document(text="Quails queue.", id_="q")],
            storage_context=StorageContext.from_defaults(vector_store=LlamaIndexStore(db)),
            embed_model=model,
            transformations=[SentenceSplitter()],
        )
        assert index.as_retriever(similarity_top_k=1).retrieve("zebra")[0].text == "Zebras graze."
        index.delete_ref_doc("z")
    with Database(path) as db:
        again = VectorStoreIndex.from_vector_store(LlamaIndexStore(db), embed_model=model)
        [left] = again.as_retriever(similarity_top_k=5).retrieve("zebra")
        assert left.text == "Quails queue."


def test_a_retriever_returns_passages_with_citations(db: Database) -> None:
    db.documents.ingest_text("Water at 80 degrees.", source="tea.md", metadata={"year": 2023})
    [found] = LlamaIndexRetriever(db, where={"metadata.year": 2023}).retrieve("water")
    assert found.text == "Water at 80 degrees." and found.metadata["source"] == "tea.md"
    assert found.metadata["citation"] == "tea.md, line 1 (tea.md)"
