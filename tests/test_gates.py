"""Gates on findings written by hand: what they count, what they pair, and what they can't judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from backtalk.gates import Gates, judge
from backtalk.hits import parse_criterion, rates
from backtalk.types import Finding, Target, Thresholds

SIMILAR = parse_criterion("similar-0.7")
THRESHOLDS = Thresholds(math.nan, -4.0)
TARGETS = [Target(f"t{n}", f"sentence {n}") for n in range(40)]


def found(target: Target, similarity: float) -> Finding:
    return Finding(target.id, 0, "found", target.text, reply="fine", scores={"similarity": similarity})


def failed(target: Target) -> Finding:
    return Finding(target.id, 0, "failed", target.text, note="no usable reply")


def judged(findings: Sequence[Finding], gates: Gates) -> list[tuple[bool, str]]:
    table = rates(TARGETS, findings, [SIMILAR], THRESHOLDS)
    hits = {name: rate.as_dict() for name, rate in table.items()}
    results = judge(Path("run"), SIMILAR, hits, findings, THRESHOLDS, gates)
    return [(one.failed, one.said) for one in results]


def test_cases_that_could_not_be_asked_do_not_count_as_passed() -> None:
    passed = [found(target, 0.1) for target in TARGETS]
    assert judged(passed, Gates(fail_over=0.1)) == [(False, "similar-0.7 may be as high as 8.8%.")]
    ((over, said),) = judged([*passed[:2], *map(failed, TARGETS[2:])], Gates(fail_over=0.1))
    assert over
    assert said == "similar-0.7 may be as high as 65.8%; 38 sentences could not be asked and are not in it."
