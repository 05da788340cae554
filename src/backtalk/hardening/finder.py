"""The search inside training: gibbs for every target on the network as it is now.

He & Glass 2020, appendix A and the published code: T = 5 sweeps, one restart. Theirs goes on for the
likeliest trigger; by default ours is left at the first hit. T_out and T_in stay those of the model before
hardening. What comes back as a hit was decided by a plain float32 forward, as in an audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backtalk.models.device import product_precision
from backtalk.models.local import LocalModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.gibbs import Gibbs, RecordingGibbs
from backtalk.searches.objective import Objective
from backtalk.searches.recorded import CudaRecorder
from backtalk.searches.seeds import row_seed
from backtalk.training.negative import Hit


def search_of(length: int, top: int, sweeps: int, device: torch.device, stop_at_hit: bool = True) -> Gibbs:
    """gibbs that leaves a target once it is hit, or does not."""
    on_gpu = device.type == "cuda"
    return RecordingGibbs(
        *(length, top, sweeps, stop_at_hit),
        prune=not on_gpu,  # it reads back which candidates survive: on a GPU that costs more than it saves
        precision="tf32" if on_gpu else "float32",
        restarts=1,
        recorder=CudaRecorder(device) if on_gpu else None,
    )


@dataclass(frozen=True)
class GibbsFinder:
    """Hands hits to the trainer. A target's search depends on (seed, iteration, its id) and the weights."""

    model: LocalModel
    search: Gibbs
    objective: Objective
    ids: Sequence[str]
    """The training targets' ids and, in the same order, their words."""
    goals: Sequence[tuple[int, ...]]
    seed: int
    margin: float = 0.0
    """How far below the threshold a trained hit has to fall."""

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        goals = [self.goals[index] for index in targets]
        seeds = [row_seed(self.seed, f"harden/{iteration}/{self.ids[index]}", 0) for index in targets]
        with evaluating(self.model):
            found = self.search.run(self.model, self.objective, goals, seeds)
            triggers = [one.ids for one in found]
            hit = self._met(triggers, goals, self.objective)
        return [
            Hit(trigger, goal)
            for trigger, goal, is_hit in zip(triggers, goals, hit, strict=True)
            if is_hit and self._can_be_typed(trigger)
        ]

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        """Of triggers that `find` gave: they are likely input, and the language model is not trained."""
        if not hits:
            return []
        enough = self.objective.enough_out - self.margin
        output_only = replace(self.objective, enough_in=None, enough_out=enough)
        with evaluating(self.model):
            return self._met([hit.trigger for hit in hits], [hit.target for hit in hits], output_only)

    @torch.no_grad()
    def _met(
        self, triggers: Sequence[Sequence[int]], goals: Sequence[Sequence[int]], objective: Objective
    ) -> list[bool]:
        """All triggers have the same length, so no padding is counted as input."""
        device = self.model.device
        inputs = torch.tensor([list(trigger) for trigger in triggers], device=device)
        targets = pad_rows(goals, self.model.pad).to(device)
        lm = self.model.language_model
        typed: Tensor | None = None
        if objective.enough_in is not None and lm is not None:
            typed = lm.score(inputs)
        met = objective.met(self.model.score(inputs, targets), targets != self.model.pad, typed)
        return [bool(value) for value in met.tolist()]

    def _can_be_typed(self, trigger: tuple[int, ...]) -> bool:
        return tuple(self.model.encode_input(self.model.decode(trigger))) == trigger


@contextmanager
def evaluating(model: LocalModel) -> Iterator[None]:
    """Without dropout, and in float32; training goes on in the mode it was in."""
    was = model.network.training
    model.network.eval()
    try:
        with product_precision("highest"):
            yield
    finally:
        model.network.train(was)
