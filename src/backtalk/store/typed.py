"""The border for stored values: JSON becomes typed values here, once, and what does not fit its annotations
is a ValueError. A record may come from another process, another version or another hand."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from backtalk.errors import InputError

Record = TypeVar("Record")
DEEPEST = 100
"""Levels of nesting; what is written here has six."""
MOST_BYTES = 20_000_000
"""A summary that is larger is none of ours."""
# A link could lead to any file of this machine, and opening a pipe would wait for its writer.
_PLAINLY = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def read_record(kind: type[Record], values: Any, exact: bool = False) -> Record:
    """An object of a dataclass from what `dataclasses.asdict` made of one. A key that is missing or mistyped
    is a ValueError; keys that the class does not have are passed over, unless it has to be `exact`."""
    if not isinstance(values, dict):
        raise ValueError(f"a {kind.__name__} is not an object")
    known: Any = kind
    hints = _hints(known)
    if missing := [name for name in _needed(known) if name not in values]:
        raise ValueError(f"{missing[0]!r} is missing")
    if exact and (odd := sorted(values.keys() - hints.keys())):
        raise ValueError(f"{odd[0]!r} is unknown")
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
    """The object in a JSON file of a model's folder, checked against a TypedDict where one is given; one
    sentence where it is missing, damaged or mistyped."""
    try:
        value = _parse(path.read_bytes())
        return value if kind is None else read_values(kind, value)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; is {path.parent} the folder of a finished model?") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} can't be read: {' '.join(reason.split())}") from None


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a plain file of a folder from elsewhere holds. FileNotFoundError where there is none; InputError
    for links, pipes, devices and for files that are larger than `most` bytes."""
    try:
        handle = os.open(path, _PLAINLY)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise InputError(f"{path} can't be read: {why}; put the file itself there") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} can't be read: it is no plain file; put a file there")
        if found.st_size > most:
            raise InputError(f"{path} is larger than {most:,} bytes: backtalk did not write it")
        return file.read(most)


def read_plain(path: Path) -> dict[str, Any]:
    """The JSON object that a plain file holds; see `read_file`."""
    try:
        return _parse(read_file(path))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); bring back a copy") from None


def read_stored(kind: type[Record], path: Path) -> Record:
    """The record that a plain file holds as JSON; see `read_file`."""
    try:
        return read_record(kind, read_plain(path))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); bring back a copy") from None


def read_part(kind: type[Record], values: Any) -> Record | None:
    """A record, or None where the values do not fit: for a page that shows what can be read."""
    try:
        return read_record(kind, values)
    except ValueError:
        return None


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON object: {str(error).splitlines()[0][:80]}") from None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    _refuse_depth(value)
    return value


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
    named = kind if hasattr(kind, "_fields") else None
    if named or origin is tuple:
        inner = tuple(_hints(named).values()) if named else inner
        if not isinstance(value, list) or len(value) != len(inner):
            raise ValueError(f"a list of {len(inner)} was expected")
        read = [_read(of, one) for of, one in zip(inner, value, strict=True)]
        return named(*read) if named else tuple(read)
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
