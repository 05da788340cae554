"""Pre-training of the Reverse Dialogue Generator of Liu et al. 2019, section 5.1.2: maximum likelihood on
(reply, input) pairs that were gathered by asking the black box.

The defaults fit two processor cores and some thousand pairs. The paper's are two layers of 1024, 60,000
words, SGD at 20 with decay 0.25 where validation does not improve, batches of 16 and clipping at 0.25: all
of them settings. Beside the paper's last state the decoder may attend to the target's words, which it
learns from fewer pairs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from backtalk.data.pairs import encode_pairs
from backtalk.data.tokenise import Recipe, get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError
from backtalk.models.device import product_precision
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import load_generator, save_generator
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.training.mle import MLEConfig, Progress, train

LEAST_PAIRS = 20
"""Fewer distinct pairs than this teach nothing, and leave none for validation."""


@dataclass(frozen=True)
class PretrainConfig:
    """Sizes of the generator, and how it is trained."""

    layers: int = 1
    """Layers of the encoder and of the decoder; the paper has 2."""
    hidden: int = 256
    """Size of a layer; the paper's is 1024."""
    embedding: int = 128
    """Size of a word's vector; the paper's is 300."""
    dropout: float = 0.2
    """The paper's is 0.1."""
    attention: bool = True
    """The decoder looks back at the words of the target; the paper's reads the encoder's last state alone."""
    vocabulary: int = 60_000
    """Most words."""
    least: int = 2
    """Words that occur less often are unknown ones."""
    recipe: str = "he-glass-2019"
    """How text becomes words."""
    max_target: int = 20
    """Words of a target that are read."""
    max_words: int = 15
    """Words of an input that is written."""
    optimizer: str = "adamw"
    """adamw, or sgd as the paper."""
    lr: float = 3e-3
    """Learning rate; the paper's SGD starts from 20."""
    decay: float = 0.25
    """Of sgd: what the rate is multiplied by after an epoch without a better validation loss."""
    batch: int = 32
    """Pairs of a mini-batch; the paper's are 16."""
    epochs: int = 8
    """Times that all pairs are seen, at most."""
    patience: int = 2
    """Stop after this many epochs without a better validation loss; 0: never."""
    clip: float = 5.0
    """Largest norm of a gradient; the paper's is 0.25."""
    valid: float = 0.05
    """Share of the pairs that is kept for validation."""
    seed: int = 1
    checkpoint_s: float = 30.0
    """Seconds between two checkpoints."""


def pretrain(
    pairs: Sequence[tuple[str, str]],
    config: PretrainConfig,
    folder: Path,
    device: torch.device,
    report: Callable[[Progress], None] | None = None,
) -> LocalModel:
    """A generator trained on (reply, input) pairs, in `folder`; from its checkpoint where there is one, and
    loaded where it is finished. The same pairs and settings give the same weights on a processor."""
    recipe = get_recipe(config.recipe)
    distinct = [pair for pair in dict.fromkeys(pairs) if all(map(recipe.words, pair))]
    if len(distinct) < LEAST_PAIRS:
        raise InputError(
            f"{len(distinct)} pairs of a reply and its input are too few to learn from; "
            f"give at least {LEAST_PAIRS} utterances that the model answers in words"
        )
    settings = {key: value for key, value in asdict(config).items() if key != "checkpoint_s"}
    digest = hashlib.sha256(repr(distinct).encode()).hexdigest()
    facts = {"settings": settings, "pairs_sha256": digest}
    if (folder / "card.json").is_file():
        generator = load_generator(folder, str(device))
        if any(generator.card.get(key) != value for key, value in facts.items()):
            raise InputError(
                f"{folder} holds a generator of other pairs or settings; use --fresh to start anew or --out "
                "for another folder"
            )
        return generator
    learnt, held = _split(distinct, config)
    vocabulary = _vocabulary(learnt, recipe, config)
    network = _fresh_network(len(vocabulary), config).to(device)
    train_arrays = encode_pairs(learnt, recipe, vocabulary, config.max_target, config.max_words)
    valid_arrays = encode_pairs(held, recipe, vocabulary, config.max_target, config.max_words)
    checkpoint = folder / "checkpoint.safetensors"
    same = ("optimizer", "lr", "batch", "epochs", "patience", "clip", "seed", "checkpoint_s")
    how = MLEConfig(plateau=config.decay, **{name: getattr(config, name) for name in same})
    # tf32 products while training on a GPU; what is written afterwards is in float32 again.
    fast = product_precision("high") if device.type == "cuda" else nullcontext()
    with torch.random.fork_rng(), fast:
        for progress in train(network, train_arrays, valid_arrays, how, checkpoint, facts, device):
            if report is not None:
                report(progress)
    network.requires_grad_(False)
    lengths = (config.max_target, config.max_words)
    generator = LocalModel("reverse", network, vocabulary, recipe, "", None, {}, *lengths)
    save_generator(generator, folder, facts)
    checkpoint.unlink(missing_ok=True)
    return generator


def _split(
    pairs: Sequence[tuple[str, str]], config: PretrainConfig
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    order = np.random.default_rng([config.seed, len(pairs)]).permutation(len(pairs)).tolist()
    held = max(1, round(config.valid * len(pairs)))
    return [pairs[i] for i in order[held:]], [pairs[i] for i in order[:held]]


def _vocabulary(pairs: Sequence[tuple[str, str]], recipe: Recipe, config: PretrainConfig) -> Vocabulary:
    counts = Counter(word for pair in pairs for text in pair for word in recipe.words(text))
    return Vocabulary.from_counts({w: n for w, n in counts.items() if n >= config.least}, config.vocabulary)


def _fresh_network(words: int, config: PretrainConfig) -> Seq2Seq:
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        network = Seq2Seq(
            Seq2SeqConfig(
                words, config.embedding, config.hidden, config.layers, config.dropout, config.attention
            )
        )
        # Not the usual 0.1: with small vectors it learns to write long before it learns to read.
        for part in (network.embed_input, network.embed_output):
            nn.init.uniform_(part.weight, -1.0, 1.0)
    return network
