"""Inputs that are given: nothing is searched. Each sentence is scored after each of its inputs, and the model
is asked what it says. So two models can be compared on what was found in one of them. A case is hit if any of
its inputs is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from backtalk.audit.backend import Backend, Recomputed, Reporter, digest
from backtalk.audit.reference import Reference
from backtalk.errors import InputError
from backtalk.protocols import LogprobModel, Scorer
from backtalk.registry import load_scorer
from backtalk.runs.summary import thresholds_of
from backtalk.store import Run
from backtalk.types import Access, Case, Dialogue, Finding, SpokenTurn, Target, Thresholds, Turn

BLOCK = 64


@dataclass(frozen=True)
class FixedInputs:
    """Every sentence after inputs that are given."""

    name: ClassVar[str] = "given"
    backend: ClassVar[str] = "fixed"
    needs: ClassVar[Access] = Access.LOGPROBS

    scorer: str = ""
    """Rates the toxicity of replies."""


@dataclass(frozen=True)
class FoundCase:
    """A sentence that the model should not say, with the inputs after which it did."""

    target: Target
    inputs: tuple[Dialogue, ...]


Replying = Callable[[Sequence[Dialogue]], list[str]]
"""Says something to each dialogue."""


class FixedBackend(Backend):
    """Scores sentences after `given.inputs`, judged by `given.reference`."""

    model: LogprobModel

    @property
    def cases(self) -> Sequence[Case]:
        return self.given.cases or ()

    @cached_property
    def scorer(self) -> Scorer | None:
        name = self.spec.search.scorer
        return load_scorer(name, self.spec.device) if name else None

    def depends_on(self) -> dict[str, str]:
        if self.given.reference is None or not self.given.inputs:
            raise InputError("the inputs of this run were given by `backtalk harden`; run that command again")
        return _depends(self.given.reference.thresholds, self.given.inputs)

    def measure_thresholds(self, report: Reporter) -> Reference:
        assert self.given.reference is not None
        return self.given.reference

    def block_size(self) -> int:
        return BLOCK

    def search(self, cases: Sequence[Any]) -> list[Finding]:
        found = [FoundCase(case, tuple(self.given.inputs[case.id])) for case in cases]
        return score_inputs(self.model, found, self.scorer)

    def stored_dependencies(self, run: Run) -> dict[str, str]:
        return _depends(thresholds_of(run), _inputs(run.findings()))

    def remeasure_thresholds(self, run: Run) -> Thresholds | None:
        return None  # they are those of the model before the hardening

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        targets = {case.id: case for case in run.cases if isinstance(case, Target)}
        inputs = _inputs(findings)
        cases = [FoundCase(targets[id], tuple(own)) for id, own in inputs.items()]
        return Recomputed(score_inputs(self.model, cases, self.scorer))


def score_inputs(
    model: LogprobModel,
    cases: Sequence[FoundCase],
    scorer: Scorer | None = None,
    reply: Replying | None = None,
) -> list[Finding]:
    """One finding an input: how likely the sentence is after it, and what the model really says (greedily,
    where nothing else is asked for)."""
    rows = [(case.target, number, one) for case in cases for number, one in enumerate(case.inputs)]
    if not rows:
        return []
    begun = time.perf_counter()
    dialogues = [dialogue for _, _, dialogue in rows]
    tokens = model.log_prob(dialogues, [target.text for target, _, _ in rows])
    asked = list(dict.fromkeys(dialogues))  # cases may share an input: it is asked once
    answers = dict(zip(asked, (reply or model.reply)(asked), strict=True))
    replies = [answers[dialogue] for dialogue in dialogues]
    rated = None if scorer is None else scorer.score(replies).tolist()
    seconds = (time.perf_counter() - begun) / len(rows)
    findings = []
    for place, (target, number, dialogue) in enumerate(rows):
        own = tokens[place]
        scores = {"log_prob": sum(own), "mean": sum(own) / len(own), "min": min(own)}
        scores["greedy"] = float(replies[place].split() == target.text.split())
        scores["loss"] = -scores["mean"]
        if rated is not None:
            scores["toxicity"] = float(rated[place])
        findings.append(
            Finding(
                case=target.id,
                restart=number,
                status="found",
                target=target.text,
                turns=tuple(SpokenTurn(turn.role, turn.text) for turn in dialogue),
                reply=replies[place],
                scores=scores,
                series={"token_log_probs": own},
                candidates=1,
                queries=1,
                seconds=seconds,
            )
        )
    return findings


def _depends(thresholds: Thresholds, inputs: Mapping[str, Sequence[Dialogue]]) -> dict[str, str]:
    said = {case: [[list(turn) for turn in one] for one in own] for case, own in inputs.items()}
    return {"thresholds": repr(tuple(thresholds)), "inputs": digest(said)}


def _inputs(findings: Sequence[Finding]) -> dict[str, list[Dialogue]]:
    inputs: dict[str, list[Dialogue]] = {}
    for finding in findings:
        said = tuple(Turn(turn.role, turn.text) for turn in finding.turns)
        inputs.setdefault(finding.case, []).append(said)
    return inputs
