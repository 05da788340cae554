"""A run over inputs that are given: nothing is searched, each sentence is scored after each of its inputs,
and the model is really asked. So two models can be compared on what was found in one of them.

The run is an ordinary one: `report`, `compare` and `export` read it. A case is hit if any of its inputs is.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from backtalk.blocks import end_work, open_run, versions, work_through
from backtalk.consent import Consent
from backtalk.errors import InputError
from backtalk.models.options import ModelOptions
from backtalk.outcome import Verdict, count_confirmed, summarise
from backtalk.protocols import LogprobModel, Scorer, ShowsTokens
from backtalk.registry import load_model, load_scorer
from backtalk.spec import AuditSpec, build_spec, spec_values
from backtalk.store import Run, identity_of
from backtalk.types import Dialogue, Finding, SpokenTurn, Target, Thresholds, Turn

SEARCH = "given"
"""What such a run says that its search was."""
BLOCK = 64
TOLERANCE = 1e-4
"""On a log-probability: other batches and processors round differently."""


@dataclass(frozen=True)
class FoundCase:
    """A sentence that the model should not say, with the inputs after which it did."""

    target: Target
    inputs: tuple[Dialogue, ...]


@dataclass(frozen=True)
class Judged:
    """By what a run is judged."""

    hit: str
    thresholds: Thresholds
    source: str
    """Where the thresholds come from: one sentence."""
    options: ModelOptions = field(default_factory=ModelOptions)
    """How the model is read."""


Replying = Callable[[Sequence[Dialogue]], list[str]]
"""Says something to each dialogue."""


def score_given(
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


def run_given(
    folder: Path,
    model: LogprobModel,
    cases: Sequence[FoundCase],
    spec: AuditSpec,
    judged: Judged,
    scorer: Scorer | None,
    console: Console,
) -> None:
    """Makes the run, or goes on with it; a finished one is left as it is."""
    targets = [case.target for case in cases]
    by_id = {case.target.id: case for case in cases}
    facts = {
        "thresholds": {"T_out": judged.thresholds.out, "T_in": judged.thresholds.into},
        "reference": judged.source,
        "fingerprint": model.fingerprint,
        "words": _pieces(model, targets),
        "read": spec_values(judged.options),
        "rated_by": "" if scorer is None else scorer.name,
        "versions": versions(),
        "hardware": {"machine": platform.machine(), "threads": torch.get_num_threads()},
    }
    identity = _identity(judged.hit, facts, cases, targets)
    with open_run(
        folder, identity, lambda: Run.create(folder, spec_values(spec), facts, targets, identity, BLOCK)
    ) as run:
        todo = sorted(set(range(run.blocks)) - run.done_blocks())
        if todo:
            run.set_state("running")
            work_through(
                run,
                todo,
                lambda block: score_given(model, [by_id[target.id] for target in block], scorer),
                lambda: "",
                console,
            )
            end_work(run, "")
        run.write_summary(summarise(run))


def _identity(
    hit: str, facts: Mapping[str, Any], cases: Sequence[FoundCase], targets: Sequence[Target]
) -> str:
    inputs = [[list(turn) for turn in one] for case in cases for one in case.inputs]
    said = {"hit": hit, "thresholds": facts["thresholds"], "inputs": inputs}
    return identity_of(said, facts["fingerprint"], targets)


def _pieces(model: LogprobModel, targets: Sequence[Target]) -> dict[str, list[str]]:
    """The tokens of each sentence as text, where the model shows them."""
    if not isinstance(model, ShowsTokens):
        return {}
    return {target.text: model.tokens(target.text) for target in targets}


def check_again(run: Run, name: str, device: str, consent: Consent) -> Verdict:
    """Every finding of such a run from scratch: for `backtalk verify`."""
    options = build_spec(ModelOptions, run.facts["read"], f"the facts of {run.folder}")
    model = load_model(name, device, options, consent.trusted)
    if not isinstance(model, LogprobModel):
        raise InputError(f"{name} gives no log-probabilities to verify with")
    scorer = None
    if run.facts["rated_by"]:
        scorer = load_scorer(run.facts["rated_by"], device)
    problems = []
    if model.fingerprint != run.facts["fingerprint"]:
        problems.append(f"the weights of {name} are not those that were asked, or are read in another way")
    stored, texts = run.findings(), {target.id: target for target in run.targets}
    cases: dict[str, FoundCase] = {}
    for finding in stored:
        own = cases.get(finding.case, FoundCase(texts[finding.case], ()))
        said = tuple(Turn(turn.role, turn.text) for turn in finding.turns)
        cases[finding.case] = replace(own, inputs=(*own.inputs, said))
    again = score_given(model, list(cases.values()), scorer)
    if _identity(run.spec["hit"], run.facts, list(cases.values()), run.targets) != run.identity:
        problems.append("the thresholds, sentences or inputs are not those that the run was begun with")
    doubtful = bool(problems)
    wrong = []
    for old, new in zip(stored, again, strict=True):
        found = _differences(old, new)
        problems += found
        wrong.append(bool(found))
    hits, confirmed = count_confirmed(run, stored, wrong, None)
    return Verdict(len(stored), hits, 0 if doubtful else confirmed, problems)


def _differences(old: Finding, new: Finding) -> list[str]:
    where = f"case {old.case}, input {old.restart + 1}"
    problems = [
        f"{where}: {name} is stored as {old.scores.get(name, math.nan):.6f} but recomputes to {value:.6f}"
        for name, value in new.scores.items()
        if not math.isclose(old.scores.get(name, math.nan), value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    ]
    if old.reply != new.reply:
        problems.append(f"{where}: the greedy reply is stored as another one than the model gives")
    if (old.case, old.target) != (new.case, new.target):
        problems.append(f"{where}: the stored target is not the case's")
    return problems
