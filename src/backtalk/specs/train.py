"""The settings of `backtalk train` and `backtalk train-scorer`."""

from dataclasses import dataclass
from typing import Annotated, Literal

import backtalk.specs as specs


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
    out: Annotated[str, specs.Mark.FREE] = "model"
    """Output folder; the same command resumes."""
    name: Annotated[str, specs.Mark.FREE] = ""
    """Name on the card [the folder's]."""
    licence: Annotated[str, specs.Mark.FREE] = ""
    """Licence on the card [the corpus']."""
    arch: Literal["attention", "last-h", "lm"] = "attention"
    """Attention, or the encoder's last state; lm trains a language model alone."""
    recipe: str = "he-glass-2019"
    """Tokenisation; see `backtalk list recipes`."""
    vocabulary: Annotated[int, specs.Range(1, 1_000_000)] = 10000
    """Size of the vocabulary: the most frequent words."""
    max_input: specs.Words = 15
    """Words of an input, at most."""
    max_output: specs.Words = 20
    """Tokens of a reply, at most, with the end-of-turn token."""
    embedding: specs.Width = 300
    """Size of the word embeddings."""
    hidden: specs.Width = 600
    """Size of the LSTM layers."""
    layers: Annotated[int, specs.Range(1, 64)] = 1
    """Number of LSTM layers."""
    dropout: specs.Dropped = 0.0
    """Dropout on embeddings, between layers and before the output layer."""
    shared_embedding: bool = False
    """Share one embedding between encoder and decoder."""
    embedding_start: specs.Weight = 0.1
    """Initial embeddings are uniform between minus and plus this; 1 is faster on a small corpus."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW with warm-up and cosine decay, or the papers' SGD with step decay."""
    lr: specs.Weight = 0.0
    """Initial learning rate; 0: 0.001 for adamw, 1.0 for sgd."""
    momentum: specs.Dropped = 0.0
    """sgd: momentum."""
    weight_decay: specs.Weight = 0.0
    """sgd: weight decay."""
    halve_after: specs.Count = 10
    """sgd: epochs before the rate decays at every epoch."""
    lr_factor: specs.Share = 0.5
    """sgd: factor of the decay."""
    mean_over: Literal["sentences", "words"] = "sentences"
    """The loss is a mean over sentences, each a sum over its words, or a mean over words."""
    batch: Annotated[int, specs.Range(1, 65_536)] = 64
    """Batch size."""
    epochs: specs.Steps = 20
    """Epochs, at most."""
    patience: specs.Count = 3
    """Epochs without a better validation perplexity before it stops; 0: never."""
    clip: specs.Above = 5.0
    """Gradients are clipped to this norm."""
    seed: specs.Seed = 1
    """Seed of the split, the weights, the order and the dropout."""
    limit: specs.Count = 0
    """Dialogues, at most; 0: all."""
    language_model: Annotated[bool, specs.Mark.FREE] = True
    """Also train a language model, into OUT/lm; audits use it to find likely triggers."""
    half: Annotated[bool, specs.Mark.FREE] = False
    """Store weights in 16 bits."""
    checkpoint_s: Annotated[specs.Seconds, specs.Mark.FREE] = 60.0
    """Seconds between checkpoints."""
    device: Annotated[str, specs.Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""

    def network(self) -> dict[str, bool]:
        """Further settings of the network, for specs that extend this one."""
        return {}


@dataclass(frozen=True)
class ScorerSpec:
    family: Literal["words", "letters", "encoder"] = "words"
    """A network on words, a linear model on letters, or low-rank changes of MiniLM."""
    data: str = ""
    """Folder with train.jsonl and valid.jsonl, lines {"text": "...", "toxic": true}; may have "weight" and
    "source". calm.jsonl (harmless chat) limits false alarms; test-NAME.jsonl is measured for the card, and
    about.json is copied to it."""
    out: str = "scorer"
    """Output folder."""
    name: str = ""
    """Name on the card [the folder's]."""
    vocabulary: Annotated[int, specs.Range(1, 1_000_000)] = 24000
    """words: size of the vocabulary."""
    vector: Annotated[int, specs.Range(1, 1024)] = 96
    """words: size of a word vector."""
    buckets: Annotated[int, specs.Range(1, 1 << 18)] = 12288
    """words: hash buckets for pieces of words; letters always has 2^20."""
    hidden: specs.Width = 128
    """words: size of the hidden layer."""
    dropout: specs.Dropped = 0.3
    """words: dropout."""
    wide: specs.Weight = 1.0
    """words: weight of a bag of words added to the network; 0: none."""
    epochs: specs.Steps = 3
    """Epochs."""
    lr: specs.Weight = 0.003
    """Highest learning rate."""
    seed: specs.Seed = 1
    """Seed of the weights and the order."""
    device: str = "auto"
    """encoder: auto, cpu, cuda or cuda:N."""
