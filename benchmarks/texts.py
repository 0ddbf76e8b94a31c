"""Real text without a network: passages from files on this machine, and queries made from them."""

from __future__ import annotations

import hashlib
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.engines import Words
from mcpvectordb import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

LONGEST, SHORTEST = 700, 150  # characters of a passage: some 40 to 200 tokens
SUFFIXES = (".py", ".md", ".rst", ".txt")
KEY = 6
BUCKETS = 2**16
BEGINNINGS = ("how do I", "how can I", "what is the way to", "which function is there to")
_WORD = re.compile(r"[^\W_]+")
_DOCSTRING = re.compile(r'"""([A-Z][a-z]+ [^"\n.]{30,110})\.')


@dataclass(frozen=True, slots=True)
class Query:
    """A query by words of some kind, and the numbers of the passages that it should find."""

    kind: str
    words: Words
    right: frozenset[int]


def passages(count: int) -> list[str]:
    """So many different passages, the same every time while the machine has the same files.

    Where its files have fewer, the rest is made of the lines of two passages each.
    """
    found: dict[str, None] = {}
    for path in _files():
        found.update(dict.fromkeys(cut(_read(path))))
        if len(found) >= count:
            return list(found)[:count]
    if len(found) < 2:
        raise InvalidInput("there are no passages of text on this machine")
    return mixed(list(found), count)


def mixed(found: Sequence[str], count: int, seed: int = 1) -> list[str]:
    """The passages and as many more as are missing, each of the lines of two of them."""
    choice, made = random.Random(seed), dict.fromkeys(found)
    while len(made) < count:
        lines = [line for text in choice.sample(found, 2) for line in text.splitlines()]
        choice.shuffle(lines)
        made["\n".join(lines)[:LONGEST]] = None
    return list(made)[:count]


def files(characters: int) -> dict[str, str]:
    """Names and texts of files of some pages, with about this many characters together."""
    chosen: dict[str, str] = {}
    for path in _files():
        text = _read(path)
        if 2_000 < len(text) < 50_000:
            chosen[f"{len(chosen)} {path.name}"] = text
            if (characters := characters - len(text)) <= 0:
                break
    return chosen


def cut(text: str) -> Iterator[str]:
    """Passages of as many paragraphs as fit, except short ones and those with few words."""
    passage = ""
    for paragraph in [
        *re.split(r"\n\s*\n", text),
        " " * LONGEST,
    ]:  # the last one drives out what is left
        if len(passage) + len(paragraph) >= LONGEST and len(passage) >= SHORTEST:
            if len(_WORD.findall(passage)) * 12 > len(passage):
                yield passage
            passage = ""
        passage = f"{passage}\n\n{paragraph}".strip("\n")[:LONGEST]


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _WORD.findall(text.lower())


def queries(
    texts: Sequence[str], each: int, seed: int = 1, kinds: Sequence[str] = ()
) -> list[Query]:
    """`each` of every kind, or of some: rare word, common word, question, boolean.

    A boolean query is two words without a third.
    """
    known, choice = _Known(texts), random.Random(seed)
    makers = {
        "rare word": known.rare,
        "common word": known.common,
        "question": known.questions,
        "boolean": known.boolean,
    }
    made = [
        query for kind in kinds or makers for query in _sampled(kind, makers[kind](choice), each)
    ]
    choice.shuffle(made)
    return made


def sums(texts: Sequence[str], of: Sequence[str], dimension: int) -> Matrix:
    """Vectors of `texts`: sums of random vectors of words, longer if rare in `of`."""
    import numpy as np

    seen = np.zeros(BUCKETS, np.int64)
    for text in of:
        seen[list({_bucket(word) for word in words(text)})] += 1
    weights = np.log1p(len(of) / (1 + seen)).astype(np.float32)
    vectors = (
        np.random.default_rng(1).standard_normal((BUCKETS, dimension), np.float32)
        * weights[:, None]
    )
    rows = np.stack(
        [vectors[[_bucket(word) for word in set(words(text))] or [0]].sum(axis=0) for text in texts]
    )
    unit: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


