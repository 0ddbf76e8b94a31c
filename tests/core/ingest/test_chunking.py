from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpvectordb.errors import InvalidInput
from mcpvectordb.ingest.chunking import LONGEST_TOKEN, WHOLE_TEXT, split
from mcpvectordb.ingest.span import STANDARD_SIZE, Span

KINDS = st.sampled_from(["markdown", "text", "code"])
FRAGMENTS = st.sampled_from([
    "word", "Two words", "A sentence. ", "Is it? ", "e.g. this ", "一句话。", "다음", "🙂", "x" * 90, "。" * 5,
    "\ufeff", " ", "  ", "\t", "\f", "\x85", "\n", "\n\n", "\r\n", "\r\n\r\n",
    "\n# One\n", "\n## Two ##\n", "\n### Three\n\n", "\nOver\n====\n", "\nUnder\n---\n", "\n```py\n", "\n```\n", "\n~~~~\n",
    "\n- item ", "\n  - inner ", "\n1. first ", "\n> quote ", "\n| a | b |",
    "\n    def f():\n", "\n}\n", "#tag ", "---\nkey: value\n---\n",
])  # fmt: skip
TEXTS = st.one_of(st.lists(FRAGMENTS, max_size=60).map("".join), st.text(max_size=200))


def tokens(text: str) -> list[int]:
    return [each.start() for each in re.finditer(r"\w+|[^\w\s]", text)]


def cut(
    text: str, size: int, overlap: int = 0, kind: Any = "markdown", pages: tuple[int, ...] = ()
) -> list[Span]:
    return split(text, starts=tokens(text), size=size, overlap=overlap, kind=kind, pages=pages)


def pieces(text: str, size: int, overlap: int = 0, kind: Any = "markdown") -> list[str]:
    return [text[each.start : each.end] for each in cut(text, size, overlap, kind)]


def count(text: str, start: int, end: int) -> int:
    return sum(start <= each < end for each in tokens(text))


def words(number: int) -> str:
    return " ".join(["word"] * number)


# Properties of the chunks of any text


@given(
    TEXTS, KINDS, st.integers(1, 40), st.integers(0, 20), st.lists(st.integers(0, 300), max_size=5)
)
@example("﻿", "markdown", 5, 0, [])
@example(" \n\t ", "text", 5, 2, [0])
@example("```", "markdown", 1, 1, [])
@example("# A\n## B\n# C", "markdown", 2, 1, [4, 4])
def test_tiles_join_to_the_text(
    text: str, kind: str, size: int, overlap: int, pages: list[int]
) -> None:
    spans = cut(text, size, overlap, kind, tuple(sorted(min(each, len(text)) for each in pages)))
    assert "".join(text[each.tile_start : each.tile_end] for each in spans) == text
    edges = [edge for each in spans for edge in (each.tile_start, each.tile_end)]
    assert edges == sorted(edges)
    assert all(each.tile_start < each.tile_end for each in spans)


@given(TEXTS, KINDS, st.integers(1, 40), st.integers(0, 20))
def test_a_chunk_has_no_white_space_around_it_and_is_only_empty_in_a_blank_text(
    text: str, kind: str, size: int, overlap: int
) -> None:
    for each in pieces(text, size, overlap, kind):
        assert each == each.strip()
        assert each or not text.replace("\ufeff", "", 1).strip()


@given(TEXTS, KINDS, st.integers(1, 40), st.integers(0, 20))
def test_no_chunk_has_more_tokens_than_its_size(
    text: str, kind: str, size: int, overlap: int
) -> None:
    for each in cut(text, size, overlap, kind):
        assert count(text, each.start, each.end) <= size
        assert each.end - each.start <= size * LONGEST_TOKEN + len(re.findall(r"\s", text))


