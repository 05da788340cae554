"""The objective of a search: eq. 3 to 6 of He & Glass 2019.

L(x; y) = -(1/m) sum_t [word t falls short] log P(y_t | y_<t, x) + lambda_in [x falls short] R(x)

For a greedy hit a word falls short while it is not the argmax (eq. 5); for a sample hit, while its
log-probability is below T_out - log k (eq. 6). R(x) = -(1/n) sum_t log P_LM(x_t | x_<t) (eq. 4) is off while
the input's average is above T_in - log k.

For avg-hits we differ: all words fall short until their average is above T_out - log k, since an avg-hit asks
for no more. The paper aims at the stronger min-hit there too (`as_published`). With eq. 7 of He & Glass 2020
(`whole`) every word and the input count to the end.

For `chance-P` the loss is a sum, L(x; y) = -log P(y | x) - lambda_in [x falls short] log P_LM(x), so that a
search makes the whole sentence as likely as it can, also beyond P.

With `fluency` the second term is fluency / n (-log P_LM(x) + REPEAT r(x)), however likely x is. r counts the
tokens that occurred before (after FLRT, Thompson & Sklar 2024, whose penalties differ in form).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backtalk.hits import Criterion
from backtalk.types import Floor, Thresholds, TokenScores

Targets = Sequence[Sequence[int]]  # the token ids of each row's target
APART = 64.0  # more than any output loss a word: no target token is less likely than e^-64 on average

REPEAT = 5.0  # nats that a repeated token costs with `fluency`, as if it were so much less likely
LONGEST = 1000  # words of a target, for sums


@dataclass(frozen=True)
class Objective:
    """Above the log-probabilities `enough_*` a word, or an input on average, is good enough."""

    greedy: bool  # eq. 5; otherwise eq. 6
    average: bool  # sample-avg: the average word decides; otherwise the least likely (sample-min)
    enough_out: float
    enough_in: float | None = None  # None: no language-model term
    lambda_in: float = 1.0
    as_published: bool = False
    """Eq. 6 for avg-hits too, and no language-model gradient once the input is likely."""
    whole: bool = False  # every word and the input count, however likely they are: eq. 7 of He & Glass 2020
    strict: bool = False  # a likely input is never replaced by an unlikely one: `--max-ppl`
    total: bool = False  # the loss is a sum over words; `enough_out` is the log-chance of the whole sentence
    fluency: float = 0.0  # weight of a trigger's log-perplexity and repetition

    @property
    def reads_input(self) -> bool:
        """Whether there is a language-model term."""
        return self.enough_in is not None or self.fluency > 0

    @property
    def by_average(self) -> bool:
        return self.average and not self.as_published and not self.whole

    def short(self, scores: TokenScores, there: Tensor) -> Tensor:
        """Which target words still fall short; `there` is False where a target is padded."""
        if self.whole or self.total:
            return there.expand_as(scores.log_probs)
        if self.greedy:
            met = scores.is_argmax
        elif self.by_average:
            met = (scores.log_probs.sum(-1) / there.sum(-1) > self.enough_out)[..., None]
        else:
            met = scores.log_probs >= self.enough_out
        return ~met & there

    def output_loss(self, scores: TokenScores, there: Tensor) -> Tensor:
        """(..., m) -> (...)"""
        counted = scores.log_probs.masked_fill(~self.short(scores, there), 0.0)
        loss = counted.neg().sum(-1)
        return loss if self.total else loss / there.sum(-1)

    def input_loss(self, log_probs: Tensor, ids: Tensor | None = None) -> Tensor:
        """The language-model term: (..., n) -> (...). With `fluency` it needs the ids of the triggers."""
        mean = log_probs.mean(-1)
        if self.fluency and ids is not None:
            return self.fluency * (REPEAT * repeated(ids) - mean)
        assert self.enough_in is not None
        apart = (APART * (LONGEST if self.total else 1) if self.strict else 0.0) * (mean <= self.enough_in)
        loss = apart - self.lambda_in * (log_probs.sum(-1) if self.total else mean)
        return loss if self.whole else loss.masked_fill(mean > self.enough_in, 0.0)

    def output_weights(self, scores: TokenScores, there: Tensor) -> Tensor:
        """-dL/d log P(y_t): the weights of the gradient in eq. 8."""
        weights = self.short(scores, there).to(scores.log_probs.dtype)
        return weights if self.total else weights / there.sum(-1, keepdim=True)

    def input_weights(self, log_probs: Tensor) -> Tensor:
        """-dL/d log P_LM(x_t). Unless `as_published` it stays on when the input is likely, which keeps most
        candidates likely."""
        if self.fluency:
            return torch.full_like(log_probs, self.fluency / log_probs.shape[-1])
        assert self.enough_in is not None
        on = log_probs.mean(-1, keepdim=True) <= self.enough_in
        if self.whole or not self.as_published:
            on = torch.ones_like(on)
        each = self.lambda_in if self.total else self.lambda_in / log_probs.shape[-1]
        return (on * each).to(log_probs.dtype).expand_as(log_probs)

    def floor(self, loss: Tensor, input_losses: Tensor | float, lengths: Tensor) -> Floor:
        """Below it a candidate can't beat `loss` (rows,), given its input's loss (rows, candidates)."""
        least_mean = input_losses - loss[:, None]  # (rows, candidates) or (rows, 1)
        if self.by_average:
            # Above the threshold the output loss is 0: never drop candidates that reach it, unless their
            # input alone costs too much.
            capped = least_mean.clamp(max=self.enough_out)
            least_mean = torch.where(least_mean >= 0, math.inf, capped)
        if self.total:
            return Floor(least_mean)
        counts_below = math.inf if self.greedy or self.by_average or self.whole else self.enough_out
        return Floor(least_mean * lengths[:, None], counts_below, spare_argmax=self.greedy and not self.whole)

    def met(self, scores: TokenScores, there: Tensor, log_probs: Tensor | None) -> Tensor:
        """(rows,): whether the hit is reached."""
        if self.greedy:
            hit = (scores.is_argmax | ~there).all(-1)
        elif self.total:
            hit = scores.log_probs.sum(-1) >= self.enough_out
        elif self.average:
            hit = scores.log_probs.sum(-1) / there.sum(-1) > self.enough_out
        else:
            hit = scores.log_probs.masked_fill(~there, 0.0).amin(-1) > self.enough_out
        if self.enough_in is None or log_probs is None:
            return hit
        return hit & (log_probs.mean(-1) > self.enough_in)


def repeated(ids: Tensor) -> Tensor:
    """(..., n) -> (...): the share of the tokens that occurred before."""
    ordered = ids.sort(-1).values
    return (ordered[..., 1:] == ordered[..., :-1]).sum(-1) / ids.shape[-1]


def objective_for(
    criterion: Criterion,
    thresholds: Thresholds,
    lambda_in: float = 1.0,
    as_published: bool = False,
    whole: bool = False,
) -> Objective:
    """The objective of a search that aims at the criterion."""
    slack, into = math.log(criterion.k), None
    if criterion.likely:
        assert thresholds.into is not None, "an io-hit needs T_in"
        into = thresholds.into - slack
    if criterion.kind == "chance":
        return Objective(False, False, math.log(criterion.threshold), into, lambda_in, total=True)
    by = criterion.kind == "greedy", criterion.kind == "sample-avg"
    return Objective(*by, thresholds.out - slack, into, lambda_in, as_published, whole)
