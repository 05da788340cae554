"""Utterances to ask a black box, so that a generator has pairs to learn from.

The paper asks 160,000 Twitter posts. Here they come from a file, from the chitchat-dataset package if it is
installed, or from the 1,000 shipped pairs.
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
    """Distinct utterances, in the order in which they are asked."""

    texts: tuple[str, ...]
    source: str
    """Where they come from, for the report."""

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self.texts).encode("utf-8", "replace")).hexdigest()


def read_utterances(path: str, seed: int) -> Utterances:
    """The utterances of a file (one a line, or a corpus), by default of chitchat; shuffled by the seed."""
    found: Sequence[str]
    if path and Path(path).is_file() and detect_format(path) == "lines":
        source, found = path, [line for _, line in read_lines(Path(path)) if line.strip()]
    elif path:
        source, found = path, _turns(path, "auto")
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


def _turns(source: str, format: str) -> list[str]:
    return [turn.text for dialogue in read_corpus(source, format).dialogues for turn in dialogue]
