from __future__ import annotations

import json

import pytest

from mcpvectordb.embedding.tokenizer import tokenizer_of
from mcpvectordb.text.query import match_query, parse_query
from mcpvectordb.text.tokens import (
    ENGLISH,
    OTHERS,
    estimated_starts,
    is_foreign,
    is_non_latin,
    stop_words,
)
from tests.support import ROOT

LANGUAGES = {
    path.stem: json.loads(path.read_text("utf-8"))["entries"]
    for path in sorted((ROOT / "tests" / "fixtures" / "languages").glob("*.json"))
}
SENTENCES = {
    "fr": "Le musée ouvre ses portes tous les jours sauf le lundi, et l'entrée est gratuite.",
    "pt": "A biblioteca não abre aos domingos, mas os livros podem ser devolvidos na caixa.",
    "it": "Il treno per Milano parte dal binario sette e arriva alle dieci di sera.",
    "nl": "De fabriek maakt onderdelen voor fietsen en levert ze aan winkels in het hele land.",
    "sv": "Båten går till ön varje timme och det är gratis att ta med sig cykeln.",
    "pl": "Muzeum jest otwarte codziennie i nie trzeba kupować biletu na wystawę.",
    "tr": "Müze her gün açık ve öğrenciler için giriş ücretsiz bir hafta boyunca.",
    "uk": "Музей відкритий щодня, але діти не платять за вхід, якщо є квиток.",
    "fa": "این موزه هر روز باز است و برای کودکان رایگان است.",
}


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("How do the bees survive the winter?", ['"bees"', '"survive"', '"winter"']),
        ("Wie überstehen die Bienen den Winter?", ['"überstehen"', '"Bienen"', '"Winter"']),
        ("¿Cómo se orienta el murciélago?", ['"orienta"', '"murciélago"']),
        ("Почему здания поднимают над землёй?", ['"здания"', '"поднимают"', '"землёй"']),
        ("मोर नृत्य क्यों करता है?", ['"मोर"', '"नृत्य"']),
    ],
)
def test_a_query_is_asked_without_the_stop_words_of_its_language(
    query: str, terms: list[str]
) -> None:
    assert list(parse_query(query).terms) == terms
    assert parse_query(query).content_words == [term[1:-1].casefold() for term in terms]


@pytest.mark.parametrize(
    "query", ["die hard", "de facto standard", "la liga", "war and peace", "el"]
)
def test_one_word_of_another_language_does_not_make_a_query_foreign(query: str) -> None:
    assert stop_words(query.split()) is ENGLISH


def test_a_query_of_stop_words_alone_is_asked_as_it_is() -> None:
    assert parse_query("wer bin ich").required == '"wer bin ich"'
    assert match_query("was ist das").interpretations[0].expression == '"was" AND "ist" AND "das"'


def test_a_word_with_vowel_signs_is_one_term() -> None:
    assert parse_query("हिन्दी العَرَبِيَّة").terms == ('"हिन्दी"', '"العَرَبِيَّة"')


@pytest.mark.parametrize("name", LANGUAGES)
def test_passages_in_other_languages_are_foreign(name: str) -> None:
    texts = [entry["text"] for entry in LANGUAGES[name]]
    assert sum(map(is_foreign, texts)) >= len(texts) - 1


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_shows_its_language(name: str) -> None:
    assert is_foreign(SENTENCES[name])
    assert stop_words(SENTENCES[name].casefold().split()) is OTHERS[name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01 12:00",
        "The museum opens every day, and die casting is shown in the war room.",
        "for (int i = 0; i < n; i++) { s += x[i]; } return s;",
        "Los Angeles and San Diego are in the south of the state, El Paso is not.",
    ],
)
def test_english_and_code_are_not_foreign(text: str) -> None:
    assert not is_foreign(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("数据库索引 in", True),
        ("что такое индекс", True),
        ("naïve café œuvre", False),
        ("Ærøskøbing ệ", False),
        ("123 ???", False),
        ("", False),
        ("SQLite 数", False),
    ],
)
def test_a_text_is_non_latin_when_most_of_its_letters_are(text: str, expected: bool) -> None:
    assert is_non_latin(text) is expected


def test_tokens_are_estimated_near_to_those_of_a_model_and_rather_above() -> None:
    model = tokenizer_of()
    for name in ("README.md", ".github/docs/agents.md", "mcpvectordb/hooks/run.py"):
        text = (ROOT / name).read_text("utf-8")
        starts = estimated_starts(text)
        assert starts == sorted(set(starts))
        assert 0.95 < len(starts) / model.count(text) < 1.5
