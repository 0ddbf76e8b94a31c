"""The tokenizer of a model: token ids, offsets and counts, built on `tokenizers`."""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from mcpvectordb.errors import InvalidInput
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

SHIPPED = Path(__file__).with_name("vocab.txt")
# Texts are encoded in windows of so many characters, which bounds the memory for their tokens.
WINDOW = 50_000
# A longer run of characters counts as several tokens; otherwise a megabyte without a space would be
# a single one.
STRIDE = 16
SURROGATE = "the text holds half of a surrogate pair, which is not a character"


class TokenPipeline:
    """A model's tokenizer, which threads may share.

    It is made of a vocab.txt of the uncased BERT family (default: the one in this package), or of a
    tokenizer.json. A "[SEP]" in a text is encoded as these five characters, never as the special
    token.
    """

    def __init__(self, made_of: Path | Tokenizer = SHIPPED) -> None:
        from tokenizers.pre_tokenizers import BertPreTokenizer

        if isinstance(made_of, Path):
            made_of = (_from_vocabulary if made_of.suffix == ".txt" else _from_json)(made_of)
        self._tokenizer = made_of
        # A text of BERT's is cut into words before anything else; other models read on.
        bert = isinstance(self._tokenizer.pre_tokenizer, BertPreTokenizer)
        self._words = WordStarts(self._word_starts) if bert else None

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """Return the ids of a text with special tokens, truncated to `max_tokens`."""
        return self.encode_parts(text, max_tokens, 1)[0]

    def encode_parts(self, text: str, max_tokens: int, most: int) -> list[list[int]]:
        """Return the ids in as few equal parts as needed, truncated to `most` parts."""
        room = max_tokens - self._tokenizer.num_special_tokens_to_add(False)
        encoding = self._encoding(text, most * room)
        seen = min(len(encoding), most * room)
        parts = -(-seen // room) if seen else 1
        encoding.truncate(-(-seen // parts))
        first = self._tokenizer.post_process(encoding)
        return [list(part.ids) for part in (first, *first.overflowing[: parts - 1])]

    def known(self, text: str, max_tokens: int) -> list[int]:
        """Return the ids of the first `max_tokens` tokens that are in the vocabulary.

        There are no special tokens among them.
        """
        unknown, ids = self.unknown, self._encoding(text, max_tokens).ids[:max_tokens]
        return [id for id in ids if id != unknown]

    @property
    def unknown(self) -> int:
        """The id of the token for what is not in the vocabulary; -1 if there is none."""
        id = self._tokenizer.token_to_id(getattr(self._tokenizer.model, "unk_token", None) or "")
        return -1 if id is None else id

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens and truncation."""
        return sum(len(self._encode(window)) for window in windows(text, WINDOW))

    def encode_pair(self, query: str, text: str, max_tokens: int) -> tuple[list[int], list[int]]:
        """Return ids and type ids of a query with a text; if too long, the longer is truncated."""
        room = max_tokens - self._tokenizer.num_special_tokens_to_add(True)
        first, second = self._encoding(query, room), self._encoding(text, room)
        first.truncate(max(room - len(second), room - room // 2))
        second.truncate(room - len(first))
        both = self._tokenizer.post_process(first, second)
        return list(both.ids), list(both.type_ids)

    def token_starts(self, text: str) -> NDArray[np.int32]:
        """Return the sorted offsets of all tokens of a text, without special tokens.

        Several tokens of one character have the same offset (a Korean syllable is up to three).
        Tokens and gaps of more than 16 characters count again every 16 characters, so that no long
        stretch of text counts as nothing.
        """
        if self._words is not None:
            return self._words.find(text)
        starts, place = [np.empty(0, np.int32)], 0
        for window in windows(text, WINDOW):
            starts.append((self._starts(window) + place).astype(np.int32))
            place += len(window)
        return np.concatenate(starts)

    def _word_starts(self, run: str) -> list[int]:
        if len(run) > STRIDE:
            return self._starts(run).tolist()  # type: ignore[no-any-return]
        return [start for start, _ in self._encode(run).offsets]

    def _starts(self, window: str) -> NDArray[np.int64]:
        """The starts of a window's tokens, and one every STRIDE characters in tokens and gaps."""
        offsets = np.array(self._encode(window).offsets, np.int64).reshape(-1, 2)
        borders = np.unique(np.concatenate([[0, len(window)], offsets.ravel()]))
        again = (np.diff(borders) - 1) // STRIDE
        steps = np.arange(again.sum()) - np.repeat(np.cumsum(again) - again, again) + 1
        strides = np.repeat(borders[:-1], again) + STRIDE * steps
        return np.sort(np.concatenate([offsets[:, 0], strides]))

    def _encoding(self, text: str, enough: int) -> Encoding:
        """The text without special tokens, up to the window that reaches `enough` tokens."""
        from tokenizers import Encoding

        parts: list[Encoding] = []
        for window in windows(text, WINDOW):
            parts.append(self._encode(window))
            enough -= len(parts[-1])
            if enough <= 0:
                break
        return Encoding.merge(parts)

    def _encode(self, window: str) -> Encoding:
        try:
            return self._tokenizer.encode(window, add_special_tokens=False)
        except TypeError:
            raise InvalidInput(SURROGATE) from None


def tokenizer_of(path: Path = SHIPPED) -> TokenPipeline:
    """Return the tokenizer of a file, made once for all databases of this process.

    Beside the files of a `TokenPipeline` it may be a .bin of weights with SentencePiece pieces
    (E5S1). One of 30,000 words takes 20 ms to make. A file that was replaced is read again.
    """
    stat = path.stat()
    with _MAKING:
        return _made(path, stat.st_size, stat.st_mtime_ns)


_MAKING = threading.Lock()


@lru_cache(maxsize=4)
def _made(path: Path, _size: int, _changed: int) -> TokenPipeline:
    return PieceTokens(path) if path.suffix == ".bin" else TokenPipeline(path)


def _from_vocabulary(path: Path) -> Tokenizer:
    """The tokenizer of the uncased BERT family, which removes case and accents."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    words = path.read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    end, begin = ((mark, vocabulary[mark]) for mark in ("[SEP]", "[CLS]"))
    tokenizer.post_processor = BertProcessing(end, begin)
    return tokenizer


def _from_json(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


# --- SentencePiece, for a file E5S1: pieces with scores, of which the best ones that make up a text
# are its tokens

# SentencePiece keeps the full-width tilde, which NFKC would change; this stands for it meanwhile.
_TILDE = "\ue0ff"
# Pieces that are not in a text are ruled out by a hash of their first bytes, but for a few.
_FIRST, _HASH_BITS, _FACTOR = 7, 20, 0x9E3779B97F4A7C15


class PieceTokens(TokenPipeline):
    """The tokenizer of a file E5S1.

    One of all 250,000 pieces takes a second to make, one of those that are in a text a millisecond;
    its tokens are the same, because no other piece can be one. So every text has its own until all
    of them together had as many pieces as there are: only then the one of all is made.

    SentencePiece's normalisation `nmt_nfkc` is that of `tokenizers` but for one character.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Regex
        from tokenizers.normalizers import NFKC, Nmt, Replace, Sequence, Strip

        from mcpvectordb.embedding.encoder_graph import read_e5s1

        weights = read_e5s1(path)
        self._begin, self._end, self._unknown = weights.begin, weights.end, weights.unknown
        self._texts, self._places, self._scores = weights.texts, weights.starts, weights.scores
        self._hashes = _hashes(_sevens(self._texts)[self._places[:-1]], np.diff(self._places))
        self._left, self._making, self._words = len(self._scores), threading.Lock(), None
        self._normalizer = Sequence(
            [
                Nmt(),
                Replace("\uff5e", _TILDE),
                NFKC(),
                Replace(_TILDE, "\uff5e"),
                Replace(Regex(" {2,}"), " "),
                Strip(),
            ]
        )

    def encode_parts(self, text: str, max_tokens: int, most: int) -> list[list[int]]:
        """Return the ids in as few equal parts as needed, truncated to `most` parts."""
        if len(text) > WINDOW or (ids := self._few(text)) is None:
            return super().encode_parts(text, max_tokens, most)
        parts = TokenPipeline(self._of(ids)).encode_parts(text, max_tokens, most)
        return [[ids[token] for token in part] for part in parts]

    @cached_property
    def _tokenizer(self) -> Tokenizer:  # type: ignore[override]
        with self._making:
            made: Tokenizer | None = vars(self).get("_tokenizer")
            return made or self._of(range(len(self._scores)))

    def _encode(self, window: str) -> Encoding:
        ids = self._few(window)
        return (
            super()._encode(window) if ids is None else TokenPipeline(self._of(ids))._encode(window)
        )

    def _few(self, text: str) -> list[int] | None:
        """The ids of the pieces that a tokenizer of this text needs; None if it needs all."""
        if "_tokenizer" in vars(self):
            return None
        try:
            seen = self._normalizer.normalize_str(text)
        except (TypeError, UnicodeEncodeError):
            raise InvalidInput(SURROGATE) from None
        content = f"▁{seen.replace(' ', '▁')}".encode()
        sevens, known = _sevens(content), np.zeros(1 << _HASH_BITS, bool)
        for size in range(1, _FIRST + 1):
            known[_hashes(sevens, np.array(size))] = True
        # The lowest score of all pieces determines that of unknown characters.
        needed = {self._begin, self._end, self._unknown, int(self._scores.argmin())}
        needed.update(np.flatnonzero(known[self._hashes]).tolist())
        self._left -= len(needed)
        return sorted(needed) if self._left > 0 else None

    def _piece(self, id: int) -> bytes:
        return self._texts[self._places[id] : self._places[id + 1]]

    def _of(self, ids: Sequence[int]) -> Tokenizer:
        """A tokenizer of these pieces, whose tokens are numbered from 0.

        Special pieces get U+0001 in front, which the normalisation removes from texts: so no text
        has them.
        """
        from tokenizers import Tokenizer
        from tokenizers.models import Unigram
        from tokenizers.pre_tokenizers import Metaspace
        from tokenizers.processors import TemplateProcessing

        pieces = [(self._piece(id).decode(), float(self._scores[id])) for id in ids]
        vocabulary = [
            (f"\1{text}" if text[:1] == "<" and text[-1:] == ">" and score == 0 else text, score)
            for text, score in pieces
        ]
        unknown, begin, end = map(ids.index, (self._unknown, self._begin, self._end))
        tokenizer = Tokenizer(Unigram(vocabulary, unk_id=unknown, byte_fallback=False))
        tokenizer.normalizer, tokenizer.pre_tokenizer = self._normalizer, Metaspace()
        marks = vocabulary[begin][0], vocabulary[end][0]
        tokenizer.post_processor = TemplateProcessing(
            single=[marks[0], "$A", marks[1]],
            pair=[marks[0], "$A", marks[1], marks[1], "$B", marks[1]],
            special_tokens=[(marks[0], begin), (marks[1], end)],
        )
        return tokenizer


def _sevens(content: bytes) -> NDArray[np.uint64]:
    """At each place of a content, its next bytes as a number."""
    return np.ndarray((len(content),), "<u8", content + bytes(8), strides=(1,))


def _hashes(sevens: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hashes of the first bytes, as many as `sizes` says, at most seven."""
    bits = (8 * np.minimum(sizes, _FIRST)).astype(np.uint64)
    first = sevens & ((np.uint64(1) << bits) - np.uint64(1))
    hashes: NDArray[np.uint64] = first * np.uint64(_FACTOR) >> np.uint64(64 - _HASH_BITS)
    return hashes


# --- where tokens start, for tokenizers of the BERT family: words are looked up
#
# BERT never makes a token across white space or ASCII punctuation, so what stands between two of
# these can be encoded on its own. Texts repeat their words: encoding each distinct one once and
# looking up the others takes a fifth of the time of encoding the text. The offsets are the same.

WORDS_WINDOW = 200_000  # characters that are divided into words at once, which bounds the memory
# Longer runs of characters are cut, and of those beyond a word nothing is remembered: in other
# scripts a paragraph may have no space.
LONGEST_WORD, LONGEST_RUN = 32, 1_024
MOST_WORDS = 200_000  # that are remembered; then all are forgotten

_SPACE, _PUNCTUATION = r" \t\n\r", r"!-/:-@\[-`{-~"
# A single space after a word belongs to its run: that is one look-up for both.
_SINGLE = rf"(?: (?![{_SPACE}]))?"
_RUN = re.compile(
    rf"[^{_SPACE}{_PUNCTUATION}]{{1,{LONGEST_RUN}}}{_SINGLE}|[{_PUNCTUATION}]{_SINGLE}|[{_SPACE}]+"
)


class WordStarts(dict[str, tuple[int, ...]]):
    """By run of characters, the starts of its tokens; threads may share one.

    `starts_of` returns those of a run that is not remembered; `most` are.
    """

    def __init__(self, starts_of: Callable[[str], list[int]], most: int = MOST_WORDS) -> None:
        self._starts_of, self._most = starts_of, most

    def find(self, text: str) -> NDArray[np.int32]:
        """The sorted offsets of all tokens of a text."""
        found = array("i")
        place = 0
        for window in windows(text, WORDS_WINDOW):
            runs = _RUN.findall(window)
            places = accumulate(map(len, runs), initial=place)
            found.extend(
                [at + start for at, run in zip(places, runs, strict=False) for start in self[run]]
            )
            place += len(window)
        return np.frombuffer(found, np.int32) if found else np.empty(0, np.int32)

    def __missing__(self, run: str) -> tuple[int, ...]:
        # A word is encoded without the space after it.
        spaced = run[-1] == " " and not run.isspace()
        starts = self[run[:-1]] if spaced else tuple(self._starts_of(run))
        if len(run) <= LONGEST_WORD:
            if len(self) >= self._most:
                self.clear()
            self[run] = starts
        return starts


def windows(text: str, size: int) -> Iterable[str]:
    """Parts of at most `size` characters, cut before white space if possible."""
    start = 0
    while start < len(text):
        end = start + size
        if end < len(text):
            space = max(text.rfind(mark, start + 1, end) for mark in " \n\t")
            end = space if space > 0 else end
        yield text[start:end]
        start = end
