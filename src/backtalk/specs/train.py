"""The settings of `backtalk train`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from backtalk.specs import (
    Above,
    Count,
    Dropped,
    Mark,
    Range,
    Seconds,
    Seed,
    Share,
    Steps,
    Weight,
    Width,
    Words,
)


@dataclass(frozen=True)
class TrainSpec:
    """What `backtalk train` does."""

    data: str = "chitchat"
    """The corpus: `chitchat`, or a file or folder."""
    format: str = "auto"
    """How to read the corpus; `backtalk list formats` shows the choices."""
    test: str = ""
    """A file of its own for testing; otherwise a part of the corpus is set aside."""
    test_format: str = "auto"
    """How to read the test file."""
    out: Annotated[str, Mark.FREE] = "model"
    """The folder to write; the same command again goes on where it stopped."""
    name: Annotated[str, Mark.FREE] = ""
    """What the card calls the model; the folder's name if empty."""
    licence: Annotated[str, Mark.FREE] = ""
    """The licence for the card; the corpus' own if empty."""
    arch: Literal["attention", "last-h", "lm"] = "attention"
    """How the decoder sees the input; lm trains a language model alone."""
    decoder_start: Literal["encoder", "zero"] = "encoder"
    """Where the decoder starts: from the encoder's last state, or from zeros."""
    input_end: Literal["none", "eos"] = "none"
    """What is read after the input's last word: nothing, or the end-of-turn token."""
    pads: Literal["masked", "word"] = "masked"
    """Padding leaves no trace (masked) or is read like a word, as in the papers."""
    recipe: str = "he-glass-2019"
    """How text becomes words: he-glass-2019 keeps punctuation, he-glass-2020 removes it; characters."""
    vocabulary: Annotated[int, Range(1, 1_000_000)] = 10000
    """The K most frequent words."""
    max_input: Words = 15
    """Words of the input that are read."""
    max_output: Words = 20
    """Tokens of the reply, the end-of-turn token included."""
    embedding: Width = 300
    """Size of the word embeddings."""
    hidden: Width = 600
    """Size of the LSTM layers."""
    layers: Annotated[int, Range(1, 64)] = 1
    """Number of LSTM layers."""
    dropout: Dropped = 0.0
    """Dropout on embeddings, between layers and before the output layer."""
    shared_embedding: bool = False
    """One embedding for encoder and decoder."""
    embedding_start: Weight = 0.1
    """Word vectors start between minus this and this; on a small corpus 1 learns to read sooner."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW with warm-up and cosine decay, or the papers' SGD with halving."""
    lr: Weight = 0.0
    """Starting learning rate; 0 takes 0.001 for adamw and 1.0 for sgd."""
    momentum: Dropped = 0.0
    """With sgd: momentum."""
    weight_decay: Weight = 0.0
    """With sgd: weight decay."""
    halve_after: Count = 10
    """With sgd: epochs before the rate is lowered at every epoch."""
    lr_factor: Share = 0.5
    """With sgd: what it is then multiplied by."""
    mean_over: Literal["sentences", "words"] = "sentences"
    """The loss is summed over a sentence's words and averaged over sentences, or averaged over words."""
    batch: Annotated[int, Range(1, 65_536)] = 64
    """Pairs an update."""
    epochs: Steps = 20
    """The most passes over the training pairs."""
    patience: Count = 3
    """Stop after this many epochs without a better validation perplexity; 0 never stops early."""
    clip: Above = 5.0
    """Largest norm of the gradient."""
    seed: Seed = 1
    """Fixes the split, the starting weights, the order and the dropout."""
    limit: Count = 0
    """Use only this many dialogues; 0 uses all."""
    language_model: Annotated[bool, Mark.FREE] = True
    """Train the language model too, into OUT/lm; audits use it to keep triggers likely."""
    half: Annotated[bool, Mark.FREE] = False
    """Store the weights in 16 bits."""
    checkpoint_s: Annotated[Seconds, Mark.FREE] = 60.0
    """Seconds between checkpoints."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""
