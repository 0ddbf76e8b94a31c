from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvectordb import Database, Hit
from mcpvectordb.documents import all_terms as all_words
from mcpvectordb.records import Chunk
from tests.support import Letters, scaled, search_documents

PADDING = "\n\n".join(
    f"Paragraph {number} says nothing of interest, at some length, in many words."
    for number in range(60)
)


def add(db: Database, source: str, text: str, library: str = "default") -> None:
    db.documents.ingest_text(text, source=source, library=library, embed=False)


def hits(db: Database, query: str, **options: object) -> list[Hit[Chunk]]:
    return list(search_documents(db, query, mode="text", **options))


def found(db: Database, query: str, **options: object) -> list[str]:
    return [hit.item.document.source for hit in hits(db, query, **options)]


@pytest.fixture
def noted(db: Database) -> Database:
    add(db, "tea.md", f"# Tea\n\nGreen leaves.\n\n{PADDING}\n\nThe kettle whistles at the end.\n")
    add(db, "coffee.md", "# Coffee\n\nA kettle and beans, green ones too.\n")
    add(db, "plan.md", "# Plan\n\nVersion 1.0.21 of the multi-agent snake_case module; E-4021.\n")
    add(db, "zh.md", "# 数据库\n\n数据库很快。\n")
    return db


def test_all_words_may_be_anywhere_in_a_document(noted: Database) -> None:
    assert found(noted, "leaves kettle") == ["tea.md"]
    assert sorted(found(noted, "green kettle")) == ["coffee.md", "tea.md"]
    assert found(noted, "leaves beans") == []


def test_a_word_may_be_the_beginning_of_one(noted: Database) -> None:
    assert found(noted, "leav whist") == ["tea.md"]
    assert found(noted, "eaves") == []


@pytest.mark.parametrize(
    "word", ["organizations", "generated", "meeting", "notification", "happiness", "running", "tea"]
)
def test_a_word_is_found_by_any_of_its_beginnings_whatever_its_stem(
    db: Database, word: str
) -> None:
    add(db, "a.md", f"# Title\n\nIt is about {word} here.\n")
    add(db, "b.md", "# Other\n\nIt is about organs, meat, notes, happy rivers here.\n")
    for length in range(4, len(word) + 1):
        assert "a.md" in found(db, f"{word[:length]} about"), word[:length]
    assert found(db, f"{word}zzz") == []


def test_of_the_most_common_words_presence_counts_even_if_they_are_not_scored(
    noted: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ("kettle green", "green kettle leaves", "kettle green beans", "plan 1.0.21")
    usual = {query: found(noted, query) for query in queries}
    monkeypatch.setattr(all_words, "SCORED", 0)
    assert {query: sorted(found(noted, query)) for query in usual} == {
        query: sorted(each) for query, each in usual.items()
    }
    assert found(noted, "kettle -green") == []


def test_there_is_one_hit_per_document_and_it_is_the_best_chunk(noted: Database) -> None:
    assert found(noted, "paragraph") == ["tea.md"]
    (hit,) = hits(noted, "tea whistles")
    assert "whistles" in hit.item.text and hit.item.first_line > 100


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"green leaves"', ["tea.md"]),
        ('"leaves green"', []),
        ("kettle -beans", ["tea.md"]),
        ('kettle -"green leaves"', ["coffee.md"]),
        ("-beans", []),
        ("multi-agent", ["plan.md"]),
        ("agent-multi", []),
        ("1.0.21", ["plan.md"]),
        ("21.0.1", []),
        ("snake_case", ["plan.md"]),
        ("E-4021", ["plan.md"]),
        ("E-4022", []),
        ("数据", ["zh.md"]),
        ("据库", ["zh.md"]),
        ("库据", []),
        ("", []),
        ("?!", []),
        ('"', []),
        ("AND OR NOT", []),
        ("kettle*", ["coffee.md", "tea.md"]),
        ("title:tea", []),
    ],
)
def test_the_rules_of_queries(noted: Database, query: str, expected: list[str]) -> None:
    assert sorted(found(noted, query)) == expected


def test_stop_words_are_let_go_when_they_leave_nothing(noted: Database) -> None:
    assert found(noted, "what are the beans") == ["coffee.md"]
    assert found(noted, "the kettle") == ["tea.md"]
    assert found(noted, "which zebra") == []


def test_a_score_is_bm25_on_a_scale_that_other_results_do_not_change(noted: Database) -> None:
    (hit,) = hits(noted, "beans")
    assert hit.scores.text is not None and hit.scores.text > 0
    assert hit.score == pytest.approx(hit.scores.text / (1 + hit.scores.text))
    assert [each.scores.text_rank for each in hits(noted, "kettle")] == [1, 2]
    assert search_documents(noted, "beans", mode="text").legs == ("text",)


def test_the_title_counts_most_and_the_path_more_than_the_text(db: Database) -> None:
    for number in range(12):
        add(db, f"filler{number}.md", "# Filler\n\nNothing to see here at all.\n")
    add(db, "body.md", "# Other\n\nzebra to see here at all.\n")
    add(db, "zebra.md", "# Other\n\nNothing to see here at all.\n")
    add(db, "title.md", "# Zebra\n\nNothing to see here at all.\n")
    assert found(db, "zebra") == ["title.md", "zebra.md", "body.md"]


def test_words_of_the_path_and_of_the_text_come_together(db: Database) -> None:
    add(db, "journal/2025-05-01.md", "# Monday\n\nbudget\n", library="work")
    add(db, "other.md", "# Tuesday\n\nbudget\n")
    assert found(db, "journal budget") == ["journal/2025-05-01.md"]
    assert found(db, "2025-05-01") == ["journal/2025-05-01.md"]
    assert found(db, "work budget") == ["journal/2025-05-01.md"]
    assert found(db, "budget -journal") == ["other.md"]
    (hit,) = hits(db, "journal")
    assert hit.item.position == 0


def test_the_folder_of_a_library_is_no_part_of_the_path(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "secretfolder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.md").write_text("text\n")
    db.documents.add_library("notes", folder)
    db.documents.sync(embed=False)
    assert found(db, "secretfolder") == []
    assert found(db, "sub notes") == [str(folder / "sub" / "a.md")]


def test_a_library_narrows_before_the_cut(db: Database) -> None:
    for number in range(20):
        add(db, f"{number}.md", "tea tea tea")
    add(db, "far.md", "a long text in which the word tea occurs only once", library="small")
    assert found(db, "tea", library="small", limit=1) == ["far.md"]
    assert found(db, "tea", library="unknown") == []
    assert len(found(db, "tea", limit=3)) == 3 and found(db, "tea", limit=0) == []
    assert found(db, "tea", where={"source": "7.md"}) == ["7.md"]


words_of = st.lists(
    st.sampled_from(["tea", "team", "kettle", "green", "1.0"]), min_size=1, max_size=4
)


@settings(max_examples=scaled(40))
@given(
    texts=st.lists(words_of, min_size=1, max_size=5),
    query=words_of,
    library=st.sampled_from([None, "a"]),
)
def test_it_finds_what_a_plain_reading_finds(
    texts: list[list[str]], query: list[str], library: str | None
) -> None:
    with Database(":memory:", embedder=Letters()) as db:
        for number, text in enumerate(texts):
            add(db, f"x{number}", " ".join(text), library="ab"[number % 2])
        expected = {
            f"x{number}"
            for number, text in enumerate(texts)
            if all(
                any(have == word or (have.startswith(word) and "." not in word) for have in text)
                for word in query
            )
            and (library is None or number % 2 == 0)
        }
        assert set(found(db, " ".join(query), library=library)) == expected