class _Known:
    """Which passages have which words, by their keys."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    @cached_property
    def _numbers(self) -> dict[str, set[int]]:
        numbers: dict[str, set[int]] = {}
        for number, text in enumerate(self._texts):
            for word in words(text):
                numbers.setdefault(word[:KEY], set()).add(number)
        return numbers

    @cached_property
    def _plain(self) -> list[str]:
        """Words of which there is no other form, so that stems cannot matter."""
        forms: dict[str, set[str]] = {}
        for text in self._texts:
            for word in words(text):
                forms.setdefault(word[:KEY], set()).add(word)
        return [
            word
            for key, (word, *others) in sorted(forms.items())
            if not others
            and len(key) == KEY
            and key[:-1] not in forms
            and word.isascii()
            and word.isalpha()
        ]

    def rare(self, choice: random.Random) -> Iterator[Query]:
        for word in _shuffled(
            [word for word in self._plain if 2 <= self._frequency(word) <= 10], choice
        ):
            yield Query("rare word", _any([word]), frozenset(self._numbers[word[:KEY]]))

    def common(self, choice: random.Random) -> Iterator[Query]:
        common = sorted(
            key
            for key in self._numbers
            if key.isalpha() and 3 < len(key) < KEY and 0.04 < self._share(key) < 0.4
        )
        for word in _shuffled(common, choice):
            yield Query("common word", _any([word]), frozenset(self._numbers[word]))

    def questions(self, choice: random.Random) -> Iterator[Query]:
        for number in _shuffled(range(len(self._texts)), choice):
            if said := _DOCSTRING.search(self._texts[number]):
                asked = words(f"{choice.choice(BEGINNINGS)} {said[1]}")
                yield Query("question", _any(asked), frozenset([number]))

    def boolean(self, choice: random.Random) -> Iterator[Query]:
        least = min(20, 1 + len(self._texts) // 5_000)
        telling = {word for word in self._plain if self._share(word) > 0.001}
        common = sorted(word for word in telling if self._share(word) > 0.005)
        for number in _shuffled(range(len(self._texts)), choice):
            own = sorted(telling.intersection(words(self._texts[number])))
            if len(own) > 1 and common:
                first, second, third = *choice.sample(own, 2), choice.choice(common)
                right = (self._numbers[first[:KEY]] & self._numbers[second[:KEY]]) - self._numbers[
                    third[:KEY]
                ]
                if len(right) >= least:
                    yield Query(
                        "boolean",
                        {"any": [], "all": [first, second], "none": [third]},
                        frozenset(right),
                    )

    def _share(self, word: str) -> float:
        return self._frequency(word) / len(self._texts)

    def _frequency(self, word: str) -> int:
        return len(self._numbers[word[:KEY]])


def _any(asked: list[str]) -> Words:
    return {"any": asked, "all": [], "none": []}


def _sampled(kind: str, made: Iterator[Query], count: int) -> list[Query]:
    found = [query for _, query in zip(range(count), made, strict=False)]
    if not found:
        raise InvalidInput(f"no query of the kind {kind!r} can be made of so few passages")
    return [found[number % len(found)] for number in range(count)]


def _shuffled(items: Iterable[object], choice: random.Random) -> list[Any]:
    mixed = list(items)
    choice.shuffle(mixed)
    return mixed


@cache
def _bucket(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % BUCKETS


@cache
def _files() -> list[Path]:
    """Files of the standard library and of the installed packages, well mixed."""
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    files = {
        path.relative_to(root): path
        for root in roots
        for path in root.rglob("*")
        if path.suffix in SUFFIXES and (root == roots[1] or "site-packages" not in path.parts)
    }
    return [
        files[name]
        for name in sorted(files, key=lambda name: hashlib.sha256(str(name).encode()).digest())
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # sources of tests are in all sorts of encodings
        return ""
