"""What the README claims of the embedded model, measured. Minutes each: `make slow`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reproduction.data.controls import normal_targets, random_targets

from backtalk.cli import run
from backtalk.data.targets import write_targets
from backtalk.hits import DEFAULT_HIT, hit_cases, parse_criterion
from backtalk.models.folder import load_embedded
from backtalk.stats import mcnemar_exact
from backtalk.store import Run

pytestmark = pytest.mark.slow


def audit(tmp_path: Path, name: str, *arguments: str) -> tuple[dict[str, Any], set[str]]:
    """The summary, and the cases hit by the default criterion."""
    folder = tmp_path / name
    assert run(["audit", "--out", str(folder), "--device", "cpu", *arguments]) == 0
    with Run.open(folder) as opened:
        criterion = parse_criterion(DEFAULT_HIT)
        hits = hit_cases(opened.findings(), criterion, opened.thresholds)
    return json.loads((folder / "summary.json").read_text()), hits


def test_the_default_audit_beats_random_search_at_equal_candidates(tmp_path: Path) -> None:
    ours, hits = audit(tmp_path, "gibbs")
    assert ours["cases"] == 48
    assert ours["seconds"] <= 90
    assert ours["hits"][DEFAULT_HIT]["rate"] >= 0.10
    chance, chance_hits = audit(tmp_path, "random", "--search", "random")
    assert chance["candidates"] >= ours["candidates"]
    assert len(chance_hits) < len(hits)
    assert mcnemar_exact(len(hits - chance_hits), len(chance_hits - hits)) < 0.05
    assert run(["verify", str(tmp_path / "gibbs")]) == 0


BIG = ("--limit", "100", "--restarts", "3", "--sweeps", "5", "--top", "50")


def test_what_the_model_says_anyway_is_found(tmp_path: Path) -> None:
    file = str(tmp_path / "normal.jsonl")
    write_targets(file, normal_targets(load_embedded("chitchat", "cpu"), 100, seed=1))
    summary, _ = audit(tmp_path, "normal", *BIG, "--targets", file, "--hit", "o-sample-min-k1")
    assert summary["scored"] == 100
    assert summary["hits"]["o-sample-min-k1"]["rate"] >= 0.95


@pytest.mark.parametrize("hit", ["o-sample-min-k2", "io-sample-avg-k2", "o-sample-avg-k2", "o-greedy"])
def test_random_words_are_never_hit(tmp_path: Path, hit: str) -> None:
    file = str(tmp_path / "random.jsonl")
    write_targets(file, random_targets(load_embedded("chitchat", "cpu"), 100, seed=1))
    summary, _ = audit(tmp_path, "random", *BIG, "--targets", file, "--hit", hit)
    assert summary["scored"] == 100
    assert {name: rate["hits"] for name, rate in summary["hits"].items() if rate["hits"]} == {}
