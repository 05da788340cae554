"""Word vectors: a GloVe or word2vec text file, or the token vectors of wordllama.

A text file is scanned once for where each word stands, and a row is read when its word is first used: files
of a million words open in seconds and take little memory. wordllama has a table for subwords; a word is the
mean of its subwords. Only its two data files are read, never its code, and nothing is fetched.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from backtalk.data.textfiles import LONGEST_LINE, refuse_special, unpacked
from backtalk.errors import InputError, short_reason

FloatArray = NDArray[np.float32]


class VectorSource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """A hash of the vectors, on which rewards depend."""

    def vector(self, word: str) -> FloatArray | None:
        """(size,), or None for an unknown word."""


class TextVectors:
    """A text file with a word and its numbers per line, separated by blanks; plain or gzipped.

    word2vec has a first line with two counts and a blank at the end of lines. A word may hold blanks itself,
    as some of GloVe's do: the last numbers of a line are the vector. Of equal words the first counts.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.size = path, str(path), 0
        self._data = _contents(path)
        self._places: dict[bytes, tuple[int, int, int]] = {}  # word -> start and end of its numbers, line
        self._index()
        if not self._places:
            raise InputError(f"{path} holds no word vectors; each line should be a word and its numbers")

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._data).hexdigest()

    def vector(self, word: str) -> FloatArray | None:
        found = self._places.get(word.encode("utf-8", "replace"))
        if found is None:
            return None
        start, end, line = found
        try:
            numbers = np.array(self._data[start:end].split(), dtype=np.float64)
        except ValueError:
            numbers = np.array([np.nan])
        if len(numbers) != self.size or not np.isfinite(numbers).all():
            raise InputError(f"{self.path}, line {line}: {self.size} numbers should follow the word")
        return numbers.astype(np.float32)

    def _index(self) -> None:
        data, start, line = self._data, 0, 0
        while start < len(data):
            end = data.find(b"\n", start, start + LONGEST_LINE)
            line += 1
            if end < 0 and len(data) - start > LONGEST_LINE:
                raise InputError(f"{self.path}, line {line}: too long; is it a text file of word vectors?")
            end = len(data) if end < 0 else end
            row = data[start:end].rstrip()
            fields = row.count(b" ")
            if line == 1 and _is_header(row):
                self.size = int(row.split()[1])
            elif row:
                self.size = self.size or fields
                if not self.size or fields < self.size:
                    wanted = self.size or "some"
                    why = f"{fields} numbers after the word instead of {wanted}"
                    raise InputError(f"{self.path}, line {line}: {why}; is it a file of word vectors?")
                word = row.rsplit(b" ", self.size)[0] if fields > self.size else row[: row.index(b" ")]
                self._places.setdefault(word, (start + len(word) + 1, start + len(row), line))
            start = end + 1


class PackageVectors:
    """The vectors that come with wordllama: 256 numbers for each of 32,000 pieces of words."""

    name = "wordllama"

    def __init__(self) -> None:
        folder = package_folder("wordllama")
        if folder is None:
            raise InputError("word vectors need wordllama; pip install it, or name a file with --vectors")
        weights = folder / "weights" / "l2_supercat_256.safetensors"
        pieces = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
        try:
            from tokenizers import Tokenizer

            with safe_open(weights, framework="numpy") as file:
                self._table = file.get_tensor("embedding.weight").astype(np.float32)  # (pieces, size)
            self._pieces = Tokenizer.from_file(str(pieces))
        except ImportError:
            raise InputError("wordllama's vectors need tokenizers; pip install tokenizers") from None
        except Exception as error:  # tokenizers raises a bare one for a file that it can't read
            why = f"wordllama's files can't be read ({short_reason(error)})"
            raise InputError(f"{why}; install it again, or name a file with --vectors") from None
        self.size = int(self._table.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._table.tobytes()).hexdigest()

    def whole_words(self) -> list[str]:
        """The lower-case words of three letters or more that are one piece, the most frequent first."""
        by_id = sorted(self._pieces.get_vocab().items(), key=lambda item: int(item[1]))
        words = (piece.removeprefix("▁") for piece, _ in by_id if piece.startswith("▁"))
        return [word for word in words if re.fullmatch("[a-z]{3,}", word)]

    def vector(self, word: str) -> FloatArray | None:
        ids = self._pieces.encode(word, add_special_tokens=False).ids
        return self._table[ids].mean(axis=0) if ids else None


def package_folder(name: str) -> Path | None:
    """The folder of an installed package, found without running its code."""
    spec = find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _contents(path: Path) -> bytes | mmap.mmap:
    if path.is_dir() or not path.exists():
        raise InputError(f"there is no file of word vectors {path}; check --vectors")
    refuse_special(path)
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0 or file.read(2) == b"\x1f\x8b":
                return unpacked(path)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _is_header(row: bytes) -> bool:
    """Two counts: the words and the numbers of each."""
    fields = row.split()
    counts = len(fields) == 2 and all(field.isdigit() and len(field) < 10 for field in fields)
    return counts and int(fields[1]) > 0
