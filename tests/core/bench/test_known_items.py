from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Database
from mcpvectordb.bench import known_items
from mcpvectordb.bench.known_items import KINDS, KnownItem
from mcpvectordb.text.query import fts5_phrase
from mcpvectordb.text.stop_words import ENGLISH
from tests.support_bench import BOILERPLATE, fill


def sample(
    db: Database, count: int = 8, *, seed: int = 0, library: str | None = None
) -> list[KnownItem]:
    with db._file.reading() as sql:
        return known_items.sample(sql, db._indexes[0], count, seed=seed, library=library)


@pytest.fixture
def items(db: Database) -> list[KnownItem]:
    fill(db)
    return sample(db)


def test_there_are_items_of_every_kind_and_no_query_twice(items: list[KnownItem]) -> None:
    assert Counter(item.kind for item in items) == dict.fromkeys(KINDS, 8)
    assert len({(item.kind, item.query) for item in items}) == len(items)


def test_the_same_seed_makes_the_same_items_and_another_one_others(
    db: Database, items: list[KnownItem]
) -> None:
    assert sample(db) == items
    assert sample(db, seed=1) != items


def test_a_query_leads_to_the_text_that_it_was_made_from(
    db: Database, items: list[KnownItem]
) -> None:
    for item in items:
        text = db.documents.text(item.document)[item.start : item.end]
        assert set(known_items.tokens(item.query)) <= set(known_items.tokens(text)), item
        assert item.kind == "sentence" or item.query.split()[0] in text


def test_a_title_leads_to_its_whole_document_and_a_heading_to_its_section(
    db: Database, items: list[KnownItem]
) -> None:
    for item in items:
        text = db.documents.text(item.document)
        if item.kind == "title":
            assert item.query == db.documents.get(item.document).title
            assert (item.start, item.end) == (0, len(text.rstrip()))
        if item.kind == "heading":
            assert text[item.start :].startswith(f"## {item.query}")
            assert text[item.end :].lstrip().startswith("## Summary")


def test_titles_and_headings_of_several_documents_are_no_queries(db: Database) -> None:
    fill(db)
    queries = {(item.kind, item.query) for item in sample(db, 100)}
    assert ("title", "Bakana of old") not in queries
    assert ("heading", "Summary") not in queries
    assert not any("everybody" in query for _, query in queries)
    assert sum(kind == "title" for kind, _ in queries) == 38
    assert sum(kind == "heading" for kind, _ in queries) == 40


def test_a_document_with_a_copy_gives_no_items(db: Database) -> None:
    fill(db, 5)
    # The first, second and fourth are the same as before; the third has another title.
    fill(db, 4, library="copies")
    assert {db.documents.get(item.document).source for item in sample(db, 20)} == {"2.md", "4.md"}
    assert not sample(db, 20, library="no such library")
    assert {
        db.documents.get(item.document).library for item in sample(db, 20, library="copies")
    } == {"copies"}


def test_terms_are_rare_and_as_many_as_identify_the_passage(
    db: Database, items: list[KnownItem]
) -> None:
    for item in items:
        if item.kind == "terms":
            assert 3 <= len(item.query.split()) <= 5
            expression = " AND ".join(map(fts5_phrase, item.query.split()))
            with db._file.reading() as sql:
                assert db._indexes[0].keyword.frequency(sql, expression, 10) <= 2


def test_a_sentence_loses_its_rarest_words(db: Database, items: list[KnownItem]) -> None:
    for item in items:
        if item.kind == "sentence":
            whole = known_items.tokens(db.documents.text(item.document)[item.start : item.end])
            asked = item.query.split()
            assert (len(whole), len(asked)) == (11, 8)
            assert asked == [word for word in whole if word in asked]
            assert {"The", "is"} <= set(asked)


def test_a_file_without_content_words_has_no_items(db: Database) -> None:
    for number in range(40):
        db.documents.ingest_text(BOILERPLATE, source=f"{number}.md", title="Notes")
    assert sample(db) == []


def test_chinese_queries_have_pairs_of_characters(db: Database) -> None:
    db.documents.ingest_text(
        "北京大学的学生人数在去年增加了很多，因为新的宿舍已经建成。" * 4, source="1.md", title="一"
    )
    db.documents.ingest_text(
        "海洋里的鲸鱼和珊瑚需要温暖而清洁的水域，否则它们会死亡。" * 4, source="2.md", title="二"
    )
    asked = [item.query.split() for item in sample(db) if item.kind in ("terms", "sentence")]
    assert len(asked) == 4
    assert all(len(term) <= 2 for query in asked for term in query)


@given(st.text())
def test_tokens_are_words_of_the_text_in_order(text: str) -> None:
    place = 0
    for token in known_items.tokens(text):
        place = text.index(token, place) + len(token)
        assert token.strip()


@given(st.lists(st.text(max_size=6)))
def test_content_words_can_be_searched_for_and_come_once(tokens: list[str]) -> None:
    found = known_items.content_words(tokens)
    assert len(set(found)) == len(found)
    assert all(fts5_phrase(word) and word.casefold() not in ENGLISH for word in found)


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 5)))
def test_rare_words_come_first_and_words_that_occur_once_last(
    frequencies: dict[str, int],
) -> None:
    counts = [frequencies[word] for word in known_items.rarest(frequencies)]
    assert 0 not in counts and len(counts) == sum(count > 0 for count in frequencies.values())
    ones = counts.count(1)
    assert counts == sorted(count for count in counts if count > 1) + [1] * ones


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.randoms(use_true_random=False))
def test_a_sentence_without_its_rarest_words_keeps_its_order_and_its_common_words(
    tokens: list[str], random: object
) -> None:
    frequencies = {word: 1 + ord(word) for word in tokens if word > "b"}
    kept = known_items.without_rarest(tokens, frequencies)
    dropped = [word for word in tokens if word not in kept]
    assert [word for word in tokens if word in kept] == kept
    assert len(set(dropped)) == (max(1, round(len(frequencies) / 3)) if frequencies else 0)
    assert max(dropped, default="") < min((word for word in kept if word > "b"), default="z")


@given(st.text(alphabet="ab.!? \n。"))
def test_sentences_cover_all_visible_text_and_do_not_overlap(text: str) -> None:
    end, covered = 0, ""
    for start, stop in known_items.sentences(text):
        assert end <= start < stop <= len(text)
        assert not text[end:start].strip()
        covered += text[start:stop]
        end = stop
    assert not text[end:].strip()
    assert "".join(covered.split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The harbour was closed for eight days after the storm.", True),
        ("(He said: “The harbour was closed for eight days after the storm.”)", True),
        ("北京大学的学生人数在去年增加了很多，因为新的宿舍已经建成。", True),
        ("import the names from collections, the words from text and the rest from there", False),
        ("Too short for anybody to ask.", False),
        ("for each in range(10): total += each * weights[each] and so on for ever", False),
        ("| a | table | has | bars | between | all | of | its | cells |", False),
    ],
)
def test_prose_is_distinguished_from_code_and_tables(text: str, expected: bool) -> None:
    assert known_items.is_prose(text) is expected
