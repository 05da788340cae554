"""Negative preference optimisation (Zhang et al. 2024): descend -(2 / beta) log sigmoid(-beta r), where r is
log(P / P_baseline) of the target.

Its gradient is that of negative training times 2 sigmoid(beta r): one at the baseline, fading as a target
falls below what the baseline gave it. As beta tends to 0 it is the negative update.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from backtalk.training.rules import HitWords


def npo(hits: HitWords) -> Tensor:
    assert hits.baseline is not None
    ratio = hits.sentence(hits.log_probs - hits.baseline)  # r, (hits,)
    return -(2.0 / hits.beta) * F.logsigmoid(-hits.beta * ratio).mean()
