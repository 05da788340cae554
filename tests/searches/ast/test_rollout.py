"""Trees and chains: how many pairs, who shares what, and batched as one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.ast import OneAtATime

from backtalk.data.openings import OpeningLists
from backtalk.errors import InputError
from backtalk.models.gpu.fused_layers import fuse_layers
from backtalk.models.transformer import model as transformer_model
from backtalk.models.transformer.loading import load
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.episodes import draw_episodes, harmless_openings, play_epoch, weak_examples
from backtalk.searches.ast.players import Adversary, Conversation, Defender, FixedPrompts
from backtalk.searches.ast.rollout import Game, ScoredTurn, WeakExample, ranked
from backtalk.specs import ModelOptions
from backtalk.training.lora import LoraConfig
from backtalk.training.preference import PairRows, PreferenceConfig, PreferenceUpdates
from backtalk.types import Opening
from tests.searches.ast.worlds import OPENINGS, RudeScorer, speakers, tiny_config

STARTS: list[Conversation] = [(text,) for text in OPENINGS[:4]]
SEEDS = [11, 12, 13, 14]


def game_of(folder: Path, **changes: Any) -> Game:
    config = tiny_config(**{"max_repeats": 1.0, **changes})
    return Game(*speakers(folder, config), RudeScorer(), config)


class Counted:
    """Passes on, and remembers how many rows a call had."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, []  # type: ignore[var-annotated]

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        self.calls.append(len(conversations))
        found: list[str] = self.inner.speak(conversations, seeds)
        return found


def test_a_tree_has_two_to_the_depth_less_one_pairs(planted: Path) -> None:
    game = game_of(planted)
    spy = Counted(game.adversary)
    game.adversary = spy
    played = game.play(STARTS, SEEDS, 3)
    assert len(played.pairs) == 4 * 7
    assert len(played.turns) == 4 * 14
    assert Counter(len(pair.conversation) for pair in played.pairs) == {1: 4, 3: 8, 5: 16}
    assert spy.calls == [8, 16, 32], "one call a level"
    said = {(*pair.conversation, text) for pair in played.pairs for text in (pair.win, pair.lose)}
    for pair in played.pairs:
        if len(pair.conversation) > 1:
            assert pair.conversation[:-1] in said, "a node is a turn that was said above it"


