"""Files of a folder that may come from elsewhere, and records back from their plain values: each class is
rebuilt by its own annotations, and what does not fit them is an error. So a record can be kept as JSON and
shown later, by another process."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from backtalk.errors import InputError

Record = TypeVar("Record")
MOST_BYTES = 20_000_000
"""A summary that is larger is none of ours."""
# A link could lead to any file of this machine, and opening a pipe would wait for its writer.
_PLAINLY = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a plain file holds. FileNotFoundError where there is none; InputError for links, pipes, devices
    and for files that are larger than `most` bytes."""
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


def read_values(path: Path) -> dict[str, Any]:
    """The JSON object that a plain file holds; see `read_file`."""
    try:
        values = json.loads(read_file(path))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it holds no JSON object; bring back a copy")
    return values


def read_stored(kind: type[Record], path: Path) -> Record:
    """The record that a plain file holds as JSON; see `read_file`."""
    try:
        return read_record(kind, read_values(path))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); bring back a copy") from None


def read_part(kind: type[Record], values: Any) -> Record | None:
    """A record, or None where the values do not fit: for a page that shows what can be read."""
    try:
        return read_record(kind, values)
    except ValueError:
        return None


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
    if origin is tuple:
        if not isinstance(value, list) or len(value) != len(inner):
            raise ValueError(f"a list of {len(inner)} was expected")
        return tuple(_read(of, one) for of, one in zip(inner, value, strict=True))
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
            raise ValueError("a number is too large") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{kind.__name__} was expected")
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
