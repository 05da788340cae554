"""Trains the encoder scorer: low-rank changes and two heads, by cross-entropy.

Some texts without a context get a random other one, so that the head for replies knows plain abuse too. At
the end each head's logits are scaled and shifted to fit validation texts (Platt 1999), so that 0.5 means 0.5.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.labelled import LabelledText
from backtalk.errors import InputError
from backtalk.protocols import Scorer
from backtalk.scorers.card import rate_texts
from backtalk.scorers.toxicity.encoder import (
    EncoderConfig,
    LowRank,
    Rows,
    ToxicityEncoder,
    Windows,
    adapted,
    to_device,
)
from backtalk.training.toxicity import batches_of_length

BATCH = 64
LENT = 0.25  # share of the texts without a context that get another one's
WEIGHT_DECAY = 0.01
Report = Callable[[int, int, float], None]
"""Gets the step, the number of steps and the mean loss since the last report."""


class Lesson(NamedTuple):
    windows: Windows  # the first one of each text
    labels: Tensor
    weights: Tensor


def train_encoder(
    rows: Sequence[LabelledText],
    encoder: ToxicityEncoder,
    reader: Rows,
    config: EncoderConfig,
    report: Report,
    epochs: float,
    lr: float,
    seed: int,
    device: torch.device,
) -> dict[str, Tensor]:
    """The trained tensors, as `ToxicityEncoder.merge` takes them."""
    torch.manual_seed(seed)
    lesson = read_lesson(lend_contexts(rows, np.random.default_rng(seed)), reader, device)
    encoder.network.requires_grad_(False)
    changes = {name: LowRank(layer, config) for name, layer in adapted(encoder.network).items()}
    for name, change in changes.items():
        encoder.network.set_submodule(name, change)
    descend(encoder.to(device), lesson, report, epochs, lr, seed)
    found = {f"{name}.{part}": getattr(one, part) for name, one in changes.items() for part in ("up", "down")}
    found |= dict(encoder.heads.named_parameters())
    return {name: value.detach().cpu() for name, value in found.items()}


def descend(
    encoder: ToxicityEncoder, lesson: Lesson, report: Report, epochs: float, lr: float, seed: int
) -> None:
    """Trains the encoder's parameters that want a gradient; the rate rises for a tenth of the steps and falls
    to zero. A GPU multiplies in bfloat16, and the host never waits for it between two reports."""
    encoder.train()
    windows, labels, weights = lesson
    learnt = [part for part in encoder.parameters() if part.requires_grad]
    on_gpu = windows.device.type == "cuda"
    optimizer = torch.optim.AdamW(learnt, weight_decay=WEIGHT_DECAY, fused=on_gpu)
    whole = -(-len(windows) // BATCH)
    steps = max(1, round(epochs * whole))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1)
    batches: list[NDArray[np.int64]] = []
    lost, since = torch.zeros((), device=windows.device), 0
    for step in range(steps):
        draw = np.random.default_rng([seed, step // whole])
        batches = batches or batches_of_length(windows.lengths, BATCH, draw)
        batch = batches.pop()
        with torch.autocast(windows.device.type, torch.bfloat16, enabled=on_gpu):
            logits = encoder(*windows.batch(batch))
        own, after = (to_device(part, windows.device) for part in (batch, windows.after[batch]))
        given = torch.where(after, logits[:, 1], logits[:, 0]).float()
        loss = F.binary_cross_entropy_with_logits(given, labels[own], weights[own])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        schedule.step()
        lost, since = lost + loss.detach(), since + 1
        if since == 100 or step == steps - 1:
            if not math.isfinite(mean := float(lost) / since):
                raise InputError(f"the loss is {mean} by step {step + 1}; lower --lr")
            report(step + 1, steps, mean)
            lost, since = torch.zeros_like(lost), 0


def lend_contexts(rows: Sequence[LabelledText], draw: np.random.Generator) -> list[LabelledText]:
    """Some of the texts without a context get one of those that others have."""
    known = [row.context for row in rows if row.context]
    kept, lent = list(rows), draw.random(len(rows)) < LENT
    for place, row in enumerate(rows):
        if lent[place] and known and not row.context:
            kept[place] = row._replace(context=known[int(draw.integers(len(known)))])
    return kept


def read_lesson(rows: Sequence[LabelledText], reader: Rows, device: torch.device) -> Lesson:
    """The first window of each text that has a token, with its label and weight."""
    windows = reader.read([row.text for row in rows], [row.context for row in rows], device)
    windows = windows.some(np.unique(windows.owners, return_index=True)[1])
    kept = [rows[owner] for owner in windows.owners.tolist()]
    parts = [row.toxic for row in kept], [row.weight for row in kept]
    columns = (np.array(part, dtype=np.float32) for part in parts)
    return Lesson(windows, *(to_device(column, device) for column in columns))


def fit_heads(tensors: dict[str, Tensor], scorer: Scorer, valid: Sequence[LabelledText]) -> None:
    """Scales and shifts each head so that its scores are chances on its validation texts. The second head's
    are those with a context; without any it gets what the first one got."""
    fits = [(1.0, 0.0), (1.0, 0.0)]
    for head, rows in enumerate(([x for x in valid if not x.context], [x for x in valid if x.context])):
        toxic = np.array([row.toxic for row in rows], dtype=bool)
        if 0 < toxic.sum() < len(rows):
            chances = np.clip(rate_texts(scorer, rows).astype(float), 1e-7, 1 - 1e-7)
            fits[head] = platt(np.log(chances / (1 - chances)), toxic)
        elif head:
            fits[head] = fits[0]
    scales, shifts = (torch.tensor(part, dtype=torch.float32) for part in zip(*fits, strict=True))
    tensors["weight"] = tensors["weight"] * scales[:, None]
    tensors["bias"] = tensors["bias"] * scales + shifts


def platt(logits: NDArray[np.float64], toxic: NDArray[np.bool_]) -> tuple[float, float]:
    """The scale and the shift with which logits fit the labels best, by Newton's method."""
    scale, shift = 1.0, 0.0
    for _ in range(100):
        chance = 1 / (1 + np.exp(-np.clip(scale * logits + shift, -30, 30)))
        spread = chance * (1 - chance) + 1e-9
        slope = np.array([((chance - toxic) * logits).sum(), (chance - toxic).sum()])
        bend = np.array(
            [[(spread * logits**2).sum(), (spread * logits).sum()], [(spread * logits).sum(), spread.sum()]]
        )
        step = np.linalg.solve(bend + 1e-6 * np.eye(2), slope)
        scale, shift = scale - float(step[0]), shift - float(step[1])
        if np.abs(step).max() < 1e-8:
            break
    return scale, shift
