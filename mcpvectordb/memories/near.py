"""Texts that say nearly the same as others, and the values in which two of them differ.

Pure functions over two texts; `Memories.near` asks them of what a search has found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from mcpvectordb.text.tokens import stop_words

# From this cosine on two memories say nearly the same, by a model whose cosines are known; by
# their words, from this share of them in common on.
NEAR_COSINE, NEAR_WORDS = 0.9, 0.6
COMPARED = 2_000  # characters of a text that others are compared with

# 5432, 10:30, E-4021, v1.2, don't: what is written without a space is one word.
_WORD = re.compile(r"[^\W_]+(?:['’.,:/@_+-]+[^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?…:]\s|\n")
_NEGATIONS = frozenset(
    "no not never none nobody nothing neither nor without cannot nicht kein keine keinen keiner "
    "nie niemals ohne ne pas jamais sans nunca sin".split()
)
# They come and go with a negation.
_AUXILIARIES = frozenset("do does did".split())


class Wording(NamedTuple):
    """A text as it is compared: numbers and names as they are written, by their folded form, the
    first word of the text, whether something is negated, and all other words.
    """

    numbers: Mapping[str, str]
    names: Mapping[str, str]
    first: str
    negated: bool
    words: frozenset[str]


def plain(text: str) -> str:
    """A text without case and punctuation, to see whether two are the same."""
    return re.sub(r"\W+", " ", text.casefold()).strip()


def nearly_same(ours: str, theirs: str) -> bool:
    """Whether two texts have most of their words in common."""
    first, second = (set(plain(each[:COMPARED]).split()) for each in (ours, theirs))
    return _share(first, second) >= NEAR_WORDS


def difference(ours: str, theirs: str) -> tuple[str, str] | None:
    """The values of two texts that say the same of different values, or None.

    They are numbers, names, or a "not" that one of them has. A value that one of them adds is no
    contradiction, nor are other values among other words.
    """
    first, second = wording(ours), wording(theirs)
    pairs = [(first.numbers, second.numbers), (first.names, second.names)]
    if _share(first.words, second.words) >= NEAR_WORDS:
        for mine, other in pairs:
            if mine.keys() - other.keys() and other.keys() - mine.keys():
                return _only(mine, other), _only(other, mine)
        if first.negated != second.negated:
            said = ("negated", "not negated")
            return said if first.negated else said[::-1]
    # Nobody can tell a name at the beginning by its capital: it is one if all else is the same.
    begins = {first.first.casefold(), second.first.casefold()}
    rest = [each.words - {_stem(each.first.casefold())} for each in (first, second)]
    if len(begins) == 2 and rest[0] and rest[0] == rest[1] and not begins & stop_words(begins):
        return first.first, second.first
    return None


def wording(text: str) -> Wording:
    """The values and words of a text; a name has a capital letter inside of a sentence."""
    numbers, names, words = {}, {}, set()
    negated, first, end = False, "", 0
    for match in _WORD.finditer(text[:COMPARED]):
        word = match[0]
        folded = word.casefold().replace("’", "'")
        begins = not end or _SENTENCE_END.search(text, end, match.start()) is not None
        first, end = first or word, match.end()
        if any(character.isdigit() for character in word):
            numbers[folded] = word
        elif folded in _NEGATIONS or folded.endswith("n't"):
            negated = True
        elif word[0].isupper() and not begins:
            names[folded] = word
        elif folded not in _AUXILIARIES:
            words.add(_stem(folded))
    return Wording(numbers, names, first, negated, frozenset(words))


def _stem(word: str) -> str:
    """A word without a final s: "likes" is "does not like"."""
    return word.removesuffix("s") if len(word) > 3 else word


def _only(mine: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The values that only one of two texts has."""
    return ", ".join(word for folded, word in mine.items() if folded not in other)


def _share(first: Set[str], second: Set[str]) -> float:
    """The share of all words that both have; two texts without any share nothing."""
    return len(first & second) / len(first | second) if first | second else 0.0
