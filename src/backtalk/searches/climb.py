"""The rows of a search that goes in sweeps over its triggers: which are at work, and what each sweep reached.

Only so many rows are at work at once. At the end of a sweep waiting rows take the places of those that are
done, so that a GPU stays full. With annealing a row may take a worse trigger, and uses all its sweeps.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backtalk.searches.trial import Incumbents, Slack, Trial
from backtalk.searches.watch import State
from backtalk.types import Found

ANNEAL = 1 << 21  # marks the seeds of annealing
LAUNCHED = 4_000
"""With fewer candidates at a position, a GPU spends its time on launching kernels. SmolLM2 on an H200 scores
18,610 a second with 2,048 at a position, and 45,109 with 20,480."""
BEST = "best."  # begins the names of the best rows in a state
OWN = ("losses", "outputs", "swept", "at_work", "before")  # tensors of a climb beside its rows


@dataclass
class Climb:
    trial: Trial
    rows: Incumbents  # as they are now
    best: Incumbents  # the best of each row so far: `rows` itself without annealing
    plan: Sequence[float]  # for each sweep: the expected share of rows that still improve in it
    losses: Tensor  # (rows, sweeps + 1): at the start and after each sweep
    outputs: Tensor  # the same of the output loss
    swept: Tensor  # (rows,): sweeps that each row has taken
    at_work: Tensor  # (rows,), bool: rows of the current sweep
    before: Tensor  # (rows,): the loss at the start of the current sweep
    anneal: float = 0.0  # temperature of the first sweep, in nats a target word; 0 accepts no worse trigger
    step: int = 0  # steps of the current sweep that are done
    least: float = 0.0  # a sweep of fewer rows takes as long as one of so many, on a GPU
    _slack: Tensor | None = None  # (rows, n): how much worse a trigger may become at a step of this sweep
    _working: int = 0  # rows of the current sweep; `stops` must not wait for a GPU
    _spent: float = 0.0  # the cost of the sweeps before this one, in rows
    _left: float = 0.0  # the expected cost from this one on

    @classmethod
    def of(
        cls,
        trial: Trial,
        plan: Sequence[float],
        anneal: float,
        start: Callable[[], Incumbents],
        candidates: int,
    ) -> "Climb":
        """A new climb with so many candidates a step, or one resumed from the state of an earlier attempt."""
        least = LAUNCHED / candidates if trial.allowed.is_cuda else 0.0
        if state := trial.resumed:
            rows = Incumbents.of(state)
            kept = {name.removeprefix(BEST): part for name, part in state.items() if name.startswith(BEST)}
            best = Incumbents.of(kept) if kept else rows
            losses, outputs, swept, at_work, before = (state[name] for name in OWN)
            step = int(state["step"])
            return cls(trial, rows, best, plan, losses, outputs, swept, at_work, before, anneal, step, least)
        rows = start()
        every = torch.arange(len(rows.inputs), device=rows.inputs.device)
        losses, outputs = (
            torch.zeros(len(every), len(plan) + 1, dtype=part.dtype, device=every.device)
            for part in (rows.loss, rows.output_loss)
        )
        losses[:, 0], outputs[:, 0] = rows.loss, rows.output_loss
        best, swept = rows.select(every) if anneal else rows, torch.zeros_like(every)
        work, before = ~rows.done, rows.loss.clone()
        return cls(trial, rows, best, plan, losses, outputs, swept, work, before, anneal, 0, least)

    def state(self) -> State:
        best = {} if self.best is self.rows else self.best.state()
        return {
            **self.rows.state(),
            **{f"{BEST}{name}": part for name, part in best.items()},
            **{name: getattr(self, name) for name in OWN},
            "step": torch.tensor(self.step),
        }

    def next_sweep(self) -> bool:
        """Chooses the rows of the next sweep, or keeps those of a resumed one; False once all are done."""
        waiting = ~self.rows.done
        if not self.step:
            most, group = self.trial.watch.most_rows or len(waiting), self.trial.group
            most = max(group, most - most % group)
            self.at_work = waiting & (waiting.cumsum(0) <= most)
            self.before = self.rows.loss.clone()
        self._working = int(self.at_work.sum())
        self._slack = self._draw_slack() if self.anneal else None
        taken, sweeps = Counter(self.swept.tolist()), Counter(self.swept[waiting].tolist())
        plan, every = [*self.plan, *[0.0] * len(self.plan)], range(len(self.plan))
        past = [sum(rows for n, rows in taken.items() if n > k) for k in every]
        self._spent = sum(map(self._cost, past))
        # Rows that still improve go on as such rows do on average.
        ahead = [sum(rows * plan[n + k] / plan[n] for n, rows in sweeps.items()) for k in every]
        self._left = sum(map(self._cost, ahead))
        return bool(sweeps)

    def _cost(self, rows: float) -> float:
        """The time of a sweep of `rows`, in rows. `rows` below 1 is the probability that there is a sweep."""
        return max(rows, self.least * min(1.0, rows))

    def slack(self, active: Tensor, step: int) -> Slack:
        """(active,): how much worse a trigger may become in this step."""
        return 0.0 if self._slack is None else self._slack[active, step]

    def _draw_slack(self) -> Tensor:
        """A trigger that is worse by d is accepted with the probability exp(-d / temperature) (Metropolis et
        al. 1953); the temperature falls linearly with a row's sweeps."""
        trial, n = self.trial, self.rows.inputs.shape[1]
        seeds = zip(trial.seeds, self.swept.tolist(), strict=True)
        draws = [np.random.default_rng([seed, ANNEAL, at]).exponential(size=n) for seed, at in seeds]
        heat = self.anneal * (1 - self.swept / len(self.plan))
        if trial.objective.total:
            heat = heat * trial.pooled((self.rows.targets != trial.model.pad).sum(1).float())
        return torch.from_numpy(np.stack(draws)).to(heat) * heat[:, None]

    def active(self) -> Tensor:
        """The indices of the rows at work that are not done."""
        return (self.at_work & ~self.rows.done).nonzero().squeeze(1)

    def stops(self, within: float = 1.0) -> bool:
        """Whether the watch ends the search, with so much of the current sweep done."""
        done = self._spent + within * self._cost(self._working)
        share = min(1.0, done / max(1e-9, self._spent + self._left))
        return self.trial.watch(share, self.state, lambda: int(self.rows.candidates.sum()))

    def end_sweep(self, least: float, patient: bool) -> None:
        """Notes what the sweep reached. Rows that gained less than `least` are done, but not `patient` or
        annealed ones."""
        rows, worked = self.rows, self.at_work
        rows.done |= worked & (rows.loss <= 0)
        self._note()
        self.swept += worked
        rows.done |= self.swept >= len(self.plan)
        if not patient and not self.anneal:
            rows.done |= worked & ~(rows.loss < self.before - least)
        self.step = 0

    def found(self) -> list[Found]:
        """The result of each row, with the losses of the start and of every sweep that it took part in."""
        if self.step:
            self._note()
        swept = 1 + self.swept + (self.at_work if self.step else 0)
        best = self.best
        columns = (best.inputs, best.loss, self.rows.candidates, self.losses, self.outputs, swept)
        return [
            Found(tuple(ids), loss, whole[:n], count, series={"output_loss_by_sweep": part[:n]})
            for ids, loss, count, whole, part, n in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def _note(self) -> None:
        """Writes the losses of the rows at work after this sweep, and keeps the better triggers."""
        if self.best is not self.rows:
            better = (self.rows.loss < self.best.loss).nonzero().squeeze(1)
            self.best.put(better, self.rows.select(better))
        at = self.at_work.nonzero().squeeze(1)
        self.losses[at, self.swept[at] + 1] = self.best.loss[at]
        self.outputs[at, self.swept[at] + 1] = self.best.output_loss[at]
