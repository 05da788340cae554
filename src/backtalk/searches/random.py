"""The baseline: as many random inputs as gibbs-enum may try, of which the best is kept.

Inputs are drawn like gibbs-enum's starts: samples of the language model for an io-hit, uniform valid words
otherwise. It gets gibbs-enum's whole budget, even where gibbs-enum stops early.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from backtalk.protocols import Retokenises
from backtalk.searches.trial import GAIN, Trial
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

CHUNK = 256  # inputs that are scored together; on a CPU a third faster than 1,024, since they fit its caches
SLOW_CHUNK = 32  # the same for a Hugging Face model, which takes a second or more for them on a CPU
STATE = ("kept", "tried", "losses")  # what a checkpoint holds


@dataclass(frozen=True)
class Random(WordSearch):
    """The best of as many random inputs as gibbs may try: the baseline."""

    name: ClassVar[str] = "random"

    def search_rows(self, trial: Trial) -> list[Found]:
        """Row after row, a chunk of inputs at a time."""
        size = SLOW_CHUNK if isinstance(trial.model, Retokenises) else CHUNK
        budget, rows = self.most_candidates, len(trial.seeds)
        chunks = -(-budget // size)
        kept, tried = torch.zeros(rows, self.length, dtype=torch.long), torch.zeros(rows, dtype=torch.long)
        losses, first = torch.full((rows, chunks), torch.inf, dtype=torch.float64), 0  # after each chunk
        if state := trial.watch.resumed:
            kept, tried, losses, first = (*(state[name] for name in STATE), int(state["step"]))
        for step in range(first, rows * chunks):
            row, chunk = divmod(step, chunks)
            best = float(losses[row, chunk - 1]) if chunk else torch.inf
            losses[row, chunk] = best
            if best <= 0:  # it can't get better
                continue
            if not chunk or step == first:
                draws = np.random.SeedSequence(trial.seeds[row]).generate_state(budget, np.uint64)
            own = [int(draw) for draw in draws[chunk * size : (chunk + 1) * size]]
            inputs, goal = trial.starts(self.length, own), trial.targets[row]
            goal = goal[goal != trial.model.pad]
            loss = trial.score(inputs, goal.expand(len(inputs), -1)).loss
            below = torch.full_like(loss[:1], best - GAIN)
            loss = trial.without_untypeable(inputs.__getitem__, loss[None], below)[0]
            if (least := float(loss.min())) < best - GAIN or not chunk:
                best, kept[row] = least, inputs[int(loss.argmin())].cpu()
            losses[row, chunk] = best
            tried[row] += len(inputs)
            now = {**dict(zip(STATE, (kept, tried, losses), strict=True)), "step": torch.tensor(step + 1)}
            if trial.watch((step + 1) / (rows * chunks), now.copy, lambda: int(tried.sum())):
                break
        used = -(-tried // size)
        return [
            Found(tuple(ids) if count else (), history[-1], history, count)
            for ids, count, history in (
                (kept[row].tolist(), int(tried[row]), losses[row, : max(1, int(used[row]))].tolist())
                for row in range(rows)
            )
        ]
