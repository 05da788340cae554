"""Lines of a text file, plain or gzipped, and the JSON in them, with one clear sentence for each way in which
they can be bad."""

from __future__ import annotations

import gzip
import json
import math
import sys
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from backtalk.errors import InputError, shown


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end) of a UTF-8 file; gzip is recognised by content."""
    if not path.exists():
        raise InputError(f"there is no file {path}; check the path")
    if path.is_dir():
        raise InputError(f"{path} is a folder where a file is expected")
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (zlib.error, EOFError, gzip.BadGzipFile):
        raise InputError(f"{path} is a damaged gzip file; fetch it again") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if not data.strip():
        raise InputError(f"{path} is empty")
    # Not str.splitlines: text may hold the other line separators of Unicode.
    for number, line in enumerate(
        data.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n"), start=1
    ):
        if b"\0" in line:
            raise InputError(f"{path}, line {number}: this is a binary file, not text")
        try:
            yield number, line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: not UTF-8; convert the file to UTF-8") from None


def stream_lines(path: Path | None) -> Iterator[tuple[int, str]]:
    """`read_lines` without holding the file, for one of any size; None is standard input."""
    name = "standard input" if path is None else str(path)
    if path is not None and not path.exists():
        raise InputError(f"there is no file {path}; check the path")
    if path is not None and path.is_dir():
        raise InputError(f"{path} is a folder where a file is expected")
    number = 0
    try:
        with nullcontext(sys.stdin.buffer) if path is None else path.open("rb") as raw:
            assert isinstance(raw, BufferedReader)
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            for number, line in enumerate(gzip.GzipFile(fileobj=raw) if zipped else raw, start=1):
                if b"\0" in line:
                    raise InputError(f"{name}, line {number}: this is a binary file, not text")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name}, line {number}: not UTF-8; convert the file to UTF-8") from None
    except (zlib.error, EOFError, gzip.BadGzipFile):
        raise InputError(f"{name} is a damaged gzip file; fetch it again") from None


def read_rows(path: Path, columns: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a file of tab-separated columns without a header; blank lines are skipped."""
    for number, line in read_lines(path):
        if line.strip():
            fields = line.split("\t")
            if len(fields) != columns:
                raise InputError(
                    f"{path}, line {number}: {len(fields)} columns between tabs instead of {columns} ({what})"
                )
            yield number, fields


class NotJson(InputError):
    """The text is no JSON at all, unlike JSON that says something twice."""


def parse_json(text: str | bytes, where: str, sentence: str = "not JSON") -> Any:
    """The value of JSON that a person may have written; if it is none, the error is `where` and `sentence`.

    A key that an object has twice is refused: which of its values was meant can't be known. So are NaN and
    numbers that are too large, which JSON does not have.
    """
    try:
        read = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(
            read, object_pairs_hook=_each_key_once, parse_constant=_no_constant, parse_float=_finite
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (ValueError, RecursionError):
        raise NotJson(f"{where}: {sentence}") from None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"the key {shown(key)} is given twice; leave one out")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is no number of JSON; leave it out")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise InputError(f"the number {shown(digits)} is too large")
    return value
