from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.postgres.publish import State, differences, digest

SIDES = st.dictionaries(st.integers(0, 20), st.tuples(st.sampled_from("ab"), st.sampled_from("xy")))


def states(side: dict[int, tuple[str, str]]) -> list[State]:
    return [State(key, tuple(each.encode() for each in side[key]), key) for key in sorted(side)]


@given(SIDES, SIDES)
def test_what_differs_is_found_and_nothing_else(
    local: dict[int, tuple[str, str]], remote: dict[int, tuple[str, str]]
) -> None:
    found = differences(states(local), states(remote))
    assert [each.key for each in found.added] == sorted(local.keys() - remote.keys())
    assert found.gone == sorted(remote.keys() - local.keys())
    both = local.keys() & remote.keys()
    assert {each.key: each.parts for each in found.changed} == {
        key: tuple(a != b for a, b in zip(local[key], remote[key], strict=True))
        for key in both
        if local[key] != remote[key]
    }
    assert found.same == sum(local[key] == remote[key] for key in both)


def test_all_parts_of_a_new_item_are_sent() -> None:
    [new] = differences([State(1, (b"a", b"b"), 7, b"p")], []).added
    assert (new.parts, new.passages, new.place) == ((True, True), 7, b"p")


def test_a_digest_tells_values_and_their_places_apart() -> None:
    texts = [("a", "bc"), ("ab", "c"), ("abc", ""), ("abc",), (None, "abc"), ("1",), (1,)]
    assert len({digest(*each) for each in texts}) == len(texts)
    assert digest("a", 1) == digest("a", 1)
