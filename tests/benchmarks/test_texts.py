from __future__ import annotations

import numpy as np
import pytest

from benchmarks import texts
from benchmarks.vectors import nearest
from mcpvectordb import InvalidInput

PASSAGES = texts.passages(400)


def test_passages_are_different_of_some_length_and_the_same_every_time() -> None:
    assert len(set(PASSAGES)) == 400 == len(PASSAGES)
    assert all(texts.SHORTEST <= len(passage) <= texts.LONGEST for passage in PASSAGES)
    assert texts.passages(50) == PASSAGES[:50]


def test_a_text_is_cut_between_paragraphs() -> None:
    paragraph = "words and words and more words " * 8
    first, second = texts.cut("\n\n".join([paragraph] * 4))
    assert first.count("\n\n") == second.count("\n\n") == 1 and first.startswith("words")
    assert list(texts.cut("too short")) == list(texts.cut("=" * 500)) == []


def test_there_is_as_much_in_files_as_was_asked_for() -> None:
    files = texts.files(30_000)
    assert sum(map(len, files.values())) >= 30_000 > sum(map(len, list(files.values())[:-1]))


def test_queries_are_right_about_the_passages_they_should_find() -> None:
    queries = texts.queries(PASSAGES, 5)
    assert queries == texts.queries(PASSAGES, 5)
    assert sorted(query.kind for query in queries) == sorted(
        5 * ["rare word", "common word", "question", "boolean"]
    )
    for query in queries:
        for number in query.right:
            keys = {word[: texts.KEY] for word in texts.words(PASSAGES[number])}
            assert all(word[: texts.KEY] in keys for word in query.words["all"])
            assert not any(word[: texts.KEY] in keys for word in query.words["none"])
            assert (
                keys.intersection(word[: texts.KEY] for word in query.words["any"])
                or query.kind == "boolean"
            )
    assert all(len(query.right) == 1 for query in queries if query.kind == "question")


def test_too_few_passages_make_no_query() -> None:
    with pytest.raises(InvalidInput, match="so few passages"):
        texts.queries(["one two three"], 1)


def test_sums_of_words_are_near_where_words_are_shared() -> None:
    rows = texts.sums(PASSAGES, PASSAGES, 64)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(400), abs=1e-5)
    halves = texts.sums(
        [" ".join(texts.words(passage)[::2]) for passage in PASSAGES[:20]], PASSAGES, 64
    )
    assert sum(number in found for number, found in enumerate(nearest(rows, halves))) >= 18


def test_missing_passages_are_made_of_the_lines_of_others() -> None:
    found = ["a\nb\nc", "d\ne\nf", "g\nh"]
    made = texts.mixed(found, 40)
    assert made == texts.mixed(found, 40) and len(set(made)) == 40 and made[:3] == found
    assert all(set(text.splitlines()) <= set("abcdefgh") for text in made)
