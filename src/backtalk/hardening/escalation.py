"""The attacker grows with the defender: an iteration that finds almost nothing makes the next one stronger.

A weak search soon finds nothing on a model that a stronger one still breaks. So training steps up a ladder:
more starts, more candidates and sweeps, `o` beside `io`, then another search. It ends early only where the
strongest attack finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backtalk.hits import Criterion
from backtalk.wording import count

STARTS, TIMES = 3, 2
"""Starts of the stronger attacks, and how many times as many candidates (G) they try."""
LEAST_SWEEPS = 6
FEW = 50
"""A search that hits at most one in so many training targets is too weak."""
GIVEN = "given inputs"


@dataclass(frozen=True)
class Attack:
    """How hard an iteration searches. `search` may be GIVEN: the inputs of the findings alone."""

    search: str
    starts: int
    top: int
    sweeps: int
    aims: tuple[Criterion, ...]
    """A target is hit if any of these criteria is met. Each has a search of its own."""

    def told(self) -> str:
        if self.search == GIVEN:
            return GIVEN
        aims = " and ".join("io" if aim.needs_language_model else "o" for aim in self.aims)
        starts, sweeps = count(self.starts, "start"), count(self.sweeps, "sweep")
        return f"{self.search} {aims}, {starts}, G={self.top}, {sweeps}"


@dataclass(frozen=True)
class Step:
    """One iteration."""

    iteration: int
    level: int
    attacker: str
    found: int
    """Training targets that it hit, before the updates."""
    of: int
    updates: int
    kl: float
    seconds: float
    """Since training began."""


def make_ladder(first: Attack, most: int, last: str = "") -> list[Attack]:
    """The attack that was asked for, and at most `most` stronger ones; `last` is the search of the
    strongest, where it is another one."""
    if first.search == GIVEN:
        first = replace(first, search="gibbs")
        ladder = [replace(first, search=GIVEN), first]
    else:
        ladder = [first]
    more_starts = replace(first, starts=max(first.starts, STARTS))
    wider = replace(more_starts, top=TIMES * first.top, sweeps=max(first.sweeps, LEAST_SWEEPS))
    ladder += [more_starts, wider]
    if any(aim.needs_language_model for aim in first.aims):
        wider = replace(wider, aims=(*first.aims, *(without_input(aim) for aim in first.aims)))
        ladder.append(wider)
    if last:
        ladder.append(replace(wider, search=last))
    return ladder[: most + 1]


def without_input(aim: Criterion) -> Criterion:
    """The same criterion without its condition on the input: `o` of an `io`."""
    return replace(aim, side="o")


def level_of(steps: Sequence[Step], ladder: Sequence[Attack]) -> int:
    """Where the next iteration searches."""
    return min(sum(step.found <= step.of // FEW for step in steps), len(ladder) - 1)


def is_done(steps: Sequence[Step], ladder: Sequence[Attack]) -> bool:
    """Whether the strongest attack found nothing. Without a ladder every iteration is run, as published."""
    return len(ladder) > 1 and bool(steps) and steps[-1].level == len(ladder) - 1 and not steps[-1].found
