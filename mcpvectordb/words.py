"""Words, in the index and in queries: pure text in, FTS5 text out.

FTS5's unicode61 makes one token of a run of Chinese, Japanese or Korean characters, and of parseHTMLDocument; both are
broken up here the same way when text is indexed and when it is asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

MAX_QUERY_CHARACTERS = 2_000
MAX_DISTINCT_TERMS = 64
MAX_REPEATS = 4  # a repeated word is signal, but 64 copies of a common one cost a second

_CJK = re.compile(
    "[\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
_CAMEL = re.compile(r"\b[^\W_]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[^\W_]*")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_WORD = re.compile(r"[^\W_]+")
_ENDING = re.compile(r"'[a-z]{1,2}$")  # Smith's is about Smith
_PIECE = re.compile(r'(?P<minus>(?<!\S)-(?=[^\s-]))?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')

STOP_WORDS = frozenset(
    """a about above after again against all also am an and any are aren't as at be because been before being below
    between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each either
    else ever every few for from further get gets getting give given gives go goes going got had hadn't has hasn't have
    haven't having he her here hers herself him himself his how however i if in into is isn't it it's its itself just
    let like many may me might more most much must my myself need no nor not of off on once one only or other others our
    ours ourselves out over own per please same shall she should shouldn't show since so some such tell than that that's
    the their theirs them themselves then there there's these they this those through thus to too under until up upon us
    use used using very via want was wasn't we well were weren't what what's when where where's whether which while who
    who's whom whose why will with within without won't would wouldn't yet you your yours yourself yourselves""".split()
)


def indexed(text: str) -> str:
    """What FTS5 is given for a text: CJK runs as overlapping pairs, and the parts of identifiers after the text."""
    parts = [part for word in _CAMEL.findall(text) for part in humps(word)]
    return _CJK.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text) + ("\n" + " ".join(parts) if parts else "")


def humps(identifier: str) -> list[str]:
    """The words inside an identifier: parseHTMLDocument is parse, HTML, Document."""
    return _HUMP.findall(identifier)


@dataclass(frozen=True, slots=True)
class Query:
    """A person's query as FTS5 expressions, each "" when there is nothing of its kind.

    `match` ranks; `required` (quoted phrases) and `excluded` (words after a minus) also bind results found by meaning.
    `exact` says that the query is nothing but codes such as E-4021 or 1.0.21, which only words can tell apart.
    """

    match: str = ""
    required: str = ""
    excluded: str = ""
    exact: bool = False


def parse(text: str) -> Query:
    """Read any string as a query: words, "quoted phrases", -exclusions. Nothing a person types is an error."""
    words: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    for piece in _PIECE.finditer(text[:MAX_QUERY_CHARACTERS].replace("\x00", " ")):
        phrase = piece["phrase"]
        tokens = [quote(phrase)] if phrase is not None else list(_terms(piece["word"]))
        tokens = [token for token in tokens if token]
        (excluded if piece["minus"] else phrases if phrase is not None else words).extend(tokens)
    if not words and not phrases:
        return Query()
    telling = _bounded([word for word in words if word[1:-1].casefold() not in STOP_WORDS] or words)
    phrases, excluded = _bounded(phrases), _bounded(excluded)
    match = " OR ".join([*phrases, *telling])
    required = " AND ".join(phrases)
    return Query(
        match=f"({required}) AND ({match})" if required else match,
        required=required,
        excluded=" OR ".join(excluded),
        exact=not phrases and all(_is_code(word[1:-1]) for word in telling),
    )


def quote(text: str) -> str:
    """A text as one FTS5 phrase; "" when it holds no word at all."""
    broken = " ".join(_CJK.sub(lambda run: f" {' '.join(_inner_pairs(run[0]))} ", text).split())
    if not _WORD.search(broken):
        return ""
    ends_in_one = (run := _last_run(text)) is not None and len(run) == 1
    return '"' + broken.replace('"', '""') + ('" *' if ends_in_one else '"')


def _pairs(run: str) -> list[str]:
    """Every character of a CJK run with its neighbour; the last one stands alone, so that each begins a token."""
    return [run[i:i + 2] for i in range(len(run))]


def _inner_pairs(run: str) -> list[str]:
    """The pairs to ask for: a run's last character may have another neighbour in the text that is looked for."""
    return _pairs(run)[:-1] or [run]


def _last_run(text: str) -> str | None:
    runs = _CJK.findall(text)
    return runs[-1] if runs and text.rstrip().endswith(runs[-1]) else None


def _terms(word: str) -> Iterator[str]:
    """The FTS5 terms for one word of a query."""
    plain = word.replace("’", "'").strip(".,;:!?()[]{}<>'`")
    if plain.casefold() in STOP_WORDS:
        yield f'"{plain}"'
    elif _CJK.search(plain):
        yield from _cjk_terms(plain)
    elif _is_code(plain):
        yield quote(plain)
    else:
        for part in _WORD.findall(_ENDING.sub("", plain)):
            yield quote(part)
            if _CAMEL.fullmatch(part):
                yield from (quote(hump) for hump in humps(part))


def _cjk_terms(word: str) -> Iterator[str]:
    for run in re.split(f"({_CJK.pattern})", word):
        if _CJK.fullmatch(run):
            yield from (quote(pair) for pair in _inner_pairs(run))
        else:
            yield from (quote(part) for part in _WORD.findall(run))


def _is_code(word: str) -> bool:
    """Whether the parts of a word only mean something together: E-4021, 1.0.21, 192.168.0.1, v2_final."""
    return any(character.isdigit() for character in word) and bool(_WORD.search(word))


def _bounded(terms: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    kept = []
    for term in terms:
        if term in seen or len(seen) < MAX_DISTINCT_TERMS:
            seen[term] += 1
            if seen[term] <= MAX_REPEATS:
                kept.append(term)
    return kept
