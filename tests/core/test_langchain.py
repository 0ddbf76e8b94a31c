"""LangChain's own standard tests for vector stores and retrievers, and what they do not ask."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it imports of others may be deprecated in a new Python
    pytest.importorskip("langchain_core.vectorstores", reason="langchain is not installed")
    pytest.importorskip("langchain_tests.integration_tests", reason="langchain-tests is missing")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

from mcpvectordb import Condition, Database, InvalidFilter, InvalidInput
from mcpvectordb.langchain import LangChainEmbedder, LangChainRetriever, LangChainStore
from tests.support import Letters


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio  # its tests that are async; the others do not ask for it
class TestStandardVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture()
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:  # type: ignore[override]
        embedder = LangChainEmbedder(self.get_embeddings())
        with Database(tmp_path / "test.db", embedder=embedder) as db:
            yield LangChainStore(db)


@pytest.mark.anyio
class TestStandardRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def filled(self, tmp_path: Path) -> Iterator[None]:
        with Database(tmp_path / "test.db", embedder=Letters()) as self.db:
            for place in range(8):
                self.db.documents.ingest_text(f"Tea number {place}.", source=f"{place}.md")
            yield

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return LangChainRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"db": self.db}

    @property
    def retriever_query_example(self) -> str:
        return "tea"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LangChainStore]:
    with Database(tmp_path / "test.db", embedder=Letters()) as db:
        store = LangChainStore(db, library="chains")
        store.add_texts(
            ["Water at 80 degrees.", "Coffee at 95 degrees.", "Milk is cold."],
            [{"year": 2023, "a": {"b": 1}}, {"year": 2024}, {"year": 2025, "tags": ["cold"]}],
            ids=["tea", "coffee", "milk"],
        )
        yield store


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ({"year": 2024}, {"coffee"}),
        ({"year": {"$gte": 2024}}, {"coffee", "milk"}),
        ({"year": {"gte": 2024, "lt": 2025}}, {"coffee"}),
        ({"year": {"$nin": [2023, 2024]}}, {"milk"}),
        ({"a.b": 1}, {"tea"}),
        ({"tags": {"array_contains": "cold"}}, {"milk"}),
        ([Condition("source", "eq", "milk")], {"milk"}),
    ],
)
def test_filters_speak_of_metadata(store: LangChainStore, filter: Any, ids: set[str]) -> None:
    assert {each.id for each in store.similarity_search("degrees", filter=filter)} == ids


def test_an_unknown_operator_is_an_error(store: LangChainStore) -> None:
    with pytest.raises(InvalidFilter, match="near"):
        store.similarity_search("degrees", filter={"year": {"$near": 1}})


def test_scores_fall_from_one_to_zero(store: LangChainStore) -> None:
    found = store.similarity_search_with_relevance_scores("coffee", k=3)
    assert found[0][0].id == "coffee"
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True) and all(0 <= each <= 1 for each in scores)


def test_front_matter_in_a_text_is_text(store: LangChainStore) -> None:
    text = "---\nyear: 1\n---\nBody."
    store.add_texts([text], [{"mine": True}], ids=["front"])
    [found] = store.get_by_ids(["front"])
    assert found.page_content == text and found.metadata == {"mine": True}


def test_deleting_everything_leaves_other_libraries(store: LangChainStore) -> None:
    store.db.documents.ingest_text("Stays.", source="stays.md")
    assert store.delete() and store.similarity_search("degrees") == []
    assert store.db.documents.count() == 1


def test_an_id_is_given_once_at_a_time(store: LangChainStore) -> None:
    with pytest.raises(InvalidInput, match="given 2 times"):
        store.add_texts(["a b", "c d"], ids=["x", "x"])


def test_a_store_is_made_from_texts_with_and_without_embeddings(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    fake = DeterministicFakeEmbedding(size=8)
    store = LangChainStore.from_texts(["one tea", "two"], fake, ids=["1", "2"], path=path)
    assert store.db.stats().model == "DeterministicFakeEmbedding"
    assert [each.id for each in store.similarity_search("tea", k=1)] == ["1"]
    store.db.close()
    memory = LangChainStore.from_texts(["one tea"])
    assert memory.db.stats().documents == 1
    memory.db.close()


def test_a_store_can_be_used_from_many_threads_at_once(store: LangChainStore) -> None:
    async def ask() -> list[list[Document]]:
        return await asyncio.gather(*(store.asimilarity_search("milk", k=1) for _ in range(8)))

    assert [each.id for [each] in asyncio.run(ask())] == ["milk"] * 8


def test_a_retriever_returns_passages_with_citations(store: LangChainStore) -> None:
    retriever = LangChainRetriever(db=store.db, k=1, filter={"year": 2023})
    [found] = retriever.invoke("water")
    assert found.page_content == "Water at 80 degrees." and found.metadata["year"] == 2023
    assert found.metadata["citation"] == "Water at 80 degrees., line 1 (tea)"
    assert store.as_retriever(search_kwargs={"k": 2}).invoke("coffee")[0].id == "coffee"
