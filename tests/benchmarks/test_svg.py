from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.svg import Chart, drawing, short

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(*charts: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(drawing(charts))


def points(picture: ElementTree.Element) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]  # type: ignore[misc]
        for line in picture.iter(f"{SPACE}polyline")
    ]


def test_equal_ratios_are_equally_far_apart_on_both_axes() -> None:
    ((first, second, third),) = points(
        drawn(Chart("t", "rows", "ms", {"a": [(10, 1), (100, 10), (1000, 100)]}))
    )
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert (
        first[1] - second[1] == pytest.approx(second[1] - third[1], abs=0.2) and first[1] > third[1]
    )


def test_a_name_has_one_colour_in_all_charts_and_one_place_in_the_key() -> None:
    one = Chart("one", "rows", "ms", {"a": [(1, 1), (10, 2)], "b <&> c": [(1, 3), (10, 4)]})
    two = Chart("two", "rows", "MB", {"b <&> c": [(1, 5), (10, 6)]})
    picture = drawn(one, two)
    strokes = [line.attrib["stroke"] for line in picture.iter(f"{SPACE}polyline")]
    assert len(strokes) == 3 and strokes[1] == strokes[2] != strokes[0]
    assert [text.text for text in picture.iter(f"{SPACE}text")].count("b <&> c") == 1


def test_every_point_is_inside_its_chart() -> None:
    picture = drawn(Chart("t", "rows", "ms", {"a": [(9_999, 0.03), (1_000_000, 870)]}))
    wide, high = map(float, picture.attrib["viewBox"].split()[2:])
    assert all(0 < x < wide and 0 < y < high for line in points(picture) for x, y in line)


def test_a_single_point_can_be_drawn() -> None:
    assert points(drawn(Chart("t", "rows", "ms", {"a": [(10, 1)]})))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01, "0.01"), (10, "10"), (1_000, "1k"), (100_000, "100k"), (1_000_000, "1M")],
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert short(value) == text
