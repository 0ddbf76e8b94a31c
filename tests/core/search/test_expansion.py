from __future__ import annotations

import json

import pytest

from mcpvectordb import Database
from mcpvectordb.index.encoder import QueryEmbedding
from mcpvectordb.search.expansion import Expansion
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


def learn(db: Database, query: str, *sources: str) -> Expansion:
    learning = db.documents._searching._learning
    with db._file.reading() as sql:
        chunks = [
            id
            for (id,) in sql.execute(
                "SELECT c.id FROM document_chunks c JOIN documents d ON d.key = c.owner "
                "WHERE d.source IN (SELECT value FROM json_each(?))",
                (json.dumps(sources),),
            )
        ]
        return learning.learn(sql, parse_query(query), db._encoder.query_embedding(query), chunks)


def test_words_that_are_frequent_here_and_rare_elsewhere_are_learned(filled: Database) -> None:
    learned = learn(filled, "rotate keys", "keys.md", "renew.md")
    added = learned.query.match.removeprefix('"rotate" OR "keys" OR ').split(" OR ")
    assert added[0] == '"certificate"' and '"authority"' in added
    assert not {'"the"', '"for"', '"rotate"', '"keys"', '"a"'} & set(added)
    assert added.index('"authority"') < added.index('"ordinary"')


def test_phrases_and_exclusions_bind_what_is_learned_too(filled: Database) -> None:
    learned = learn(filled, '"rotate keys" -renew', "keys.md")
    assert (
        learned.query.match.startswith('("rotate keys") AND (')
        and '"certificate"' in learned.query.match
    )
    assert learned.query.excluded == '"renew"'


def test_the_direction_is_the_mean_of_the_passages(filled: Database) -> None:
    import numpy as np

    learned = learn(filled, "rotate keys", "keys.md", "renew.md")
    assert isinstance(learned.query_embedding, QueryEmbedding)
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
        np.frombuffer(learned.query_embedding.embedding, np.float32), np.mean(vectors, axis=0)
    )


def test_without_embeddings_there_is_no_direction(db: Database) -> None:
    db.documents.ingest_text("some words", source="a.md", embed=False)
    assert learn(db, "words", "a.md").query_embedding is None


def test_what_was_learned_is_remembered_until_the_passages_change(filled: Database) -> None:
    learning = filled.documents._searching._learning
    first = learn(filled, "rotate keys", "keys.md")
    assert first.answer
    learning.remember(first)
    again = learn(filled, "rotate keys", "keys.md")
    assert (again.query, again.answer) == (first.query, {})
    assert learn(filled, "rotate keys", "renew.md").answer


def test_chinese_is_learned_in_pairs(db: Database) -> None:
    db.documents.ingest_text("数据库很快", source="a.md")
    for number in range(5):
        db.documents.ingest_text(f"{FILLER} {number}", source=f"{number}.md")
    assert '"据库"' in learn(db, "快", "a.md").query.match