@given(st.text("a", min_size=1, max_size=300), st.integers(1, 10))
def test_a_character_of_several_tokens_is_not_split(text: str, size: int) -> None:
    starts = [offset for offset in range(len(text)) for _ in range(3)]
    spans = split(text, starts=starts, size=size, overlap=size // 2)
    assert "".join(text[each.tile_start : each.tile_end] for each in spans) == text
    assert all(3 * (each.end - each.start) <= max(size, 3) for each in spans)


@given(TEXTS, KINDS, st.integers(1, 40), st.integers(0, 20))
def test_overlap_stays_within_its_tokens_and_the_chunk_before(
    text: str, kind: str, size: int, overlap: int
) -> None:
    spans = cut(text, size, overlap, kind)
    for before, each in pairwise(spans):
        assert each.start >= before.tile_start
        assert count(text, each.start, each.tile_start) <= overlap
        if each.start < each.tile_start:
            assert not text[each.start].isspace()


@given(
    st.lists(
        st.sampled_from(
            ["# h\n\n", "~~~\na b c\nd e f\n~~~\n\n", "One two. Three.\nFour five.\n\n"]
        ),
        max_size=15,
    ),
    st.integers(8, 30),
    st.integers(1, 15),
)
def test_overlap_never_touches_a_heading_or_crosses_the_edge_of_a_fence(
    parts: list[str], size: int, overlap: int
) -> None:
    text = "".join(parts)
    for each in cut(text, size, overlap):
        repeated = text[each.start : each.tile_start]
        assert "#" not in repeated
        assert "~~~" not in repeated.removeprefix("~~~\n")
        if repeated:
            assert not text.startswith(("#", "~~~\na"), each.tile_start)


@given(
    TEXTS,
    KINDS,
    st.integers(1, 40),
    st.integers(0, 20),
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
)
def test_lines_and_pages_are_counted_from_one_and_no_chunk_crosses_a_page(
    text: str, kind: str, size: int, overlap: int, offsets: list[int]
) -> None:
    pages = tuple(sorted(min(each, len(text)) for each in offsets))
    for each in cut(text, size, overlap, kind, pages):
        assert each.first_line == text[: each.start].count("\n") + 1
        assert each.last_line == text[: max(each.start, each.end - 1)].count("\n") + 1
        assert each.page == max(1, sum(page <= each.start for page in pages))
        assert not any(each.start < page < each.end for page in pages)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), max_size=12),
    st.integers(8, 40),
    st.integers(0, 8),
)
def test_the_heading_path_is_the_one_in_force_where_the_chunk_begins(
    sections: list[tuple[int, int]], size: int, overlap: int
) -> None:
    text, paths, path = "before\n\n", [(0, ())], list[tuple[int, str]]()
    for number, (level, length) in enumerate(sections):
        path = [*(each for each in path if each[0] < level), (level, f"h{number}")]
        paths.append((len(text), tuple(name for _, name in path)))
        text += f"{'#' * level} h{number}\n\n{words(length)}\n\n"
    for each in cut(text, size, overlap):
        assert each.headings == [names for start, names in paths if start <= each.start][-1]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), max_size=10), st.integers(10, 60))
