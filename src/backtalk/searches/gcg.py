"""Greedy coordinate gradient (Zou et al. 2023): the gradient of all positions gives the k most promising
tokens of each, B single substitutions are drawn from them, and the best is taken.

As in the authors' code the B candidates are spread evenly over the positions. Differences: as with nanoGCG's
buffer several starts are drawn, and the gradient is always taken at the best trigger so far, while the
published loop moves on to a worse one. Candidates that can't be typed never win. With a draft the B
candidates are ranked in bfloat16 and the model scores the best few again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import WeightsModel
from backtalk.searches.climb import Climb
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.trial import FINALISTS, GAIN, Incumbents, Slack, Trial
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

MOST_TOP = 256  # k of the paper: tokens of a position that candidates are drawn from
FURTHER = 1 << 20  # the first number for the seeds of a row's further starts
BUFFER = 4  # starts of a row, of which the best is kept


@dataclass(frozen=True)
class Gcg(Gibbs):
    """Greedy coordinate gradient: words drawn over all positions, the best taken (Zou et al. 2023).

    `top` is B, the candidates of a step, and there are `sweeps` x `length` steps.
    """

    name: ClassVar[str] = "gcg"

    def plan(self, model: WeightsModel) -> list[float]:
        return [1.0] * self.sweeps

    @property
    def at_once(self) -> int:
        return max(1, self.top // max(1, self.length))  # they lie at all positions

    def fitted(self, model: WeightsModel) -> "Gcg":
        return WordSearch.fitted(self, model)  # B may be larger than the vocabulary

    def search_rows(self, trial: Trial) -> list[Found]:
        trial, n = self.prepared(trial, MOST_TOP), self.length
        climb = Climb.of(trial, self.plan(trial.model), self.anneal, lambda: self._begin(trial), self.top)
        rows = climb.rows
        while climb.next_sweep():
            for step in range(climb.step, n):
                active = climb.active()
                if not len(active):
                    break
                batch, numbers = rows.select(active), (climb.swept[active] * n + step).tolist()
                seeds = [[trial.seeds[row], at] for row, at in zip(active.tolist(), numbers, strict=True)]
                slack = climb.slack(active, step)
                _take_best(trial, batch, *self._draw(trial, batch, seeds, step, slack), slack)
                batch.done |= batch.loss <= 0
                if self.stop_at_hit:
                    batch.done |= trial.met(batch)
                rows.put(active, batch)
                climb.step = step + 1
                if step < n - 1 and climb.stops(climb.step / n):
                    return climb.found()
            climb.end_sweep(GAIN, patient=True)
            if climb.stops():
                break
        return climb.found()

    def _begin(self, trial: Trial) -> Incumbents:
        """The best of a few starts of each row."""
        several = max(1, min(BUFFER, self.most_candidates))
        more = [FURTHER + start for start in range(1, several)]
        own = [one for seed in trial.seeds for one in (seed, *(draw_seed(seed, number) for number in more))]
        targets = trial.targets.repeat_interleave(several, dim=0)
        every = trial.begin(trial.starts(self.length, own), targets, several)
        best = every.loss.view(-1, several).argmin(1)
        return every.select(torch.arange(len(best), device=best.device) * several + best)

    def _draw(
        self, trial: Trial, rows: Incumbents, seeds: Sequence[Sequence[int]], step: int, slack: Slack
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The positions, words and losses (rows, B) of a step's candidates, scored by the model or its draft.
        Each row has seeds of its own."""
        n, width = self.length, self.top
        shares = [width // n + ((p - step * width) % n < width % n) for p in range(n)]
        at = [position for position in range(n) if shares[position]]
        top = trial.promising(rows, at)  # (rows, positions, k)
        chances = np.stack([np.random.default_rng(seed).random(top.shape[1:]) for seed in seeds])
        order = torch.from_numpy(chances).to(top.device).argsort(dim=2)
        rows.candidates += width * ~rows.done
        positions, words, losses = [], [], []
        for place, position in enumerate(at):
            drawn = top[:, place].gather(1, order[:, place, : shares[position]])  # (rows, share)
            positions.append(torch.full_like(drawn, position))
            words.append(drawn)
            losses.append(trial.attempt(trial.draft or trial.model, rows, position, drawn, slack).loss)
        return torch.cat(positions, 1), torch.cat(words, 1), torch.cat(losses, 1)


def _take_best(
    trial: Trial, rows: Incumbents, positions: Tensor, words: Tensor, losses: Tensor, slack: Slack
) -> None:
    """Each row takes its best candidate that can be typed, if that is better."""
    triggers = rows.substituted(positions, words)
    if trial.draft is None:
        losses = trial.without_untypeable(triggers, losses, trial.bound(rows, slack))
    several = min(FINALISTS if trial.draft else 1, losses.shape[1])
    least, places = losses.topk(several, 1, False)
    checked = trial.check_typing(triggers, places) if trial.draft else None
    finalists = triggers(places).flatten(0, 1)  # (rows * several, n)
    found = trial.score(finalists, rows.targets.repeat_interleave(several, dim=0), several)
    real = found.loss.view_as(places).masked_fill(least.isinf(), torch.inf)
    least, best = (checked(real) if checked else real).min(1)
    chosen = torch.arange(len(best), device=best.device) * several + best
    better = least < trial.bound(rows, slack)
    rows.inputs = torch.where(better[:, None], finalists[chosen], rows.inputs)
    rows.take(better, found.map(lambda part: part[chosen]))
