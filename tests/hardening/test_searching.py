"""Hardening from the findings of a search: it searches anew while it trains, and again at the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.audit import reference
from backtalk.audit.backends.fixed_inputs import FoundCase
from backtalk.cli import run
from backtalk.hardening.iterations import Attack
from backtalk.hardening.subjects import asking
from backtalk.hardening.subjects.asking import Widening
from backtalk.hardening.subjects.lstm import make_search
from backtalk.hardening.subjects.transformer import Transformer
from backtalk.hits import parse_criterion
from backtalk.models.gpu.fused_layers import fuse_layers
from backtalk.models.transformer.loading import load
from backtalk.specs import ModelOptions, flat_spec
from backtalk.specs.harden import HardenSpec
from backtalk.store import Run
from backtalk.training.lora import Adapter, LoraConfig
from backtalk.training.negative import NegativeConfig
from backtalk.types import Target, Thresholds, Turn
from tests.hardening.commands import audits_of, command, model_at, pages_rows, read, rows_of
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
GIBBS = Attack("gibbs", 1, 20, 4, (parse_criterion("o-sample-avg-k1"),))


@pytest.fixture(scope="module")
def searched(place: Path, planted: Path) -> Path:
    """A run of gibbs over the sentences that the planted model knows to say."""
    return search(place, planted, HIT, "searched")


def search(place: Path, planted: Path, hit: str, name: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "SHIPPED_PAIRS", 6)
        patch.setenv("BACKTALK_CACHE", str(place / "cache"))
        (place / "targets.txt").write_text("\n".join(LISTED) + "\n")
        audit = ["audit", "--model", f"hf/{planted}", "--targets", str(place / "targets.txt"),
                 "--reference", str(place / "reference.jsonl"), "--hit", hit,
                 "--length", "3", "--top", "12", "--sweeps", "2", "--restarts", "1", "--device", "cpu",
                 "--max-reply", "12", "--out", str(place / name)]  # fmt: skip
        assert run(audit) == 0
    return place / name


def subject(place: Path, findings: Path, out: Path, **more: str) -> Transformer:
    values = {
        "model": f"hf/{place / 'gpt2'}", "findings": str(findings), "device": "cpu", "hit": HIT,
        "data": str(place / "keep.jsonl"), "reference": str(place / "reference.jsonl"), "out": str(out),
        **more,
    }  # fmt: skip
    return Transformer(flat_spec(HardenSpec, values, "a test"))


def test_the_search_is_that_of_the_run(searched: Path, hardened: Path, place: Path, tmp_path: Path) -> None:
    own = subject(place, searched, tmp_path / "out")
    assert (own.length, [attack.told() for attack in own.ladder]) == (3, ["gibbs o, 1 start, G=12, 5 sweeps"])
    given = (audits_of(hardened, "train")[0], place / "found.jsonl")  # given, not searched
    for findings in given:
        told = [attack.told() for attack in subject(place, findings, tmp_path / "out").ladder]
        assert told == ["given inputs"]
    wider = subject(place, searched, tmp_path / "out", escalate="2").ladder
    assert [(one.search, one.starts, one.top, one.sweeps) for one in wider] == [
        ("gibbs", 1, 12, 5),
        ("gibbs", 3, 12, 5),
        ("gibbs", 3, 24, 6),
    ]


def test_a_run_that_aimed_at_a_chance_is_trained_against_by_it(
    searched: Path, planted: Path, place: Path, tmp_path: Path
) -> None:
    found = {"by-chance": "chance-1e-6", "by-io-chance": "io-chance-1e-3"}
    runs = [search(place, planted, hit, name) for name, hit in found.items()]
    own = [subject(place, one, tmp_path / "out", hit="") for one in (*runs, searched)]
    assert [one.criterion.name for one in own] == ["chance-1e-6", "chance-1e-3", "o-sample-avg-k1"]
    assert [one.ladder[0].aims for one in own] == [(one.criterion,) for one in own]
    assert subject(place, runs[0], tmp_path / "out").criterion.name == HIT  # --hit wins


def test_a_new_trigger_is_added_and_draws_the_sentence_out(planted: Path) -> None:
    model = model_at(planted)
    case = FoundCase(Target("a", RUDE), ((Turn("user", "shall we eat"),),))
    widen = Widening(model, 3, GIBBS, Thresholds(-1.0), seed=1)
    (wider,) = widen([case], "1")
    assert wider.inputs[0] == case.inputs[0]
    old, new = (sum(row) / len(row) for row in model.log_prob(wider.inputs, [RUDE] * 2))
    assert new > -1.0 > old
    assert widen([case], "1") == [wider]
    assert widen([replace(case, target=Target("b", RUDE))], "2") != [wider]  # other starts


def test_a_search_in_every_iteration_has_settings_of_its_own(
    searched: Path, place: Path, tmp_path: Path
) -> None:
    def config(findings: Path, **more: str) -> NegativeConfig:
        return subject(place, findings, tmp_path / "out", **more).config

    by_search, given = config(searched), config(place / "found.jsonl")
    assert (by_search.margin, by_search.repairs, by_search.batch) == (2.0, 8, 100)
    assert (given.margin, given.repairs, given.batch) == (1.0, 0, 32)
    assert config(searched, repairs="0", margin="1").repairs == 0


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


def test_on_a_gpu_it_searches_with_a_draft_of_the_adapted_network(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does there, in bfloat16; the network is left as it was."""
    model = load(str(planted), "cpu", ModelOptions(dtype="bfloat16", max_reply=12))
    adapter = Adapter(model.network, LoraConfig(rank=4))
    with torch.no_grad():
        for value in adapter.weights.parameters():
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(1)), alpha=0.01)
    fuse_layers(model.network, everywhere=True)
    case = FoundCase(Target("a", RUDE), ((Turn("user", "shall we eat"),),))
    before = model.log_prob(case.inputs, [RUDE])
    widen = Widening(model, 3, GIBBS, Thresholds(-1.0), seed=1)
    search = replace(make_search(GIBBS, 3, model.device), prune=False, precision="bfloat16")
    monkeypatch.setattr(asking, "make_search", lambda *_, **__: search)
    (wider,) = widen([case], "1")
    assert model.log_prob(case.inputs, [RUDE]) == before
    old, new = (sum(row) / len(row) for row in model.log_prob(wider.inputs, [RUDE] * 2))
    assert new > -1.1 > old  # within what bfloat16 rounds