def test_a_chunk_has_one_section_or_several_complete_sections_of_one_parent(
    sections: list[tuple[int, int]], size: int
) -> None:
    text = "".join(f"{'#' * level} h\n\n{words(length)}\n\n" for level, length in sections)
    for each in cut(text, size):
        levels = [len(found) for found in re.findall("^#+", text[each.start : each.end], re.M)]
        if text[each.start] == "#":
            assert all(level >= levels[0] for level in levels)
        if len(levels) > (text[each.start] == "#"):
            assert text[each.tile_end : each.tile_end + 1] in ("#", "")


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=8),
    st.integers(12, 40),
    st.integers(0, 6),
)
def test_a_fence_that_fits_is_never_cut(
    parts: list[tuple[int, int]], size: int, overlap: int
) -> None:
    text = "".join(f"{words(prose)}.\n\n~~~py\n{words(code)}\n~~~\n\n" for prose, code in parts)
    fences = [(each.start(), each.end()) for each in re.finditer("~~~py\n[^~]*~~~", text)]
    spans = cut(text, size, overlap)
    for start, end in fences:
        if count(text, start, end) <= size:
            assert any(each.start <= start and end <= each.end for each in spans)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 5, 40])), min_size=1, max_size=9),
    st.integers(30, 60),
    st.integers(0, 10),
    st.booleans(),
)
def test_no_chunk_is_only_headings_unless_its_text_or_page_is(
    sections: list[tuple[int, int]], size: int, overlap: int, paged: bool
) -> None:
    parts = [f"{'#' * level} h\n\n{words(length)}\n\n" for level, length in sections]
    text = "".join(parts)
    pages = tuple(accumulate(map(len, parts[:3]), initial=0))[:-1] if paged else ()
    for each in cut(text, size, overlap, pages=pages):
        on_page = text[each.start :]
        if paged:
            on_page = text[: next((page for page in pages if page > each.start), len(text))]
            on_page = on_page[max(page for page in pages if page <= each.start) :]
        if "word" in (on_page if paged else text):
            assert "word" in text[each.start : each.end]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 25), st.integers(1, 6)),
        max_size=5,
    ),
    st.integers(24, 160),
    st.integers(0, 8),
)
def test_every_part_of_a_table_has_its_header_and_rows_are_not_cut(
    tables: list[tuple[int, int, int, int]], size: int, overlap: int
) -> None:
    text, headers, longest = "", list[tuple[int, int, str]](), 0
    for number, (prose, columns, rows, cell) in enumerate(tables):
        text += f"{words(prose)}\n\n"
        header = f"|{f' t{number} |' * columns}\n|{'-|' * columns}"
        lines = "".join(f"\n|{f' {words(cell)} |' * columns}" for _ in range(rows))
        headers.append((len(text), len(text + header + lines), header))
        longest = max(longest, count(header + lines[: lines.find("\n", 1)], 0, 999))
        text += f"{header}{lines}\n\n"
    for each in cut(text, size, overlap):
        inside = [header for start, end, header in headers if start < each.start < end]
        assert [each.header] == (inside or [""])
        if 4 * longest <= size and longest:
            row = text[text.rfind("\n", 0, each.tile_start) + 1 : each.tile_start]
            assert not row.strip(), "a chunk begins inside of a row"
        assert count(text, each.start, each.end) + min(
            count(each.header, 0, len(each.header)), size // 2
        ) <= max(size, 1 + size // 2)


@given(st.lists(st.integers(1, 60), max_size=4), st.integers(20, 60), st.integers(0, 8))
def test_fences_are_balanced_around_every_part_of_code(
    lengths: list[int], size: int, overlap: int
) -> None:
    text = "".join(
        f"{words(9)}\n\n~~~py\n" + "\n".join(f"name = {i}" for i in range(length)) + "\n~~~\n\n"
        for length in lengths
    )
    for each in cut(text, size, overlap):
        shown = "\n".join([each.header, text[each.start : each.end], each.footer]).strip()
        marks = re.findall("^~~~.*", shown, re.M)
        assert marks == ["~~~py", "~~~"] * (len(marks) // 2)


# Examples


def test_a_text_that_fits_the_model_is_not_cut_into_standard_chunks() -> None:
    assert len(cut(f"# A\n\n{words(100)}\n\n# B\n\n{words(150)}", STANDARD_SIZE)) == 1
    assert len(cut(words(WHOLE_TEXT + 1), STANDARD_SIZE)) == 2
    assert len(cut(words(WHOLE_TEXT), STANDARD_SIZE - 1)) == 2
    assert len(cut(words(WHOLE_TEXT), STANDARD_SIZE + 1)) == 2
    pages = (0, len(words(9)) + 1)
    assert len(cut(words(20), STANDARD_SIZE, pages=pages)) == 2


def test_sections_of_one_parent_that_fit_together_share_a_chunk() -> None:
    parts = [f"## A\n\n{words(5)}\n\n## B\n\n{words(5)}", f"## C\n\n{words(9)}"]
    assert pieces("\n\n".join(parts), 20) == parts
    # but not with the sibling of their parent
    parts = [f"# A\n\n{words(6)}", f"## Inner\n\n{words(6)}", "# B\n\nshort"]
    assert pieces("\n\n".join(parts), 12) == parts


@pytest.mark.parametrize(("size", "parts"), [
    (16, [f"## A\n\n{words(9)}", f"## Empty\n\n# B\n\n{words(9)}"]),  # headings without text
    (15, [f"{words(8)}.", f"{words(5)}.\n\n# Thanks\n\n## All"]),  # and at the end
    (6, ["# h0\n# h1\n# h2", "# h3\n# h4\n# h5", "# h6"]),
])  # fmt: skip
def test_headings_stay_with_text(size: int, parts: list[str]) -> None:
    text = "".join(f"{part}{' ' if part[-1] == '.' else chr(10)}" for part in parts)
    assert pieces(text, size) == parts


@pytest.mark.parametrize(("text", "size", "first"), [
    (f"{words(8)}\n\n# Long\n\n## Part\n\n{words(30)}\n", 12, words(8)),
    (f"# Long\n\n## Part\n\n{words(30)}\n", 12, f"# Long\n\n## Part\n\n{words(7)}"),
    ("# Head\n\n" + "One two three four five. " * 6, 16, "# Head\n\n" + "One two three four five. One two three four five."),
    (f"# {words(13)}\n\n## {words(3)}\n\n{words(30)}", 24, f"# {words(13)}\n\n## {words(3)}\n\n{words(5)}"),
    ("# M\n\n## E\n\n```py\nfirst = 1\nsecond = 2\nthird = 3\n```", 17, "# M\n\n## E\n\n```py\nfirst = 1\nsecond = 2"),
])  # fmt: skip
def test_headings_stay_with_the_beginning_of_their_text(text: str, size: int, first: str) -> None:
    assert pieces(text, size)[0] == first


ONE = "def one():\n    a = 1\n    return a"
TWO = "def two():\n    b = 2\n\n    c = 3\n\n    d = 4\n    e = 5\n    return b"


@pytest.mark.parametrize(("kind", "size", "first", "rest"), [
    # paragraphs before sentences, items before the lines in them, a sentence that was wrapped at its end, not in it
    ("text", 20, f"{words(8)}. {words(4)}.", f"\n\n{words(5)}. {words(5)}."),
    ("markdown", 22, f"- {words(5)}:\n  More {words(3)}\n  More {words(3)}", f"\n- {words(6)}\n  More {words(3)}"),
    ("text", 7, "Alpha beta gamma.", " Delta epsilon\nzeta eta theta iota kappa"),
    ("text", 13, "One two three four five six.", " Seven, e.g. eight nine ten"),  # an abbreviation does not end one
    # code before definitions, at dedents and not before a bracket, between statements even if less than half full
    ("code", 21, "def one():\n    a = 1\n\n    return a", "\n\n\n@cached\ndef two():\n    b = 2\n    return b\n"),
    ("code", 22, "function a() {\n  first(1)\n  second(2)\n}", "\nfunction b() {\n  third(3)\n}\n"),
    ("markdown", 30, f"```\n{ONE}", f"\n{TWO}\n```"),
])  # fmt: skip
def test_a_chunk_ends_at_the_strongest_boundary(
    kind: str, size: int, first: str, rest: str
) -> None:
    found = pieces(first + rest, size, kind=kind)
    assert found[0] == first and rest.strip().startswith(found[1])


@pytest.mark.parametrize(
    ("size", "parts"), [(8, ["一二三四。", "五六七八九十"]), (12, ["aaaa bbbb", " cccc"])]
)
def test_sentences_are_cut_before_words_and_words_before_characters(
    size: int, parts: list[str]
) -> None:
    text = "".join(parts)
    spans = split(text, starts=range(len(text)), size=size, overlap=0)
    assert [text[each.start : each.end] for each in spans] == [part.strip() for part in parts]


@pytest.mark.parametrize(("text", "size", "overlap", "chunks"), [
    ("One two three. Four five six. Seven eight nine. Ten eleven twelve.", 12, 6,
     ["One two three. Four five six. Seven eight nine.", "Seven eight nine. Ten eleven twelve."]),
    ("a b c d e f g h", 5, 2, ["a b c d e", "d e f g h"]),
])  # fmt: skip
def test_overlap_begins_with_a_sentence_or_with_a_word_where_none_fits(
    text: str, size: int, overlap: int, chunks: list[str]
) -> None:
    assert pieces(text, size, overlap, kind="text") == chunks


def test_a_header_longer_than_a_chunk_is_not_repeated() -> None:
    text = f"| {words(30)} | b |\n|---|---|\n" + "| 1 | 2 |\n" * 20
    assert {each.header for each in cut(text, 20)} == {""}


def test_a_short_text_is_one_chunk() -> None:
    text = "# Title\n\nSome text.\n\n## Part\n\nMore.\n"
    [span] = cut(text, 100)
    assert text[span.start : span.end] == text.strip()
    assert (span.tile_start, span.tile_end) == (0, len(text))
    assert (span.first_line, span.last_line, span.page, span.headings) == (1, 7, None, ("Title",))


def test_empty_text_has_no_chunks_and_a_blank_one_an_empty_chunk() -> None:
    assert cut("", 10) == []
    [span] = cut(" \n ", 10)
    assert (span.start - span.end, span.tile_start, span.tile_end) == (0, 0, 3)


def test_an_unclosed_fence_in_a_list_item_ends_with_the_item() -> None:
    text = f"- item\n\n  ```\n  # no\n\n# Yes\n\n{words(30)}"
    assert {each.headings for each in cut(text, 12)} == {(), ("Yes",)}


def test_a_fence_in_a_list_item_is_kept_whole() -> None:
    text = f"1. {words(8)}\n\n   ```sh\n   {words(8)}\n   ```\n\n2. {words(3)}"
    assert pieces(text, 18)[1] == f"```sh\n   {words(8)}\n   ```"


def test_a_long_fence_is_cut_between_lines_and_not_after_its_first() -> None:
    chunks = pieces("```py\n" + "\n".join(f"name{i} = {i}" for i in range(12)) + "\n```\n", 14)
    assert chunks[0].startswith("```py\nname0 = 0\n")
    assert all(re.match("name|```py", each) for each in chunks)


def test_front_matter_is_in_the_tile_of_the_first_chunk_but_not_in_a_chunk() -> None:
    text = f"---\ntitle: A\ntags: [b, c]\n---\n\n# Head\n\n{words(20)}"
    [span] = cut(text, 22)
    assert text[span.start : span.end] == f"# Head\n\n{words(20)}"
    assert (span.tile_start, span.first_line, span.headings) == (0, 6, ("Head",))


def test_front_matter_alone_is_the_text() -> None:
    text = "---\ntitle: A\n---\n"
    [span] = cut(text, 100)
    assert (text[span.start : span.end], span.headings) == ("---\ntitle: A\n---", ())


def test_a_byte_order_mark_is_not_in_the_first_chunk_and_hides_no_heading() -> None:
    text = "\ufeff# Head\n\ntext"
    [span] = cut(text, 100)
    assert (span.start, span.tile_start, span.headings) == (1, 0, ("Head",))


def test_white_space_does_not_count_as_tokens() -> None:
    text = f"a{' ' * 1000}b"
    assert pieces(text, 2) == [text]


def test_windows_line_ends_are_one_line_end() -> None:
    spans = cut(f"# A\r\n\r\n{words(5)}\r\n\r\n# B\r\n\r\n{words(5)}\r\n", 8)
    assert [(each.first_line, each.last_line, each.headings) for each in spans] == [
        (1, 3, ("A",)),
        (5, 7, ("B",)),
    ]


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, -1)])
def test_invalid_sizes_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(InvalidInput, match="size of at least 1"):
        cut("text", size, overlap)


@pytest.mark.parametrize("text", [
    "x" * 300_000, "word\n" * 60_000, "# h\n" * 10_000, "# h\n\ntext\n\n" * 5_000, "- ````x\n" * 10_000, "- " * 100_000,
    " " * 300_000 + "x", "\n".join("  " * i + "- x" for i in range(600)), "```\nx\n```\n" * 10_000, "[" * 100_000,
    "# " + "[a " * 50_000, "---\na: b\n" * 20_000,
])  # fmt: skip
def test_hostile_texts_are_split_without_loss(text: str) -> None:
    assert "".join(text[each.tile_start : each.tile_end] for each in cut(text, 50, 10)) == text


def test_splitting_stops_after_so_many_chunks() -> None:
    text = words(100)
    spans = cut(text, 10)
    assert len(spans) == 10
    for most in (0, 1, 9, 10, 11):
        assert split(text, starts=tokens(text), size=10, overlap=0, most=most) == spans[:most]
