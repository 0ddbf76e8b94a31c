from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database
from mcpvectordb.joint import projection
from mcpvectordb.joint.projection import principal_axes


@pytest.fixture
def filled(db: Database) -> Database:
    for number in range(6):
        db.documents.ingest_text("aaa " * (number + 1), source=f"{number}.md", library="low")
        db.documents.ingest_text("zzz " * (number + 1), source=f"{number}.md", library="high")
    db.memories.add("t", "user", "mmm")
    return db


def test_every_passage_has_a_place_and_a_group(filled: Database) -> None:
    found = filled.projection()
    assert found.names == (("documents", "high"), ("documents", "low"), ("memories", ""))
    assert np.bincount(found.groups).tolist() == [6, 6, 1] and len(found) == 13
    chunks = filled.documents.chunks_by_ids(found.ids[found.groups < 2].tolist())
    assert [chunk.document.library for chunk in chunks] == [
        found.names[group][1] for group in found.groups[:12]
    ]
    assert found.ids[12] == 1


def test_what_is_alike_is_near(filled: Database) -> None:
    found = filled.projection()
    places = np.stack([found.x, found.y], axis=1)
    high, low = places[found.groups == 0], places[found.groups == 1]
    assert high[:, 0].max() < -0.5 and low[:, 0].min() > 0.5
    assert 1 >= found.explained[0] >= found.explained[1] >= 0


def test_it_is_the_same_each_time_and_in_json(filled: Database) -> None:
    first, second = filled.projection(), filled.projection()
    assert first.to_dict() == second.to_dict()
    assert len(json.loads(json.dumps(first.to_dict()))["x"]) == 13


def test_a_sample_places_all(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "SAMPLE", 4)
    assert len(filled.projection()) == 13


def test_what_has_no_embedding_is_counted_and_has_no_place(db: Database) -> None:
    assert len(db.projection()) == 0
    db.documents.ingest_text("aaa", source="a.md", embed=False)
    assert (len(db.projection()), db.projection().pending) == (0, 1)
    db.embed_pending()
    assert (len(db.projection()), db.projection().pending) == (1, 0)


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 999))
def test_no_other_plane_explains_more(count: int, dimension: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count, dimension)).astype(np.float32)
    mean, axes, explained = principal_axes(rows)
    places = (rows - mean) @ axes
    variance = (rows - mean).var(axis=0).sum()
    assert places.var(axis=0).sum() == pytest.approx(variance * sum(explained), rel=1e-3)
    other, _ = np.linalg.qr(random.standard_normal((dimension, min(2, dimension))))
    assert ((rows - mean) @ other).var(axis=0).sum() <= places.var(axis=0).sum() * 1.001
