"""Fixed inputs, without a search: each sentence is scored after each of its inputs, and the model replies to
them. So two models can be compared on what was found in one of them. A case is hit if any of its inputs is.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from backtalk.audit.backend import Backend, Recomputed, Reporter, digest
from backtalk.audit.reference import Reference
from backtalk.errors import InputError
from backtalk.protocols import LogprobModel, Scorer
from backtalk.scorers.likelihood import summed
from backtalk.searches.watch import Watch
from backtalk.store import Run
from backtalk.types import Access, Dialogue, Finding, SpokenTurn, Target, Thresholds, Turn

BLOCK = 64


@dataclass(frozen=True)
class FixedInputs:
    """Scores every sentence after fixed inputs."""

    name: ClassVar[str] = "given"
    backend: ClassVar[str] = "fixed"
    needs: ClassVar[Access] = Access.LOGPROBS


@dataclass(frozen=True)
class FoundCase:
    """A sentence that the model should not say, with the inputs after which it did."""

    target: Target
    inputs: tuple[Dialogue, ...] = ()


Replying = Callable[[Sequence[Dialogue]], list[str]]  # gives a reply to each dialogue


class FixedBackend(Backend):
    """Scores sentences after `overrides.inputs`, judged by `overrides.reference`."""

    model: LogprobModel

    def depends_on(self) -> dict[str, str]:
        if self.overrides.reference is None or not self.overrides.inputs:
            raise InputError("the inputs of this run come from `backtalk harden`; run that command again")
        thresholds = repr(tuple(self.overrides.reference.thresholds))
        found = {"thresholds": thresholds, "inputs": inputs_digest(self.overrides.inputs)}
        return {**self.scorer_fingerprints(), **found}

    def measure_thresholds(self, report: Reporter, most: int = 0) -> Reference:
        assert self.overrides.reference is not None
        return self.overrides.reference

    def block_size(self) -> int:
        return BLOCK

    def search(self, cases: Sequence[Any], watch: Watch) -> list[Finding]:
        found = [FoundCase(case, tuple(self.overrides.inputs[case.id])) for case in cases]
        return score_inputs(self.model, found, self.judge)

    def remeasure_thresholds(self, run: Run) -> Thresholds | None:
        return None  # they are the original model's

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        targets = {case.id: case for case in run.cases if isinstance(case, Target)}
        cases = [FoundCase(targets[id], tuple(own)) for id, own in inputs_of(findings).items()]
        return Recomputed(score_inputs(self.model, cases, self.judge))


def score_inputs(
    model: LogprobModel,
    cases: Sequence[FoundCase],
    scorer: Scorer | None = None,
    reply: Replying | None = None,
) -> list[Finding]:
    """One finding for each input: the likelihood of the sentence after it, and the model's reply (greedy by
    default)."""
    rows = [(case.target, number, one) for case in cases for number, one in enumerate(case.inputs)]
    if not rows:
        return []
    begun = time.perf_counter()
    dialogues = [dialogue for _, _, dialogue in rows]
    tokens = model.log_prob(dialogues, [target.text for target, _, _ in rows])
    asked = list(dict.fromkeys(dialogues))  # cases may share an input
    answers = dict(zip(asked, (reply or model.reply)(asked), strict=True))
    replies = [answers[dialogue] for dialogue in dialogues]
    rated: list[dict[str, float]] = [{} for _ in replies]
    if scorer is not None:
        rated = [{"toxicity": float(value)} for value in scorer.score(replies).tolist()]
    seconds = (time.perf_counter() - begun) / len(rows)
    findings = []
    for (target, number, dialogue), own, answer, toxicity in zip(rows, tokens, replies, rated, strict=True):
        greedy = float(answer.split() == target.text.split())
        scores = {**summed(own), "greedy": greedy, "loss": -sum(own) / len(own), **toxicity}
        turns = tuple(SpokenTurn(*turn) for turn in dialogue)
        series = {"token_log_probs": own}
        one = Finding(target.id, number, "found", target.text, turns, answer, scores, series)
        findings.append(replace(one, candidates=1, queries=1, seconds=seconds))
    return findings


def inputs_digest(inputs: Mapping[str, Sequence[Dialogue]]) -> str:
    return digest({case: [[list(turn) for turn in one] for one in own] for case, own in inputs.items()})


def inputs_of(findings: Sequence[Finding]) -> dict[str, list[Dialogue]]:
    inputs: dict[str, list[Dialogue]] = {}
    for finding in findings:
        said = tuple(Turn(turn.role, turn.text) for turn in finding.turns)
        inputs.setdefault(finding.case, []).append(said)
    return inputs
