from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb import Config, Entry, Image, InvalidInput, TooLarge
from mcpvectordb.memories.memory import checked_entry, normalized_tags

SMALL = Config(max_image_bytes=10, max_image_bytes_total=25, max_source_bytes=8)


def entry(**given: Any) -> Entry:
    return checked_entry(Entry(**{"thread": "t", "source": "user", "text": "x", **given}), SMALL)


@given(tags=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8)))
def test_tags_are_lower_case_trimmed_unique_and_sorted(tags: list[str]) -> None:
    kept = normalized_tags(tags)
    assert list(kept) == sorted(set(kept))
    assert all(tag == tag.strip() != "" and tag == tag.lower() for tag in kept)
    assert set(kept) == {tag.strip().lower() for tag in tags if tag.strip()}
    assert normalized_tags(kept) == kept


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("ab", "tags must be a list of texts, not str"),
        (5, "not int"),
        ([None], "a tag must be text, not NoneType"),
        (["x" * 1001], "at most 1,000"),
        ([str(number) for number in range(1001)], "1001 tags were given"),
        (["\ud800"], "surrogate"),
    ],
)
def test_invalid_tags_are_refused(tags: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        normalized_tags(tags)


def test_images_within_their_bounds_are_kept_in_order() -> None:
    given = [
        Image(data=b"1" * 10),
        Image(data=b"2" * 10, mime_type=" image/gif ", metadata={"n": 1}),
        Image(data=b"3" * 5),
    ]
    assert entry(images=given).images == (
        given[0],
        Image(data=b"2" * 10, mime_type="image/gif", metadata={"n": 1}),
        given[2],
    )
    assert entry(images=[]).images == () and entry().images is None


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([Image(data=b"x"), Image(data=b"1" * 11)], TooLarge, "image 1 is 11 bytes; at most 10"),
        ([Image(data=b"1" * 9)] * 3, TooLarge, "27 bytes together; at most 25"),
        ([Image(data=b"x"), Image(data=b"")], InvalidInput, "image 1 has no data"),
        ([Image(data="aGk=")], InvalidInput, "image 0 has no data: give its bytes"),  # type: ignore[arg-type]
        ([Image(data=b"x", mime_type=" ")], InvalidInput, "image 0's mime_type must not be blank"),
        ([Image(data=b"x", metadata={"a": {1}})], InvalidInput, "image 0's metadata.a is a set"),
        ([b"x"], InvalidInput, "image 0 must be an Image, not bytes"),
        (b"x", InvalidInput, "images must be a list"),
    ],
)
def test_invalid_images_are_refused_with_their_position(
    images: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        entry(images=images)


def test_a_text_over_the_size_limit_is_refused() -> None:
    assert entry(text="  éééé  ").text == "éééé"
    with pytest.raises(TooLarge, match="text is 10 bytes; at most 8"):
        entry(text="ééééé")
