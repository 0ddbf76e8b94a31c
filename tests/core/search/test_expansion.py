from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcpvectordb import Database
from mcpvectordb.index.encoder import QueryEmbedding
from mcpvectordb.search.expansion import Expansion, QueryExpander
from mcpvectordb.storage.cache import Cache
from mcpvectordb.text.query import parse_query

FILLER = "Ordinary remarks about common things and other matters."


@pytest.fixture
def filled(db: Database) -> Database:
    db.documents.ingest_text(
        "Rotate keys: the certificate authority signs a certificate for them.", source="keys.md"
    )
    db.documents.ingest_text(
        "The certificate expires, renew the certificate; ordinary remarks.", source="renew.md"
    )
    for number in range(10):
        db.documents.ingest_text(f"{FILLER} Number {number}.", source=f"{number}.md")
    return db


class Counted(Cache):
    """A cache that counts how often something was new."""

    writes = 0

    def write(self, answers: Mapping[bytes, Any]) -> None:
        self.writes += 1
        super().write(answers)


def expanded(db: Database, query: str, *sources: str, cache: Cache | None = None) -> Expansion:
    with db._file.reading() as sql:
        chunks = [
            id
            for (id,) in sql.execute(
                "SELECT c.id FROM document_chunks c JOIN documents d ON d.key = c.owner "
                "WHERE d.source IN (SELECT value FROM json_each(?))",
                (json.dumps(sources),),
            )
        ]
        embedding = db._encoder.query_embedding(query)
        expander = QueryExpander(db._indexes[0], cache or Cache())
        return expander.expand(sql, parse_query(query), embedding, chunks)


def test_words_that_are_frequent_in_the_passages_and_rare_elsewhere_are_added(
    filled: Database,
) -> None:
    found = expanded(filled, "rotate keys", "keys.md", "renew.md")
    added = found.query.match.removeprefix('"rotate" OR "keys" OR ').split(" OR ")
    assert added[0] == '"certificate"' and '"authority"' in added
    assert not {'"the"', '"for"', '"rotate"', '"keys"', '"a"'} & set(added)
    assert added.index('"authority"') < added.index('"ordinary"')


def test_phrases_and_exclusions_of_the_query_stay_in_force(filled: Database) -> None:
    found = expanded(filled, '"rotate keys" -renew', "keys.md")
    assert (
        found.query.match.startswith('("rotate keys") AND (')
        and '"certificate"' in found.query.match
    )
    assert found.query.excluded == '"renew"'


def test_the_second_embedding_is_the_mean_of_the_passages(filled: Database) -> None:
    import numpy as np

    found = expanded(filled, "rotate keys", "keys.md", "renew.md")
    assert isinstance(found.query_embedding, QueryEmbedding)
    with filled._file.reading() as sql:
        vectors = [
            np.frombuffer(each, np.float32)
            for (each,) in sql.execute(
                "SELECT e.embedding FROM document_embeddings e JOIN document_chunks c ON c.id = "
                "e.chunk JOIN documents d ON d.key = c.owner WHERE d.source IN ('keys.md', "
                "'renew.md')"
            )
        ]
    assert np.allclose(
        np.frombuffer(found.query_embedding.embedding, np.float32), np.mean(vectors, axis=0)
    )


def test_passages_without_embeddings_give_no_second_embedding(db: Database) -> None:
    db.documents.ingest_text("some words", source="a.md", embed=False)
    assert expanded(db, "words", "a.md").query_embedding is None


def test_the_terms_are_cached_until_the_passages_change(filled: Database) -> None:
    cache = Counted()
    once, twice, other = (
        expanded(filled, "rotate keys", source, cache=cache).query
        for source in ("keys.md", "keys.md", "renew.md")
    )
    assert once == twice != other and cache.writes == 2


def test_chinese_terms_are_bigrams(db: Database) -> None:
    db.documents.ingest_text("数据库很快", source="a.md")
    for number in range(5):
        db.documents.ingest_text(f"{FILLER} {number}", source=f"{number}.md")
    assert '"据库"' in expanded(db, "快", "a.md").query.match
