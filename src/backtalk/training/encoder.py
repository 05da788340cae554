"""Trains the encoder scorer: low-rank changes and two heads, by cross-entropy.

Some texts without a context get a random other one, so that the head for replies knows plain abuse too. At
the end each head's logits are scaled and shifted to fit validation texts (Platt 1999), so that 0.5 means 0.5.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.labelled import LabelledText
from backtalk.protocols import Scorer
from backtalk.scorers.card import rate_texts
from backtalk.scorers.toxicity.encoder import (
    EncoderConfig,
    LowRank,
    Rows,
    ToxicityEncoder,
    Window,
    adapted,
    length_of,
)
from backtalk.training.toxicity import batches_of_length

BATCH = 64
LENT = 0.25  # share of the texts without a context that get another one's
WEIGHT_DECAY = 0.01


def train_encoder(
    rows: Sequence[LabelledText],
    encoder: ToxicityEncoder,
    reader: Rows,
    config: EncoderConfig,
    report: Callable[[int, int, float], None],
    epochs: float,
    lr: float,
    seed: int,
    device: torch.device,
) -> dict[str, Tensor]:
    """The trained tensors, as `ToxicityEncoder.merge` takes them; `report` gets the step, the number of steps
    and the mean loss since the last report."""
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    read, labels, weights = _read(rows, reader, draw)
    encoder.network.requires_grad_(False)
    changes = {name: LowRank(layer, config) for name, layer in adapted(encoder.network).items()}
    for name, change in changes.items():
        encoder.network.set_submodule(name, change)
    encoder.to(device).train()
    learnt = [part for part in encoder.parameters() if part.requires_grad]
    optimizer = torch.optim.AdamW(learnt, weight_decay=WEIGHT_DECAY)
    lengths = np.array([length_of(row) for row in read])
    whole = -(-len(read) // BATCH)
    steps = max(1, round(epochs * whole))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1)
    batches: list[NDArray[np.int64]] = []
    lost, since = torch.zeros((), device=device), 0
    for step in range(steps):
        batches = batches or batches_of_length(lengths, BATCH, np.random.default_rng([seed, step // whole]))
        batch = batches.pop()
        own = [read[place] for place in batch]
        logits = encoder(*(part.to(device) for part in reader.batch(own)))
        after = torch.tensor([bool(before) for before, _ in own], device=device)
        given = torch.where(after, logits[:, 1], logits[:, 0])
        wanted, weight = (torch.from_numpy(part[batch]).to(device) for part in (labels, weights))
        loss = F.binary_cross_entropy_with_logits(given, wanted, weight)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        schedule.step()
        lost, since = lost + loss.detach(), since + 1
        if since == 100 or step == steps - 1:
            report(step + 1, steps, float(lost) / since)
            lost, since = torch.zeros_like(lost), 0
    found = {f"{name}.{part}": getattr(one, part) for name, one in changes.items() for part in ("up", "down")}
    found |= dict(encoder.heads.named_parameters())
    return {name: value.detach().cpu() for name, value in found.items()}


def _read(
    rows: Sequence[LabelledText], reader: Rows, draw: np.random.Generator
) -> tuple[list[Window], NDArray[np.float32], NDArray[np.float32]]:
    """The first window of each text, with its label and weight."""
    contexts = [row.context for row in rows]
    known = [context for context in contexts if context]
    for place, lent in enumerate(draw.random(len(rows)) < LENT):
        if lent and known and not contexts[place]:
            contexts[place] = known[int(draw.integers(len(known)))]
    read, owners = reader.read([row.text for row in rows], contexts)
    firsts = np.unique(owners, return_index=True)[1].tolist()
    kept = [owners[place] for place in firsts]
    labels = np.array([rows[owner].toxic for owner in kept], dtype=np.float32)
    weights = np.array([rows[owner].weight for owner in kept], dtype=np.float32)
    return [read[place] for place in firsts], labels, weights


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
