"""Which iteration is kept, and what the next one works with: both by the candidates and steps so far, so that
a resumed training does the same.

Kept is the candidate with fewest hits on the selection list among those within the bound on perplexity that
still talk (subjects/asking.py); the original model is one of them, so the bound always holds. Of equals, the
one that was trained against the strongest attack, then the one of which the next iteration's searches hit
fewer training targets, then the lower perplexity. With `keep` "last" the last is kept, as in the papers.

A weak search soon finds nothing on a model that a stronger one still breaks, so training steps up a ladder of
attacks. It ends early only where the strongest finds nothing. With a fixed KL weight perplexity rises in the
first iteration, which has most hits, and falls back: the allowance stays unspent, and hits come back. So the
weight is multiplied by the spent share of the allowance. Where too much is spent, the next iteration begins
with positive updates, which bring the model's replies back even if there are no hits.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from backtalk.errors import InputError
from backtalk.hits import Criterion
from backtalk.report.hardening_record import Candidate, Step
from backtalk.store.typed import read_record
from backtalk.training.resumable import fill_network, load_checkpoint, save_checkpoint
from backtalk.wording import count

STARTS, TIMES = 3, 2  # starts of the stronger attacks, and how many times as many candidates (G) they try
LEAST_SWEEPS = 6
FEW = 50  # A search that hits at most one in so many training targets is too weak
GIVEN = "given inputs"

SPENT = 0.9  # the share of the allowed rise that is aimed at; the rest is for what the next iteration does
MOST_CHANGE = 2.0  # the most by which one iteration changes the KL weight, up or down
LEAST, MOST = 0.1, 1000.0
HEALS, MOST_HEALS = 10, 100  # positive updates for each allowance spent over the first, and at most


@dataclass(frozen=True)
class Attack:
    """How hard an iteration searches. `search` may be GIVEN: only the inputs of the findings."""

    search: str
    starts: int
    top: int
    sweeps: int
    aims: tuple[Criterion, ...]  # a target is hit if any is met; each has a search of its own

    def told(self) -> str:
        if self.search == GIVEN:
            return GIVEN
        aims = " and ".join("io" if aim.likely else "o" for aim in self.aims)
        starts, sweeps = count(self.starts, "start"), count(self.sweeps, "sweep")
        return f"{self.search} {aims}, {starts}, G={self.top}, {sweeps}"


def make_ladder(first: Attack, most: int, last: str = "") -> list[Attack]:
    """The first attack, and at most `most` stronger ones; `last` is the strongest's search, if another."""
    ladder = [first]
    if first.search == GIVEN:
        first = replace(first, search="gibbs")
        ladder.append(first)
    more_starts = replace(first, starts=max(first.starts, STARTS))
    wider = replace(more_starts, top=TIMES * first.top, sweeps=max(first.sweeps, LEAST_SWEEPS))
    ladder += [more_starts, wider]
    if any(aim.likely for aim in first.aims):
        wider = replace(wider, aims=(*first.aims, *(replace(aim, likely=False) for aim in first.aims)))
        ladder.append(wider)
    if last:
        ladder.append(replace(wider, search=last))
    return ladder[: most + 1]


def level_of(steps: Sequence[Step], ladder: Sequence[Attack]) -> int:
    """Where the next iteration searches."""
    return min(sum(step.found <= step.of // FEW for step in steps), max(0, len(ladder) - 1))


def is_done(steps: Sequence[Step], ladder: Sequence[Attack]) -> bool:
    """Whether the strongest attack found nothing. Without a ladder every iteration is run, as published."""
    return len(ladder) > 1 and bool(steps) and steps[-1].level == len(ladder) - 1 and not steps[-1].found


def adapted_kl(first: float, rise: float, candidates: Sequence[Candidate]) -> float:
    """The weight after these candidates, the original model first; `rise` is what perplexity may rise by."""
    weight, base = first, candidates[0].perplexity
    for one in candidates[1:]:
        change = min(MOST_CHANGE, max(1 / MOST_CHANGE, _spent(one, base, rise)))
        weight = min(MOST, max(LEAST, weight * change))
    return weight


def needed_heals(rise: float, candidates: Sequence[Candidate]) -> int:
    """How many positive updates the last candidate needs first."""
    over = _spent(candidates[-1], candidates[0].perplexity, rise) - 1
    return min(MOST_HEALS, math.ceil(HEALS * over)) if over > 0 else 0


def _spent(one: Candidate, base: float, rise: float) -> float:
    """The share of the rise that is aimed at."""
    return (one.perplexity / base - 1) / max(SPENT * rise, 1e-3)


def best_of(candidates: Sequence[Candidate], most_perplexity: float) -> int:
    """Which one to keep. The first is the original model, and always allowed."""

    def key(i: int) -> tuple[int, int, int, float]:
        own = candidates[i]
        return own.hits, -own.level, training_hits(candidates, i), own.perplexity

    later = enumerate(candidates[1:], start=1)
    allowed = [i for i, one in later if one.perplexity <= most_perplexity and not one.broken]
    return min([0, *allowed], key=key)


def training_hits(candidates: Sequence[Candidate], i: int) -> int:
    """What the searches that started from it found. Where there were none yet: one less than those on the way
    to it, for it was trained on them."""
    if i + 1 < len(candidates) and candidates[i + 1].whole:
        return candidates[i + 1].found
    return 0 if candidates[i].survived else max(0, candidates[i].found - 1)


class Selection:
    """The candidates and steps so far and, in one file that is replaced at once, the weights of the best and
    of the last: how the last compares is known only after the next. With `keep` last there is no best."""

    def __init__(self, path: Path, rise: float, facts: dict[str, Any], keep: str = "best") -> None:
        self.path, self.rise, self.facts, self.keep = path, rise, facts, keep
        self.candidates, self.steps = list[Candidate](), list[Step]()
        self._weights: dict[str, dict[str, Tensor]] = {"best": {}, "last": {}}
        if (found := load_checkpoint(path)) is not None:
            tensors, state = found
            if state.get("of") != facts:
                raise InputError(f"{path} belongs to another hardening; use --fresh or --out")
            self.candidates = [read_record(Candidate, values) for values in state["candidates"]]
            self.steps = [read_record(Step, values) for values in state["steps"]]
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
        settled = self.candidates.copy()
        self.candidates.append(candidate)
        self.steps += [step] if step else []
        # The best whose next iteration is known: what the last one's searches found counts for the one before
        known = [*settled, replace(candidate, perplexity=math.inf)]
        if self.keep == "best" and settled and best_of(known, self.most_perplexity) == len(settled) - 1:
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
        best = self._weights["last" if self.best is self.candidates[-1] else "best"]
        fill_network(network, {f"best.{name}": value for name, value in best.items()}, "best")
