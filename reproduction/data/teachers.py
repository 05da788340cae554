"""`python -m reproduction teach`: second opinions on the training texts of the encoder scorer (distillation).

Labels are noisy, and a small change of the weights learns the noise too. Here all weights of the network are
trained on all but one part of the texts, once for each part, and each part gets its chances from the network
that has not seen it. `backtalk train-scorer` then learns from the mean of label and chance.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.data.labelled import LabelledText, read_labelled
from backtalk.output_file import write_whole
from backtalk.scorers.card import rate_texts
from backtalk.scorers.toxicity.encoder import (
    EncoderConfig,
    EncoderScorer,
    Rows,
    ToxicityEncoder,
    base_parts,
)
from backtalk.terminal import say
from backtalk.training.encoder import descend, lend_contexts, read_lesson

PARTS = 4
EPOCHS, LR, SEED = 3.0, 1e-4, 1
KEEP = 0.02  # a chance is at least this far from 0 and 1


def fold_of(rows: Sequence[LabelledText], parts: int = PARTS) -> NDArray[np.int64]:
    """(rows,): the part of each text."""
    return np.random.default_rng(SEED).permutation(len(rows)) % parts


def train_teacher(
    rows: Sequence[LabelledText],
    device: torch.device,
    report: Callable[[int, int, float], None],
    epochs: float = EPOCHS,
    lr: float = LR,
    seed: int = SEED,
) -> EncoderScorer:
    """A scorer with all its weights trained, of the same shape as the encoder."""
    torch.manual_seed(seed)
    network, tokenizer, _ = base_parts()
    encoder, reader = ToxicityEncoder(network).to(device), Rows(tokenizer, EncoderConfig())
    descend(encoder, read_lesson(rows, reader, device), report, epochs, lr, seed)
    return EncoderScorer("teacher", encoder, reader, "", device)


def teach(folder: Path, out: Path, device: torch.device) -> None:
    """Writes the texts of a folder to another one, those of training with contexts and chances."""
    rows = lend_contexts(read_labelled(folder / "train.jsonl"), np.random.default_rng(SEED))
    chances, part = np.zeros(len(rows)), fold_of(rows)
    for held in range(PARTS):
        seen = [row for row, own in zip(rows, part, strict=True) if own != held]
        unseen = [row for row, own in zip(rows, part, strict=True) if own == held]
        say(f"teacher {held + 1} of {PARTS}: {len(seen):,} texts")
        scorer = train_teacher(seen, device, lambda *_: None, seed=SEED + held)
        chances[part == held] = rate_texts(scorer, unseen)
    write_taught(folder, out, rows, chances)


def write_taught(folder: Path, out: Path, rows: Sequence[LabelledText], chances: NDArray[Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.name != "train.jsonl":
            write_whole(out / path.name, [path.read_text("utf-8")])
    kept = np.clip(chances, KEEP, 1 - KEEP).round(4).tolist()
    taught = (row._replace(chance=chance) for row, chance in zip(rows, kept, strict=True))
    write_whole(out / "train.jsonl", (json.dumps(row._asdict()) + "\n" for row in taught))
