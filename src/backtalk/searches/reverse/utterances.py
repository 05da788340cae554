"""Utterances that people say: what a black box is asked, so that a generator has pairs to learn from.

The paper asks 160,000 posts of Twitter. Here they are a file's, those of the chitchat-dataset package where
it is installed, or the 1,000 pairs that ship.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from backtalk.data.corpora import detect_format, read_corpus, reference_pairs
from backtalk.data.textfiles import read_lines
from backtalk.errors import InputError

MOST_WORDS = 20
"""Longer utterances are left out: a crafted input is short."""


@dataclass(frozen=True)
class Utterances:
    """Different utterances, in the order in which they are asked."""

    texts: tuple[str, ...]
    source: str
    """Where they come from, for the report."""

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self.texts).encode("utf-8", "replace")).hexdigest()


def read_utterances(path: str, seed: int) -> Utterances:
    """Of a file (one a line, or a corpus) or, with "", of chitchat; shuffled by the seed."""
    if path:
        source, found = path, _of_file(path)
    elif find_spec("chitchat_dataset"):
        source, found = "the chitchat-dataset package", _turns("chitchat", "chitchat-first")
    else:
        source, found = "the shipped chitchat pairs", [text for pair in reference_pairs("") for text in pair]
    texts = sorted({" ".join(text.split()) for text in found})
    texts = [text for text in texts if 0 < len(text.split()) <= MOST_WORDS and any(map(str.isalnum, text))]
    if not texts:
        raise InputError(f"{path} holds no utterance of at most {MOST_WORDS} words; give other --utterances")
    random.Random(f"utterances/{seed}").shuffle(texts)
    return Utterances(tuple(texts), source)


def _of_file(path: str) -> Sequence[str]:
    if Path(path).is_file() and detect_format(path) == "lines":
        return [line for _, line in read_lines(Path(path)) if line.strip()]
    return _turns(path, "auto")


def _turns(source: str, format: str) -> list[str]:
    return [turn.text for dialogue in read_corpus(source, format).dialogues for turn in dialogue]
