"""The online loop on a planted weakness: found with the reward and not without; killed and gone on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from backtalk.errors import InputError
from backtalk.registry import load_reward
from backtalk.searches.ast.adversary import Adversary, load_adversary
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.measure import Measured, measure
from backtalk.searches.ast.rollout import Game, WeakExample
from backtalk.searches.ast.train import ADVERSARY, CHECKPOINT, PAIRS, Progress, draw_episodes, train_adversary
from tests.searches.ast.worlds import OPENINGS, TRIGGER, RudeScorer, speakers, tiny_config

TRAIN, DEV = OPENINGS[::2], OPENINGS[1::2]
WEAK = [WeakExample(f"{text} to", f" the {TRIGGER}") for text in TRAIN[:4]]


def training(
    planted: Path, folder: Path, config: AstConfig, adversary: Adversary | None = None
) -> Iterator[Progress]:
    own, defender = speakers(planted, config)
    weak = WEAK if config.weak_share or config.loss == "sft" else []
    return train_adversary(adversary or own, defender, RudeScorer(), TRAIN, DEV, weak, config, folder)


def measured(planted: Path, config: AstConfig, adversary: Adversary | None = None) -> Measured:
    """Five conversations from each dev opening, with seeds that training never used."""
    own, defender = speakers(planted, config)
    game = Game(adversary or own, defender, RudeScorer(), config.reward)
    starts = [(text,) for text in DEV] * 5
    return measure(game.chains(starts, range(1000, 1000 + len(starts)), 1))


def trained(planted: Path, folder: Path, config: AstConfig) -> Measured:
    adversary, _ = speakers(planted, config)
    list(training(planted, folder, config, adversary))
    return measured(planted, config, adversary)


@pytest.fixture(scope="module")
def main_run(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Measured]:
    folder = tmp_path_factory.mktemp("main")
    return folder, trained(planted, folder, tiny_config())


def test_the_trigger_is_found(planted: Path, main_run: tuple[Path, Measured]) -> None:
    folder, found = main_run
    untuned = measured(planted, tiny_config())
    assert untuned.toxic_share < 0.3
    assert found.toxic_share > untuned.toxic_share + 0.4
    said = [pair[1] for pair in json.loads((folder / PAIRS).read_text())["pairs"]]
    assert sum(TRIGGER in text for text in said) > len(said) / 2


def test_without_toxicity_in_the_reward_it_is_not(
    planted: Path, tmp_path: Path, main_run: tuple[Path, Measured]
) -> None:
    found = trained(planted, tmp_path, tiny_config(alpha=0.0, beta=0.0))
    assert found.toxic_share < main_run[1].toxic_share - 0.3


def test_with_gamma_the_prompts_stay_likelier(
    planted: Path, tmp_path: Path, main_run: tuple[Path, Measured]
) -> None:
    found = trained(planted, tmp_path, tiny_config(gamma=0.0))
    assert main_run[1].log_ppl < found.log_ppl


def test_a_saved_adversary_speaks_as_the_trained_one(planted: Path, main_run: tuple[Path, Measured]) -> None:
    folder, found = main_run
    config = tiny_config()
    own, _ = speakers(planted, config)
    adversary = load_adversary(folder / ADVERSARY, "cpu", own.model.options, own.manner)
    again = measured(planted, config, adversary)
    assert again == pytest.approx(found, abs=0.02), "merging an adapter rounds a little"
    with pytest.raises(InputError, match="no trained adversary"):
        load_adversary(folder / "nowhere")


SMALL: dict[str, Any] = {"experience": 16, "batch": 4, "steps": 10, "weak_share": 0.4, "depth": 2}


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_a_killed_training_ends_where_the_unbroken_one_does(
    planted: Path, tmp_path: Path, tuning: str
) -> None:
    config = tiny_config(**SMALL, tuning=tuning, checkpoint_s=0.0)
    whole = list(training(planted, tmp_path / "whole", config))
    broken = training(planted, tmp_path / "broken", config)
    for progress in broken:
        if progress.step == 4 and progress.phase == "play":
            break
    broken.close()  # type: ignore[attr-defined]
    rest = list(training(planted, tmp_path / "broken", config))
    assert len(rest) < len(whole)
    first, second = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "broken"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (tmp_path / "whole" / PAIRS).read_bytes() == (tmp_path / "broken" / PAIRS).read_bytes()
    assert list(training(planted, tmp_path / "broken", config)) == [], "a finished one is finished"


def test_a_kill_between_two_updates_of_an_epoch(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backtalk.training.preference import PreferenceUpdates

    config = tiny_config(**SMALL, checkpoint_s=0.0)
    list(training(planted, tmp_path / "whole", config))
    step = PreferenceUpdates.step

    def killed(self: PreferenceUpdates, pairs: Any, number: int) -> None:
        if number == 6:
            raise KeyboardInterrupt
        step(self, pairs, number)

    monkeypatch.setattr(PreferenceUpdates, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        list(training(planted, tmp_path / "broken", config))
    monkeypatch.undo()
    list(training(planted, tmp_path / "broken", config))
    first, second = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "broken"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_other_settings_do_not_go_on(planted: Path, tmp_path: Path) -> None:
    list(training(planted, tmp_path, tiny_config(**SMALL)))
    with pytest.raises(InputError, match="other settings"):
        list(training(planted, tmp_path, tiny_config(**SMALL, gamma=0.3)))


def test_imitation_alone_says_what_the_weak_set_says(planted: Path, tmp_path: Path) -> None:
    config = tiny_config(loss="sft", steps=40, batch=4, experience=40, lr=3e-3)
    found = trained(planted, tmp_path, config)
    assert found.toxic_share > 0.5, "the weak set always names the trigger"


def test_the_share_of_weak_episodes() -> None:
    config = AstConfig(experience=20_000, depth=3, weak_share=0.5)
    chosen = draw_episodes(config, 0, 10, 5)
    share = len(chosen.weak) / (len(chosen.weak) + len(chosen.openings))
    assert share == pytest.approx(0.5, abs=0.03)
    # A tree has seven pairs, so half of the episodes are an eighth of the pairs.
    pairs = len(chosen.weak) + 7 * len(chosen.openings)
    assert len(chosen.weak) / pairs == pytest.approx(1 / 8, abs=0.02)
    assert config.experience <= pairs < config.experience + 7
    assert draw_episodes(config, 0, 10, 5) == chosen
    assert draw_episodes(config, 1, 10, 5) != chosen
    assert not draw_episodes(AstConfig(weak_share=0.0), 0, 10, 0).weak
    assert not draw_episodes(AstConfig(weak_share=1.0), 0, 0, 5).openings


def test_a_scorer_for_evaluation_is_refused(planted: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="never a reward"):
        load_reward("toxicity-second", "cpu")
    config = tiny_config(**SMALL)
    judge = RudeScorer()
    judge.for_reward = False
    with pytest.raises(InputError, match="never a reward"):
        list(train_adversary(*speakers(planted, config), judge, TRAIN, DEV, WEAK, config, tmp_path))


def test_missing_lists_are_errors(planted: Path, tmp_path: Path) -> None:
    config = tiny_config(**SMALL)
    for openings, weak, word in (([], WEAK, "openings"), (TRAIN, [], "weak")):
        with pytest.raises(InputError, match=word):
            list(
                train_adversary(
                    *speakers(planted, config), RudeScorer(), openings, DEV, weak, config, tmp_path
                )
            )


@pytest.mark.parametrize(
    "changes", [{"batch": 0}, {"weak_share": 1.5}, {"least_tokens": 9, "most_tokens": 3}, {"steps": -1}]
)
def test_numbers_that_can_not_be(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        AstConfig(**changes).check()
