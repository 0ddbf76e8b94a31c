from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.postgres.values import from_text, to_json, to_text

TEXTS = st.text(st.sampled_from("ab01\0\ufdd0é数"))


@given(TEXTS)
def test_a_text_comes_back_as_it_was_and_has_no_nul_meanwhile(text: str) -> None:
    assert from_text(to_text(text)) == text
    assert "\0" not in to_text(text)


@given(TEXTS)
def test_a_text_without_nul_stays_what_it_is(text: str) -> None:
    plain = text.replace("\0", "").replace("\ufdd0", "")
    assert to_text(plain) == plain


@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    )
)
def test_json_has_its_texts_and_keys_as_texts_are_stored(value: object) -> None:
    written = to_json(json.dumps(value, ensure_ascii=False))
    assert "\\u0000" not in written

    def read(item: object) -> object:
        if isinstance(item, dict):
            return {from_text(key): read(each) for key, each in item.items()}
        if isinstance(item, list):
            return [read(each) for each in item]
        return from_text(item) if isinstance(item, str) else item

    assert read(json.loads(written)) == value


def test_a_text_that_looks_like_an_escape_is_no_nul() -> None:
    assert json.loads(to_json(json.dumps({"a": "\\u0000"}))) == {"a": "\\u0000"}
