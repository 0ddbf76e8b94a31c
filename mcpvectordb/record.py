"""What a record is: frozen, keyword-only data.

A dataclass in all that is visible (`dataclasses.fields` and `replace` work on it), but its methods
are written once, here, where a dataclass has them generated and compiled for each class anew: with
as many records as there are, that would be a good part of the time that the library takes to be
imported.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record:
    """Inherit from it and name the fields, as in a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, **values: Any) -> None:
        if values.keys() != self.__dataclass_fields__.keys():
            values = _complete(type(self), values)
        self.__dict__.update(values)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _complete(record: type[Record], given: dict[str, Any]) -> dict[str, Any]:
    """The values of all fields in their order, defaults included."""
    fields = record.__dataclass_fields__
    if unknown := given.keys() - fields.keys():
        raise TypeError(
            f"{record.__name__} has no field {', '.join(sorted(unknown))}; there are "
            f"{', '.join(fields)}"
        )
    values = {
        name: given[name] if name in given else _default(each) for name, each in fields.items()
    }
    if missing := [name for name, value in values.items() if value is MISSING]:
        raise TypeError(f"{record.__name__} needs {', '.join(missing)}")
    return values


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _compared(record: Any) -> tuple[Any, ...]:
    return tuple(
        record.__dict__[name] for name, each in record.__dataclass_fields__.items() if each.compare
    )
