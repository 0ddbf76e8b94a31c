"""The vectors in the files of a Chroma segment: an HNSW index of chroma-hnswlib, read as data.

header.bin              version (int32 = 1), then uint64 each: offset of level 0, most elements,
                        elements, bytes per element, offset of the label, offset of the vector; …
data_level0.bin         the elements: links, float32 values, label (uint64)
length.bin              the length of each vector as float32, in a cosine index: there the values
                        are those of the vector divided by its length
index_metadata.pickle   which id has which label

A pickle is a program that could do anything when it is loaded. This one is never loaded: `plain`
interprets the few operations that make dicts, texts and numbers, and refuses all others.
"""

from __future__ import annotations

import pickletools
import struct
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER = struct.Struct("<i6Q")
_MARK = object()


class HnswVectors:
    """The vectors of one segment; `problems` says why there are none, if that is unexpected."""

    def __init__(self, folder: Path, cosine: bool) -> None:
        self._folder, self._cosine = folder, cosine
        self.problems: list[str] = []
        self._labels: dict[str, int] = {}
        self._places: dict[int, int] = {}
        if not (folder / "index_metadata.pickle").is_file():
            return  # nothing was written to files yet
        try:
            self._open()
        except (OSError, ValueError, struct.error) as error:
            self._labels = {}
            self.problems.append(f"the HNSW files of a segment are of an unknown layout: {error}")

    def get(self, id: str) -> bytes | None:
        """The float32 values of the vector of an item; None if there is none."""

        place = self._places.get(self._labels.get(id, -1))
        if place is None:
            return None
        row: NDArray[np.float32] = self._elements[place, self._start : self._end].view("<f4")
        if self._cosine and place < len(self._lengths):
            row = row * self._lengths[place]
        return row.astype("<f4").tobytes()

    def _open(self) -> None:
        import numpy as np

        with (self._folder / "header.bin").open("rb") as file:
            header = file.read(_HEADER.size)
        version, _, most, count, size, self._end, self._start = _HEADER.unpack(header)
        width = self._end - self._start
        if (
            version != 1
            or not 0 <= count <= most
            or not 0 < width <= 4 * 65_536
            or width % 4
            or self._end + 8 > size
        ):
            raise ValueError(f"header {header[:52].hex()}")
        if not count:
            return
        self._elements = np.memmap(
            self._folder / "data_level0.bin", np.uint8, "r", shape=(count, size)
        )
        labels = np.ascontiguousarray(self._elements[:, self._end : self._end + 8]).view("<u8")
        self._places = {label: place for place, label in enumerate(labels[:, 0].tolist())}
        self._labels = _labels((self._folder / "index_metadata.pickle").read_bytes())

    @cached_property
    def _lengths(self) -> NDArray[np.float32]:
        import numpy as np

        try:
            raw = (self._folder / "length.bin").read_bytes()
        except OSError:
            return np.empty(0, np.float32)
        return np.frombuffer(raw[: len(raw) // 4 * 4], "<f4")


def _labels(pickled: bytes) -> dict[str, int]:
    """The label of each id; ValueError if the pickle has none."""
    found = plain(pickled)
    labels = found.get("id_to_label") if isinstance(found, dict) else None
    if not isinstance(labels, dict):
        raise ValueError("index_metadata.pickle has no labels")
    return {
        id: label for id, label in labels.items() if isinstance(id, str) and isinstance(label, int)
    }


def plain(pickled: bytes) -> Any:
    """The value of a pickle of dicts, lists, texts and numbers; ValueError for any other.

    An instance of a class is its dict: what the class is, and could do, does not matter here.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for code, argument, _ in pickletools.genops(pickled):
        name = code.name
        if name == "STOP":
            return stack[-1] if stack else None
        try:
            _step(name, argument, stack, memo)
        except (IndexError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a pickle of plain data ({name})") from error
    raise ValueError("a pickle without an end")


_VALUES = frozenset(
    "BINUNICODE SHORT_BINUNICODE BINUNICODE8 UNICODE BININT BININT1 BININT2 INT LONG LONG1 LONG4 "
    "BINFLOAT FLOAT SHORT_BINBYTES BINBYTES".split()
)
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}


def _step(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """One operation of a pickle."""
    match name:
        case "PROTO" | "FRAME":
            pass
        case "EMPTY_DICT":
            stack.append({})
        case "EMPTY_LIST" | "EMPTY_TUPLE":
            stack.append([])
        case "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        case "SETITEMS":
            pairs = _since_mark(stack)
            stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
        case "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        case "APPENDS":
            values = _since_mark(stack)
            stack[-1].extend(values)
        case "TUPLE":
            stack.append(_since_mark(stack))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            count = int(name[-1])
            stack[-count:] = [stack[-count:]]
        case "MEMOIZE":
            memo[len(memo)] = stack[-1]
        case "BINPUT" | "LONG_BINPUT" | "PUT":
            memo[int(argument)] = stack[-1]
        case "BINGET" | "LONG_BINGET" | "GET":
            stack.append(memo[int(argument)])
        case "GLOBAL":
            stack.append(None)  # a class, of which only the instance's dict will be taken
        case "STACK_GLOBAL":
            stack[-2:] = [None]
        case "NEWOBJ" | "REDUCE":
            stack[-2:] = [{}]
        case "BUILD":
            state = stack.pop()
            stack[-1].update(state)
        case _ if name in _VALUES:
            stack.append(argument)
        case _ if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        case _:
            raise ValueError(f"index_metadata.pickle has the operation {name}")


def _since_mark(stack: list[Any]) -> list[Any]:
    """Take what was put on the stack since the last mark, and the mark."""
    values: list[Any] = []
    while (value := stack.pop()) is not _MARK:
        values.append(value)
    return values[::-1]
