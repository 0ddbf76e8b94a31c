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
CAMEL = re.compile(r"\b[^\W_]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[^\W_]*")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_LETTER = re.compile(r"[^\W\d_]")

STOP_WORDS = frozenset(
    """
        a about above after again against all also am an and any are aren't as at be because been
        before being below between both but by can can't cannot could couldn't did didn't do does
        doesn't doing don't down during each either else ever every few for from further get gets
        getting give given gives go goes going got had hadn't has hasn't have haven't having he her
        here hers herself him himself his how however i if in into is isn't it it's its itself just
        let like many may me might more most much must my myself need no nor not of off on once one
        only or other others our ours ourselves out over own per please same shall she should
        shouldn't show since so some such tell than that that's the their theirs them themselves
        then there there's these they this those through thus to too under until up upon us use used
        using very via want was wasn't we well were weren't what what's when where where's whether
        which while who who's whom whose why will with within without won't would wouldn't yet you
        your yours yourself yourselves
    """.split()
)


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
