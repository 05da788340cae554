"""The border for stored values: JSON becomes typed values here, once, and what does not fit its annotations
is a ValueError. A record may come from another process, another version or another hand."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from backtalk.errors import InputError

Record = TypeVar("Record")
DEEPEST = 100
"""Levels of nesting; what is written here has six."""


def read_record(kind: type[Record], values: Any) -> Record:
    """An object of a dataclass from what `dataclasses.asdict` made of one. Keys that it does not have are
    passed over; a key that it needs, and one that is mistyped, is a ValueError."""
    if not isinstance(values, dict):
        raise ValueError(f"a {kind.__name__} is not an object")
    known: Any = kind
    hints = _hints(known)
    if missing := [name for name in _needed(known) if name not in values]:
        raise ValueError(f"{missing[0]!r} is missing")
    return kind(**{name: _named(name, hints[name], values[name]) for name in _names(known) if name in values})


def read_values(kind: Any, values: Any) -> dict[str, Any]:
    """A dictionary checked against a TypedDict: its keys have their types, and the needed ones are there.
    Keys that it does not name stay as they are."""
    if not isinstance(values, dict):
        raise ValueError("an object was expected")
    if missing := sorted(kind.__required_keys__ - values.keys()):
        raise ValueError(f"{missing[0]!r} is missing")
    hints = _hints(kind)
    return {key: _named(key, hints[key], value) if key in hints else value for key, value in values.items()}


def read_json(path: Path, kind: Any = None) -> dict[str, Any]:
    """The object in a JSON file, checked against a TypedDict where one is given; one sentence where it is
    missing, damaged or mistyped."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it should hold a JSON object")
        _refuse_depth(value)
        return value if kind is None else read_values(kind, value)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; is {path.parent} a finished folder?") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} can't be read: {' '.join(reason.split())}") from None


def _named(name: str, kind: Any, value: Any) -> Any:
    try:
        return _read(kind, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        if value is None and NoneType in inner:
            return None
        return _read(next(one for one in inner if one is not NoneType), value)
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"one of {', '.join(map(str, inner))} was expected")
        return value
    if is_typeddict(kind):
        return read_values(kind, value)
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
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number is too large") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{kind.__name__} was expected")
    return value


def _refuse_depth(value: Any, level: int = 0) -> None:
    """Deeper values than are ever written would end a later reader's recursion."""
    if level > DEEPEST:
        raise ValueError("it is nested too deeply")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _refuse_depth(one, level + 1)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _needed(kind: Any) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING and field.init
    )
