"""Time limits of the learnt adversary: its training is sized to them, and conversations end with what was
played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backtalk.data.openings import OpeningLists
from backtalk.searches.ast import adversaries as module
from backtalk.searches.ast.adversaries import Adversaries, TurnPace
from backtalk.searches.ast.config import Ast
from backtalk.searches.ast.evaluation import play_block
from backtalk.searches.ast.rollout import Game
from backtalk.searches.watch import State, Watch
from backtalk.specs import ModelOptions
from backtalk.types import Opening
from tests.searches.ast.worlds import DEV, RudeScorer, speakers, tiny_config

PACE = TurnPace(turn_s=0.5, read_s=0.05)


def adversaries(**settings: Any) -> Adversaries:
    none: Any = None
    config = Ast(experience=64, batch=8, dev_every=2, turns=3, **settings)
    lists = OpeningLists([], [Opening("1", ("hello",))], [], "a list")
    return Adversaries("model", "cpu", ModelOptions(), (), Game(none, none, none, config), lists, [], [])


@pytest.mark.parametrize("seconds", [100.0, 300.0, 1000.0])
def test_a_training_takes_the_most_whole_epochs_that_fit(seconds: float) -> None:
    own = adversaries(steps=1000)
    steps = own.fitted_steps(PACE, seconds)
    assert steps % 8 == 0
    assert 0 < steps < 1000
    assert own.training_s(steps, PACE) <= seconds < own.training_s(steps + 8, PACE)


def test_a_training_that_fits_or_whose_first_epoch_does_not_stays_as_asked() -> None:
    own = adversaries(steps=20)
    assert own.fitted_steps(PACE, 1e6) == 20
    assert own.fitted_steps(PACE, 1.0) == 20


def test_the_forecast_of_an_extended_training_covers_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, rest = (adversaries(steps=steps).forecast(tmp_path, 10, PACE) for steps in (1000, 8))
    assert whole != rest
    monkeypatch.setattr(module, "steps_left", lambda config: 8)  # an earlier training has made the others
    assert adversaries(steps=1000).forecast(tmp_path, 10, PACE) == rest


def test_conversations_end_in_time_and_resume(planted: Path) -> None:
    config = tiny_config(turns=3)
    adversary, defender = speakers(planted, config)
    game = Game(adversary, defender, RudeScorer(), config)
    starts, seeds = [(text,) for text in DEV], list(range(len(DEV)))
    whole = game.chains(starts, seeds, 3)
    over: list[str] = []  # the limit, once the first turn is over
    states: list[State] = []
    watch = Watch(lambda _: "".join(over), states.append, tell=lambda share: over.append("the time"))
    found = game.chains(starts, seeds, 3, watch)
    assert watch.stopped == "the time"
    assert found == [one[:1] for one in whole]
    assert game.chains(starts, seeds, 3, Watch(lambda _: "", resumed=states[-1])) == whole


def test_a_block_whose_first_turn_was_not_over_has_no_findings(planted: Path) -> None:
    config = tiny_config(turns=2)
    adversary, defender = speakers(planted, config)
    game = Game(adversary, defender, RudeScorer(), config)
    states: list[State] = []
    watch = Watch(lambda _: "the time", states.append)
    openings = [Opening(str(place), (text,)) for place, text in enumerate(DEV)]
    assert play_block(game, openings, watch) == []
    assert watch.stopped == "the time"
    again = play_block(game, openings, Watch(lambda _: "", resumed=states[-1]))
    whole = play_block(game, openings)
    assert [one.turns for one in again] == [one.turns for one in whole]
