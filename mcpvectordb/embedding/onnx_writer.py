"""Write ONNX files: a protobuf message of nodes and tensors, encoded by hand.

Of protobuf only three kinds of fields are needed: whole numbers, float32 and length-prefixed bytes.
The package `onnx` would bring protobuf and 60 MB for them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT, INT32, INT64 = 1, 6, 7
_KINDS = {"float32": FLOAT, "uint8": 2, "int8": 3, "int64": INT64, "float16": 10}
_IR_VERSION, OPSET = 9, 17
CONTRIB = "com.microsoft"  # operators of ONNX Runtime itself

Attribute = int | float | str | Sequence[int]


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """A protobuf message of numbered fields."""
    return b"".join(_field(number, value) for number, value in fields)


def tensor(name: str, values: NDArray[Any]) -> bytes:
    """A constant of a graph."""
    return message(
        *((1, size) for size in values.shape),
        (2, _KINDS[values.dtype.name]),
        (8, name),
        (9, values.tobytes()),
    )


def node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, Attribute],
    domain: str = "",
) -> bytes:
    """An operator with the names of its inputs and outputs; "" stands for an input left out."""
    return message(
        *((1, each) for each in inputs),
        *((2, each) for each in outputs),
        (4, operator),
        *((5, _attribute(name, value)) for name, value in attributes.items()),
        (7, domain),
    )


def value(name: str, kind: int, shape: Sequence[str]) -> bytes:
    """An input or output of a graph; its shape are the names of its dimensions."""
    dimensions = [(1, message((2, each))) for each in shape]
    return message((1, name), (2, message((1, message((1, kind), (2, message(*dimensions)))))))


def model(
    nodes: Sequence[bytes],
    tensors: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
) -> bytes:
    """The content of an ONNX file."""
    graph = message(
        *((1, each) for each in nodes),
        (2, "graph"),
        *((5, each) for each in tensors),
        *((11, each) for each in inputs),
        *((12, each) for each in outputs),
    )
    operators = [message((1, ""), (2, OPSET)), message((1, CONTRIB), (2, 1))]
    return message((1, _IR_VERSION), (7, graph), *((8, each) for each in operators))


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        return message((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return message((1, name), (2, value), (20, 1))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, 3))
    return message((1, name), *((8, each) for each in value), (20, 7))


def _field(number: int, value: float | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first; a negative number has the bits of its uint64."""
    number &= (1 << 64) - 1
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
