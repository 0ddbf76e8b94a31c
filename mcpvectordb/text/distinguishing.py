"""Words that say what a group of texts is about, beside others.

A word is worth the more, the more texts of its group have it and the fewer others do: the root of
the share of the group's texts times the logarithm of how many times as large that is as elsewhere,
which is tf-idf with groups in place of documents. Elsewhere are the texts that the groups were
taken from and the other groups, whichever has the word more often: neighbours get different names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from mcpvectordb.text.tokens import CJK, ENGLISH, WORD, bigrams, camel_parts, stop_words

_URL = re.compile(r"\bhttps?://\S+")
SHORTEST = 3  # letters of a word that is shown, but for Chinese, Japanese and Korean


def distinguishing_words(
    groups: Sequence[Sequence[str]], among: Sequence[str] = (), *, limit: int = 3
) -> list[tuple[str, ...]]:
    """For each group of texts the words that distinguish it, the best first, `limit` at most.

    `among` are texts, or a sample of them, that the groups were taken from. Words are those of the
    texts, in the spelling that is commonest in the group; stop words and numbers are none.
    """
    spelt = [[_words(text) for text in texts] for texts in groups]
    counts = [Counter(word for words in texts for word in words) for texts in spelt]
    around = Counter(word for text in among for word in _words(text))
    found = []
    for number, (texts, mine) in enumerate(zip(spelt, counts, strict=True)):
        others = sum(len(each) for each in spelt) - len(texts)
        scores = {}
        for word, count in mine.items():
            if count == 1 and len(texts) > SHORTEST:
                continue  # one text's word is not the group's
            near = sum(each[word] for at, each in enumerate(counts) if at != number)
            elsewhere = max((around[word] + 1) / (len(among) + 2), (near + 1) / (others + 2))
            share = count / len(texts)
            scores[word] = math.sqrt(share) * math.log(share / elsewhere)
        ranked = sorted(scores, key=lambda word: (-scores[word], word))
        chosen = _unlike([word for word in ranked if scores[word] > 0] or ranked, limit)
        found.append(tuple(_spelling(word, texts) for word in chosen))
    return found


def _words(text: str) -> dict[str, str]:
    """The words of a text by what makes them equal: casefolded and without the s of a plural."""
    spelt: dict[str, str] = {}
    text = _URL.sub(" ", text)
    for run in CJK.findall(text):
        spelt.update((pair, pair) for pair in bigrams(run)[:-1])
    for found in WORD.findall(CJK.sub(" ", text)):
        for word in (found, *camel_parts(found)) if found.isalpha() else ():
            if len(word) >= SHORTEST:
                spelt.setdefault(_folded(word), word)
    stops = stop_words(spelt) | ENGLISH
    return {key: word for key, word in spelt.items() if not {key, word.casefold()} & stops}


def _folded(word: str) -> str:
    folded = word.casefold()
    plural = len(folded) > SHORTEST and folded.endswith("s") and not folded.endswith(("ss", "us"))
    return folded[:-1] if plural else folded


def _unlike(words: Iterable[str], limit: int) -> list[str]:
    """The first words of which none begins with another: parse beside parser says nothing new."""
    chosen: list[str] = []
    for word in words:
        if len(chosen) == limit:
            break
        if not any(word.startswith(each) or each.startswith(word) for each in chosen):
            chosen.append(word)
    return chosen


def _spelling(word: str, texts: Iterable[dict[str, str]]) -> str:
    """The commonest spelling of a word; of equally common ones the first by letters."""
    spellings = Counter(words[word] for words in texts if word in words)
    return min(spellings, key=lambda each: (-spellings[each], each))
