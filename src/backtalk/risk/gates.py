"""The gate of a risk estimate, and its result as JUnit XML.

`--fail-over X` judges the upper bound, which holds whatever the draws missed. With `--gate normal` it judges
the normal interval, and says so. A bound of so few draws that no model could pass is refused beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

from backtalk.errors import InputError
from backtalk.report.page import page_environment
from backtalk.report.risk_record import RiskEstimate, number
from backtalk.risk.bounds import fewest_draws
from backtalk.runs.gates import GateResult
from backtalk.specs.risk import Judged
from backtalk.wording import duration


@dataclass(frozen=True)
class RiskGates:
    """When an estimate is a failure (exit status 3), and how it is shown."""

    fail_over: float | None = None  # the most bad replies per --per turns
    gate: Judged = "bound"
    unmask: bool = False
    junit: str = ""


NO_GATES = RiskGates()


def fewest(gates: RiskGates, limit: float, per: float) -> int:
    """The fewest draws with which the gate can pass; 0 if any number can."""
    if gates.fail_over is None or gates.gate == "normal":
        return 0
    if gates.fail_over <= 0:
        raise InputError(
            "--fail-over 0 can't pass: no number of draws shows that a risk is 0; name a number above"
        )
    return fewest_draws(limit, gates.fail_over / per)


def refuse_hopeless(
    gates: RiskGates, limit: float, per: float, planned: int, draw_s: float = 0.0, left_s: float = 0.0
) -> int:
    """Refuses a gate that can't pass with the planned draws, or in the time that is left if a draw takes
    `draw_s`. Returns the fewest draws with which it can."""
    least = fewest(gates, limit, per)
    if least <= planned:
        if draw_s and left_s and least * draw_s > left_s:
            why = f"--fail-over {gates.fail_over:g} needs {least:,} draws, about {duration(least * draw_s)}"
            raise InputError(f"{why}, and --max-time ends sooner; give more time, or use --gate normal")
        return least
    why = (
        f"--fail-over {gates.fail_over:g} needs at least {least:,} draws to pass, and {planned:,} are planned"
    )
    raise InputError(f"{why}; raise --draws, or use --gate normal, which trusts the draws to miss nothing")


def judge_risk(found: RiskEstimate, gates: RiskGates) -> list[GateResult]:
    if gates.fail_over is None:
        return []
    normal = gates.gate == "normal"
    upper = found.normal95[1] if normal else found.upper
    what = "the normal interval, if the draws missed nothing," if normal else "the upper bound"
    said = f"{what} is {number(upper)} per {found.volume} ({found.draws:,} draws)."
    name = f"--fail-over {gates.fail_over:g}" + " --gate normal" * normal
    return [GateResult(name, upper > gates.fail_over, said)]


def risk_junit(found: RiskEstimate, judged: list[GateResult]) -> str:
    """One test for each gate; without a gate the estimate passes and is told."""
    return page_environment().get_template("risk_junit.xml").render(found=found, gates=judged, number=number)
