from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mcpvectordb.search import plane

FOLDERS = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4).map("/".join), max_size=40
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_groups_far_apart_are_islands_whatever_the_order_of_their_rows() -> None:
    random = np.random.default_rng(3)
    groups = np.repeat(np.arange(5), 80)
    rows = unit(np.eye(5, 24)[groups] * 4 + random.standard_normal((400, 24)) * 0.3)
    order = random.permutation(400)
    centres = plane.landmarks(rows[order])
    places = plane.placed(rows, centres, plane.layout(centres))
    middles = np.array([places[groups == each].mean(axis=0) for each in range(5)])
    nearest = np.linalg.norm(places[:, None] - middles, axis=2).argmin(axis=1)
    assert (nearest == groups).mean() > 0.98


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 99))
def test_any_rows_have_finite_places_between_the_landmarks(
    count: int, dimension: int, seed: int
) -> None:
    rows = unit(np.random.default_rng(seed).standard_normal((count, dimension)) + 1e-3)
    centres = plane.landmarks(rows)
    places = plane.layout(centres)
    found = plane.placed(rows, centres, places)
    assert found.shape == (count, 2) and np.isfinite(found).all()
    assert (found >= places.min(axis=0) - 1e-3).all() and (found <= places.max(axis=0) + 1e-3).all()


@given(FOLDERS, st.integers(4, 12))
def test_a_folder_is_shown_as_itself_or_one_above_and_not_too_many_are(
    folders: list[str], most: int
) -> None:
    shown = plane.by_folder(folders, most)
    for folder, name in zip(folders, shown, strict=True):
        assert folder == name or folder.startswith(f"{name}/")
    assert len(set(shown)) <= most
    if len(set(folders)) <= most:
        assert shown == folders


def test_times_are_days_months_or_years_as_few_as_colours() -> None:
    assert plane.by_time(["2026-11-18T10:00", "2026-11-19"]) == ["2026-11-18", "2026-11-19"]
    days = [f"2026-{month:02}-{day:02}" for month in (3, 4) for day in range(1, 20)]
    assert set(plane.by_time(days)) == {"2026-03", "2026-04"}
    assert set(plane.by_time([f"{year}-{month:02}" for year in (1, 2) for month in range(1, 13)]))


@given(st.lists(st.sampled_from([f"n{each}" for each in range(30)]), max_size=80))
def test_names_are_numbered_and_the_rarest_are_others(given_names: list[str]) -> None:
    names, numbers = plane.numbered(given_names)
    assert len(names) <= plane.MOST_GROUPS and len(numbers) == len(given_names)
    for name, number in zip(given_names, numbers, strict=True):
        assert names[number] in (name, plane.OTHERS)
