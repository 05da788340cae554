"""A training that was killed ends where the unbroken one does; what is refused; what an epoch plays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from backtalk.errors import InputError
from backtalk.registry import load_reward
from backtalk.searches.ast import train
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.episodes import PLAYING, draw_episodes, read_pairs
from backtalk.searches.ast.rollout import Game
from backtalk.searches.ast.train import CHECKPOINT, PAIRS, Training
from backtalk.training.preference import PreferenceUpdates
from backtalk.training.resumable import load_checkpoint
from tests.searches.ast.worlds import DEV, TRAIN, WEAK, RudeScorer, speakers, tiny_config, training

SMALL: dict[str, Any] = {"experience": 16, "batch": 4, "steps": 10, "weak_share": 0.4}


@pytest.fixture(scope="module", autouse=True)
def shallow_trees() -> Iterator[None]:
    """Trees of two turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AstConfig, "depth", 2)
        patch.setattr(AstConfig, "hold_ppl", 0.01)
        yield


@pytest.mark.parametrize("rank", [16, 0], ids=["lora", "full"])
def test_a_killed_training_ends_where_the_unbroken_one_does(planted: Path, tmp_path: Path, rank: int) -> None:
    config = tiny_config(**SMALL, rank=rank, checkpoint_s=0.0)
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


def test_epochs_without_a_checkpoint_are_played_again(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(**(SMALL | {"dev_every": 9}))
    whole = list(training(planted, tmp_path / "whole", config))
    monkeypatch.setitem(train.EPOCH_S, "cpu", 1e9)
    broken = training(planted, tmp_path / "broken", config)
    for progress in broken:
        if progress.step == 8 and progress.phase == "update":
            break
    broken.close()  # type: ignore[attr-defined]
    found = load_checkpoint(tmp_path / "broken" / CHECKPOINT, with_tensors=False)
    assert found is not None
    assert found[1]["step"] == 0, "the one before the first epoch"
    assert found[0] == {}
    rest = list(training(planted, tmp_path / "broken", config))
    assert [one[:3] for one in rest] == [one[:3] for one in whole[1:]], "all but the first measurement"
    first, second = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "broken"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_kill_between_two_updates_of_an_epoch(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(**SMALL, checkpoint_s=0.0, max_ppl_increase=100.0)
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
    states = [
        load_checkpoint(tmp_path / name / CHECKPOINT, with_tensors=False) for name in ("whole", "broken")
    ]
    gammas = [state[1]["gamma"] for state in states if state is not None]
    assert gammas[0] == gammas[1] != config.gamma


def test_a_kill_between_two_parts_of_a_play(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AstConfig, "depth", 1)
    config = tiny_config(**(SMALL | {"experience": 160, "batch": 16, "steps": 10}))
    list(training(planted, tmp_path / "whole", config))
    play = Game.play
    calls = 0

    def killed(self: Game, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return play(self, *given)

    monkeypatch.setattr(Game, "play", killed)
    with pytest.raises(KeyboardInterrupt):
        list(training(planted, tmp_path / "broken", config))
    stored = read_pairs(tmp_path / "broken" / PLAYING, 0)
    assert stored is not None
    assert stored.done == 2
    list(training(planted, tmp_path / "broken", config))
    assert calls == 4, "two parts were not played again"
    assert (tmp_path / "whole" / PAIRS).read_bytes() == (tmp_path / "broken" / PAIRS).read_bytes()
    first, second = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "broken"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("first_steps", [8, 6], ids=["whole epochs", "within an epoch"])
def test_a_longer_training_goes_on_where_a_shorter_one_ended(
    planted: Path, tmp_path: Path, first_steps: int
) -> None:
    config = tiny_config(**SMALL, max_ppl_increase=100.0)
    list(training(planted, tmp_path / "whole", config))
    list(training(planted, tmp_path / "longer", replace(config, steps=first_steps)))
    rest = list(training(planted, tmp_path / "longer", config))
    assert min(one.step for one in rest) >= first_steps, "nothing is done twice"
    first, second = (load_checkpoint(tmp_path / name / CHECKPOINT) for name in ("whole", "longer"))
    assert first is not None
    assert second is not None
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])
    assert first[1]["gamma"] == second[1]["gamma"] != config.gamma
    measured = [one["step"] for one in second[1]["history"]]
    assert measured == sorted({one["step"] for one in first[1]["history"]} | {first_steps})


def test_a_shorter_training_does_not_go_on_from_a_longer_one(planted: Path, tmp_path: Path) -> None:
    list(training(planted, tmp_path, tiny_config(**SMALL)))
    with pytest.raises(InputError, match="10 steps"):
        list(training(planted, tmp_path, tiny_config(**(SMALL | {"steps": 9}))))


def test_other_settings_do_not_go_on(planted: Path, tmp_path: Path) -> None:
    list(training(planted, tmp_path, tiny_config(**SMALL)))
    with pytest.raises(InputError, match="flags of the training"):
        list(training(planted, tmp_path, tiny_config(**SMALL, gamma=0.3)))


def test_the_share_of_weak_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AstConfig, "depth", 3)
    config = AstConfig(experience=20_000, weak_share=0.5)
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


def test_weak_examples_do_not_wait_where_no_pair_differs(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train.Training, "_hold", lambda self, log_ppl: setattr(self.at, "excess", 1.0))
    far = {**SMALL, "least_gap": 1e9}
    steps = [one.step for one in training(planted, tmp_path / "weak", tiny_config(**far))]
    assert steps[-1] == SMALL["steps"]
    with pytest.raises(InputError, match="no pair differs enough"):
        list(training(planted, tmp_path / "none", tiny_config(**(far | {"weak_share": 0.0}))))


def test_a_scorer_for_evaluation_is_refused(planted: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="never a reward"):
        load_reward("toxicity-second", "cpu")
    config = tiny_config(**SMALL)
    judge = RudeScorer()
    judge.for_reward = False
    with pytest.raises(InputError, match="never a reward"):
        Training(Game(*speakers(planted, config), judge, config), TRAIN, DEV, WEAK, tmp_path)


def test_missing_lists_are_errors(planted: Path, tmp_path: Path) -> None:
    config = tiny_config(**SMALL)
    for openings, weak, word in (([], WEAK, "openings"), (TRAIN, [], "weak")):
        with pytest.raises(InputError, match=word):
            Training(Game(*speakers(planted, config), RudeScorer(), config), openings, DEV, weak, tmp_path)


@pytest.mark.parametrize("changes", [{"batch": 0}, {"weak_share": 1.5}, {"turn_tokens": 1}, {"steps": -1}])
def test_numbers_that_can_not_be(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        AstConfig(**changes).check()
