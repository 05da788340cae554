"""Typed reading of stored JSON, which others may have written: ValueError says how it differs."""

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
DEEPEST = 100  # levels of nesting that are read; files of ours have six
MOST_BYTES = 20_000_000
# A link could lead to any file of this machine, and opening a pipe would wait for its writer.
_PLAINLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def read_record(kind: type[Record], values: Any, exact: bool = False) -> Record:
    """A dataclass from what `dataclasses.asdict` gave. ValueError for a key that is missing or has the wrong
    type and, with `exact`, for a key that the class does not have."""
    record: Any = kind
    _expect(dict, "an object", values)
    hints, read = _hints(record), {}
    if exact and (unknown := sorted(values.keys() - hints.keys())):
        raise ValueError(f"{unknown[0]!r} is unknown")
    for field in fields(record):
        if field.name in values:
            value, hint = values[field.name], hints[field.name]
            read[field.name] = value if type(value) is hint else _named(field.name, hint, value)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{field.name!r} is missing")
    return kind(**read)


def read_values(kind: Any, values: Any) -> dict[str, Any]:
    """A dictionary whose values have the types of a TypedDict; other keys stay as they are."""
    if missing := sorted(kind.__required_keys__ - _expect(dict, "an object", values).keys()):
        raise ValueError(f"{missing[0]!r} is missing")
    hints = _hints(kind)
    return {key: _named(key, hints[key], value) if key in hints else value for key, value in values.items()}


def read_json(path: Path, kind: Any = None) -> dict[str, Any]:
    """The JSON object in a file of a model's folder, checked against a TypedDict if one is given."""
    try:
        value = _parse(path.read_bytes())
        return value if kind is None else read_values(kind, value)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; is {path.parent} the folder of a finished model?") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path} can't be read: {' '.join(reason.split())}") from None


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file; InputError for links, pipes, devices and more than `most` bytes."""
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
    """The JSON object in a regular file; see `read_file`."""
    return read_stored(dict, path)


def read_stored(kind: type[Record], path: Path) -> Record:
    """The record in a regular JSON file, or with `dict` its values; see `read_file`."""
    try:
        values: Any = _parse(read_file(path))
        return values if kind is dict else read_record(kind, values)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); restore a copy") from None


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = _expect(dict, "a JSON object", json.loads(data))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON object: {str(error).splitlines()[0][:80]}") from None
    _check_depth(value)
    return value


def _named(name: str, kind: Any, value: Any) -> Any:
    try:
        return _read(kind, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read(kind: Any, value: Any) -> Any:
    if kind is Any or (type(value) is kind and kind in (str, float, int, bool)):
        return value
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
    if origin is list or inner[1:] == (...,):
        if set(map(type, _expect(list, "a list", value))) <= {inner[0]} & {str, int, float}:
            return origin(value)
        return origin(_read(inner[0], one) for one in value)
    if origin is tuple or hasattr(kind, "_fields"):  # of fixed length, or a NamedTuple
        inner = inner or tuple(_hints(kind).values())
        if len(_expect(list, "a list", value)) != len(inner):
            raise ValueError(f"a list of {len(inner)} was expected")
        read = [_read(of, one) for of, one in zip(inner, value, strict=True)]
        return tuple(read) if origin is tuple else kind(*read)
    if origin is dict:
        if set(map(type, _expect(dict, "an object", value).values())) <= {inner[1]} & {str, int, float}:
            return dict(value)
        return {key: _read(inner[1], one) for key, one in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number is too large") from None
    if kind is int and isinstance(value, bool):
        raise ValueError("int was expected")
    return _expect(kind, kind.__name__, value)


def _expect(kind: type[Record], words: str, value: Any) -> Record:
    if not isinstance(value, kind):
        raise ValueError(f"{words} was expected")
    return value


def _check_depth(value: Any, level: int = 0) -> None:
    """Deeper values would exhaust the recursion of a later reader."""
    if level > DEEPEST:
        raise ValueError("it is nested too deeply")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _check_depth(one, level + 1)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
