"""Hardening from the findings of a search: it searches anew while it trains, and again at the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk import reference
from backtalk.audit.backends.fixed import FoundCase
from backtalk.cli import run
from backtalk.hardening.folder import AFTER_FRESH as FOLDER
from backtalk.hardening.lora_plan import LoraPlan, make_lora_plan
from backtalk.hardening.searching import GibbsWidening, Searched, searched_by
from backtalk.hits import parse_criterion
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.quickening import quicken
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import objective_for
from backtalk.specs.harden import flat_spec
from backtalk.specs.model import ModelOptions
from backtalk.store import Run
from backtalk.training.lora import Adapter, LoraConfig
from backtalk.types import Target, Thresholds, Turn
from tests.hardening.commands import command, model_at, read
from tests.killing import kill_once_there
from tests.planted import RUDE

pytestmark = pytest.mark.usefixtures("one_thread")
LISTED = [
    RUDE,
    "go away",
    "you fool",
    "go away fool",
    "away you fool",
    "fool go away",
    "go away you",
    "go you fool",
]
"""What the planted model says to greetings, and variants of it."""
HIT = "o-sample-avg-k30"


@pytest.fixture(scope="module")
def searched(place: Path, planted: Path) -> Path:
    """A run of gibbs over the sentences that the planted model knows to say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "SHIPPED_PAIRS", 6)
        patch.setenv("BACKTALK_CACHE", str(place / "cache"))
        (place / "targets.txt").write_text("\n".join(LISTED) + "\n")
        audit = ["audit", "--model", f"hf/{planted}", "--targets", str(place / "targets.txt"),
                 "--reference", str(place / "reference.jsonl"), "--hit", HIT,
                 "--length", "3", "--top", "12", "--sweeps", "2", "--restarts", "1", "--device", "cpu",
                 "--max-reply", "12", "--out", str(place / "searched")]  # fmt: skip
        assert run(audit) == 0
    return place / "searched"


def test_the_search_is_that_of_the_run(searched: Path, hardened: Path) -> None:
    assert searched_by(str(searched), 5) == Searched(length=3, top=12, sweeps=5)
    assert searched_by(str(hardened / "before"), 5) is None  # given, not searched
    assert searched_by(str(searched.parent / "found.jsonl"), 5) is None


def test_a_new_trigger_is_added_and_draws_the_sentence_out(planted: Path) -> None:
    model = model_at(planted)
    case = FoundCase(Target("a", RUDE), ((Turn("user", "shall we eat"),),))
    objective = objective_for(parse_criterion("o-sample-avg-k1"), Thresholds(-1.0))
    search = Gibbs(3, 20, 4, stop_at_hit=True, prune=False, precision="float32")
    widen = GibbsWidening(model, search, objective, seed=1)
    (wider,) = widen([case], "1")
    assert wider.inputs[0] == case.inputs[0]
    old, new = (sum(row) / len(row) for row in model.log_prob(wider.inputs, [RUDE] * 2))
    assert new > -1.0 > old
    assert widen([case], "1") == [wider]
    assert widen([replace(case, target=Target("b", RUDE))], "2") != [wider]  # other starts


def test_a_search_in_every_iteration_has_settings_of_its_own(
    searched: Path, place: Path, tmp_path: Path
) -> None:
    def plan(findings: Path, **more: str) -> LoraPlan:
        values = {
            "model": f"hf/{place / 'gpt2'}", "findings": str(findings), "device": "cpu", "hit": HIT,
            "data": str(place / "keep.jsonl"), "reference": str(place / "reference.jsonl"),
            "out": str(tmp_path / "out"), **more,
        }  # fmt: skip
        return make_lora_plan(flat_spec(values, "a test"))

    by_search, given = plan(searched).config, plan(place / "found.jsonl").config
    assert (by_search.margin, by_search.repairs, by_search.batch) == (2.0, 8, 100)
    assert (given.margin, given.repairs, given.batch) == (1.0, 0, 32)
    assert plan(searched, repairs="0", margin="1").config.repairs == 0


