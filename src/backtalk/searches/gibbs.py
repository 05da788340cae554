"""gibbs-enum, Algorithm 1 of He & Glass 2019: each word in turn is replaced by the best of the G words that
the gradient points to.

Batched over rows (case x restart) and candidates. Differences from the paper: a row stops on its own when a
sweep does not improve it (the published code stops by the mean of its batch); of candidates that are equal
within 1e-6 the one with the smallest id is taken, so that a row ends alike in any batch; pruning is exact.
Two choices of the objective differ too (objective.py); `as_published` takes the paper's.

With a draft, a copy of the model in bfloat16 ranks all G candidates, and the model itself scores the few best
and decides. Within a sweep nothing is read back from a GPU, except for models whose triggers must be checked
for typing; finished rows leave the batch between sweeps. With a recorder they stay, and positions are
replayed as CUDA graphs (recorded.py).
"""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch

from backtalk.errors import InputError
from backtalk.hits import Criterion
from backtalk.models.device import product_precision
from backtalk.protocols import Drafting, Retokenises, WeightsModel
from backtalk.searches.climb import Climb
from backtalk.searches.objective import Objective
from backtalk.searches.recorded import MOST_CANDIDATES, RecordedTrial, Recorder
from backtalk.searches.trial import GAIN, Trial
from backtalk.searches.weights_search import WordSearch
from backtalk.specs import Share, Weight
from backtalk.types import Found, Thresholds

QUICK_GAIN = 1e-4
"""In tf32 a row stops after a sweep that gains less than this; its noise would keep rows running."""
IMPROVING, LATER = (1.0, 1.0, 0.9, 0.55, 0.25, 0.1), 0.01
"""The shares of 496 rows on chitchat that took each of the first six sweeps. None took a seventh: `LATER`."""


@dataclass(frozen=True)
class Gibbs(WordSearch):
    """gibbs-enum: word by word, the best of the words that the gradient points to (He & Glass 2019)."""

    name: ClassVar[str] = "gibbs"

    stop_at_hit: bool = False
    """Stop a row once its target is hit."""
    anneal: Weight = field(default=0.0, kw_only=True)
    """Use all sweeps and also take worse triggers, at a temperature that falls from this many nats a target
    word to 0 (simulated annealing, Kirkpatrick et al. 1983)."""
    branches: Share = field(default=0.5, kw_only=True)
    """In networks like Llama, the gradient through attention and MLP is multiplied by this number, and the
    gradient through residual connections is not (LSGM, Li et al. 2024); 1 is the plain gradient."""
    fluency: Weight = field(default=0.0, kw_only=True)
    """Weight of a trigger's log-perplexity and of its repeated words in the loss, however likely it is."""
    universal: bool = field(default=False, kw_only=True)
    """Search one trigger for all targets, by the mean of their losses."""
    held_out: Share = field(default=0.25, kw_only=True)
    """With --universal: the share of the targets that the search does not see and the trigger is tried on."""
    prune: bool = True
    """Drop candidates as soon as they can't win; exact."""
    precision: Literal["auto", "float32", "bfloat16", "tf32"] = "auto"
    """float32 for everything; bfloat16 ranks candidates in bfloat16 and decides in float32; tf32 decides in
    tf32, which is faster and more often finds other triggers. auto is bfloat16 on a GPU."""

    def plan(self, model: WeightsModel) -> list[float]:
        """The expected share of rows that still improve in each sweep: as on chitchat, or on language models
        nearly all."""
        steady = self.anneal > 0 or isinstance(model, Retokenises)
        shares = [1.0] * self.sweeps if steady else [*IMPROVING, *[LATER] * self.sweeps]
        return shares[: self.sweeps]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fluency and self.max_ppl:
            raise InputError("--fluency and --max-ppl both keep triggers likely; leave one out")

    def objective(self, criterion: Criterion, thresholds: Thresholds) -> Objective:
        return replace(super().objective(criterion, thresholds), fluency=self.fluency)

    def fitted(self, model: WeightsModel) -> "Gibbs":
        """With no more candidates at a position than there are words."""
        own = super().fitted(model)
        return replace(own, top=min(own.top, int(self.allowed(model).sum())))

    @property
    def recorder(self) -> Recorder | None:
        """Replays positions as CUDA graphs; see RecordingGibbs."""
        return None

    def draft_of(self, model: WeightsModel) -> WeightsModel | None:
        exact = "float32" if model.searchable().is_cuda else "auto"
        return (
            model.draft()
            if self.precision not in {"float32", exact} and isinstance(model, Drafting)
            else None
        )

    def prepared(self, trial: Trial, top: int) -> Trial:
        """With at most `top` candidates at a position. Rows of a universal trigger have the same seed; the
        loss of one row is no bound for the mean, so they are not pruned."""
        return replace(
            trial,
            draft=self.draft_of(trial.model),
            top=min(top, int(trial.allowed.sum())),
            prune=self.prune and not self.universal,
            branches=self.branches,
            group=len(trial.seeds) // len(set(trial.seeds)) if self.universal else 1,
        )

    def search_rows(self, trial: Trial) -> list[Found]:
        trial = self.prepared(trial, self.top)
        top = trial.top
        quick = trial.draft is not None and self.precision == "tf32"
        least = QUICK_GAIN if quick else GAIN
        n, plan = self.length, self.plan(trial.model)
        climb = Climb.of(trial, plan, self.anneal, lambda: trial.start(n), top)
        rows = climb.rows
        way: Trial | RecordedTrial = trial
        few = len(rows.inputs) * top <= MOST_CANDIDATES
        if self.recorder is not None and few and not self.anneal:
            every = torch.arange(len(rows.inputs), device=rows.inputs.device)
            rows = climb.rows = climb.best = rows.select(every)  # own memory each
            way = RecordedTrial(trial, rows, self.recorder)
        left = [n - position + trial.targets.shape[1] for position in range(n)]  # tokens that are read again
        while climb.next_sweep():
            active = climb.active()
            batch = rows.select(active) if way is trial else rows
            # What is stored is always float32 (scorers/likelihood).
            with product_precision("high") if quick else nullcontext():
                for position in range(climb.step, n):
                    way.improve(batch, position, climb.slack(active, position))
                    if self.stop_at_hit:
                        batch.done |= trial.met(batch)
                        if not rows.inputs.is_cuda and batch is not rows:  # finished rows leave at once
                            rows.put(active, batch)
                            stay = (~batch.done).nonzero().squeeze(1)
                            batch, active = batch.select(stay), active[stay]
                            if not len(active):
                                break
                    if position == n - 1:
                        break
                    climb.step = position + 1
                    if trial.watch.late is not None and batch is not rows:
                        rows.put(active, batch)
                    if climb.stops(sum(left[: climb.step]) / sum(left)):
                        return climb.found()
            if batch is not rows:
                rows.put(active, batch)
            climb.end_sweep(least, patient=False)
            if climb.stops():
                break
        return climb.found()


@dataclass(frozen=True)
class RecordingGibbs(Gibbs):
    """gibbs with one recorder for many searches of few rows, one after the other, on a GPU."""

    recorder: Recorder | None = field(default=None, kw_only=True)
