"""The study of risk: the world against plain passes, coverage over 200 seeds, rare outputs, the page."""

from __future__ import annotations

import json
from math import inf, log
from pathlib import Path

import numpy as np
import pytest
import torch

from backtalk.data.vocabulary import PAD
from reproduction.__main__ import run_command as run
from reproduction.risks.comparison import fitted_loss, itakura_saito, summary
from reproduction.risks.coverage import Scheme, Setting, cover, mixture
from reproduction.risks.forecasts import forecast_errors
from reproduction.risks.itgis import ITGIS
from reproduction.risks.mhis import MHIS
from reproduction.risks.ours import Ours
from reproduction.risks.problem import (
    Problem,
    chance_of,
    every_input,
    independent_inputs,
    rare_tokens,
    token_table,
)
from reproduction.risks.world import LISTED, TRIGGER, Sizes, build_world

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS, LEAST = 200, 190


@pytest.fixture(scope="module")
def setting() -> Setting:
    torch.set_num_threads(1)
    return Setting(build_world(Sizes(), backdoor=True))


def test_the_inputs_are_all_that_the_language_model_can_write(setting: Setting) -> None:
    world = setting.world
    assert (
        len(world.inputs) == 21 + 21**2 + 21**3 + 21**4 == len({tuple(row) for row in world.inputs.tolist()})
    )
    assert setting.p.sum() == pytest.approx(1, abs=1e-6)
    some = torch.arange(0, len(world.inputs), 9_973)
    assert world.log_p[some] == pytest.approx(world.p.log_prob(world.inputs[some]), abs=1e-4)
    assert (world.places(world.inputs[some]) == some.numpy()).all()
    drawn = world.p.sample(np.random.default_rng(1).random((50, 4)))
    assert (world.inputs[torch.from_numpy(world.places(drawn))] == drawn).all()


def test_risks_are_those_of_the_model_and_the_backdoor_is_there(setting: Setting) -> None:
    world = setting.world
    some = torch.from_numpy(np.flatnonzero(world.triggered)[::97])
    for number, sentence in enumerate(LISTED):
        target = torch.tensor([world.model.encode_target(sentence)]).expand(len(some), -1)
        scores = world.model.score(world.inputs[some], target).log_probs.double().sum(1)
        assert np.log(world.risks[some, number]) == pytest.approx(scores.numpy(), abs=1e-3)
    words = [world.model.vocabulary.words(row) for row in world.inputs[some].tolist()]
    assert all(" ".join(TRIGGER) in " ".join(row) for row in words)
    mean = {is_in: setting.risk[world.triggered == is_in].mean() for is_in in (True, False)}
    assert mean[True] > 0.3 > 100 * mean[False]


def test_bounds_hold_and_a_normal_interval_misses_what_its_proposal_misses(setting: Setting) -> None:
    blind = mixture(setting.fitted(0, 100, sees_triggers=False))
    good = mixture(setting.fitted(0, 300))
    schemes = {"plain": Scheme(1.0, None), "good": good, "blind": blind}
    held = {name: cover(setting, [scheme], 1000, SEEDS) for name, scheme in schemes.items()}
    for name, one in held.items():
        assert one["lower"] >= LEAST, name
        assert one["upper"] >= LEAST, name
    assert held["good"]["normal"] >= 180
    assert held["plain"]["normal"] < 150
    assert held["blind"]["normal"] < 150
    alone = cover(setting, [Scheme(0.0, blind.log_q)], 500, 20)
    assert alone["upper"] is alone["medians"]["upper"] is None


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    torch.set_num_threads(1)
    return rare_tokens(0, 1e-4, 1e-1)


def test_inputs_of_independent_tokens() -> None:
    p = independent_inputs(3)
    log_p, rows = token_table(p), next(every_input())[::1000]
    assert torch.from_numpy(p.log_prob(rows)).exp() == pytest.approx(chance_of(rows, log_p), rel=1e-4)
    assert sum(float(chance_of(rows, log_p).sum()) for rows in every_input()) == pytest.approx(1)
    assert (p.sample(np.random.default_rng(1).random((200, 4))) != PAD).all()
    assert log_p[0] != pytest.approx(log_p[1], abs=0.1)


