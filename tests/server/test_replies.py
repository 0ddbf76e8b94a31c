from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb_server.replies import (
    MAX_REFUSAL,
    MAX_REPLY,
    Reply,
    Resource,
    Text,
    failed,
    fit,
    prefix_that_fits,
    refusal_of,
    reply_of,
    to_json,
)


def test_a_dict_is_sent_as_text_and_as_data() -> None:
    reply = reply_of({"a": "ä"})
    assert reply == Reply(content=(Text(text='{"a": "ä"}'),), structured={"a": "ä"})


def test_a_list_is_sent_as_itself_and_wrapped_where_only_objects_are_allowed() -> None:
    reply = reply_of([1, 2])
    assert reply.content == (Text(text="[1, 2]"),)
    assert reply.structured == {"result": [1, 2]}


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The values that were encoded to JSON, in their order."""
    real, values = json.dumps, []

    def dumps(value: Any, **options: Any) -> str:
        values.append(value)
        return real(value, **options)

    monkeypatch.setattr(json, "dumps", dumps)
    return values


@pytest.mark.parametrize(
    "value",
    [
        {"results": [{"text": "ä" * 100}] * 50, "count": 50},
        Reply(content=(Text(text="found"),), structured={"results": ["ä"] * 50}),
    ],
)
def test_a_reply_that_fits_is_encoded_once(value: Any, encoded: list[Any]) -> None:
    reply = reply_of(value)
    assert encoded == [reply.structured]


def test_each_item_of_a_list_is_encoded_once(encoded: list[Any]) -> None:
    reply = reply_of(["ä", 1, {"b": [2]}])
    assert encoded == ["ä", 1, {"b": [2]}]
    assert reply.content == (Text(text='["ä", 1, {"b": [2]}]'),)


def test_a_long_list_loses_its_end_and_says_so() -> None:
    value = {"results": [{"text": "x" * 90}] * 100, "count": 100}
    fitted, _ = fit(value, 5000, "lower the limit")
    kept = len(fitted["results"])
    assert 30 < kept < 50
    assert fitted["count"] == kept
    assert fitted["truncated"] == (
        f"only the first {kept} of 100 results are here, to keep this reply under "
        "5,000 characters; lower the limit"
    )
    assert len(to_json(fitted)) <= 5000


def test_a_long_text_loses_its_end_and_says_so() -> None:
    fitted = fit({"content": "x" * 9000, "title": "short"}, 5000, "ask for less")[0]
    assert fitted["title"] == "short"
    assert "more characters]" in fitted["content"]
    assert (
        fitted["truncated"]
        == "long texts were cut to keep this reply under 5,000 characters; ask for less"
    )


def test_one_item_that_is_too_long_is_cut_rather_than_left_out() -> None:
    fitted = fit({"results": [{"text": "x" * 9000}, {"text": "y"}]}, 5000, "ask for less")[0]
    assert fitted["results"][0]["text"].startswith("xxx")
    assert len(fitted["results"]) == 1


def test_a_value_that_fits_is_not_changed() -> None:
    value = {"results": [1, 2, 3], "count": 3}
    assert fit(value, 5000, "")[0] is value


@given(
    st.recursive(
        st.text(max_size=60) | st.integers() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=20), inner, max_size=10)
        ),
        max_leaves=60,
    )
)
def test_fitted_json_is_never_longer_than_its_limit(value: Any) -> None:
    fitted, text = fit({"value": value, "more": value}, 1500, "ask for less")
    assert len(text) <= 1500
    assert text == to_json(fitted)


def test_a_long_plain_list_says_what_is_missing_beside_its_text_and_its_structure() -> None:
    reply = reply_of(["x" * 1000] * 1000, more="ask for fewer")
    kept = len(reply.structured["result"])
    assert reply.content[1].text == f"[only the first {kept} of 1000 are here]; ask for fewer"
    assert reply.structured["truncated"] == reply.content[1].text
    assert len(reply.content[0].text) <= MAX_REPLY


def test_a_refusal_is_short_whatever_it_quotes() -> None:
    message = "there is no " + "x" * 9_000 + "; ask for less"
    as_dict, as_text = refusal_of({"error": message, "code": 5}), refusal_of(failed(message))
    said = as_text.content[0].text
    assert as_text.failed and as_dict.structured == {"error": said, "code": 5}
    assert said.startswith("there is no xxx") and said.endswith("xxx; ask for less")
    assert "xxx [… 5,026 more characters …] xxx" in said and len(said) < MAX_REFUSAL + 50
    assert refusal_of({"error": "no"}).structured == {"error": "no"}


def test_blocks_of_text_are_bounded_together() -> None:
    reply = reply_of(
        Reply(content=tuple(Text(text="x" * 90_000) for _ in range(5))), more="ask for fewer"
    )
    assert sum(len(block.text) for block in reply.content) < MAX_REPLY + 500
    assert "70,000 more characters; ask for fewer" in reply.content[2].text
    assert reply.content[3].text == "[… 2 more parts were left out; ask for fewer]"


def test_the_error_flag_and_resource_blocks_are_kept() -> None:
    resource = Resource(uri="a://b", name="b", title="B", text="body")
    assert reply_of(Reply(content=(resource,), failed=True)) == Reply(
        content=(resource,), failed=True
    )


def test_a_lone_surrogate_is_replaced_before_it_is_sent() -> None:
    reply = reply_of({"source": "bad\udcffname"})
    assert reply.structured == {"source": "bad?name"}
    reply.content[0].text.encode()
    assert reply_of(Reply(content=(Text(text="bad\udcffname"),))).content[0].text == "bad?name"


def test_a_number_that_json_cannot_carry_raises_an_error() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        reply_of({"score": float("nan")})


@given(st.text(max_size=300), st.integers(min_value=1, max_value=200))
def test_a_prefix_fits_its_room_as_json(text: str, room: int) -> None:
    part = prefix_that_fits(text, room)
    assert text.startswith(part)
    assert len(to_json(part)) - 2 <= room
