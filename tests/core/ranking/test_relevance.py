from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput, Scores
from mcpvectordb.embedding.catalogue import CATALOGUE, DEFAULT
from mcpvectordb.ranking.relevance import (
    BY_BOTH,
    BY_MEANING,
    BY_READING,
    BY_WORDS,
    WEAK,
    Judge,
    Weights,
    checked,
    coverage,
    judged_language,
    shared,
    verdict,
)

MODEL = "all-MiniLM-L6-v2"
cosines = st.floats(-1.01, 1.01)
figures = st.floats(0, 1e6)
chances = st.floats(0, 1)
everything = st.builds(
    Scores,
    text=st.none() | figures,
    vector=st.none() | cosines,
    rerank=st.none() | chances,
    reach=st.none() | figures,
)
judges = st.builds(Judge, st.sampled_from([*BY_BOTH, "another", ""]), st.booleans(), st.booleans())
known = st.sampled_from([Judge(model) for model in BY_BOTH])


# Probabilities.


@given(judges, everything)
def test_relevance_is_a_probability_or_unknown(judge: Judge, scores: Scores) -> None:
    found = judge.relevance(scores)
    assert found is None or 0 <= found <= 1


@given(known, everything, st.data())
def test_more_evidence_never_lowers_the_relevance(
    judge: Judge, scores: Scores, data: st.DataObject
) -> None:
    for name, values in (("vector", cosines), ("text", figures), ("rerank", chances)):
        low, high = sorted((data.draw(values), data.draw(values)))
        less, more = (judge.relevance(replace(scores, **{name: each})) for each in (low, high))
        assert (less is None) == (more is None) and (less or 0.0) <= (more or 0.0)


@given(known, cosines, figures, figures, figures)
def test_the_same_bm25_covers_less_of_a_longer_query(
    judge: Judge, cosine: float, text: float, one: float, other: float
) -> None:
    little, much = (
        judge.relevance(Scores(text=text, reach=each, vector=cosine))
        for each in sorted((one, other))
    )
    assert much <= little


def test_each_kind_of_evidence_changes_the_relevance() -> None:
    judge = Judge(MODEL)
    poor, good = Scores(text=0.0, reach=20.0, vector=0.1), Scores(text=20.0, reach=20.0, vector=0.8)
    assert judge.relevance(poor) < WEAK < 0.5 < judge.relevance(good)
    assert judge.relevance(replace(poor, text=20.0)) > 2 * judge.relevance(poor)
    assert judge.relevance(replace(good, vector=0.1)) < judge.relevance(good) / 2
    assert (
        judge.relevance(replace(poor, rerank=0.99))
        > 0.4
        > WEAK
        > judge.relevance(replace(good, rerank=0.0001))
    )


def test_a_chunk_with_every_word_once_has_a_coverage_of_two_thirds() -> None:
    assert coverage(Scores(text=12.0, reach=12.0)) == pytest.approx(2 / 3)
    assert (
        coverage(Scores(text=0.0, reach=0.0))
        == coverage(Scores(text=0.0, reach=5.0))
        == coverage(Scores())
        == 0
    )
    # Words that most chunks have:
    assert coverage(Scores(text=2e-6, reach=2e-6)) == pytest.approx(2 / 3)


@given(st.lists(st.tuples(st.none() | chances, st.sampled_from(["a b", "A  b!", "c", ""]))))
def test_passages_of_equal_words_share_their_highest_relevance(
    found: list[tuple[float | None, str]],
) -> None:
    given, texts = [each for each, _ in found], [text for _, text in found]
    known = shared(given, texts)
    for one, other in itertools.combinations(range(len(found)), 2):
        if "a" in texts[one].lower() and "a" in texts[other].lower():
            assert None in (known[one], known[other]) or known[one] == known[other]
    assert all((each is None) == (now is None) for each, now in zip(given, known, strict=True))
    assert all(now >= each for each, now in zip(given, known, strict=True) if each is not None)
    assert max(filter(None, known), default=0) == max(filter(None, given), default=0)


# Calibration.


def test_packaged_models_are_calibrated_and_calibrated_models_are_in_the_catalogue() -> None:
    assert set(DEFAULT) <= set(BY_BOTH) == set(BY_MEANING) <= set(CATALOGUE)


@pytest.mark.parametrize("weights", [BY_WORDS, BY_READING, *BY_MEANING.values(), *BY_BOTH.values()])
def test_no_kind_of_evidence_has_a_negative_weight(weights: Weights) -> None:
    evidence = (weights.cosine, weights.coverage, weights.reread)
    assert weights.base < 0 <= min(evidence) and max(evidence) > 0
    assert all(math.isfinite(each) for each in (weights.base, *evidence))


def test_an_uncalibrated_model_has_no_relevance_by_cosine() -> None:
    scores = Scores(text=10.0, reach=10.0, vector=0.9)
    for judge in (Judge(), Judge("another")):
        assert judge.relevance(scores) is None
        assert judge.relevance(replace(scores, text=None)) is None
        assert judge.relevance(replace(scores, vector=None)) == Judge(MODEL).relevance(
            replace(scores, vector=None)
        )
        assert judge.relevance(replace(scores, rerank=0.9)) == Judge(MODEL).relevance(
            replace(scores, rerank=0.9)
        )
    assert "this model" in Judge().reason and "this model" not in Judge(MODEL).reason


