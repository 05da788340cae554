"""Fits a language model to weighted inputs by cross-entropy: argmax sum_i v_i log q(x_i), from the model it
starts from. With v_i = w_i r_i it is the cross-entropy method (Rubinstein 1999) for the risk."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from backtalk.deadline import check_time
from backtalk.models.device import evaluating
from backtalk.risk.language import Array, LSTMInputs
from backtalk.risk.numbers import uniform

ROWS = 32  # of a step
STEPS = 30
RATE = 0.15  # over the square root of the number of hidden units, so that logits change alike


def tuned(
    start: LSTMInputs, ids: Tensor, weights: Array, name: str, seed: int, steps: int = STEPS
) -> LSTMInputs:
    """Rows are drawn by their weight, so that a step's gradient is unbiased."""
    network = deepcopy(start.network).requires_grad_(True)
    model = replace(start, network=network, name=name)
    rate = RATE / network.config.hidden**0.5
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=0.0)
    edges = (weights / weights.sum()).cumsum()
    numbers = uniform(seed, name, 0, steps, ROWS)
    with torch.enable_grad(), evaluating(network):
        for step in range(steps):
            check_time()
            rows = np.searchsorted(edges, numbers[step]).clip(0, len(edges) - 1)
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 - step / steps)
            loss = -model.token_log_probs(ids[torch.from_numpy(rows).to(ids.device)]).sum() / ROWS
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
    network.requires_grad_(False)
    return model
