"""A record back from its plain values: each class is rebuilt by its own annotations, and what does not fit
them is an error. So a record can be kept as JSON and shown later, by another process."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def read_record(kind: type[Record], values: Any) -> Record:
    """An object of the class from what `dataclasses.asdict` made of one. ValueError where it does not fit."""
    if not isinstance(values, dict):
        raise ValueError(f"a {kind.__name__} is not an object")
    known: Any = kind
    hints = _hints(known)
    made = {one: _read(hints[one], values[one]) for one in _names(known) if one in values}
    try:
        return kind(**made)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _read(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        if value is None and NoneType in inner:
            return None
        return _read(next(one for one in inner if one is not NoneType), value)
    if is_dataclass(kind) and isinstance(kind, type):
        return read_record(kind, value)
    if origin is list:
        if not isinstance(value, list):
            raise ValueError("a list was expected")
        return [_read(inner[0], one) for one in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError("an object was expected")
        return {str(key): _read(inner[1], one) for key, one in value.items()}
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{kind.__name__} was expected")
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
