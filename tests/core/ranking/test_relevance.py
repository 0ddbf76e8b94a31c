from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import InvalidInput, Scores
from mcpvectordb.embedding.catalogue import CATALOGUE, DEFAULT
from mcpvectordb.index.chunks import QueryEmbedding
from mcpvectordb.ranking.ranker import checked_relevance
from mcpvectordb.ranking.relevance import (
    BY_BOTH,
    BY_MEANING,
    BY_READING,
    BY_WORDS,
    JUDGED,
    PARAPHRASE,
    Evidence,
    Judge,
    Weights,
    judge,
    judged_language,
    verdict,
    words,
)
from mcpvectordb.records import STRONG, WEAK
from mcpvectordb.text.query import parse_query

MODEL = "all-MiniLM-L6-v2"
chances = st.floats(0, 1)
scores = st.builds(
    Scores,
    text=st.none() | st.floats(0, 1e6),
    vector=st.none() | st.floats(-1.01, 1.01),
    rerank=st.none() | chances,
)
evidence = st.builds(Evidence, scores, st.sampled_from(["the train is late", ""]), chances)
pages = st.lists(evidence, max_size=JUDGED)
sizes = st.integers(0, 10**7)
judges = st.builds(Judge, st.sampled_from([*BY_BOTH, "another", ""]), st.booleans(), st.booleans())


def first(
    judge: Judge, found: Scores, words: float = 0.0, *, passages: int = 100, text: str = ""
) -> float | None:
    """The relevance of the only hit."""
    return judge.relevance([Evidence(found, text, words)], passages, range(1, 2))[0]


# Probabilities.


@given(judges, pages, sizes)
def test_relevance_is_a_probability_or_unknown_and_never_rises_down_a_ranking(
    judge: Judge, page: list[Evidence], passages: int
) -> None:
    found = judge.relevance(page, passages, range(1, 2 * JUDGED))
    known = [each for each in found if each is not None]
    assert all(0 <= each <= 1 for each in known)
    assert known == sorted(known, reverse=True)


@given(judges, pages.filter(bool), sizes, st.integers(1, JUDGED), st.integers(1, 40))
def test_the_relevance_of_a_rank_does_not_depend_on_the_page_that_shows_it(
    judge: Judge, page: list[Evidence], passages: int, begin: int, length: int
) -> None:
    everything = judge.relevance(page, passages, range(1, 60))
    some = judge.relevance(page, passages, range(begin, begin + length))
    assert some == everything[begin - 1 : begin - 1 + length]


@given(st.sampled_from([*BY_BOTH]), st.floats(0, 1), chances, sizes, st.data())
def test_more_evidence_never_lowers_the_relevance_and_more_strangers_never_raise_it(
    model: str, cosine: float, words: float, passages: int, data: st.DataObject
) -> None:
    judge, found = Judge(model), Scores(text=1.0, vector=cosine)
    now = first(judge, found, words, passages=passages)
    nearer = replace(found, vector=data.draw(st.floats(cosine, 1)))
    assert now is not None
    assert now <= (first(judge, nearer, words, passages=passages) or 0)
    assert now <= (first(judge, found, data.draw(st.floats(words, 1)), passages=passages) or 0)
    assert now >= (first(judge, found, words, passages=2 * passages) or 0)


def test_a_hit_is_at_least_as_relevant_as_the_one_below_it() -> None:
    poor = Evidence(Scores(text=0.0, vector=0.1), "", 0.0)
    good = Evidence(Scores(text=9.0, vector=0.8), "", 1.0)
    above, below = Judge(MODEL).relevance([poor, good], 100, range(1, 3))
    assert above == below and (below or 0) > STRONG


@given(st.sampled_from([*BY_BOTH]), st.floats(-1, 1), chances, sizes)
def test_words_that_are_missing_do_not_make_a_stranger_of_a_paraphrase(
    model: str, cosine: float, share: float, passages: int
) -> None:
    found = Evidence(Scores(text=1.0, vector=cosine), "", share)
    both = BY_BOTH[model].log_odds(found, passages)
    alone = BY_MEANING[model].log_odds(found, passages) - PARAPHRASE[model]
    chance = first(Judge(model), found.scores, share, passages=passages)
    assert chance == pytest.approx(1 / (1 + math.exp(-max(both, alone))))


def test_of_memories_the_first_counts_as_of_passages_and_the_others_less() -> None:
    page = [Evidence(Scores(text=9.0, vector=0.6), "", 1.0)] * 3
    passages = Judge(MODEL).relevance(page, 100, range(1, 13))
    memories = Judge(MODEL, single=True).relevance(page, 100, range(1, 13))
    assert memories[0] == passages[0]
    pairs = zip(memories[1:], passages[1:], strict=True)
    assert all((one or 0) < (other or 0) for one, other in pairs)


def test_each_kind_of_evidence_changes_the_relevance() -> None:
    judge = Judge(MODEL)
    assert (first(judge, Scores(text=0.0, vector=0.1)) or 1) < WEAK
    assert (first(judge, Scores(text=9.0, vector=0.6), 1.0) or 0) > STRONG
    assert (first(judge, Scores(text=0.0, vector=0.1, rerank=0.99)) or 0) > 0.4
    assert (first(judge, Scores(text=9.0, vector=0.8, rerank=0.0001), 1.0) or 1) < WEAK
    assert (first(judge, Scores(text=9.0), 1.0) or 0) > STRONG
    assert (first(judge, Scores(text=9.0), 0.2) or 1) < WEAK


