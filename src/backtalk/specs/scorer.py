"""The settings of `backtalk train-scorer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from backtalk.specs import Count, Dropped, Range, Seed, Steps, Weight, Width


@dataclass(frozen=True)
class ScorerSpec:
    """What `backtalk train-scorer` does."""

    family: Literal["words", "letters"] = "words"
    """words: a network, on Jigsaw and ParaDetox; letters: a linear model, on Davidson and Civil Comments."""
    data: str = ""
    """The folder of labelled text; recipes/toxicity.yaml says what should be in it."""
    out: str = "scorer"
    """The folder to write."""
    name: str = ""
    """What the card calls the scorer; the folder's name if empty."""
    vocabulary: Annotated[int, Range(1, 1_000_000)] = 24000
    """With words: words that have a vector."""
    vector: Annotated[int, Range(1, 1024)] = 96
    """With words: numbers of a vector."""
    buckets: Annotated[int, Range(1, 1 << 18)] = 12288
    """With words: rows for pieces of words. A linear model has 2^20 for runs of letters."""
    hidden: Width = 128
    """With words: width of the network."""
    dropout: Dropped = 0.3
    """With words: dropout of the network."""
    contrast: Annotated[int, Range(0, 1_000_000)] = 30000
    """With words: sentences made from frames, half of them abuse, half the same words where nobody is."""
    paradetox: Count = 12000
    """With words: rows of ParaDetox."""
    rude_chat: Count = 8000
    """With words: further messages of chitchat that hold a rude word, taken as harmless."""
    wide: Weight = 1.0
    """With words: the share of a bag of words' weights that is added to the network; 0 does without."""
    chat: Count = 15000
    """Messages taken as harmless: of chitchat with words (needs backtalk[data]), of Ubuntu's channel with
    letters; 0 does without."""
    epochs: Steps = 3
    """Passes over the training texts."""
    lr: Weight = 0.003
    """The highest learning rate."""
    seed: Seed = 1
    """Fixes the splits, the frames' filling, the starting weights and the order."""