def test_hardening_from_the_findings_of_a_search(searched: Path, out: Path) -> None:
    found: dict[str, Any] = read(out / "summary.json")
    assert found["hardening"]["search"] == "gibbs o, 1 start, G=12, 2 sweeps"
    (row,) = rows_of(out, "training", "gibbs")
    before, after = row["before"], row["after"]
    assert before["hits"] > 0
    assert after["hits"] < before["hits"]
    assert row["trained_with"]
    fresh_run = out / row["run"]
    assert (row["run_before"], fresh_run) == (str(searched), audits_of(out, "search")[1])
    low = found["cost"]["perplexity"]
    assert low[1] <= 1.5 * low[0] * 1.001  # the bound was kept
    with Run.open(fresh_run) as fresh, Run.open(searched) as old:
        assert fresh.facts["thresholds"] == old.facts["thresholds"]
        assert fresh.spec["seed"] == old.spec["seed"] + 1
        assert [one.id for one in fresh.cases] == [one.id for one in old.cases]
    lists = {row["case"] for row in map(json.loads, (out / "train.jsonl").open())}
    assert before["n"] == len(lists)
    assert run(["compare", str(searched), str(fresh_run)]) == 0


def test_the_page_names_the_same_search_again_and_one_that_training_did_not_use(out: Path) -> None:
    rows = rows_of(out)
    assert [(row["list"], row["search"], row["trained_with"]) for row in rows] == [
        ("held-out", "given", True),
        ("training", "given", True),
        ("held-out", "gibbs", True),
        ("training", "gibbs", True),
        ("held-out", "gcg", False),
        ("training", "gcg", False),
    ]
    assert pages_rows(out) == rows
    assert run(["verify", str(out), "--device", "cpu"]) == 0
    assert run(["report", str(out)]) == 0


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
    told = [[(row["before"], row["after"]) for row in rows_of(one, search="gibbs")] for one in (broken, out)]
    assert told[0] == told[1]
    again = audits_of(broken, "search")[1] / "summary.json"
    before = again.stat().st_mtime_ns
    assert run(words(place, searched, str(broken))) == 0  # shown again: nothing is searched
    assert again.stat().st_mtime_ns == before


def test_sweeps_of_a_search_go_with_a_run_of_a_search(
    place: Path, planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(place, str(tmp_path / "out"), "--search-sweeps", "2")) == 2
    assert "--search-sweeps goes with --findings RUN" in capsys.readouterr().err