@given(chances, st.floats(0, 100), st.floats(0, 100), sizes)
def test_words_are_a_share_and_rarity_counts_in_large_files_only(
    share: float, text: float, reach: float, passages: int
) -> None:
    found = words(share, Scores(text=text, reach=reach), passages)
    assert 0 <= found <= 1
    assert words(share, Scores(text=text, reach=reach), 1) == share
    assert words(share, Scores(text=text), passages) == share
    more = words(share, Scores(text=2 * text, reach=reach), passages)
    assert more >= found or not text or not reach


# Calibration.


def test_packaged_models_are_calibrated_and_calibrated_models_are_in_the_catalogue() -> None:
    assert set(DEFAULT) <= set(BY_BOTH) == set(BY_MEANING) <= set(CATALOGUE)


@pytest.mark.parametrize("weights", [BY_WORDS, BY_READING, *BY_MEANING.values(), *BY_BOTH.values()])
def test_evidence_never_counts_against_a_hit_and_number_and_rank_never_for_it(
    weights: Weights,
) -> None:
    evidence = (weights.cosine, weights.words, weights.reread)
    assert weights.base < 0 <= min(evidence) and max(evidence) > 0
    assert weights.passages <= 0 and weights.rank <= 0
    assert all(math.isfinite(each) for each in (weights.base, *evidence))


def test_an_uncalibrated_model_has_no_relevance_by_cosine() -> None:
    near = Scores(text=10.0, vector=0.9)
    for stranger in (Judge(), Judge("another")):
        assert first(stranger, near) is None
        assert first(stranger, replace(near, text=None)) is None
        for known in (replace(near, vector=None), replace(near, rerank=0.9)):
            assert first(stranger, known) == first(Judge(MODEL), known) is not None
    assert "this model" in Judge().reason and "this model" not in Judge(MODEL).reason


def test_queries_in_non_latin_letters_have_no_relevance() -> None:
    judge = Judge(MODEL, foreign=True)
    assert first(judge, Scores(text=10.0, vector=0.9, rerank=0.9)) is None
    assert "Latin letters" in judge.reason


def test_a_query_in_other_letters_has_a_relevance_by_a_model_that_knows_them() -> None:
    judge, chinese = Judge("multilingual-e5-small", foreign=True, language="zh"), "火车站在北边。"
    near, far = (first(judge, Scores(vector=cosine), text=chinese) for cosine in (0.95, 0.75))
    assert near is not None and far is not None and near > STRONG and far < WEAK
    assert first(judge, Scores(text=20.0), text=chinese) is None
    assert first(judge, Scores(vector=0.95, rerank=0.9), text=chinese) is None
    assert first(Judge("", foreign=True), Scores(vector=0.95)) is None


def test_the_relevance_for_a_code_ignores_the_cosine() -> None:
    judge = Judge(MODEL, exact=True)
    assert (first(judge, Scores(text=0.0, vector=0.99)) or 1) < WEAK
    found = first(judge, Scores(text=8.0, vector=0.0), 1.0)
    assert found == first(judge, Scores(text=8.0), 1.0)
    assert first(judge, Scores(vector=0.99)) is None


def test_an_english_model_judges_no_meaning_in_another_language() -> None:
    near = Scores(text=5.0, vector=0.6)
    german = Judge("bge-small-en-v1.5", language="")
    assert first(german, near) is None and "English only" in german.reason
    assert first(german, replace(near, vector=None)) is not None  # words are counted anyway
    assert first(Judge("bge-small-en-v1.5"), near) is not None


def test_a_multilingual_model_judges_what_is_in_the_query_s_own_judged_language() -> None:
    found, model = Scores(text=0.0, vector=0.8), "multilingual-e5-small"
    german = "Das Brot wird eine Stunde gebacken, und dann muss es abkühlen."
    english = "The bread is baked for an hour, and then it has to cool."
    chinese = "面包烤一个小时，然后冷却。"
    assert [judged_language(text) for text in (german, english, chinese)] == ["", "en", "zh"]
    assert first(Judge(model), found, text=english) is not None
    assert first(Judge(model), found, text=german) is None
    assert first(Judge(model, language=""), found, text=german) is None
    asked = Judge(model, foreign=True, language="zh")
    assert first(asked, found, text=chinese) is not None
    assert first(asked, found, text=english) is None
    assert "language of the query" in Judge(model).reason


# Verdicts.


def test_the_verdict_says_that_nothing_relevant_was_found() -> None:
    weak = "Nothing relevant was found: even the best match is weak."
    assert verdict([WEAK / 2, 0.01]) == verdict([WEAK / 2], 0.02) == verdict([0.04], 0.5) == weak
    assert verdict([0.2], 0.35) == (
        "Nothing relevant enough was found: the best match has a relevance of 0.20, and 0.35 was "
        "asked for."
    )


@pytest.mark.parametrize(
    ("found", "least"),
    [([0.35, 0.01], 0.35), ([WEAK], 0), ([], 0), ([], 0.5), ([None, 0.01], 0), ([None], 0.5)],
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


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, True, "0.5", None])
def test_a_minimum_that_is_no_probability_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="min_relevance must be 0 to 1"):
        checked_relevance(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", ["???", " … ", "--"])
def test_nothing_is_relevant_to_punctuation(query: str) -> None:
    embedding = QueryEmbedding(1, b"", 0.5, MODEL)
    found = judge(query, parse_query(query), embedding)
    near = Evidence(Scores(vector=0.99), "Tea.", 1.0)
    assert found.relevance([near], 2, range(1, 3)) == [0.0, 0.0]
