"""The search inside training of our LSTMs: it attacks every target on the network as it is now.

He & Glass 2020, appendix A and the published code: T = 5 sweeps, one start. Theirs goes on to the likeliest
trigger; by default ours stops at the first hit. T_out and T_in stay those of the original model. Hits are
decided by a plain float32 forward pass, as in an audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from backtalk.hardening.escalation import Attack
from backtalk.models.device import evaluating
from backtalk.models.lstm.model import LocalModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs, RecordingGibbs
from backtalk.searches.objective import Objective, objective_for
from backtalk.searches.recorded import CudaRecorder
from backtalk.searches.seeds import row_seed
from backtalk.training.negative import Hit
from backtalk.types import Thresholds


@dataclass
class Searcher:
    """Makes the searches of attacks. On a GPU they share one recorder of CUDA graphs."""

    length: int
    device: torch.device
    stop_at_hit: bool = True

    def __post_init__(self) -> None:
        self._recorder = CudaRecorder(self.device) if self.device.type == "cuda" else None

    def make(self, attack: Attack) -> Gibbs:
        on_gpu = self.device.type == "cuda"
        precision: Literal["tf32", "float32"] = "tf32" if on_gpu else "float32"
        # Pruning reads back which candidates survive: on a GPU that costs more than it saves.
        how = (self.length, attack.top, attack.sweeps, self.stop_at_hit, not on_gpu, precision)
        if attack.search == "gcg":
            return Gcg(*how, restarts=1)
        return RecordingGibbs(*how, restarts=1, recorder=self._recorder)


@dataclass
class SearchingFinder:
    """Hands hits to the trainer. A target's search depends on (seed, iteration, its id) and the weights."""

    model: LocalModel
    searcher: Searcher
    attack: Attack
    thresholds: Thresholds
    ids: Sequence[str]
    """The training targets' ids and, in the same order, their words."""
    goals: Sequence[tuple[int, ...]]
    seed: int
    margin: float = 0.0
    """How far below the threshold a trained hit has to fall."""
    whole: bool = False
    """Every word of a target counts to the end of a search: eq. 7 of the paper."""

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        """Every different trigger that hits, from any start and for any aim of the attack."""
        search, starts = self.searcher.make(self.attack), range(self.attack.starts)
        rows = [(index, start) for index in targets for start in starts]
        goals = [self.goals[index] for index, _ in rows]
        seeds = [row_seed(self.seed, f"harden/{iteration}/{self.ids[index]}", start) for index, start in rows]
        hits: dict[Hit, None] = {}
        with evaluating(self.model.network, "highest"):
            for aim in self.attack.aims:
                objective = objective_for(aim, self.thresholds, whole=self.whole)
                triggers = [one.ids for one in search.run(self.model, objective, goals, seeds)]
                met = self._met(triggers, goals, objective)
                for trigger, goal, is_hit in zip(triggers, goals, met, strict=True):
                    if is_hit and self._can_be_typed(trigger):
                        hits[Hit(trigger, goal)] = None
        return list(hits)

    def count(self, hits: Sequence[Hit]) -> int:
        return len({hit.target for hit in hits})

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        """By the output alone: the triggers were likely where that was asked for, and the language model is
        not trained."""
        if not hits:
            return []
        objective = objective_for(self.attack.aims[0], self.thresholds, whole=self.whole)
        output_only = replace(objective, enough_in=None, enough_out=objective.enough_out - self.margin)
        with evaluating(self.model.network, "highest"):
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
