"""Learns where rare bad replies come from, so that draws go there: distributions of inputs beside p itself.

Plain draws never see a rare trigger. So the pilot climbs by levels. A third of a level's inputs come from p,
a third from the proposal so far, a third from it at a higher temperature. The language model is then tuned on
all inputs so far, by p over the mixture of all levels times a power of the chance of a bad reply: the largest
power that leaves a few tens of inputs to learn from. The last levels take the chance itself, which gives the
best proposal there is. No draw of the pilot is in an estimate. It may begin with the triggers of an audit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from backtalk.risk.bounds import effective_size
from backtalk.risk.inputs import Batch, SampledInputs
from backtalk.risk.language import Array, LSTMInputs
from backtalk.risk.tuning import tuned

CLIMB, REFINE = 9, 5  # levels, at most, that look for the largest chances, and that fit the risk itself
REFINE_LEAST, STEADY = 3, 1.2
LEVELS = CLIMB + REFINE
HOT = 3.0  # temperature of the draws that look for what the language model finds unlikely
KEPT = 0.03  # effective size of the inputs that the next level learns from, as a share of a level
MOST_POWER = 20.0
TOP, RISE, PATIENCE = 0.97, 1.5, 1  # the climb ends if this quantile of a level has not risen so much
SHARE = 0.4  # of the planned draws, for the pilot, at most
FEWEST, MOST = 100, 4000  # draws of a level
FIT_STEPS = 100
ENOUGH = 0.2  # plain draws that are worth this share of equal ones need no proposal
GAIN = 2.0  # by which a proposal must raise that share

Read = Callable[[Batch], Array]  # the chance of a bad reply, (draws,)


@dataclass
class Pilot:
    """All inputs that were drawn to learn the proposals."""

    p: LSTMInputs
    read: Read
    seed: int
    size: int  # draws of a level
    ids: list[Tensor] = field(default_factory=list)
    chances: list[Array] = field(default_factory=list)
    drawn_from: list[LSTMInputs] = field(default_factory=list)
    """All distributions that levels were drawn from, p first; a third of a level from each of three."""
    _known: dict[tuple[int, int], Array] = field(default_factory=dict)

    def draw(self, q: LSTMInputs) -> None:
        """One more level: inputs from p, q and a hotter q, and the chances of a bad reply."""
        level, own = len(self.ids), [q, replace(q, temperature=HOT)]
        batch = SampledInputs(self.p, self.seed, f"pilot {level}", own, 1 / 3).draw(0, self.size)
        assert batch.ids is not None
        self.ids.append(batch.ids)
        self.chances.append(self.read(batch))
        self.drawn_from += [self.p, *own]

    def pooled(self) -> tuple[Tensor, Array, Array]:
        """All inputs, the log of p over the mixture that all levels were drawn from, and their chances."""
        parts = [self._log_prob(k) for k in range(len(self.drawn_from))]
        weight: Array = parts[0] - (np.logaddexp.reduce(parts) - np.log(len(parts)))
        return torch.cat(self.ids), weight, np.concatenate(self.chances)

    def _log_prob(self, of: int) -> Array:
        """Of all inputs, under one of the distributions."""
        model = self.drawn_from[of]
        of = 0 if model is self.p else of
        for level, ids in enumerate(self.ids):
            if (of, level) not in self._known:
                self._known[of, level] = model.log_prob(ids)
        return np.concatenate([self._known[of, level] for level in range(len(self.ids))])


def climb(pilot: Pilot, start: LSTMInputs | None) -> None:
    """Draws levels until the largest chances no longer rise."""
    q, best, stale = start or pilot.p, 0.0, 0
    for level in range(CLIMB):
        pilot.draw(q)
        ids, log_weight, chance = pilot.pooled()
        top = max(float(np.quantile(own, TOP)) for own in pilot.chances)
        stale = 0 if top > RISE * best else stale + 1
        best = max(best, top)
        if chance.max() <= 0 or stale > PATIENCE:
            return
        weights = sharpened(log_weight, chance, KEPT * pilot.size)
        q = tuned(pilot.p, ids, weights, f"level {level}", pilot.seed)


def refined(pilot: Pilot) -> LSTMInputs:
    """The proposal for the risk itself: tuned on weight times chance, with a level of draws from each fit,
    until the risk by all levels is steady."""
    for level in range(REFINE):
        before = _risk(pilot)
        pilot.draw(_fitted(pilot, f"fit {level}"))
        if level + 1 >= REFINE_LEAST and before / STEADY < _risk(pilot) < before * STEADY:
            break
    return _fitted(pilot, "the tuned language model")


def _risk(pilot: Pilot) -> float:
    _, log_weight, chance = pilot.pooled()
    return float((np.exp(log_weight) * chance).mean())


def _fitted(pilot: Pilot, name: str) -> LSTMInputs:
    ids, log_weight, chance = pilot.pooled()
    return tuned(pilot.p, ids, np.exp(log_weight) * chance, name, pilot.seed, FIT_STEPS)


def sharpened(log_weight: Array, chance: Array, least: float) -> Array:
    """Weight times chance to the largest power whose effective size is at least `least`."""
    with np.errstate(divide="ignore"):
        log_chance = np.log(chance)

    def weights(power: float) -> Array:
        logs = log_weight + power * log_chance
        found: Array = np.exp(logs - logs.max())
        return found

    low, high = 0.0, MOST_POWER
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if effective_size(weights(middle)) >= least else (low, middle)
    return weights(low)


def learn(pilot: Pilot, start: LSTMInputs | None, report: Callable[[str], object]) -> list[LSTMInputs]:
    """The proposals; none where plain draws are as good."""
    climb(pilot, start)
    ids, log_weight, chance = pilot.pooled()
    if not chance.any():
        report("the pilot saw no risk, so no proposal could be learnt")
        return []
    plain = worth(chance, log_weight, np.zeros(len(ids)))
    if plain >= ENOUGH:
        report(f"plain draws are worth {plain:.0%} of equal ones: no proposal is needed")
        return []
    q = refined(pilot)
    ids, log_weight, chance = pilot.pooled()
    plain = worth(chance, log_weight, np.zeros(len(ids)))
    better = worth(chance, log_weight, SampledInputs(pilot.p, pilot.seed, "", [q]).log_weight(ids))
    if better < GAIN * plain:
        report(f"plain draws are worth {plain:.1%} of equal ones, with a proposal {better:.1%}: none is used")
        return []
    report(f"a draw is worth {better:.1%} of an equal one with the proposal, {plain:.2%} without")
    return [q]


def worth(chance: Array, log_weight: Array, log_used: Array) -> float:
    """The expected effective size of a draw, by the pilot's inputs with their weights, if Z is the chance
    times exp(log_used), drawn from p exp(-log_used)."""
    weight = np.exp(log_weight)
    mean = float((weight * chance).mean())
    square = float((weight * np.exp(log_used) * chance**2).mean())
    return mean * mean / square if square else 0.0
