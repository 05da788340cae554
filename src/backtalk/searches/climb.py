"""The rows of a search that goes in sweeps over its triggers: which are at work, and what each sweep reached.

Only so many rows are at work at once. At the end of a sweep waiting rows take the places of those that are
done, so that a GPU stays full. With kicks a row whose sweep gained nothing continues from its best trigger
with one random word (iterated local search, Lourenco et al. 2003) until its sweeps are used up.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backtalk.protocols import Retokenises
from backtalk.searches.trial import Incumbents, Trial
from backtalk.searches.watch import State
from backtalk.types import Found

KICK = 1 << 21  # marks the seeds of kicks
OPTIONS = 8  # kicks that are drawn for a row; the first that can be typed is taken
BEST = "best."  # begins the names of the best rows in a state
OWN = ("losses", "outputs", "swept", "at_work", "before")  # tensors of a climb beside its rows


@dataclass
class Climb:
    trial: Trial
    rows: Incumbents  # as they are now
    best: Incumbents  # the best of each row so far: `rows` itself if there are no kicks
    plan: Sequence[float]  # for each sweep: the expected share of rows that still improve in it
    losses: Tensor  # (rows, sweeps + 1): at the start and after each sweep
    outputs: Tensor  # the same of the output loss
    swept: Tensor  # (rows,): sweeps that each row has taken
    at_work: Tensor  # (rows,), bool: rows of the current sweep
    before: Tensor  # (rows,): the loss at the start of the current sweep
    step: int = 0  # steps of the current sweep that are done
    _working: int = 0  # rows of the current sweep; `stops` must not wait for a GPU
    _spent: float = 0.0  # sweeps before this one, of all rows
    _left: float = 0.0  # sweeps that are expected from this one on

    @classmethod
    def of(cls, trial: Trial, plan: Sequence[float], kick: bool, start: Callable[[], Incumbents]) -> "Climb":
        """A new climb, or one resumed from the state of an earlier attempt."""
        if state := trial.resumed:
            rows = Incumbents.of(state)
            kept = {name.removeprefix(BEST): part for name, part in state.items() if name.startswith(BEST)}
            best = Incumbents.of(kept) if kept else rows
            losses, outputs, swept, at_work, before = (state[name] for name in OWN)
            step = int(state["step"])
            return cls(trial, rows, best, plan, losses, outputs, swept, at_work, before, step)
        rows = start()
        every = torch.arange(len(rows.inputs), device=rows.inputs.device)
        losses, outputs = (
            torch.zeros(len(every), len(plan) + 1, dtype=part.dtype, device=every.device)
            for part in (rows.loss, rows.output_loss)
        )
        losses[:, 0], outputs[:, 0] = rows.loss, rows.output_loss
        best, swept = rows.select(every) if kick else rows, torch.zeros_like(every)
        return cls(trial, rows, best, plan, losses, outputs, swept, ~rows.done, rows.loss.clone())

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
        sweeps = Counter(self.swept[waiting].tolist())
        self._spent = float(self.swept.sum())
        # A row that still improves takes the sweeps that such a row takes on average.
        rest = {n: sum(self.plan[n:]) / (self.plan[n] or 1.0) for n in sweeps}
        self._left = sum(rows * rest[n] for n, rows in sweeps.items())
        return bool(sweeps)

    def active(self) -> Tensor:
        """The indices of the rows at work that are not done."""
        return (self.at_work & ~self.rows.done).nonzero().squeeze(1)

    def stops(self, within: float = 1.0) -> bool:
        """Whether the watch ends the search, with so much of the current sweep done."""
        done = self._spent + within * self._working
        share = min(1.0, done / max(1e-9, self._spent + self._left))
        return self.trial.watch(share, self.state, lambda: int(self.rows.candidates.sum()))

    def end_sweep(self, least: float, patient: bool) -> None:
        """Notes what the sweep reached. Rows that gained less than `least` are done, or kicked; `patient`
        ones continue anyway."""
        rows, worked = self.rows, self.at_work
        stalled = worked & ~rows.done & ~(rows.loss < self.before - least)
        rows.done |= worked & (rows.loss <= 0)
        self._note()
        self.swept += worked
        spent = self.swept >= len(self.plan)
        rows.done |= spent
        if self.best is not self.rows:
            kicked = (stalled & ~rows.done).nonzero().squeeze(1)
            if len(kicked):
                rows.put(kicked, self._kicked(kicked))
        elif not patient:
            rows.done |= stalled
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

    def _kicked(self, places: Tensor) -> Incumbents:
        """The best triggers of these rows with one random word that can be typed; without one as they are."""
        trial, best = self.trial, self.best.select(places)
        words, (rows, n) = trial.allowed.nonzero().squeeze(1), best.inputs.shape
        owns = zip(places.tolist(), self.swept[places].tolist(), strict=True)
        draws = np.stack(
            [
                np.random.default_rng([trial.seeds[row], KICK, swept]).random((OPTIONS, 2))
                for row, swept in owns
            ]
        )
        drawn = (torch.from_numpy(draws) * torch.tensor([n, len(words)])).long().to(words.device)
        triggers = best.inputs[:, None].repeat(1, OPTIONS, 1)
        triggers.scatter_(2, drawn[:, :, :1], words[drawn[:, :, 1:]])
        good = torch.ones(rows, OPTIONS, device=words.device)
        if isinstance(trial.model, Retokenises):
            good = trial.model.survives(triggers.flatten(0, 1)).view(rows, OPTIONS).float()
        first = good.argmax(1)
        chosen = triggers[torch.arange(rows, device=words.device), first]
        inputs = torch.where(good.amax(1, keepdim=True) > 0, chosen, best.inputs)
        kicked = trial.begin(inputs, best.targets)
        kicked.candidates = self.rows.candidates[places] + 1
        kicked.done.fill_(False)
        return kicked
