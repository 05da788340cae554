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

from backtalk.models.device import product_precision
from backtalk.protocols import Drafting, WeightsModel
from backtalk.searches.recorded import MOST_CANDIDATES, RecordedTrial, Recorder
from backtalk.searches.trial import GAIN, History, Incumbents, Trial
from backtalk.searches.watch import State
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

QUICK_GAIN = 1e-4
"""In tf32 a row stops after a sweep that gains less than this; its noise would keep rows running."""


@dataclass(frozen=True)
class Gibbs(WordSearch):
    """gibbs-enum: word by word, the best of the words that the gradient points to (He & Glass 2019)."""

    name: ClassVar[str] = "gibbs"

    stop_at_hit: bool = False
    """Stop a row once its target is hit."""
    prune: bool = True
    """Drop candidates as soon as they can't win; exact."""
    precision: Literal["auto", "float32", "bfloat16", "tf32"] = "auto"
    """float32 for everything; bfloat16 ranks candidates in bfloat16 and decides in float32; tf32 decides in
    tf32, which is faster and more often finds other triggers. auto is bfloat16 on a GPU."""

    def running(self, sweep: int) -> float:
        """The expected share of rows that still improve in a sweep. On chitchat nearly all improve in the
        first three sweeps, and half as many in each one after them."""
        return min(1.0, 2.0 ** (2 - sweep))

    @property
    def usual_share(self) -> float:
        """The expected share of `most_candidates` that a row tries before it stops."""
        return sum(map(self.running, range(self.sweeps))) / self.sweeps

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

    def search_rows(self, trial: Trial) -> list[Found]:
        top = min(self.top, int(trial.allowed.sum()))
        trial = replace(trial, draft=self.draft_of(trial.model), top=top, prune=self.prune)
        quick = trial.draft is not None and self.precision == "tf32"
        least, n = QUICK_GAIN if quick else GAIN, self.length
        state = trial.resumed
        rows = Incumbents.of(state) if state else trial.begin(trial.starts(n, trial.seeds), trial.targets)
        way: Trial | RecordedTrial = trial
        if self.recorder is not None and len(rows.inputs) * top <= MOST_CANDIDATES:
            rows = rows.select(torch.arange(len(rows.inputs), device=rows.inputs.device))  # own memory each
            way = RecordedTrial(trial, rows, self.recorder)
        history = History(rows, state)
        first = int(state["step"]) if state else 0  # of sweeps x positions
        before = state["before"] if state else rows.loss  # at the start of a sweep
        active, batch = torch.arange(len(rows.inputs), device=rows.inputs.device), rows
        left = [n - position + trial.targets.shape[1] for position in range(n)]  # tokens that are read again

        def stops(step: int) -> bool:
            """Whether the watch ends the search after this step."""
            if trial.watch.late is not None and batch is not rows:
                rows.put(active, batch)

            def now() -> State:
                return {**rows.state(), **history.state(), "before": before, "step": torch.tensor(step)}

            sweep, within = step // n, sum(left[: step % n]) / sum(left)
            done = sum(map(self.running, range(sweep))) + within * self.running(sweep)
            share = done / (self.usual_share * self.sweeps)
            return trial.watch(share, now, lambda: int(rows.candidates.sum()))

        for sweep in range(first // n, self.sweeps):
            active = (~rows.done).nonzero().squeeze(1)
            if not len(active):
                break
            batch = rows.select(active) if way is trial else rows
            if sweep * n >= first:
                before = rows.loss.clone()
            # What is stored is always float32 (scorers/likelihood).
            with product_precision("high") if quick else nullcontext():
                for position in range(max(0, first - sweep * n), n):
                    way.improve(batch, position)
                    if self.stop_at_hit:
                        batch.done |= trial.met(batch)
                        if not rows.inputs.is_cuda and batch is not rows:  # finished rows leave at once
                            rows.put(active, batch)
                            stay = (~batch.done).nonzero().squeeze(1)
                            batch, active = batch.select(stay), active[stay]
                            if not len(active):
                                break
                    if position < n - 1 and stops(sweep * n + position + 1):
                        return history.found(rows)
            began = before if batch is rows else before[active]
            batch.done |= (batch.loss <= 0) | ~(batch.loss < began - least)
            if batch is not rows:
                rows.put(active, batch)
            history.note(rows)
            if stops((sweep + 1) * n):
                break
        return history.found(rows)


@dataclass(frozen=True)
class RecordingGibbs(Gibbs):
    """gibbs with one recorder for many searches of few rows, one after the other, on a GPU."""

    recorder: Recorder | None = field(default=None, kw_only=True)
