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
    data: str = "chitchat"
    """Corpus: `chitchat`, or a file or folder."""
    format: str = "auto"
    """Format of the corpus; see `backtalk list formats`."""
    test: str = ""
    """Test file; by default a part of the corpus."""
    test_format: str = "auto"
    """Format of the test file."""
    out: Annotated[str, Mark.FREE] = "model"
    """Output folder; the same command resumes."""
    name: Annotated[str, Mark.FREE] = ""
    """Name on the card [the folder's]."""
    licence: Annotated[str, Mark.FREE] = ""
    """Licence on the card [the corpus']."""
    arch: Literal["attention", "last-h", "lm"] = "attention"
    """Attention, or the encoder's last state; lm trains a language model alone."""
    recipe: str = "he-glass-2019"
    """Tokenisation; see `backtalk list recipes`."""
    vocabulary: Annotated[int, Range(1, 1_000_000)] = 10000
    """Size of the vocabulary: the most frequent words."""
    max_input: Words = 15
    """Words of an input, at most."""
    max_output: Words = 20
    """Tokens of a reply, at most, with the end-of-turn token."""
    embedding: Width = 300
    """Size of the word embeddings."""
    hidden: Width = 600
    """Size of the LSTM layers."""
    layers: Annotated[int, Range(1, 64)] = 1
    """Number of LSTM layers."""
    dropout: Dropped = 0.0
    """Dropout on embeddings, between layers and before the output layer."""
    shared_embedding: bool = False
    """Share one embedding between encoder and decoder."""
    embedding_start: Weight = 0.1
    """Initial embeddings are uniform between minus and plus this; 1 is faster on a small corpus."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW with warm-up and cosine decay, or the papers' SGD with step decay."""
    lr: Weight = 0.0
    """Initial learning rate; 0: 0.001 for adamw, 1.0 for sgd."""
    momentum: Dropped = 0.0
    """sgd: momentum."""
    weight_decay: Weight = 0.0
    """sgd: weight decay."""
    halve_after: Count = 10
    """sgd: epochs before the rate decays at every epoch."""
    lr_factor: Share = 0.5
    """sgd: factor of the decay."""
    mean_over: Literal["sentences", "words"] = "sentences"
    """The loss is a mean over sentences, each a sum over its words, or a mean over words."""
    batch: Annotated[int, Range(1, 65_536)] = 64
    """Batch size."""
    epochs: Steps = 20
    """Epochs, at most."""
    patience: Count = 3
    """Epochs without a better validation perplexity before it stops; 0: never."""
    clip: Above = 5.0
    """Gradients are clipped to this norm."""
    seed: Seed = 1
    """Seed of the split, the weights, the order and the dropout."""
    limit: Count = 0
    """Dialogues, at most; 0: all."""
    language_model: Annotated[bool, Mark.FREE] = True
    """Also train a language model, into OUT/lm; audits use it to find likely triggers."""
    half: Annotated[bool, Mark.FREE] = False
    """Store weights in 16 bits."""
    checkpoint_s: Annotated[Seconds, Mark.FREE] = 60.0
    """Seconds between checkpoints."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""

    def network(self) -> dict[str, bool]:
        """Further settings of the network, for specs that extend this one."""
        return {}
