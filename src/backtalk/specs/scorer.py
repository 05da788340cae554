"""The settings of `backtalk train-scorer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from backtalk.specs import Count, Dropped, Range, Seed, Steps, Weight, Width


@dataclass(frozen=True)
class ScorerSpec:
    family: Literal["words", "letters"] = "words"
    """A network on words (Jigsaw, ParaDetox), or a linear model on letters (Davidson, Civil Comments)."""
    data: str = ""
    """Folder of labelled text; recipes/toxicity.yaml lists its files."""
    out: str = "scorer"
    """Output folder."""
    name: str = ""
    """Name on the card [the folder's]."""
    vocabulary: Annotated[int, Range(1, 1_000_000)] = 24000
    """words: size of the vocabulary."""
    vector: Annotated[int, Range(1, 1024)] = 96
    """words: size of a word vector."""
    buckets: Annotated[int, Range(1, 1 << 18)] = 12288
    """words: hash buckets for pieces of words; letters always has 2^20."""
    hidden: Width = 128
    """words: size of the hidden layer."""
    dropout: Dropped = 0.3
    """words: dropout."""
    contrast: Annotated[int, Range(0, 1_000_000)] = 30000
    """words: generated sentences, half of them abuse, half the same words used harmlessly."""
    paradetox: Count = 12000
    """words: rows of ParaDetox."""
    rude_chat: Count = 8000
    """words: chitchat messages with a rude word, labelled harmless."""
    wide: Weight = 1.0
    """words: weight of a bag of words added to the network; 0: none."""
    chat: Count = 15000
    """Messages labelled harmless: of chitchat for words (needs backtalk[data]), of Ubuntu for letters."""
    epochs: Steps = 3
    """Epochs."""
    lr: Weight = 0.003
    """Highest learning rate."""
    seed: Seed = 1
    """Seed of the splits, the generated sentences, the weights and the order."""
