from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database, InvalidInput
from mcpvectordb.joint.duplicates import components, similar_pairs


def test_equal_passages_make_a_group_with_memories(db: Database) -> None:
    for number, text in enumerate(["tea is green", "tea is green", "zzz zzz", "coffee"]):
        db.documents.ingest_text(text, source=f"{number}.md", title="t")
    db.memories.add("a", "user", "t\ntea is green")
    [group] = db.duplicates(min_cosine=0.999)
    assert [c.document.source for c in db.documents.chunks_by_ids(group.chunks)] == ["0.md", "1.md"]
    assert group.memories == (1,) and group.cosine > 0.999 and len(group) == 3


def test_the_largest_group_comes_first(db: Database) -> None:
    for number in range(5):
        db.documents.ingest_text("aaa" if number < 3 else "zzz", source=f"{number}.md", title="t")
    assert [len(group) for group in db.duplicates()] == [3, 2]


def test_without_embeddings_there_are_none_and_a_wrong_bound_is_refused(db: Database) -> None:
    assert db.duplicates() == []
    db.documents.ingest_text("a", source="a.md", embed=False)
    assert db.duplicates() == []
    db.embed_pending()
    assert db.duplicates() == []
    with pytest.raises(InvalidInput, match=r"min_cosine must be 0.5 to 1, not 0.1"):
        db.duplicates(min_cosine=0.1)


def test_nearly_equal_rows_are_found_among_many() -> None:
    random = np.random.default_rng(7)
    rows = random.standard_normal((3_000, 64)).astype(np.float32)
    noise = random.standard_normal((300, 64)).astype(np.float32)
    rows = np.concatenate([rows, rows[:300] + 0.12 * noise])  # cosine about .99
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    first, second, cosines = similar_pairs(rows, 0.95)
    found = {frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)}
    wanted = {frozenset((number, 3_000 + number)) for number in range(300)}
    assert len(wanted & found) >= 297 and cosines.min() >= 0.949


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40))
def test_rows_are_in_one_group_if_pairs_connect_them(
    count: int, pairs: list[tuple[int, int]]
) -> None:
    pairs = [(a % count, b % count) for a, b in pairs]
    labels = components(
        count, np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)
    )
    groups = [{number} for number in range(count)]
    for a, b in pairs:
        joined = next(g for g in groups if a in g) | next(g for g in groups if b in g)
        groups = [g for g in groups if not g & joined] + [joined]
    assert labels.tolist() == [min(next(g for g in groups if n in g)) for n in range(count)]
