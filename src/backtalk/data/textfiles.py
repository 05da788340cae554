"""Text files, plain or gzipped; a bad file gives an InputError with the line.

Files are untrusted, so reads are bounded: a small gzip file can unpack to any size.
"""

import gzip
import json
import math
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

from backtalk.errors import InputError, shown

MOST_UNPACKED = 256 << 20
MOST_TIMES = 10
"""A gzip file may unpack to 256 MiB, or to ten times its size; text usually becomes 3 to 5 times as large."""
LONGEST_LINE = 16 << 20
_PIECE = 1 << 20


def unpacked(path: Path) -> bytes:
    """All bytes of a text file, unpacked if its content is gzip."""
    refuse_special(path)
    whole = BytesIO()  # getvalue() does not copy
    with _opened(path) as file:
        while piece := file.read(_PIECE):
            if b"\0" in piece:
                line = whole.getvalue().count(b"\n") + piece.count(b"\n", 0, piece.index(b"\0")) + 1
                raise InputError(f"{path}, line {line}: this is a binary file; give a text file")
            whole.write(piece)
    return whole.getvalue()


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end) of a UTF-8 file, plain or gzipped."""
    whole = unpacked(path)
    if not whole or whole.isspace():
        raise InputError(f"{path} is empty")
    yield from _lines(BytesIO(whole), path)


def stream_lines(path: Path | None) -> Iterator[tuple[int, str]]:
    """`read_lines` of a file of any size, which is not held in memory; None is standard input."""
    with _opened(path) as file:
        yield from _lines(file, path or "standard input")


def _lines(file: BinaryIO, name: Path | str) -> Iterator[tuple[int, str]]:
    # Not str.splitlines: text may hold the other line separators of Unicode.
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"{name}, line {number}: longer than {LONGEST_LINE >> 20} MiB; is it text?")
        if b"\0" in line:
            raise InputError(f"{name}, line {number}: this is a binary file; give a text file")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{name}, line {number}: not UTF-8; convert the file to UTF-8") from None


def refuse_special(path: Path) -> None:
    """Refuses a device, which may have no end, and a pipe, which can be read only once."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a device or a pipe where a file is expected; save it as a file first")


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    name = path or "standard input"
    if path is not None and path.is_dir():
        raise InputError(f"{path} is a folder where a file is expected")
    try:
        with nullcontext(sys.stdin.buffer) if path is None else path.open("rb") as raw:
            assert isinstance(raw, BufferedReader)
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            yield BufferedReader(_Unpacking(raw, name), _PIECE) if zipped else raw
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path") from None
    except (zlib.error, EOFError, gzip.BadGzipFile):
        raise InputError(f"{name} is a damaged gzip file; fetch it again") from None
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None


class _Unpacking(RawIOBase):
    """The content of a gzip file, up to a bound."""

    def __init__(self, packed: BufferedReader, name: Path | str) -> None:
        self._file, self._name = gzip.GzipFile(fileobj=packed), name
        found = os.fstat(packed.fileno())
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        self._most = max(MOST_UNPACKED, MOST_TIMES * size)

    def readable(self) -> bool:
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto(room)
        if self._file.tell() > self._most:
            raise InputError(f"{self._name} unpacks to more than {self._most >> 20:,} MiB; unpack it first")
        return count


def read_rows(path: Path, columns: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a file of tab-separated columns without a header; blank lines are skipped."""
    for number, line in read_lines(path):
        if line.strip():
            fields = line.split("\t")
            if len(fields) != columns:
                found = f"{len(fields)} columns between tabs instead of {columns} ({what})"
                raise InputError(f"{path}, line {number}: {found}")
            yield number, fields


def read_texts(path: Path, mend: str) -> Iterator[tuple[int, Any]]:
    """(line number, text or JSON value) of a file. Lines are JSON if the file's name says so; a line that
    opens with a brace always is. Blank lines are skipped."""
    json_file = path.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))
    for number, line in read_lines(path):
        if line.strip():
            as_json = json_file or line.lstrip().startswith("{")
            yield number, parse_json(line, f"{path}, line {number}", mend) if as_json else line


class NotJson(InputError):
    """The text is not JSON at all, unlike JSON with a repeated key."""


def parse_json(text: str | bytes, where: str, sentence: str = "not JSON") -> Any:
    """The value of JSON that a person may have written; the error is `where` and `sentence`. A repeated key,
    NaN and infinite numbers are refused."""
    try:
        read = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(read, object_pairs_hook=_each_key_once, parse_constant=_finite, parse_float=_finite)
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


def _finite(digits: str) -> float:
    """The value of a number that JSON can hold: neither infinite nor NaN."""
    value = float(digits)
    if not math.isfinite(value):
        raise InputError(f"the number {shown(digits)} is too large, or no number of JSON; leave it out")
    return value