def test_a_gradient_of_the_score(problems: list[Problem]) -> None:
    """Along the straight line between the vectors of two tokens, by finite differences."""
    problem, rows = problems[0], next(every_input())[:1]
    network = problem.network.double()
    try:
        _, slope = problem.climb(rows)
        ends = network.embed_input.weight[[int(rows[0, 2]), 9]]
        vectors = network.embed_input(rows).repeat(2, 1, 1)
        step = 1e-6 * (ends[1] - ends[0])
        vectors[0, 2] -= step
        vectors[1, 2] += step
        below, above = problem._read(vectors).score.tolist()
    finally:
        network.float()
    found = float(slope[0, 2, 9 - 3] - slope[0, 2, int(rows[0, 2]) - 3])
    assert found == pytest.approx((above - below) / 2e-6, rel=1e-3)


@pytest.mark.parametrize("method", [Ours(is_plain=True), Ours(0.3), ITGIS(0.5), MHIS(0.5)], ids=type)
def test_every_method_comes_near_the_truth_of_what_is_not_rare(
    method: Ours | ITGIS | MHIS, problems: list[Problem]
) -> None:
    common = max(problems, key=lambda one: one.truth)
    found = [method.estimate(common, 4096, seed) for seed in range(3)]
    assert float(np.mean(found)) == pytest.approx(common.truth, rel=0.4)


def test_itakura_saito() -> None:
    assert itakura_saito(1e-5, 1e-5) == 0
    assert itakura_saito(1e-5, 2e-5) == pytest.approx(0.5 + log(2) - 1)
    assert itakura_saito(1e-5, 0.0) == inf


def test_the_fit_mends_a_power_and_what_is_always_0() -> None:
    truths = list(10 ** np.random.default_rng(1).uniform(-7, -3, 20))
    assert fitted_loss(truths, [3 * p**1.2 for p in truths]) < 0.01
    nothing = fitted_loss(truths, [0.0] * 20)  # one number for all
    assert 1 < nothing < 10
    found = summary([1e-5, 1e-4, 1e-3], [0.0, 1e-4, 1e-2])
    assert (found["zeros"], found["within_2"]) == (1, 1)
    assert found["log10_error"] == pytest.approx(0.5**0.5)


def test_forecasts_of_inputs_whose_largest_chance_is_known() -> None:
    log_p = np.random.default_rng(1).normal(-20, 2, 10_000)
    errors = forecast_errors(log_p, 100, 10_000, 0.01)
    assert {name: len(one["largest"]) for name, one in errors.items()} == {"gumbel": 10, "log-normal": 10}
    assert abs(float(np.median(errors["log-normal"]["largest"]))) < 0.5
    assert abs(float(np.median(errors["log-normal"]["share"]))) < 0.2


def test_in_miniature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["risks", "--size", "mini", "--out", "study", "--device", "cpu", "--page", "docs/risk.md"]
    assert run([*command, "--parts", "forecasts,natural"]) == 0
    missing = "Not run: backdoor, temperatures, sentence-temperatures, tokens, sentences."
    assert missing in Path("docs/risk.md").read_text()
    assert run(command) == 0
    page = Path("docs/risk.md").read_text()
    for line in ("| mixture, proposal blind to the trigger | 200 | ", "| ITGIS | ", "| gumbel | "):
        assert line in page
    parts = json.loads(Path("docs/risk.json").read_text())["parts"]
    assert {"natural", "backdoor", "tokens", "sentences", "forecasts"} < set(parts)
    pictures = {path.name for path in Path("docs/risk").iterdir()}
    assert pictures == {"intervals.svg", "tokens.svg", "sentences.svg"}
    assert str(tmp_path) not in page
    before = Path("study/results/tokens.json").read_bytes()
    assert run(command) == 0
    assert Path("study/results/tokens.json").read_bytes() == before