def test_weak_examples_are_winners_without_losers(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = [WeakExample("we went out", " to the garden"), WeakExample("she went", " to the house")]
    monkeypatch.setattr(AstConfig, "depth", 2)
    game = game_of(planted, weak_share=0.5, experience=32, least_gap=0.0)
    stored, turns = play_epoch(game, OPENINGS[:4], weak, 0, tmp_path / "playing.json", 8)
    chosen = draw_episodes(game.config, 0, 4, 2)
    assert len(turns) == len(chosen.openings) * 6
    known = [pair for pair in stored.pairs if pair.weak]
    assert [(pair.conversation, pair.win) for pair in known] == [
        ((weak[place].prompt,), weak[place].continuation) for place in chosen.weak
    ]
    assert {pair.lose for pair in known} == {""}


def test_the_better_turn_wins_and_of_equal_ones_the_first() -> None:
    good, bad = ScoredTurn("a", "d", 1, 1, 1, 2.0), ScoredTurn("b", "e", 0, 0, 1, 0.5)
    for pair in (ranked(("o",), good, bad), ranked(("o",), bad, good)):
        assert (pair.win, pair.lose, pair.gap) == ("a", "b", 1.5)
    assert ranked(("o",), bad, bad._replace(adversary="c")).win == "b"


def test_a_prompt_in_circles_loses_to_one_that_is_not() -> None:
    circle = ScoredTurn("so it goes, so it goes, so it goes, so it goes", "d", 0.9, 0.9, 0.2, 1.3, 0.7)
    plain = ScoredTurn("which way to the river", "d", 0.1, 0.1, 2.0, -0.05)
    for both in ((circle, plain), (plain, circle)):
        pair = ranked(("o",), *both, 0.33)
        assert (pair.win, pair.lose) == (plain.adversary, circle.adversary)
        assert pair.gap == pytest.approx(1.35), "no pair is left out for it"
        assert ranked(("o",), *both).win == circle.adversary, "as published"
        near = ranked(("o",), both[0]._replace(reward=0.0), both[1]._replace(reward=0.0), 0.33)
        assert (near.win, near.gap) == (plain.adversary, 0.25), "however near their rewards are"
    worse = circle._replace(reward=0.5)
    assert ranked(("o",), worse, circle, 0.33).win == circle.adversary, "of two by reward"


def test_one_turn_at_a_time_is_played_as_all_of_them(planted: Path) -> None:
    game = game_of(planted)
    whole = game.play(STARTS, SEEDS, 2)
    alone = OneAtATime(game.adversary, game.defender, game.scorer, game.config).play(STARTS, SEEDS, 2)
    assert len(alone.pairs) == 12
    for one, other in zip(alone.turns, whole.turns, strict=True):
        assert (one.adversary, one.defender) == (other.adversary, other.defender)
        assert one.reward == pytest.approx(other.reward, abs=1e-4)


class Parrot:
    """Says the same each time."""

    def __init__(self, text: str = "we went to the garden") -> None:
        self.text = text

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        return [self.text] * len(conversations)


def test_a_prompt_that_was_said_in_an_earlier_turn_goes_round_in_circles(planted: Path) -> None:
    """Said again it is likely by that alone: nothing else would be learnt."""
    game = game_of(planted)
    game.adversary = Parrot()
    for talk in game.chains([("we went to the garden",), ("hello",)], [1, 2], 3):
        assert [turn.repeats for turn in talk] == [0.0, 1.0, 1.0], "an opening is no turn"
    played = game.play([("hello",)], [1], 2)
    assert [turn.repeats for turn in played.turns] == [0.0] * 2 + [1.0] * 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_batched_rollouts_are_those_of_one_at_a_time(planted: Path, temperature: float) -> None:
    game = game_of(planted, temperature=temperature)
    together = game.play(STARTS, SEEDS, 2)
    alone = [game.play([start], [seed], 2) for start, seed in zip(STARTS, SEEDS, strict=True)]
    assert sorted(pair[:3] for pair in together.pairs) == sorted(
        pair[:3] for one in alone for pair in one.pairs
    )
    chains = game.chains(STARTS, SEEDS, 3)
    for start, seed, chain in zip(STARTS, SEEDS, chains, strict=True):
        (single,) = game.chains([start], [seed], 3)
        for one, other in zip(single, chain, strict=True):
            assert one[:2] == other[:2]
            assert one[2:] == pytest.approx(other[2:], abs=1e-5)


def test_siblings_and_episodes_are_drawn_apart(planted: Path) -> None:
    game = game_of(planted)
    first = game.play([STARTS[0]] * 4, [1, 2, 3, 4], 1)
    assert len({turn.adversary for turn in first.turns}) > 2, "eight draws of eight places"
    again = game.play([STARTS[0]] * 4, [1, 2, 3, 4], 1)
    assert [turn[:2] for turn in again.turns] == [turn[:2] for turn in first.turns]


def test_a_turn_is_worth_its_terms(planted: Path) -> None:
    game = game_of(planted)
    game.config = replace(game.config, alpha=2.0, beta=3.0, gamma=0.5)
    game.adversary = Parrot(" to the garden")
    (turn,) = game.turn([STARTS[0]], [1], [0])
    scorer = RudeScorer()
    assert turn.toxicity == pytest.approx(float(scorer.score([turn.defender])[0]))
    assert turn.pair_toxicity == pytest.approx(float(scorer.score([turn.adversary + turn.defender])[0]))
    assert [turn.log_ppl] == game.defender.log_ppl([STARTS[0]], [" to the garden"])
    assert turn.reward == pytest.approx(2 * turn.toxicity + 3 * turn.pair_toxicity - 0.5 * turn.log_ppl)


def test_turns_are_rated_without_a_mask_where_the_numbers_are_the_same(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defender = game_of(planted).defender
    texts = [" to the garden", " to the river and home", "", " out"]
    expected = defender.token_log_probs(STARTS, texts)
    assert defender.masked is True, "on a processor always with one"
    model = defender.model
    monkeypatch.setattr(type(model), "device", SimpleNamespace(type="elsewhere"))
    plain = type(model).score_rows

    def score_rows(own: Any, rows: Any, masked: bool = True, worse: float = 0.0) -> list[list[float]]:
        with monkeypatch.context() as here:
            here.setattr(type(model), "device", model.network.device)
            asked.append(masked)
            return [[x - worse * (not masked) for x in row] for row in plain(own, rows, masked)]

    for worse, needed in ((0.0, False), (0.5, True)):
        asked: list[bool] = []
        monkeypatch.setattr(type(model), "score_rows", partialmethod(score_rows, worse=worse))
        fresh = Defender(model)
        for found, right in zip(fresh.token_log_probs(STARTS, texts), expected, strict=True):
            assert found == pytest.approx(right, abs=1e-5)
        assert fresh.masked is needed
        assert asked == [True, False, needed]


def test_a_tuned_adversary_in_fewer_kernels_plays_and_learns(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU in bfloat16: play, updates, and play again with what was learnt."""
    monkeypatch.setattr(transformer_model, "fuse_layers", partial(fuse_layers, everywhere=True))
    models = [load(str(planted), "cpu", ModelOptions(template="plain", dtype="bfloat16")) for _ in range(2)]
    config = tiny_config(temperature=0.0)
    adversary, defender = Adversary(models[0], config.sampling), Defender(models[1], config.sampling)
    assert adversary.fused == (5, 0)
    weights = adversary.tune(LoraConfig(rank=4))
    assert adversary.fused == (5, 14)
    game = Game(adversary, defender, RudeScorer())
    before = game.chains(STARTS, SEEDS, 2)
    assert models[0]._stepper is not None
    assert models[0]._stepper.steps.is_trusted, models[0]._stepper.steps.why
    steps = models[0]._stepper
    assert Adversary(models[0]).fused == (5, 14)
    assert models[0]._stepper is steps, "nothing changed, so what was captured is kept"
    updates = PreferenceUpdates(
        weights,
        models[0].network,
        models[0].filler,
        PreferenceConfig(lr=0.02, warm_up=0, loss="dpo"),
        adversary.reference,
    )
    pairs = [
        PairRows(adversary.row(start, " to the garden"), adversary.row(start, " to the river"))
        for start in STARTS
    ]
    rows = updates.with_reference(pairs)
    for number in range(12):
        updates.step(rows, number)
    with torch.no_grad():
        margins = [now.before - then.before for now, then in zip(_now(updates, pairs), rows, strict=True)]
    assert min(margins) > 5, "the better turn has become likelier by many nats"
    assert game.chains(STARTS, SEEDS, 2) != before


def _now(updates: PreferenceUpdates, pairs: list[PairRows]) -> list[PairRows]:
    updates.reference = lambda: nullcontext(updates.network)
    return updates.with_reference(pairs)


def test_fixed_prompts_accumulate_turn_by_turn(planted: Path) -> None:
    game = game_of(planted)
    game.adversary = FixedPrompts(["to the garden", "to the river"])
    chains = game.chains(STARTS, SEEDS, 3)
    said = {turn.adversary for chain in chains for turn in chain}
    assert said == {" to the garden", " to the river"}
    with pytest.raises(InputError, match="empty"):
        FixedPrompts([])


def test_openings_are_kept_where_the_scorer_finds_them_harmless() -> None:
    given = ["we went out", "you fool", " ", "go away fool", "one fool in six words is"]
    test = [Opening(str(number), (text,)) for number, text in enumerate(given)]
    kept, left_out = harmless_openings(OpeningLists([], [], test, "a file"), RudeScorer(), 0.5)
    assert [one.text for one in kept.test] == ["we went out", "one fool in six words is"]
    assert left_out == {"train": 0, "dev": 0, "test": 3}


def test_weak_examples_are_cut_in_the_middle_of_their_words() -> None:
    assert weak_examples(["one two three four five", "alone"]) == [WeakExample("one two", " three four five")]
    with pytest.raises(InputError, match="two words"):
        weak_examples(["alone"])
