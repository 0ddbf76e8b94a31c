"""All passages in the plane, near to those that say something similar, and groups of them.

Principal components would show some percent of the differences, and everything in one heap. Here a
few hundred landmarks, the centres of k-means over a sample, are laid out by t-SNE (van der Maaten
and Hinton, 2008), which keeps neighbours together and others apart; with so few it is exact and
takes less than a second. Then every passage is put between the landmarks that it is nearest to,
block by block. Nothing is random: the same embeddings always get the same places.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE = 8_000  # most rows that landmarks are computed from
LANDMARKS = 300
ROWS_EACH = 8  # of the sample for a landmark
FEW = 64  # up to so many rows, each is a landmark
MEANS_ROUNDS = 6
NEAREST = 6  # landmarks that a row lies between
SHARPNESS = 0.06  # the difference of cosines by which a landmark weighs e times as much
PERPLEXITY = 12.0  # neighbours that a landmark is kept near to, about
ROUNDS, EXAGGERATED, SLOW = 300, 80, 40  # of the layout; with stronger attraction; with less speed
MOST_GROUPS = 12  # that colours can tell apart
OTHERS = "others"


def landmarks(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unit vectors in the middle of groups of unit rows (spherical k-means)."""
    count = min(LANDMARKS, len(rows), max(FEW, len(rows) // ROWS_EACH))
    centres = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
    for _ in range(MEANS_ROUNDS):
        nearest = (rows @ centres.T).argmax(axis=1)
        order = np.argsort(nearest, kind="stable")
        there, starts = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(rows[order], starts, axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres[there] = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres[there])
    return centres


def layout(centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """Places in the plane by t-SNE, from the two principal components on."""
    count = len(centres)
    places = _principal(centres)
    if count < 4:  # too few to have neighbours
        return places.astype(np.float32)
    likely = _affinities(np.maximum(2 - 2 * (centres @ centres.T).astype(np.float64), 0))
    places *= 1e-2 / (places.std() or 1.0)
    speed, gains = np.zeros_like(places), np.ones_like(places)
    for number in range(ROUNDS):
        attraction = 8 if number < EXAGGERATED else 1
        squares = (places**2).sum(axis=1)
        near = 1 / (1 + np.maximum(squares[:, None] + squares - 2 * places @ places.T, 0))
        np.fill_diagonal(near, 0)
        pull = (attraction * likely - near / near.sum()) * near
        gradient = 4 * (pull.sum(axis=1)[:, None] * places - pull @ places)
        gains = np.where(gradient * speed < 0, gains + 0.2, gains * 0.8).clip(0.01)
        speed = (0.5 if number < SLOW else 0.8) * speed - max(count / 8, 20) * gains * gradient
        places += speed
    found: NDArray[np.float32] = (places - places.mean(axis=0)).astype(np.float32)
    return found


def _principal(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Two coordinates of each row by principal components, with signs that are not chance."""
    left, values, _ = np.linalg.svd((rows - rows.mean(axis=0)).astype(np.float64), False)
    places = left[:, :2] * values[:2]
    strongest = places[np.abs(places).argmax(axis=0), range(places.shape[1])]
    places = places * np.where(strongest < 0, -1, 1)
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1])))


def _affinities(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """How likely each row takes each other for its neighbour, with the same perplexity for all."""
    count = len(squares)
    np.fill_diagonal(squares, np.inf)
    nearest = squares.min(axis=1, keepdims=True)
    low, high, precision = np.zeros(count), np.full(count, np.inf), np.full(count, 10.0)
    goal = np.log(min(PERPLEXITY, (count - 1) / 3))
    for _ in range(40):
        share = np.exp(-(squares - nearest) * precision[:, None])
        share /= share.sum(axis=1, keepdims=True)
        spread = -(share * np.log(np.maximum(share, 1e-12))).sum(axis=1) > goal
        low, high = np.where(spread, precision, low), np.where(spread, high, precision)
        precision = np.where(np.isinf(high), precision * 2, (low + high) / 2)
    found: NDArray[np.float64] = (share + share.T) / (2 * count)
    return found


def placed(
    rows: NDArray[np.float32], centres: NDArray[np.float32], places: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The place of each row: the mean of its nearest landmarks', the nearest weighing most."""
    cosines = rows @ centres.T
    most = min(NEAREST, len(centres))
    nearest = np.argpartition(-cosines, most - 1, axis=1)[:, :most]
    near = np.take_along_axis(cosines, nearest, axis=1)
    weights = np.exp((near - near.max(axis=1, keepdims=True)) / SHARPNESS)
    weights /= weights.sum(axis=1, keepdims=True)
    found: NDArray[np.float32] = np.einsum("ij,ijk->ik", weights, places[nearest])
    return found.astype(np.float32)


def by_folder(folders: Sequence[str], most: int = MOST_GROUPS) -> list[str]:
    """For each folder the one that it is shown as: itself, or one above.

    The largest is divided into those below it, as long as no more than `most` are shown.
    """
    sizes, depths = Counter(folders), dict.fromkeys(folders, 1)

    def shown(folder: str, more: int = 0) -> str:
        return "/".join(folder.split("/")[: depths[folder] + more])

    divided = True
    while divided:
        divided, groups = False, defaultdict(list)
        for folder in sizes:
            groups[shown(folder)].append(folder)
        for name in sorted(
            groups, key=lambda each: (-sum(sizes[one] for one in groups[each]), each)
        ):
            below = {shown(folder, 1) for folder in groups[name]}
            if below != {name} and len(groups) + len(below) - 1 <= most:
                depths.update((folder, depths[folder] + 1) for folder in groups[name])
                divided = True
                break
    return [shown(folder) for folder in folders]


def by_time(days: Sequence[str]) -> list[str]:
    """For each date (2026-11-18…) its year or, if all are of few years, its month or day."""
    for length in (10, 7, 4):
        found = [each[:length] for each in days]
        if len(set(found)) <= MOST_GROUPS:
            return found
    return found


def numbered(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.uint8]]:
    """The different names, the most frequent ones if there are too many, and the number of each."""
    sizes = Counter(names)
    kept = sorted(sizes, key=lambda name: (-sizes[name], name))
    if len(kept) > MOST_GROUPS:
        kept = kept[: MOST_GROUPS - 1]
    shown = sorted(kept) + [OTHERS] * (len(kept) < len(sizes))
    numbers = {name: number for number, name in enumerate(shown)}
    last = len(shown) - 1
    return tuple(shown), np.array([numbers.get(name, last) for name in names], np.uint8)
