"""Proposals: a planted trigger that plain draws miss is found and estimated, and weights are exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backtalk
from backtalk.audit.backend import Overrides
from backtalk.cli import run
from backtalk.risk.inputs import SampledInputs
from backtalk.risk.learnt import read_learnt
from backtalk.risk.proposals import sharpened
from backtalk.risk.tuning import tuned
from backtalk.risk.verify import verify_risk
from tests.risk.planted import TARGET, planted_model, truth
from tests.risk.worlds import every_input, inputs_of, tiny_folder, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = 20_000  # draws, those of the pilot included


def settings(**changes: Any) -> dict[str, Any]:
    return {"device": "cpu", **changes}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_trigger_of_one_in_a_million_inputs_is_found_and_estimated(seed: int) -> None:
    risk, frequency = truth()
    assert frequency == pytest.approx(1e-6, rel=0.01)
    assert risk == pytest.approx(frequency, rel=0.01)
    model, more = planted_model(), settings(seed=seed)
    plain = backtalk.risk(model, [TARGET], draws=ALL, proposal="none", out="plain", **more)
    assert plain.normal95[1] < 0.01 * risk * 1e6  # sees nothing, and is sure of it
    assert plain.upper > risk * 1e6  # the bound that always holds holds
    found = backtalk.risk(model, [TARGET], draws=14_000, out="learnt", **more)
    assert 1 / 1.5 < found.estimate / (risk * 1e6) < 1.5
    assert found.lower <= risk * 1e6 <= found.upper
    assert found.lower > plain.normal95[1]
    assert found.limit == 2
    assert found.proposals == ["the tuned language model"]
    assert {"one", "rain"} <= set(found.inputs[0].text.lower().split())


def test_a_proposal_is_kept_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, more = planted_model(), settings(draws=600, block=100, out="run")
    first = backtalk.risk(model, [TARGET], **more)
    monkeypatch.setattr("backtalk.risk.learnt.learn", lambda *_: pytest.fail("it was learnt again"))
    again = backtalk.risk(model, [TARGET], **more)
    assert again.risk == first.risk
    assert read_learnt(Path("run")).names == first.proposals
    given = Overrides(model=model)
    assert verify_risk(Path("run"), "cpu", overrides=given).problems == []
    weights = Path("run/proposal/0.safetensors")
    if first.proposals:
        weights.write_bytes(weights.read_bytes()[:-100])
        with pytest.raises(backtalk.InputError, match="damaged"):
            verify_risk(Path("run"), "cpu", overrides=given)


def test_the_weights_of_a_mixture_are_exact() -> None:
    """The mean weight is 1 over all inputs, and none exceeds 1 / alpha."""
    p = inputs_of(tiny_model())
    inputs = every_input()
    favourites = np.where((inputs == 4).any(1).numpy(), 1.0, 0.01)
    q = tuned(p, inputs, favourites, "q", 1)
    mixed = SampledInputs(p, 1, "draws", [q, p])
    weight = np.exp(mixed.log_weight(inputs))
    mixture = np.exp(p.log_prob(inputs)) / weight
    assert mixture.sum() == pytest.approx(1.0, abs=1e-5)
    assert weight.max() <= 1 / mixed.alpha
    by_hand = 0.5 * np.exp(p.log_prob(inputs)) + 0.25 * np.exp(q.log_prob(inputs))
    by_hand += 0.25 * np.exp(p.log_prob(inputs))
    assert mixture == pytest.approx(by_hand, rel=1e-5)
    shares = np.bincount(mixed.draw(0, 20_000).source) / 20_000
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


def test_a_power_leaves_enough_inputs_to_learn_from() -> None:
    chance = np.exp(np.linspace(-30, 0, 1000))
    weights = sharpened(np.zeros(1000), chance, 30.0)
    assert weights.sum() ** 2 / (weights**2).sum() == pytest.approx(30, rel=0.05)
    assert (np.diff(weights) >= 0).all()


def test_an_audit_gives_the_pilot_its_triggers(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_folder(Path("tiny")))
    Path("targets.txt").write_text("you bad")
    small = ["--length", "2", "--top", "3", "--sweeps", "1", "--restarts", "1", "--device", "cpu"]
    assert run(["audit", "--model", model, "--targets", "targets.txt", *small, "--out", "audit"]) == 0
    command = ["risk", "--model", model, "--targets", "targets.txt", "--draws", "300", "--device", "cpu"]
    assert run([*command, "--proposal", "audit", "--out", "run"]) == 0
    capsys.readouterr()
    assert run([*command, "--proposal", "missing", "--out", "none"]) == 2
    assert "there is no run folder missing" in capsys.readouterr().err
    Path("turns.txt").write_text("you")
    assert run([*command, "--inputs", "turns.txt", "--proposal", "audit", "--out", "none"]) == 2
    assert "--proposal RUN is for inputs of a language model" in capsys.readouterr().err


def test_triggers_of_another_vocabulary_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backtalk.risk.measure.triggers_of", lambda run: ["you umbrella"])
    with pytest.raises(backtalk.InputError, match=r"'umbrella', which tiny does not know; .* one vocabulary"):
        backtalk.risk(tiny_model(), ["bad"], proposal="audit", draws=50, out="no", device="cpu")
