"""The text of the study: chitchat (the package) and a slice of Twitter, or the shipped pairs in miniature.

The paper's victim learnt from 2.5 million pairs of Twitter, which are not at hand. Dialogues are split before
anything else: the victim and the pairs of the generator come from one side, every target from the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backtalk.data.corpora import read_corpus, reference_pairs, split
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from reproduction.reverse.paper import GROUPS
from reproduction.runner import write_once
from reproduction.spec import EMBEDDED

SEED = 1
RECIPE = "he-glass-2019"
EMBEDDED_PAIRS = 600
DIALOGUE_PAIRS = 10
"""Embedded pairs in a row that stay together in a split."""


@dataclass(frozen=True)
class Text:
    """A corpus cut in two."""

    corpus: str
    source: str
    """What `read_corpus` takes."""
    format: str
    test: float
    """The share of dialogues that targets are taken from."""
    remark: str

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.source == "chitchat" else (Path(self.source),)

    def sides(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """(input, reply) pairs to train from, and unseen ones."""
        parts = split(read_corpus(self.source, self.format), SEED, valid=0.01, test=self.test)
        return parts.train.pairs() + parts.valid.pairs(), parts.test.pairs()


def open_texts(name: str, folder: Path) -> dict[str, Text]:
    """By corpus, of a folder of data with twitter/, or of the embedded pairs, written out."""
    if name == EMBEDDED:
        path = folder / "data" / "pairs.jsonl"
        write_once(path, pair_lines(reference_pairs("")[:EMBEDDED_PAIRS], DIALOGUE_PAIRS))
        return {"chitchat": Text("chitchat", str(path), "pairs-jsonl", 0.4, "the shipped chitchat pairs")}
    root = Path(name)
    if not root.is_dir():
        raise InputError(f"--data {name} is no folder; name one with twitter/, or `embedded`")
    found = sorted(root.glob("twitter/*.tsv*"))
    slice_ = found[0] if found else root / "twitter" / "pairs.tsv"
    return {
        "chitchat": Text("chitchat", "chitchat", "chitchat-first", 0.1, "chitchat-dataset"),
        "twitter": Text("twitter", str(slice_), "pairs-tsv", 0.3, "a slice of Twitter, 8,703 pairs"),
    }


def pair_lines(pairs: Iterable[tuple[str, str]], together: int = 1) -> list[str]:
    """So many neighbours are one dialogue."""
    return [
        json.dumps({"input": text, "reply": reply, "dialogue": str(place // together)}) + "\n"
        for place, (text, reply) in enumerate(pairs)
        if text.strip() and reply.strip()
    ]


def group_of(text: str) -> str | None:
    """The length of a target as the paper groups it; None outside its groups."""
    words = len(get_recipe(RECIPE).words(text))
    ends = {name: [int(end) for end in name.split("-")] for name in GROUPS}
    return next((name for name, (low, high) in ends.items() if low <= words <= high), None)
