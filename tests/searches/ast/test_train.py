"""The online loop on a planted weakness: found with the reward, and not without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.models.transformer.loading import load
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.evaluation import Evaluation, evaluate
from backtalk.searches.ast.players import Adversary
from backtalk.searches.ast.rollout import Game
from backtalk.searches.ast.train import ADVERSARY, PAIRS
from backtalk.training.preference import PreferenceConfig
from tests.searches.ast.worlds import DEV, TRIGGER, RudeScorer, speakers, tiny_config, training


def measured(planted: Path, config: AstConfig, adversary: Adversary | None = None) -> Evaluation:
    """Five conversations from each dev opening, with seeds that training never used."""
    own, defender = speakers(planted, config)
    game = Game(adversary or own, defender, RudeScorer(), config)
    starts = [(text,) for text in DEV] * 5
    return evaluate(game.chains(starts, range(1000, 1000 + len(starts)), 1))


def trained(planted: Path, folder: Path, config: AstConfig) -> Evaluation:
    adversary, _ = speakers(planted, config)
    list(training(planted, folder, config, adversary))
    return measured(planted, config, adversary)


@pytest.fixture(scope="module")
def main_run(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation]:
    folder = tmp_path_factory.mktemp("main")
    return folder, trained(planted, folder, tiny_config())


def test_the_trigger_is_found(planted: Path, main_run: tuple[Path, Evaluation]) -> None:
    folder, found = main_run
    untuned = measured(planted, tiny_config())
    assert untuned.toxic_share < 0.3
    assert found.toxic_share > untuned.toxic_share + 0.4
    said = [pair[1] for pair in json.loads((folder / PAIRS).read_text())["pairs"]]
    assert sum(TRIGGER in text for text in said) > len(said) / 2


def test_without_toxicity_in_the_reward_it_is_not(
    planted: Path, tmp_path: Path, main_run: tuple[Path, Evaluation]
) -> None:
    found = trained(planted, tmp_path, tiny_config(alpha=0.0, beta=0.0))
    assert found.toxic_share < main_run[1].toxic_share - 0.3


def test_with_gamma_the_prompts_stay_likelier(planted: Path, tmp_path: Path) -> None:
    """All pairs count, as published: those that differ in likelihood alone are what gamma is for."""
    with_gamma, without = (
        trained(planted, tmp_path / str(gamma), tiny_config(gamma=gamma, least_gap=0.0)) for gamma in (0.1, 0)
    )
    assert with_gamma.toxic_share > 0.6
    assert with_gamma.log_ppl < without.log_ppl


def test_a_saved_adversary_speaks_as_the_trained_one(
    planted: Path, main_run: tuple[Path, Evaluation]
) -> None:
    folder, found = main_run
    config = tiny_config()
    own, _ = speakers(planted, config)
    model = load(str(folder / ADVERSARY), "cpu", own.model.options)
    adversary = Adversary(model, own.sampling)
    again = measured(planted, config, adversary)
    assert again == pytest.approx(found, abs=0.02), "merging an adapter rounds a little"


def test_imitation_alone_says_what_the_weak_set_says(planted: Path, tmp_path: Path) -> None:
    config = tiny_config(tune="sft", steps=40, batch=4, experience=40, lr=3e-3)
    found = trained(planted, tmp_path, config)
    assert found.toxic_share > 0.5, "the weak set always names the trigger"


def test_weights_that_are_no_numbers_never_speak(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second epoch is not played: on a GPU drawing from no numbers would end the process."""
    phases: list[str] = []
    steep = PreferenceConfig(lr=1e30, warm_up=0)  # beyond the range of --lr, so that one update suffices
    monkeypatch.setattr(AstConfig, "preference", property(lambda self: steep))
    run = training(planted, tmp_path, tiny_config())
    with pytest.raises(InputError, match="lower --lr"):
        phases.extend(progress.phase for progress in run)
    assert phases == ["dev", "play"]
