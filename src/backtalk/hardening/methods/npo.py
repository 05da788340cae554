"""Negative preference optimisation (Zhang et al. 2024): descends -(2 / beta) log sigmoid(-beta r), where r is
log(P / P_baseline) of the target.

Its gradient is that of negative training times 2 sigmoid(beta r): one at the baseline, fading as a target
falls below what the baseline gave it. As beta tends to 0 it is the negative update.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from backtalk.specs import Above
from backtalk.training.rules import HitRule, HitWords


@dataclass(frozen=True)
class Npo(HitRule):
    name: ClassVar[str] = "npo"
    needs_baseline: ClassVar[bool] = True

    beta: Above = 0.1
    """How soon the update fades as the target becomes unlikely."""

    def loss(self, hits: HitWords) -> Tensor:
        assert hits.baseline is not None
        ratio = hits.sentence(hits.log_probs - hits.baseline)  # r, (hits,)
        return -(2.0 / self.beta) * F.logsigmoid(-self.beta * ratio).mean()
