"""Which iteration is kept: the one with fewest hits on the selection list among those within the bound on
perplexity that still talk (`talk.py`). The model as it was is always one of them, so the bound is kept
whatever training does.

With `keep` "last" nothing is chosen: the last iteration is kept, whatever it costs, as in the papers.
Of equals the one of which the next iteration's searches hit fewer training targets is taken, then the lower
perplexity: a short selection list says little. An iteration that finds nothing changes nothing: it counts for
the candidate that it searched. Held-out targets are never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from backtalk.audit.backends.weights import search_block
from backtalk.data.pairs import PairArrays
from backtalk.errors import InputError
from backtalk.hardening.finder import evaluating
from backtalk.hits import Criterion, hit_cases
from backtalk.models.local import LocalModel
from backtalk.searches.objective import Objective
from backtalk.searches.on_weights import WeightsSearch
from backtalk.training.checkpoint import fill_network, load_checkpoint, save_checkpoint
from backtalk.training.likelihood import mean_log_likelihood, perplexity
from backtalk.types import Target, Thresholds


@dataclass(frozen=True)
class Candidate:
    """The network after some iterations; 0 is the model as it was."""

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
    """What its own turns in conversations came to (`talk.Spoken`); nothing where they were not asked for."""
    broken: str = ""
    """What is wrong with them: such a model is not chosen."""


def best_of(candidates: Sequence[Candidate], most_perplexity: float) -> int:
    """Which one to keep. The first is the model as it was, and always allowed."""
    allowed = [
        i
        for i, one in enumerate(candidates)
        if i == 0 or (one.perplexity <= most_perplexity and not one.broken)
    ]

    def key(i: int) -> tuple[int, int, float]:
        return candidates[i].hits, training_hits(candidates, i), candidates[i].perplexity

    return min(allowed, key=key)


def training_hits(candidates: Sequence[Candidate], i: int) -> int:
    """What the searches that started from it found. Where there were none yet: one less than those on the way
    to it, for it was trained on them."""
    if i + 1 < len(candidates) and candidates[i + 1].whole:
        return candidates[i + 1].found
    return 0 if candidates[i].survived else max(0, candidates[i].found - 1)


def why_unchanged(candidates: Sequence[Mapping[str, Any]], nothing_found: str) -> str:
    """Why the model as it was is kept, by what a card says of the candidates."""
    if any(one["updates"] for one in candidates):
        return "no iteration was better within the bound"
    if not candidates[0]["survived"]:
        return "the time was over before its first update; give it more with --max-time"
    return nothing_found


class Measuring(Protocol):
    """What is measured of a network after each iteration."""

    def hits(self) -> int: ...

    def perplexity(self) -> float: ...


@dataclass(frozen=True)
class Measure:
    """How a candidate is measured: the same targets, seeds, search and pairs each time."""

    model: LocalModel
    search: WeightsSearch
    objective: Objective
    seed: int
    targets: Sequence[Target]
    criterion: Criterion
    thresholds: Thresholds
    pairs: PairArrays

    def hits(self) -> int:
        with evaluating(self.model):
            findings = search_block(self.model, self.search, self.objective, self.seed, self.targets)
        return len(hit_cases(findings, self.criterion, self.thresholds))

    def perplexity(self) -> float:
        with evaluating(self.model):
            return perplexity(mean_log_likelihood(self.model.network, self.pairs, self.model.device))


class Selection:
    """The candidates so far and, in one file that is replaced in one move, the weights of the best and of the
    last: how the last compares is known only after the next. Where the last is kept there is no best."""

    def __init__(self, path: Path, rise: float, facts: dict[str, Any], keep: str = "best") -> None:
        self.path, self.rise, self.facts, self.keep = path, rise, facts, keep
        self.candidates: list[Candidate] = []
        self._weights: dict[str, dict[str, Tensor]] = {"best": {}, "last": {}}
        found = load_checkpoint(path)
        if found is not None:
            tensors, state = found
            if state.get("of") != facts:
                raise InputError(f"{path} belongs to another hardening; use --fresh or --out")
            self.candidates = [Candidate(**values) for values in state["candidates"]]
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

    def told(self) -> dict[str, Any]:
        """What a card says of it."""
        return {
            "iterations_kept": self.best.iterations,
            "updates": self.best.updates,
            "perplexity_before": self.candidates[0].perplexity,
            "perplexity_after": self.best.perplexity,
            "candidates": [asdict(one) for one in self.candidates],
        }

    def has(self, iterations: int) -> bool:
        return any(one.iterations + one.survived >= iterations and one.whole for one in self.candidates)

    def survive(self) -> None:
        """An iteration found nothing against the last candidate."""
        self.candidates[-1] = replace(self.candidates[-1], survived=self.candidates[-1].survived + 1)
        self._save()

    def add(self, candidate: Candidate, network: nn.Module) -> None:
        self.candidates.append(candidate)
        settled = self.candidates[:-1]
        if self.keep == "best" and settled and self._best_before_last() == len(settled) - 1:
            self._weights["best"] = self._weights["last"]
        self._weights["last"] = {k: v.detach().clone() for k, v in network.named_parameters()}
        if candidate.whole:  # where training goes on later, the whole iteration takes a part's place
            self._save()

    def _save(self) -> None:
        tensors = {f"{part}.{k}": v for part, own in self._weights.items() for k, v in own.items()}
        state = {"candidates": [asdict(one) for one in self.candidates], "of": self.facts}
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