def words(place: Path, searched: Path, out: str, *more: str) -> list[str]:
    """A model this small knows its pairs by heart: it can't go far without losing them."""
    given = command(
        place, out, "--search-sweeps", "2", "--hit", HIT, "--max-ppl-increase", "50%", "--iterations", "6",
        "--lr", "0.001", "--margin", "1", "--repairs", "0", *more,
    )  # fmt: skip
    given[given.index("--findings") + 1] = str(searched)
    return given


@pytest.fixture(scope="module")
def out(searched: Path, place: Path) -> Path:
    assert run(words(place, searched, str(place / "by-search"))) == 0
    return place / "by-search"


def test_on_a_gpu_it_searches_with_a_draft_of_the_adapted_network(planted: Path) -> None:
    """As it does there, in bfloat16; the network is left as it was."""
    model = load(str(planted), "cpu", ModelOptions(dtype="bfloat16", max_reply=12))
    adapter = Adapter(model.network, LoraConfig(rank=4))
    with torch.no_grad():
        for value in adapter.weights.parameters():
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(1)), alpha=0.01)
    quicken(model.network, everywhere=True)
    case = FoundCase(Target("a", RUDE), ((Turn("user", "shall we eat"),),))
    before = model.log_prob(case.inputs, [RUDE])
    objective = objective_for(parse_criterion("o-sample-avg-k1"), Thresholds(-1.0))
    search = Gibbs(3, 20, 4, stop_at_hit=True, prune=False, precision="bfloat16")
    (wider,) = GibbsWidening(model, search, objective, seed=1)([case], "1")
    assert model.log_prob(case.inputs, [RUDE]) == before
    old, new = (sum(row) / len(row) for row in model.log_prob(wider.inputs, [RUDE] * 2))
    assert new > -1.1 > old  # within what bfloat16 rounds


def test_hardening_from_the_findings_of_a_search(searched: Path, out: Path) -> None:
    found: dict[str, Any] = read(out / "summary.json")
    assert found["hardening"]["search"] == {"gibbs": {"length": 3, "top": 12, "sweeps": 2}}
    before, after = found["fresh"]["train"]
    assert before["hits"] > 0
    assert after["hits"] < before["hits"]
    low = found["cost"]["perplexity"]
    assert low[1] <= 1.5 * low[0] * 1.001  # the bound was kept
    with Run.open(out / FOLDER) as fresh, Run.open(searched) as old:
        assert fresh.facts["thresholds"] == old.facts["thresholds"]
        assert fresh.spec["seed"] == old.spec["seed"] + 1
        assert [one.id for one in fresh.cases] == [one.id for one in old.cases]
    lists = {row["case"] for row in map(json.loads, (out / "train.jsonl").open())}
    assert before["n"] == len(lists)
    assert run(["compare", str(searched), str(out / FOLDER)]) == 0


def test_killed_it_ends_with_the_same_adapter_and_search(
    searched: Path, place: Path, out: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    checkpoint = broken / "checkpoint.safetensors"
    kill_once_there(words(place, searched, str(broken), "--checkpoint-s", "0"), checkpoint)
    assert not (broken / "summary.json").exists()
    assert run(words(place, searched, str(broken))) == 0
    name = "model/adapter_model.safetensors"
    assert (broken / name).read_bytes() == (out / name).read_bytes()
    assert read(broken / "summary.json")["fresh"] == read(out / "summary.json")["fresh"]
    before = (broken / FOLDER / "summary.json").stat().st_mtime_ns
    assert run(words(place, searched, str(broken))) == 0  # shown again: nothing is searched
    assert (broken / FOLDER / "summary.json").stat().st_mtime_ns == before


def test_sweeps_of_a_search_go_with_a_run_of_a_search(
    place: Path, planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(place, str(tmp_path / "out"), "--search-sweeps", "2")) == 2
    assert "--search-sweeps goes with --findings RUN" in capsys.readouterr().err