def test_queries_in_non_latin_letters_have_no_relevance() -> None:
    scores = Scores(text=10.0, reach=10.0, vector=0.9, rerank=0.9)
    assert Judge(MODEL, foreign=True).relevance(scores) is None
    assert "Latin letters" in Judge(MODEL, foreign=True).reason


def test_a_query_in_other_letters_has_a_relevance_by_a_model_that_knows_them() -> None:
    judge = Judge("multilingual-e5-small", foreign=True)
    near, far = (judge.relevance(Scores(vector=cosine)) for cosine in (0.95, 0.75))
    assert near is not None and far is not None and near > 0.9 and far < 0.01
    both = judge.relevance(Scores(vector=0.93, text=20.0, reach=10.0))
    assert both is not None and both > 0.9
    assert judge.relevance(Scores(text=20.0, reach=10.0)) is None
    assert judge.relevance(Scores(vector=0.95, rerank=0.9)) is None
    assert Judge("", foreign=True).relevance(Scores(vector=0.95)) is None


def test_a_passage_in_other_letters_than_the_query_has_no_relevance() -> None:
    scores, known = Scores(vector=0.77), "multilingual-e5-small"
    assert Judge(known).relevance(scores, "火车站在城市的北边。") is None
    assert (
        Judge(known, foreign=True, language="zh").relevance(scores, "The station is in the north.")
        is None
    )
    assert Judge(known).relevance(scores, "Der Bahnhof ist im Norden.") is None
    assert Judge(MODEL).relevance(scores, "火车站在城市的北边。") is not None
    assert "language of the query" in Judge(known).reason


def test_the_relevance_for_a_code_ignores_the_cosine() -> None:
    judge = Judge(MODEL, exact=True)
    assert judge.relevance(Scores(text=0.0, reach=8.0, vector=0.99)) < WEAK
    assert judge.relevance(Scores(text=8.0, reach=8.0, vector=0.0)) == judge.relevance(
        Scores(text=8.0, reach=8.0)
    )
    assert judge.relevance(Scores(vector=0.99)) is None


def test_bm25_without_the_full_score_of_the_query_is_no_evidence() -> None:
    assert Judge(MODEL).relevance(Scores(text=10.0)) is None
    assert Judge(MODEL).relevance(Scores()) is None


# Verdicts.


@pytest.mark.parametrize(
    ("found", "least", "sentence"),
    [
        (
            [0.04, 0.01],
            0,
            "relevant was found: the best of these results has a chance of about 4 %",
        ),
        ([0.001], 0, "relevant was found: the best of these results has a chance of less than 1 %"),
        ([0.04], 0.02, "relevant was found: the best of these results has a chance of about 4 %"),
        ([0.04, 0.01], 0.3, "relevant was found: the best result has a chance of about 4 %"),
        ([0.2], 0.3, "relevant enough was found: the best result has a chance of about 20 %"),
    ],
)
def test_the_verdict_says_that_nothing_relevant_was_found(
    found: list[float], least: float, sentence: str
) -> None:
    asked = ", and 30 % was asked for" if "enough" in sentence else ""
    assert verdict(found, least) == f"Nothing {sentence} of being relevant{asked}."


@pytest.mark.parametrize(
    ("found", "least"),
    [([0.01, 0.3], 0.3), ([WEAK], 0), ([], 0), ([], 0.5), ([None, 0.01], 0), ([None], 0.5)],
)
def test_without_results_or_their_relevance_there_is_no_verdict(
    found: list[float | None], least: float
) -> None:
    assert verdict(found, least) == ""


@given(st.lists(chances, min_size=1), chances)
def test_there_is_a_verdict_exactly_when_all_are_weak_or_none_reaches_the_minimum(
    found: list[float], least: float
) -> None:
    assert bool(verdict(found, least)) == (max(found) < max(WEAK, least))
    assert bool(verdict(found, least, words=0.5)) == (max(found) < least)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, True, "0.5", None])
def test_a_minimum_that_is_no_probability_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="min_relevance must be 0 to 1"):
        checked(wrong)  # type: ignore[arg-type]


def test_an_english_model_judges_no_meaning_in_another_language() -> None:
    scores = Scores(text=5.0, reach=10.0, vector=0.6)
    german = Judge("bge-small-en-v1.5", language="")
    assert german.relevance(scores) is None and "English only" in german.reason
    assert german.relevance(replace(scores, vector=None)) is not None  # words are counted anyway
    assert Judge("bge-small-en-v1.5").relevance(scores) is not None


def test_a_multilingual_model_judges_what_is_in_the_query_s_own_judged_language() -> None:
    scores, model = Scores(text=0.0, reach=10.0, vector=0.8), "multilingual-e5-small"
    german = "Das Brot wird eine Stunde gebacken, und dann muss es abkühlen."
    english = "The bread is baked for an hour, and then it has to cool."
    chinese = "面包烤一个小时，然后冷却。"
    assert [judged_language(text) for text in (german, english, chinese)] == ["", "en", "zh"]
    assert Judge(model).relevance(scores, english) is not None
    assert Judge(model).relevance(scores, german) is None
    assert Judge(model, language="").relevance(scores, german) is None
    assert Judge(model, foreign=True, language="zh").relevance(scores, chinese) is not None
    assert Judge(model, foreign=True, language="zh").relevance(scores, english) is None
