"""Gates on findings written by hand: what they count, what they pair, and what they can't judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.hits import Criterion, parse_criterion, rates_by_category
from backtalk.runs.gates import GateResult, Gates, check_gates, judge
from backtalk.specs import spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.types import Finding, Target, Thresholds

SIMILAR = parse_criterion("similar-0.7")
THRESHOLDS = Thresholds(math.nan, -4.0)
TARGETS = [Target(f"t{n}", f"sentence {n}") for n in range(40)]


def found(target: Target, similarity: float) -> Finding:
    return Finding(target.id, 0, "found", target.text, reply="fine", scores={"similarity": similarity})


def failed(target: Target) -> Finding:
    return Finding(target.id, 0, "failed", target.text, note="no usable reply")


def judge_by(
    gates: Gates,
    findings: Sequence[Finding],
    asked: Criterion = SIMILAR,
    thresholds: Thresholds = THRESHOLDS,
) -> GateResult:
    """The result of the one gate, after that of --min-scored."""
    table = rates_by_category(TARGETS, findings, [asked], thresholds)[""]
    summary = {
        "run": "run",
        "hit": asked.name,
        "hits": {name: rate.as_dict() for name, rate in table.items()},
        "cases": len(findings),
        "scored": sum(one.status == "found" for one in findings),
        "failed": sum(one.status == "failed" for one in findings),
        "skipped": 0,
        "failures": {},
        "scorer": "one",
        "scorer_fingerprint": "its weights",
    }
    scored, result = judge(summary, findings, thresholds, gates)
    assert scored.name.startswith("--min-scored")
    assert scored.failed == any(one.status == "failed" for one in findings)
    return result


def test_cases_that_could_not_be_asked_do_not_count_as_passed() -> None:
    passed = [found(target, 0.1) for target in TARGETS]
    one = judge_by(Gates(fail_over=0.1), passed)
    assert (one.failed, "8.8%" in one.said, "sentences" in one.said) == (False, True, False)
    one = judge_by(Gates(fail_over=0.1), [*passed[:2], *map(failed, TARGETS[2:])])
    assert (one.failed, "65.8%" in one.said, "38 sentences" in one.said) == (True, True, True)


def keep(
    folder: Path,
    targets: Sequence[Target],
    findings: Sequence[Finding],
    t_in: float | None = -4.0,
    rater: str = "its weights",
) -> Gates:
    """A run to be the baseline."""
    facts = {
        "thresholds": {"T_out": math.nan, "T_in": t_in},
        "scorer": "the one before",
        "depends_on": {"scorer's weights": rater},
    }
    values = {**spec_values(AuditSpec()), "hit": "similar-0.7"}
    with Run.create(folder, values, facts, targets, "identity", len(targets)) as run:
        run.commit_block(0, findings, 1.0)
    return Gates(baseline=str(folder))


def test_a_line_more_in_the_list_pairs_no_sentence_with_another(tmp_path: Path) -> None:
    """The ids of a plain text file are line numbers."""
    lines = [f"sentence {n}" for n in range(20)]
    old = [Target(str(n), text) for n, text in enumerate(lines)]
    gates = keep(tmp_path / "old", old, [found(target, 0.9) for target in old])
    new = [Target(str(n), text) for n, text in enumerate([lines[0], "another", *lines[1:]])]
    assert judge_by(gates, [found(target, 0.9) for target in new]).said.startswith("1 -> 1 hits of 1 ")
    with pytest.raises(InputError, match="no sentence in common"):
        judge_by(gates, [found(target, 0.9) for target in new[1:]])


def test_a_baseline_is_judged_by_its_own_thresholds(tmp_path: Path) -> None:
    likely = parse_criterion("similar-0.7+likely")
    mild = [
        Finding(t.id, 0, "found", t.text, reply="fine", scores={"similarity": 0.9, "input_mean": -5.0})
        for t in TARGETS
    ]
    gates = keep(tmp_path / "old", TARGETS, mild, t_in=-6.0)
    for into, hits in ((-5.5, 40), (-4.0, 0)):
        one = judge_by(gates, mild, likely, Thresholds(math.nan, into))
        assert one.said.startswith(f"40 -> {hits} hits of 40 ")


def test_a_baseline_that_cannot_decide_the_criterion_is_one_sentence(tmp_path: Path) -> None:
    gates = keep(tmp_path / "old", TARGETS, [found(target, 0.9) for target in TARGETS])
    average = parse_criterion("o-sample-avg-k1")
    findings = [Finding(t.id, 0, "found", t.text, scores={"mean": -1.0}) for t in TARGETS]
    with pytest.raises(InputError, match=r"o-sample-avg-k1 .*--baseline"):
        judge_by(gates, findings, average, Thresholds(-2.0))


def test_a_baseline_that_another_scorer_rated_is_refused(tmp_path: Path) -> None:
    toxic = parse_criterion("toxic-0.5")
    rated = [Finding(t.id, 0, "found", t.text, reply="fine", scores={"toxicity": 0.9}) for t in TARGETS]
    same, other = (keep(tmp_path / name, TARGETS, rated, rater=name) for name in ("its weights", "others"))
    assert judge_by(same, rated, toxic).said.startswith("40 -> 40 hits of 40 ")
    with pytest.raises(InputError, match="rated by the one before, this run by another scorer"):
        judge_by(other, rated, toxic)
    near = [found(target, 0.9) for target in TARGETS]  # no scorer decides whether a reply is similar
    assert judge_by(keep(tmp_path / "near", TARGETS, near, rater="x"), near).said.startswith("40 -> 40 ")


@pytest.mark.parametrize("search", ["gibbs", "reverse", "ast"])
@pytest.mark.parametrize(
    ("gate", "phrase"),
    [
        (["--baseline", "nosuch"], "nosuch"),
        (["--junit", "nosuch/result.xml"], "there is no folder"),
        (["--junit", "."], "is a folder"),
    ],
    ids=["baseline", "junit", "folder"],
)
def test_what_a_gate_needs_is_looked_for_before_the_model_loads(
    search: str,
    gate: list[str],
    phrase: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("backtalk.audit.flow.load_model", None)  # calling it would be a TypeError
    assert run(["audit", "--search", search, "--out", "run", *gate]) == 2
    assert phrase in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    keep(tmp_path / "old", TARGETS, [])
    assert run(["resume", "old", *gate]) == 2
    assert phrase in capsys.readouterr().err


def test_a_result_may_lie_beside_what_the_run_will_make(tmp_path: Path) -> None:
    check_gates(Gates(junit=str(tmp_path / "runs" / "result.xml")), "", tmp_path / "runs" / "mine")
    check_gates(Gates(junit=str(tmp_path / "runs" / "mine" / "result.xml")), "", tmp_path / "runs" / "mine")
