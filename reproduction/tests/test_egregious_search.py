"""One search of the study: the papers' counting of hits, curves, and what of a target's text may leave it."""

import json
from pathlib import Path

import pytest

from backtalk.models.lstm.model import LocalModel
from backtalk.registry import load_model
from backtalk.store import Run
from backtalk.types import Finding, Target
from reproduction.egregious.paper import SIZES
from reproduction.egregious.search import best_findings, mean_curve, search, search_settings, sum_up
from reproduction.page import Result
from reproduction.runner import Workplace

OWN, FOREIGN, UNKNOWN = "you are so boring", "i like the weather today", "zzgrblx you"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("study"), "cpu", part="part")


@pytest.fixture(scope="module")
def found(place: Workplace) -> Result:
    model = load_model("chitchat", "cpu")
    assert isinstance(model, LocalModel)
    targets = [Target(str(i), text) for i, text in enumerate((OWN, FOREIGN, UNKNOWN))]
    return search(place, "planted", model, targets, search_settings(SIZES["mini"], "o-sample-min-k1"))


def test_only_targets_of_our_own_list_leave_as_text(found: Result) -> None:
    text = json.dumps(found)
    assert [one["target"] for one in found["own"]] == [OWN]
    assert FOREIGN not in text
    assert "weather" not in text
    assert found["targets"].keys() == {"0", "1"}


def test_counts_are_those_of_the_stored_run(found: Result, place: Workplace) -> None:
    with Run.open(place.path("runs", "planted")) as run:
        findings = run.findings()
    assert (found["n"], found["skipped"], found["restarts"]) == (2, 1, 2)
    assert found["candidates"] == sum(finding.candidates for finding in findings)
    for case in ("0", "1"):
        own = [f for f in findings if f.case == case]
        lowest = min(own, key=lambda f: f.scores["loss"])
        assert found["targets"][case]["mean"] == lowest.scores["mean"]
        met = lowest.scores["mean"] > found["thresholds"]["T_out"]
        assert ("o-sample-avg-k1" in found["targets"][case]["hits"]) is met
    hits = sum("o-sample-avg-k2" in row["hits"] for row in found["targets"].values())
    assert found["hits"]["o-sample-avg-k2"]["best"]["hits"] == hits
    assert found["by_restarts"]["2"]["o-sample-avg-k2"]["hits"] == hits


def test_a_finished_search_is_read_again_not_run_again(found: Result, place: Workplace) -> None:
    assert sum_up(place.path("runs", "planted")) == found


def test_a_list_that_can_not_be_said_gives_an_empty_result(place: Workplace) -> None:
    model = load_model("chitchat", "cpu")
    assert isinstance(model, LocalModel)
    settings = search_settings(SIZES["mini"], "o-greedy")
    for targets in ([], [Target("0", UNKNOWN)]):
        empty = search(place, "empty", model, targets, settings)
        assert (empty["n"], empty["skipped"], empty["hits"]) == (0, len(targets), {})


def finding(case: str, restart: int, loss: float, curve: list[float], status: str = "found") -> Finding:
    return Finding(case, restart, status, "", scores={"loss": loss}, series={"curve": curve})


def test_the_best_restart_is_the_found_one_of_lowest_loss_and_the_first_of_equals() -> None:
    findings = [
        finding("a", 0, 2.0, []),
        finding("a", 1, 1.0, []),
        finding("a", 2, 1.0, []),
        finding("a", 3, 0.0, [], "nothing"),
        finding("b", 0, float("nan"), []),
        finding("b", 1, 9.0, []),
    ]
    for order in (findings, list(reversed(findings))):
        assert {case: best.restart for case, best in best_findings(order).items()} == {"a": 1, "b": 1}


def test_rows_that_stopped_keep_their_last_value() -> None:
    findings = [
        finding("a", 0, 0, [4.0, 2.0, 1.0]),
        finding("a", 1, 0, [100.0]),
        finding("b", 0, 0, [2.0]),
        finding("c", 0, 0, [100.0]),
    ]
    assert mean_curve(findings, "curve", targets=2) == [3.0, 2.0, 1.5]
    assert mean_curve(findings, "absent") == []


def test_the_list_is_written_where_footnote_8_looks(found: Result, place: Workplace) -> None:
    assert Path(place.path("lists", "planted.jsonl")).read_text().count("\n") == 3
