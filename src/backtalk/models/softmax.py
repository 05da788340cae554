"""The output layer as a search needs it: the log-probability of one given word, and whether it is the argmax.

The output layer is most of the work (FACTS: about three quarters at 30,000 words). Rows are taken a few at a
time so that the logits stay in the processor's cache and are never stored whole.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CHUNK_FLOATS_CPU = 1 << 22
"""Logits held at once on a processor: 16 MB; measured best of 4 to 32 MB."""
CHUNK_FLOATS_CUDA = 1 << 28


def chunk_rows(columns: int, device: torch.device) -> int:
    floats = CHUNK_FLOATS_CUDA if device.type == "cuda" else CHUNK_FLOATS_CPU
    return max(16, floats // columns)


def target_scores(hidden: Tensor, output: nn.Linear, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`hidden` (rows, H), `targets` (rows,) -> log P(target) and "is the argmax", each (rows,)."""
    rows = hidden.shape[0]
    log_probs = hidden.new_empty(rows)
    is_argmax = torch.empty(rows, dtype=torch.bool, device=hidden.device)
    step = chunk_rows(output.out_features, hidden.device)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        logits = output(hidden[part])  # (chunk, V)
        chosen = logits.gather(1, targets[part, None]).squeeze(1)
        largest = logits.amax(dim=1)
        is_argmax[part] = chosen >= largest
        log_total = logits.sub_(largest[:, None]).exp_().sum(dim=1).log_()
        log_probs[part] = chosen - largest - log_total
    return log_probs, is_argmax
