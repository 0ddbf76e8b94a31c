"""Words: how text is prepared for FTS5 when it is indexed, which words say nothing, and languages.

FTS5's unicode61 tokenizer makes one token of a run of Chinese, Japanese or Korean (CJK) characters,
and one of parseHTMLDocument. Both are split here: CJK runs into overlapping bigrams, identifiers
into their camelCase parts. Queries are split the same way (`text.query`).

Stop words say nothing of what a text is about. They are left out of queries, not of what is
indexed: question words are rare in many texts, so BM25 takes them for what is asked. Some are words
of another language, as the German `die` is in English; so a text has the stop words of one language
only, the one that has most of its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

CJK = re.compile(
    "[\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
# Vowel signs and other marks, which belong to the letter before them; \w leaves them out. FTS5
# separates words at those of Indic scripts, so such a word is a phrase of its consonants to it.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0963\u0966-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd\u0f71-\u0f84"
    "\u102b-\u103e\u17b4-\u17d3"
)
WORD = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}])*")
CAMEL = re.compile(r"\b[^\W_]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[^\W_]*")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS = 5_000  # of a text are looked at, to know its language
_LEAST = 0.1  # of the different words of prose are stop words of its language

# Swedish stands for its neighbours, too. The first of two languages wins a tie.
_PARAGRAPHS = Path(__file__).with_name("stop_words.txt").read_text("utf-8").split("\n\n")
OTHERS = {
    name: frozenset(words.split())
    for name, _, words in (each.partition(":") for each in _PARAGRAPHS)
}
ENGLISH = OTHERS.pop("en")
FOREIGN = frozenset[str]().union(*OTHERS.values())


def index_text(text: str) -> str:
    """The text to index: CJK runs become bigrams, and the parts of identifiers are appended."""
    parts = [part for word in CAMEL.findall(text) for part in camel_parts(word)]
    return CJK.sub(lambda run: f" {' '.join(bigrams(run[0]))} ", text) + (
        "\n" + " ".join(parts) if parts else ""
    )


def is_non_latin(text: str) -> bool:
    """Whether most letters of a text are not Latin."""
    if text.isascii():
        return False
    letters: list[str] = _LETTER.findall(text)
    return 2 * sum(
        letter > "\u024f" and not "\u1e00" <= letter <= "\u1eff" for letter in letters
    ) > len(letters)


def camel_parts(identifier: str) -> list[str]:
    """The words inside an identifier: parseHTMLDocument is parse, HTML, Document."""
    return _CAMEL_PART.findall(identifier)


def bigrams(run: str) -> list[str]:
    """Every character of a CJK run with its successor; the last one stands alone.

    So every character begins a token, and a single one is found as a prefix.
    """
    return [run[i : i + 2] for i in range(len(run))]


def stop_words(words: Iterable[str]) -> frozenset[str]:
    """The stop words of the language that has most of some casefolded words; by default English.

    Two words of a language are needed: `de facto` and `la liga` are said in English.
    """
    different = {word for word in words if len(word) > 1}  # single letters are names in code
    least, foreign = max(1, len(different & ENGLISH)), different & FOREIGN
    if len(foreign) <= least:  # most queries are in English
        return ENGLISH
    found = max(OTHERS.values(), key=lambda stops: len(foreign & stops))
    return found if len(foreign & found) > least else ENGLISH


def is_foreign(text: str) -> bool:
    """Whether a text is in another language than English; code and lists of names are not.

    It is a guess, for advice only.
    """
    words = set(WORD.findall(text[:_LETTERS].casefold()))
    stops = stop_words(words)
    said = sum(len(word) > 1 for word in words & stops)
    prose = stops is not ENGLISH and said > _LEAST * len(words)
    return prose or is_non_latin(text[:_LETTERS])


_ESTIMATED = re.compile(r"[A-Za-z]{1,5}|[^\W_]{1,2}|[^\w\s]|_")


def estimated_starts(text: str) -> list[int]:
    """Where the tokens of a text begin, roughly and without a model.

    A token is counted for every five letters of a Latin word, every two of other scripts and of
    numbers, and every sign. In turns of conversations that is 1.03 to 1.6 times as many as
    WordPiece has (median 1.18), in paragraphs of code 1.07; runs without meaning, such as Base64,
    may have twice as many.
    """
    return [found.start() for found in _ESTIMATED.finditer(text)]
