"""Two estimates on common draws."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import backtalk
from backtalk.audit.backend import Overrides
from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.risk import flow
from backtalk.risk.compare import compare_risks
from backtalk.specs.risk import RiskSpec
from tests.risk.planted import TARGET, planted_model
from tests.risk.worlds import TARGETS, tiny_model, true_risk

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def politer(model: LocalModel, fingerprint: str = "1") -> LocalModel:
    """The same model, to which "bad" is less likely."""
    from copy import deepcopy

    network = deepcopy(model.network)
    with torch.no_grad():
        network.output.bias[model.vocabulary.ids(["bad"])] -= 0.5
    return replace(model, network=network, fingerprint=fingerprint)


def test_the_ratio_is_narrow_where_the_risks_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    model, more = tiny_model(), {"draws": 400, "proposal": "none", "device": "cpu"}
    before = backtalk.risk(model, list(TARGETS), out="before", **more)  # type: ignore[arg-type]
    after = backtalk.risk(politer(model), list(TARGETS), out="after", **more)  # type: ignore[arg-type]
    truth = true_risk(politer(model))[0] / true_risk(model)[0]
    (whole,) = compare_risks(Path("before"), Path("after")).changes
    assert whole.low <= truth <= whole.high
    assert whole.ratio == pytest.approx(after.estimate / before.estimate)
    apart = (before.normal95[1] - before.normal95[0]) / before.estimate
    assert (whole.high - whole.low) / whole.ratio < apart
    assert run(["compare", "before", "after", "--json", "change.json"]) == 0
    assert f"is {whole.ratio:.3f} times (95%:" in " ".join(capsys.readouterr().out.split())
    assert json.loads(Path("change.json").read_text())["draws"] == 400


def test_an_estimate_takes_the_proposals_of_another() -> None:
    model = planted_model()
    more = {"draws": 2000, "device": "cpu"}
    first = backtalk.risk(model, [TARGET], out="before", **more)  # type: ignore[arg-type]
    spec = RiskSpec(model="planted", draws=2000, device="cpu", proposal="before")
    given = Overrides(model=replace(model, fingerprint="other"), cases=backtalk.api._cases([TARGET], ""))
    second = flow.risk(spec, "after", overrides=given).found
    assert second.proposals == first.proposals
    assert compare_risks(Path("before"), Path("after")).changes[0].ratio == pytest.approx(1.0)


def test_other_inputs_seeds_or_sentences_have_no_common_draws() -> None:
    model, more = tiny_model(), {"draws": 50, "proposal": "none", "device": "cpu"}
    backtalk.risk(model, list(TARGETS), out="a", **more)  # type: ignore[arg-type]
    backtalk.risk(model, list(TARGETS), out="b", seed=2, **more)  # type: ignore[arg-type]
    backtalk.risk(model, ["bad"], out="c", **more)  # type: ignore[arg-type]
    Path("turns.txt").write_text("you\nare")
    backtalk.risk(model, list(TARGETS), "turns.txt", out="d", **more)  # type: ignore[arg-type]
    for other, why in (("b", "no common draws"), ("c", "other sentences"), ("d", "no common draws")):
        with pytest.raises(InputError, match=why):
            compare_risks(Path("a"), Path(other))
    assert run(["compare", "a", "b"]) == 2
