"""Which iteration is kept: the one with fewest hits on the selection list among those within the bound on
perplexity that still talk (`subjects/talk.py`). The original model is always one of them, so the bound holds
whatever training does. Held-out targets are never looked at.

Of equals, the one that was trained against the strongest attack is taken, then the one of which the next
iteration's searches hit fewer training targets, then the lower perplexity: a short selection list says
little. An iteration without hits changes nothing: it counts for the candidate that it searched. With `keep`
"last" nothing is chosen: the last iteration is kept, as in the papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from backtalk.errors import InputError
from backtalk.hardening.escalation import Step
from backtalk.training.resumable import fill_network, load_checkpoint, save_checkpoint


@dataclass(frozen=True)
class Candidate:
    """The network after some iterations; 0 is the original model."""

    iterations: int
    hits: int
    """Selection targets that a fresh search hits; against frequent replies, how often the commonest is given
    to the selection inputs."""
    n: int
    """Selection targets or inputs."""
    perplexity: float
    found: int
    """Training targets that the last iteration's searches hit, before its updates; 0 without targets."""
    updates: int = 0
    survived: int = 0
    """Whole iterations since then whose searches found nothing, so that it stayed as it is."""
    whole: bool = True
    """Whether the last iteration was ended, or cut short by the clock."""
    talk: dict[str, Any] = field(default_factory=dict)
    """What its own turns in conversations came to (`talk.Spoken`); empty where they were not asked for."""
    broken: str = ""
    """What is wrong with them: such a model is not chosen."""
    level: int = 0
    """Of the attack that it was trained against."""
    kl: float = 0.0
    seconds: float = 0.0
    """Since training began."""
    max_ratio: float = 0.0
    """The share of its most frequent greedy reply."""
    ent_2: float = 0.0
    """The entropy of pairs of words in its greedy replies."""


def best_of(candidates: Sequence[Candidate], most_perplexity: float) -> int:
    """Which one to keep. The first is the original model, and always allowed."""
    allowed = [
        i
        for i, one in enumerate(candidates)
        if i == 0 or (one.perplexity <= most_perplexity and not one.broken)
    ]

    def key(i: int) -> tuple[int, int, int, float]:
        own = candidates[i]
        return own.hits, -own.level, training_hits(candidates, i), own.perplexity

    return min(allowed, key=key)


def training_hits(candidates: Sequence[Candidate], i: int) -> int:
    """What the searches that started from it found. Where there were none yet: one less than those on the way
    to it, for it was trained on them."""
    if i + 1 < len(candidates) and candidates[i + 1].whole:
        return candidates[i + 1].found
    return 0 if candidates[i].survived else max(0, candidates[i].found - 1)


class Selection:
    """The candidates and steps so far and, in one file that is replaced in one move, the weights of the best
    and of the last: how the last compares is known only after the next. Where the last is kept there is no
    best."""

    def __init__(self, path: Path, rise: float, facts: dict[str, Any], keep: str = "best") -> None:
        self.path, self.rise, self.facts, self.keep = path, rise, facts, keep
        self.candidates: list[Candidate] = []
        self.steps: list[Step] = []
        self._weights: dict[str, dict[str, Tensor]] = {"best": {}, "last": {}}
        found = load_checkpoint(path)
        if found is not None:
            tensors, state = found
            if state.get("of") != facts:
                raise InputError(f"{path} belongs to another hardening; use --fresh or --out")
            self.candidates = [Candidate(**values) for values in state["candidates"]]
            self.steps = [Step(**values) for values in state["steps"]]
            for name, value in tensors.items():
                part, _, rest = name.partition(".")
                self._weights[part][rest] = value

    @property
    def most_perplexity(self) -> float:
        return self.candidates[0].perplexity * (1 + self.rise)

    @property
    def best(self) -> Candidate:
        """The one that is kept if training ends now."""
        if self.keep == "last":
            return self.candidates[-1]
        return self.candidates[best_of(self.candidates, self.most_perplexity)]

    @property
    def seconds(self) -> float:
        """Of training, up to the last step."""
        return self.steps[-1].seconds if self.steps else 0.0

    def told(self) -> dict[str, Any]:
        """What a card says of it."""
        return {
            "iterations_kept": self.best.iterations,
            "updates": self.best.updates,
            "perplexity_before": self.candidates[0].perplexity,
            "perplexity_after": self.best.perplexity,
            "candidates": [asdict(one) for one in self.candidates],
            "steps": [asdict(one) for one in self.steps],
        }

    def survive(self, step: Step) -> None:
        """An iteration found nothing against the last candidate."""
        self.candidates[-1] = replace(self.candidates[-1], survived=self.candidates[-1].survived + 1)
        self.steps.append(step)
        self._save()

    def add(self, candidate: Candidate, network: nn.Module, step: Step | None = None) -> None:
        self.candidates.append(candidate)
        self.steps += [step] if step else []
        settled = self.candidates[:-1]
        if self.keep == "best" and settled and self._best_before_last() == len(settled) - 1:
            self._weights["best"] = self._weights["last"]
        self._weights["last"] = {k: v.detach().clone() for k, v in network.named_parameters()}
        if candidate.whole:  # where training resumes later, the whole iteration takes a part's place
            self._save()

    def _save(self) -> None:
        tensors = {f"{part}.{k}": v for part, own in self._weights.items() for k, v in own.items()}
        told = self.told()
        state = {"candidates": told["candidates"], "steps": told["steps"], "of": self.facts}
        save_checkpoint(self.path, tensors, state)

    def fill(self, network: nn.Module) -> None:
        """Puts the best weights into a network."""
        is_last = self.best is self.candidates[-1]
        best = self._weights["last" if is_last else "best"]
        fill_network(network, {f"best.{name}": value for name, value in best.items()}, "best")

    def _best_before_last(self) -> int:
        """The best of those whose next iteration is known."""
        keep = best_of(self.candidates, self.most_perplexity)
        if keep < len(self.candidates) - 1:
            return keep
        # With the last out of the way: what its searches found still counts for the one before.
        barred = replace(self.candidates[-1], perplexity=float("inf"))
        return best_of([*self.candidates[:-1], barred], self.most_perplexity)
