"""Verifying played conversations: every number is measured again from the stored words, and the model's turns
are drawn again with the stored seeds.

The adversary's turns are taken as they are: whoever said them, the model answered. In half precision another
batch may draw other words; then a hit counts as confirmed if its numbers follow from the stored words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from backtalk.adversarial.facts import likely_prompt, usual_pairs
from backtalk.adversarial.play import prompt_tokens, score
from backtalk.blackbox.job import rounds_coarsely
from backtalk.blackbox.recheck import COARSE, TOLERANCE
from backtalk.errors import InputError
from backtalk.exchanges import Exchange, exchanges_of, finding_of
from backtalk.models.reverse import draw_seed
from backtalk.models.transformer.model import TransformerModel
from backtalk.outcome import Verdict, count_confirmed, other_thresholds
from backtalk.protocols import Scorer, TextModel
from backtalk.reference import pairs_fingerprint
from backtalk.registry import load_scorer
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.conversation import Conversation
from backtalk.searches.ast.defender import Defender
from backtalk.searches.ast.reward import reward_of
from backtalk.searches.ast.rollout import DEFENDER
from backtalk.store import Run
from backtalk.store.faults import reading
from backtalk.store.typed import read_record
from backtalk.types import Finding, Thresholds


def play_again(run: Run, model: TextModel, device: str) -> Verdict:
    if not isinstance(model, TransformerModel):
        raise InputError(f"{run.spec['model']} is no Hugging Face model; there is nothing to play with")
    with reading(run.folder):
        config = read_record(AstConfig, run.facts["config"])
    config.check()
    defender = Defender(model, config.manner, config.context)
    reward, second = _scorers(run, device)
    problems = []
    if model.fingerprint != run.facts["fingerprint"]:
        problems.append(f"{run.spec['model']} is not the model that was audited")
    findings = [finding for finding in run.findings() if finding.status == "found"]
    coarse = rounds_coarsely(model) or bool(run.facts.get("coarse"))
    other = _other_replies(defender, findings)
    again, unknown = _likely_again(run, defender)
    problems += other_thresholds(run, again, COARSE if coarse else TOLERANCE) if again else []
    wrong = []
    for place, (finding, anew) in enumerate(
        zip(findings, _measured_again(defender, reward, second, config, findings), strict=True)
    ):
        own = _differences(run, finding, anew, coarse)
        if place in other and not coarse:
            own.append(f"case {finding.case}: the model now replies otherwise in turn {other[place]}")
        wrong.append(bool(own))
        problems += own
    hits, confirmed = count_confirmed(run, findings, wrong, again)
    notes = [
        f"the model rounds in half precision: in {len(other)} of {len(findings)} conversations it now draws "
        "other words; their hits count as confirmed if the numbers follow from the stored ones"
    ]
    right = model.fingerprint == run.facts["fingerprint"]
    return Verdict(
        len(findings),
        hits,
        confirmed if right else 0,
        problems,
        [*(notes if other and coarse else []), *unknown],
        "played again",
    )


def _likely_again(run: Run, defender: Defender) -> tuple[Thresholds | None, list[str]]:
    """T_in from the reference that the run names; None, and why, where that is another now."""
    try:
        pairs = usual_pairs(str(run.spec["reference"]))
        if pairs_fingerprint(pairs) != run.facts["depends_on"].get("reference pairs"):
            raise InputError("its reference pairs are others now")
    except InputError as error:
        return None, [f"T_in was not measured again: {error}"]
    return Thresholds(math.nan, likely_prompt(defender, pairs)), []


def _scorers(run: Run, device: str) -> tuple[Scorer, Scorer | None]:
    reward = load_scorer(run.facts["scorer"], device)
    second = load_scorer(run.facts["second_scorer"], device) if run.facts["second_scorer"] else None
    stored = run.facts["depends_on"]
    for name, scorer in (("toxicity scorer's weights", reward), ("second scorer's weights", second)):
        if scorer is not None and stored.get(name) != scorer.fingerprint:
            raise InputError(f"the {name} of {run.folder} are others now; bring back those it was made with")
    return reward, second


def _conversations(finding: Finding) -> list[Conversation]:
    """What was said before each turn of the adversary."""
    so_far: Conversation = (finding.target,)
    found = []
    for one in exchanges_of(finding):
        found.append(so_far)
        so_far = (*so_far, one.adversary, one.defender)
    return found


def _other_replies(defender: Defender, findings: Sequence[Finding]) -> dict[int, int]:
    """The findings whose model says something else when its turns are drawn again, and from which turn."""
    rows = [
        (place, turn, (*before, one.adversary), one.defender, draw_seed(finding.seed, turn, DEFENDER))
        for place, finding in enumerate(findings)
        for turn, (before, one) in enumerate(zip(_conversations(finding), exchanges_of(finding), strict=True))
    ]
    answers = defender.answer([row[2] for row in rows], [row[4] for row in rows]) if rows else []
    found: dict[int, int] = {}
    for (place, turn, _, stored, _), answer in zip(rows, answers, strict=True):
        if answer != stored:
            found.setdefault(place, turn + 1)
    return found


def _measured_again(
    defender: Defender,
    reward: Scorer,
    second: Scorer | None,
    config: AstConfig,
    findings: Sequence[Finding],
) -> list[Finding]:
    """The findings from their words alone."""
    before = [one for finding in findings for one in _conversations(finding)]
    said = [one for finding in findings for one in exchanges_of(finding)]
    asked, answered = [one.adversary for one in said], [one.defender for one in said]
    both = [a + d for a, d in zip(asked, answered, strict=True)]
    toxicity, pair, alone = (score(reward, texts) for texts in (answered, both, asked))
    rated, rated_pair = (score(second, texts) for texts in (answered, both))
    log_ppl = defender.log_ppl(before, asked) if said else []
    fresh = iter(
        Exchange(
            *(asked[i], answered[i], toxicity[i], pair[i], alone[i], log_ppl[i]),
            prompt_tokens(defender, before[i], asked[i]),
            reward_of(toxicity[i], pair[i], log_ppl[i], config.reward),
            *(rated[i], rated_pair[i]),
        )
        for i in range(len(said))
    )
    return [finding_of(f.case, [f.target], [next(fresh) for _ in exchanges_of(f)], f.seed) for f in findings]


def _differences(run: Run, finding: Finding, again: Finding, coarse: bool) -> list[str]:
    where = f"case {finding.case}"
    tolerance = COARSE if coarse else TOLERANCE
    problems = []
    for name, values in again.series.items():
        stored = finding.series.get(name, [])
        if len(stored) != len(values) or not all(
            math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))
            for a, b in zip(stored, values, strict=True)
        ):
            problems.append(f"{where}: {name} of the turns can't be reproduced from what is stored")
    problems += [
        f"{where}: {name} is stored as {finding.scores.get(name, math.nan):.4f}, but what is stored "
        f"recomputes to {value:.4f}"
        for name, value in again.scores.items()
        if not math.isclose(finding.scores.get(name, math.nan), value, rel_tol=tolerance, abs_tol=tolerance)
    ]
    if finding.reply != again.reply:
        problems.append(f"{where}: the reply is not that of the worst turn")
    texts = {target.id: target.text for target in run.targets}
    if finding.target != texts.get(finding.case):
        problems.append(f"{where}: the stored opening is not the case's")
    return problems
