"""Tokens: how text is prepared for FTS5 when it is indexed, and what kinds of words there are.

FTS5's unicode61 tokenizer makes one token of a run of Chinese, Japanese or Korean (CJK) characters,
and one of parseHTMLDocument. Both are split here: CJK runs into overlapping bigrams, identifiers
into their camelCase parts. Queries are split the same way (`text.query`).
"""

from __future__ import annotations

import re

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


def index_text(text: str) -> str:
    """The text to index: CJK runs become bigrams, and the parts of identifiers are appended."""
    parts = [part for word in CAMEL.findall(text) for part in camel_parts(word)]
    return CJK.sub(lambda run: f" {' '.join(bigrams(run[0]))} ", text) + (
        "\n" + " ".join(parts) if parts else ""
    )


def is_non_latin(text: str) -> bool:
    """Whether most letters of a text are not Latin."""
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
