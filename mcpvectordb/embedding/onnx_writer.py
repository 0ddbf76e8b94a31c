"""Write ONNX files: a protobuf message of nodes and constants, encoded by hand.

Of protobuf only three kinds of fields are needed: whole numbers, float32 and length-prefixed bytes.
The package `onnx` would bring protobuf and 60 MB for them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT, INT32, INT64 = 1, 6, 7
_KINDS = {"float32": FLOAT, "uint8": 2, "int8": 3, "int64": INT64, "float16": 10}
_IR_VERSION, _OPSET = 9, 17
_CONTRIB = "com.microsoft"  # operators that ONNX Runtime has beside the standard


class OnnxGraph:
    """A graph while it is put together; values are known by name."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def constant(self, values: NDArray[Any]) -> str:
        """A value that is part of the file."""
        name = f"constant_{len(self._constants)}"
        sizes = ((1, size) for size in values.shape)
        kind = _KINDS[values.dtype.name]
        self._constants.append(_message(*sizes, (2, kind), (8, name), (9, values.tobytes())))
        return name

    def apply(self, operator: str, *inputs: str, **options: float) -> str:
        """What an operator of the standard makes of values."""
        return self._node(operator, inputs, 1, "", options)[0]

    def contrib(self, operator: str, *inputs: str, **options: float) -> str:
        """What one of ONNX Runtime's own operators makes of values."""
        return self._node(operator, inputs, 1, _CONTRIB, options)[0]

    def split(self, values: str, parts: int) -> list[str]:
        """Values in so many equal parts of their last dimension."""
        return self._node("Split", (values,), parts, "", {"axis": -1})

    def file(
        self, inputs: dict[str, int], outputs: dict[str, str], shape: tuple[str, ...] = ()
    ) -> bytes:
        """The content of an ONNX file.

        Inputs [batch, tokens] have types, outputs are values under another name, each of the
        dimensions that `shape` names.
        """
        for name, value in outputs.items():
            self._nodes.append(_node("Identity", (value,), [name], "", {}))
        graph = _message(
            *((1, each) for each in self._nodes),
            (2, "graph"),
            *((5, each) for each in self._constants),
            *((11, _value(name, kind, ("batch", "tokens"))) for name, kind in inputs.items()),
            *((12, _value(name, FLOAT, shape)) for name in outputs),
        )
        operators = _message((1, ""), (2, _OPSET)), _message((1, _CONTRIB), (2, 1))
        return _message((1, _IR_VERSION), (7, graph), *((8, each) for each in operators))

    def _node(
        self,
        operator: str,
        inputs: tuple[str, ...],
        outputs: int,
        domain: str,
        options: dict[str, float],
    ) -> list[str]:
        names = [f"{operator}_{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(_node(operator, inputs, names, domain, options))
        return names


def _node(
    operator: str,
    inputs: tuple[str, ...],
    outputs: list[str],
    domain: str,
    options: dict[str, float],
) -> bytes:
    return _message(
        *((1, each) for each in inputs),
        *((2, each) for each in outputs),
        (4, operator),
        *((5, _attribute(name, value)) for name, value in options.items()),
        (7, domain),
    )


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, int):
        return _message((1, name), (3, value), (20, 2))
    return _message((1, name), (2, value), (20, 1))


def _value(name: str, kind: int, shape: tuple[str, ...]) -> bytes:
    dimensions = [(1, _message((2, each))) for each in shape]
    return _message((1, name), (2, _message((1, _message((1, kind), (2, _message(*dimensions)))))))


def _message(*fields: tuple[int, float | str | bytes]) -> bytes:
    """A protobuf message of numbered fields."""
    return b"".join(_field(number, value) for number, value in fields)


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
