"""Whether a search can say that nothing relevant was found, with the real model on a small library
of aerodynamics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpvectordb import Chunk, Config, Database, InvalidInput, Results
from mcpvectordb.records import WEAK
from tests.support import search_documents
from tests.support_aerodynamics import ANSWERED, UNHEARD_OF, fill

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def air(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with Database(tmp_path_factory.mktemp("air") / "air.db", config=Config(model=MODEL)) as db:
        fill(db)
        yield db


def relevances(results: Results[Chunk]) -> list[float]:
    found = [hit.relevance for hit in results]
    assert all(each is not None and 0 <= each <= 1 for each in found)
    return found


@pytest.mark.parametrize("query", UNHEARD_OF)
def test_of_cooking_aerodynamics_says_that_nothing_relevant_was_found(
    air: Database, query: str
) -> None:
    for mode in ("hybrid", "vector"):
        results = air.documents.search(query, mode=mode)
        assert len(results) == 10 and max(relevances(results)) < WEAK
        assert results.verdict.startswith("Nothing relevant was found: ")
        assert {hit.confidence for hit in results} == {"weak"} and results.weak_from == 0
    assert air.documents.search(query, mode="text").hits == ()


@pytest.mark.parametrize("query", ANSWERED)
@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
def test_of_flight_it_does_not(air: Database, query: str, mode: str) -> None:
    results = air.documents.search(query, mode=mode)
    found = relevances(results)
    assert results[0].confidence == "strong" and results.verdict == ""
    assert found == sorted(found, reverse=True)


def test_results_that_are_not_relevant_enough_are_left_out(air: Database) -> None:
    everything = air.documents.search(ANSWERED[0])
    some = air.documents.search(ANSWERED[0], min_relevance=0.3)
    assert len(everything) == 10
    assert some.hits == tuple(hit for hit in everything if hit.relevance >= 0.3) and len(some) < 10
    assert some.verdict == "" and "relevance" not in some.reasons


def test_when_none_is_left_the_sentence_tells_how_near_the_best_came(air: Database) -> None:
    nothing = air.documents.search(UNHEARD_OF[0], min_relevance=0.5)
    assert nothing.hits == () and nothing.verdict.startswith("Nothing relevant was found: ")
    hardly = air.documents.search(ANSWERED[0], min_relevance=1)
    assert hardly.hits == () and hardly.verdict.startswith("Nothing relevant enough was found: ")
    assert hardly.verdict.endswith("and 1.00 was asked for.")


def test_what_is_no_chance_is_refused(air: Database) -> None:
    with pytest.raises(InvalidInput, match="min_relevance must be 0 to 1, not 2"):
        air.documents.search("flutter", min_relevance=2)


def test_letters_that_were_not_calibrated_are_not_judged_and_that_is_said_when_it_matters(
    air: Database,
) -> None:
    plain, asked = (
        air.documents.search("Что такое флаттер?", min_relevance=each) for each in (0, 0.5)
    )
    assert [hit.relevance for hit in plain] == [None] * 10
    assert plain.verdict == ""
    assert "relevance" not in plain.reasons
    assert asked.hits == plain.hits and "Latin letters" in asked.reasons["relevance"]


def test_a_code_that_no_text_has_finds_nothing_relevant_however_near_others_are(
    air: Database,
) -> None:
    assert "Nothing relevant was found" in air.documents.search("E-4021").verdict


def test_a_model_of_the_users_own_is_not_judged(db: Database) -> None:
    db.documents.ingest_text("The kettle reports an error.", source="kettle")
    (hit,) = db.documents.search("kettle")
    assert hit.relevance is None and hit.scores.vector is not None
    assert "model" in db.documents.search("kettle", min_relevance=0.5).reasons["relevance"]
    assert [hit.relevance is None for hit in db.documents.search("kettle", mode="text")] == [False]


def test_whole_documents_are_judged_by_the_same_evidence(air: Database) -> None:
    for mode, options in (("vector", {}), ("hybrid", {"rerank": False})):
        assert (
            "Nothing relevant was found"
            in search_documents(air, UNHEARD_OF[0], mode=mode, **options).verdict
        )
        found = search_documents(air, ANSWERED[0], mode=mode, **options)
        assert found[0].relevance > 0.3 and found.verdict == ""
    (found,) = search_documents(air, "panel flutter", mode="text")
    assert found.confidence == "strong"


def test_memories_are_judged_by_their_words_and_their_nearest_chunk(air: Database) -> None:
    air.memories.add("a thread", "agent", "Panels flutter at high speed.")
    air.memories.add("a thread", "agent", "The stew simmers for two hours.")
    for mode in ("hybrid", "vector"):
        found = air.memories.search("when do panels flutter?", mode=mode)
        assert found[0].relevance > 0.3 > WEAK > found[1].relevance and found.verdict == ""
        strange = air.memories.search("tax return of a company", mode=mode)
        assert strange.verdict.startswith("Nothing relevant was found: ")
    by_words = air.memories.search("flutter", mode="text")
    assert by_words[0].relevance > 0.3 and by_words.verdict == ""


@pytest.mark.parametrize("limit", [1, 3, 30])
def test_relevance_does_not_depend_on_how_many_results_are_asked_for(
    air: Database, limit: int
) -> None:
    for query in (ANSWERED[0], UNHEARD_OF[0]):
        known = relevances(air.documents.search(query, limit=30))
        assert relevances(air.documents.search(query, limit=limit)) == known[:limit]
        assert relevances(air.documents.search(query, limit=2, offset=1)) == known[1:3]


NOTES = {
    "tea.md": "Green tea is brewed at eighty degrees.",
    "keys.md": "The spare keys are with the neighbour on the second floor.",
    "car.md": "The winter tyres are stored in the garage of the workshop.",
    "rent.md": "The rent is due on the third working day of each month.",
    "bike.md": "The combination of the bicycle lock is written in the address book.",
}
QUESTIONS = {
    "tea.md": "How hot should the water be for tea?",
    "keys.md": "Who has keys when I am locked out?",
    "car.md": "Where are the wheels for winter?",
    "rent.md": "When do I pay the rent?",
    "bike.md": "How do I unlock my bicycle?",
}


@pytest.mark.parametrize("model", [MODEL, "bge-small-en-v1.5"])
def test_in_five_notes_right_answers_are_not_weak_and_strangers_are(
    tmp_path: Path, model: str
) -> None:
    with Database(tmp_path / "notes.db", config=Config(model=model)) as db:
        for name, text in NOTES.items():
            db.documents.ingest_text(text, source=name)
            db.memories.add("t", "user", text)
        for name, question in QUESTIONS.items():
            found = db.documents.search(question)
            assert found[0].item.document.source == name and not found.verdict
            assert found[0].confidence in ("strong", "possible")
            assert found[-1].confidence == "weak"
            assert not db.memories.search(question).verdict and not db.search(question).verdict
        for stranger in ("quantum chromodynamics", "zzqqxx nothing like this"):
            assert db.documents.search(stranger).verdict and db.search(stranger).verdict


PARAPHRASES = {
    "Customers complain that checkout takes too long on phones.": "mobile purchase is slow",
    "The coffee machine needs descaling every month.": "who fixes the espresso maker?",
    "The car insurance expires in March.": "vehicle policy renewal",
    "The dog has to see the vet for her vaccination in June.": "pet doctor appointment",
    "The hotel in Kyoto has free cancellation.": "can we call off our stay in Japan",
}


@pytest.mark.parametrize("model", [MODEL, "bge-small-en-v1.5"])
def test_an_answer_that_has_none_of_the_question_s_words_is_not_called_weak(
    tmp_path: Path, model: str
) -> None:
    with Database(tmp_path / "notes.db", config=Config(model=model)) as db:
        for text in PARAPHRASES:
            db.documents.ingest_text(text, source=f"{text[:8]}.md")
        for text, question in PARAPHRASES.items():
            found = db.documents.search(question)
            assert found[0].item.text == text and not found[0].scores.text
            assert found[0].confidence in ("strong", "possible") and not found.verdict


# What an empty result says


@pytest.mark.parametrize(
    ("query", "options", "note"),
    [
        ("", {}, "the query has no words to look for"),
        ("?!", {"mode": "text"}, "the query has no words to look for"),
        ("the of and", {}, "too common to search by: add one that says what you look for"),
        ('"flutter of tea"', {}, "nothing that was searched has 'flutter of tea', word for word"),
        ("flutter -panel -of -the", {"mode": "text"}, "a word that the query excludes"),
        ("walrus", {"mode": "text"}, "nothing that was searched matches these words"),
        ("flutter", {"offset": 4_000}, "offset 4000 is past the last of"),
        ("flutter", {"min_score": 1.0, "mode": "vector"}, "no result has a score of 1.0 or more"),
        ("flutter", {"where": {"file_type": "pdf"}}, "nothing"),
    ],
)
def test_an_empty_result_has_a_reason(
    air: Database, query: str, options: dict[str, object], note: str
) -> None:
    found = air.documents.search(query, **options)
    assert found.hits == () and note in found.note
