"""REINFORCE: the estimate against the exact gradient, rewards and baselines by hand, a planted black box,
resuming, and the end of the budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import InputPolicy, craft, draw_seed
from backtalk.scorers.similarity import load_vectors
from backtalk.training.reverse import (
    PretrainConfig,
    ReinforceConfig,
    ReinforceProgress,
    advantages_of,
    policy_loss,
    pretrain,
    reinforce,
    rewards_of,
)
from tests.models.test_reverse import all_sentences, make_generator
from tests.training.networks import CPU, same, weights

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = "abcdefgh"


# --- eq. (2) and the baselines, by hand ----------------------------------------------------------------


def test_rewards_below_the_floor_are_nothing() -> None:
    rewards = rewards_of(np.array([0.49, 0.5, 0.9, -0.3], dtype=np.float32), 0.5)
    assert rewards.tolist() == pytest.approx([0, 0.5, 0.9, 0])
    assert rewards_of(np.array([-0.5, 0.2]), -1.0).tolist() == [-0.5, 0.2]


def test_rewards_are_the_cosines_of_replies_and_targets(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("a 1 0\nb 0 1\n")
    near = load_vectors(str(tmp_path / "v")).similarity(["a", "a b", "b", "a a b"], ["a"] * 4)
    expected = [1.0, math.sqrt(1 / 2), 0.0, 2 / math.sqrt(5)]
    assert rewards_of(near, 0.8).tolist() == pytest.approx([1.0, 0.0, 0.0, expected[3]], abs=1e-6)


def test_baselines_by_hand() -> None:
    rewards = np.array([[1.0, 0.0, 0.5], [0.6, 0.2, 0.9]])
    answered = np.array([[True, True, True], [True, True, False]])
    others = [[1 - 0.25, 0 - 0.75, 0.5 - 0.5], [0.6 - 0.2, 0.2 - 0.6, 0.0]]
    np.testing.assert_allclose(advantages_of(rewards, answered), others, atol=1e-12)
    alone = advantages_of(np.array([[0.9, 0.8]]), np.array([[True, False]]))
    assert alone.tolist() == [[0.0, 0.0]], "a sample without others teaches nothing"


# --- eq. (4) on a tiny action space --------------------------------------------------------------------


def tiny_policy() -> tuple[InputPolicy, Tensor, Tensor, NDArray[np.float64]]:
    """Three words, at most two of them: 12 sentences, each with a reward of its own."""
    network = make_generator().network.double()
    network.output.bias.copy_(
        torch.linspace(-2, 2, len(network.output.bias))
    )  # some are likelier than others
    network.requires_grad_(True)
    sentences = all_sentences()
    targets = torch.tensor([[4, 6, 5]]).expand(len(sentences), -1)
    rewards = rewards_of(np.random.default_rng(3).uniform(0, 1, len(sentences)), 0.5)
    return InputPolicy(network), targets, sentences, rewards


def gradients(policy: InputPolicy, value: Tensor) -> dict[str, Tensor]:
    policy.network.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    named = policy.network.named_parameters()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in named}


def expected_reward(
    policy: InputPolicy, targets: Tensor, sentences: Tensor, rewards: NDArray[np.float64]
) -> Tensor:
    """J, eq. (3), summed over all sentences."""
    return (policy.log_prob(targets, sentences).exp() * torch.from_numpy(rewards)).sum()


def test_the_estimate_is_the_exact_gradient_on_average() -> None:
    """Two samples a target: the estimate of every pair of sentences, weighted by the pair's chance. With the
    factor pi of the paper's eq. (4) it would not be."""
    policy, targets, sentences, rewards = tiny_policy()
    exact = gradients(policy, expected_reward(policy, targets, sentences, rewards))
    logs = policy.log_prob(targets, sentences)
    chances = logs.detach().exp()
    average = torch.zeros((), dtype=torch.float64)
    for i, j in itertools.product(range(len(sentences)), repeat=2):
        pair = advantages_of(rewards[[i, j]].reshape(1, 2), np.ones((1, 2), dtype=bool))
        estimate = policy_loss(logs[[i, j]], torch.from_numpy(pair.reshape(-1)), 2)
        average = average + chances[i] * chances[j] * estimate
    for name, gradient in gradients(policy, -average).items():
        torch.testing.assert_close(gradient, exact[name], rtol=1e-9, atol=1e-12)
    assert max(float(g.abs().max()) for g in exact.values()) > 1e-3, "the gradient should be something"


def test_the_exact_gradient_is_that_of_finite_differences() -> None:
    policy, targets, sentences, rewards = tiny_policy()
    exact = gradients(policy, expected_reward(policy, targets, sentences, rewards))
    step = 1e-6
    for name, parameter in policy.network.named_parameters():
        flat = parameter.data.view(-1)
        for place in range(0, len(flat), max(1, len(flat) // 3)):
            before = float(flat[place])
            ends = []
            for moved in (before + step, before - step):
                flat[place] = moved
                ends.append(float(expected_reward(policy, targets, sentences, rewards).detach()))
            flat[place] = before
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
                float(exact[name].view(-1)[place]), abs=1e-8
            ), name


# --- a planted black box -------------------------------------------------------------------------------


def next_word(text: str) -> str:
    """It answers every word with the one after it."""
    return " ".join(WORDS[(WORDS.index(word) + 1) % len(WORDS)] for word in text.lower().split())


class BlackBox:
    """Answers so many questions, and remembers them."""

    def __init__(self, most: float = math.inf) -> None:
        self.most, self.asked = most, [""][:0]

    def __call__(self, inputs: Sequence[str]) -> list[str | None]:
        replies: list[str | None] = []
        for text in inputs:
            replies.append(next_word(text) if len(self.asked) < self.most else None)
            self.asked += [text] if replies[-1] else []
        return replies


def overlap(replies: Sequence[str], targets: Sequence[str]) -> NDArray[np.float32]:
    """The cosine of word counts."""
    found = []
    for texts in zip(replies, targets, strict=True):
        first, second = (np.array([text.lower().split().count(word) for word in WORDS]) for text in texts)
        norm = float(np.linalg.norm(first) * np.linalg.norm(second))
        found.append(float(first @ second) / norm if norm else 0.0)
    return np.array(found, dtype=np.float32)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    """It saw too few pairs for too short a time."""
    draw = np.random.default_rng(0)
    inputs = [" ".join(draw.choice(list(WORDS), size=int(draw.integers(1, 3)))) for _ in range(120)]
    config = PretrainConfig(
        hidden=24, embedding=12, dropout=0.0, epochs=6, batch=16, lr=0.01, patience=0, least=1, max_words=3
    )
    return pretrain([(next_word(text), text) for text in inputs], config, tmp_path_factory.mktemp("g"), CPU)


TINY = ReinforceConfig(steps=6, batch=4, samples=4, lr=0.01, floor=0.3, checkpoint_s=0.0)
TARGETS = [" ".join(pair) for pair in itertools.product(WORDS[:4], WORDS[2:6])] + list(WORDS)


def run(
    generator: LocalModel,
    config: ReinforceConfig,
    path: Path,
    box: BlackBox | None = None,
    stop_after: float = math.inf,
) -> tuple[LocalModel, list[ReinforceProgress]]:
    own = deepcopy(generator)
    reports = []
    for report in reinforce(own, TARGETS, box or BlackBox(), overlap, config, path, {"a": 1}):
        reports.append(report)
        if len(reports) >= stop_after:
            break
    return own, reports


def mean_similarity(generator: LocalModel) -> float:
    said = [next_word(row[0]) for row in craft(generator, TARGETS, 1)]
    return float(overlap(said, TARGETS).mean())


def test_it_beats_pre_training_on_a_planted_black_box(pretrained: LocalModel, tmp_path: Path) -> None:
    config = replace(TINY, steps=100, batch=12, samples=8, checkpoint_s=60.0)
    trained, reports = run(pretrained, config, tmp_path / "c")
    before, after = mean_similarity(pretrained), mean_similarity(trained)
    assert before < 0.7
    assert after > before + 0.2
    assert np.mean([r.reward for r in reports[-5:]]) > np.mean([r.reward for r in reports[:5]]) + 0.1


def test_an_update_is_eq_5_one_sample_at_a_time(pretrained: LocalModel, tmp_path: Path) -> None:
    config = replace(TINY, steps=1)
    trained, (report,) = run(pretrained, config, tmp_path / "c")
    plain = deepcopy(pretrained)
    policy = InputPolicy(plain.network.requires_grad_(True))
    optimizer = torch.optim.Adam(plain.network.parameters(), config.lr)
    rows = np.random.default_rng([config.seed, 0]).permutation(len(TARGETS))[: config.batch]
    nears, total = [], torch.zeros(())
    for i, row in enumerate(rows):
        target = plain.encode_texts([TARGETS[row]])
        drawn = []
        for k in range(config.samples):
            seed = draw_seed(config.seed, 0, i * config.samples + k)
            ids = sample(policy, policy.network.start(target), [seed], plain.max_output, CPU)
            near = float(overlap([next_word(plain.decode(ids[0].tolist()))], [TARGETS[row]])[0])
            nears.append(near)
            drawn.append((policy.log_prob(target, ids)[0], near if near >= config.floor else 0.0))
        for k, (log_prob, reward) in enumerate(drawn):
            others = [r for j, (_, r) in enumerate(drawn) if j != k]
            total = total - (reward - sum(others) / len(others)) * log_prob
    (total / len(nears)).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(plain.network.parameters(), config.clip)
    optimizer.step()
    assert report.similarity == pytest.approx(np.mean(nears), abs=1e-6)
    for name, value in weights(plain.network).items():
        torch.testing.assert_close(weights(trained.network)[name], value, rtol=1e-4, atol=2e-5)


# --- stopped, resumed, out of budget -------------------------------------------------------------------


def test_stopped_after_any_update_it_ends_with_the_same_weights(
    pretrained: LocalModel, tmp_path: Path
) -> None:
    whole, reports = run(pretrained, TINY, tmp_path / "whole")
    assert [r.step for r in reports] == [1, 2, 3, 4, 5, 6]
    for stop in (1, 3, 5):
        path = tmp_path / f"stopped-{stop}"
        run(pretrained, TINY, path, stop_after=stop)
        resumed, rest = run(pretrained, TINY, path)
        assert same(weights(whole.network), weights(resumed.network)), f"stopped after update {stop}"
        assert rest == reports[stop:], "what was done is not done again"


def test_a_finished_one_asks_nothing(pretrained: LocalModel, tmp_path: Path) -> None:
    whole, _ = run(pretrained, TINY, tmp_path / "c")
    box = BlackBox()
    again, reports = run(pretrained, TINY, tmp_path / "c", box)
    assert (box.asked, reports) == ([], [])
    assert same(weights(whole.network), weights(again.network))


def test_it_ends_when_the_budget_does(pretrained: LocalModel, tmp_path: Path) -> None:
    box = BlackBox(most=40)  # two batches of 16 and a half
    trained, reports = run(pretrained, replace(TINY, steps=50), tmp_path / "c", box)
    assert [r.answered for r in reports] == [16, 16, 8, 0]
    assert len(box.asked) == 40
    assert all(bool(torch.isfinite(v).all()) for v in weights(trained.network).values())
    three, _ = run(pretrained, replace(TINY, steps=50), tmp_path / "d", BlackBox(most=40), stop_after=3)
    assert same(weights(trained.network), weights(three.network)), "a batch without a reply changes nothing"


def test_replies_that_did_not_come_do_not_count(pretrained: LocalModel, tmp_path: Path) -> None:
    def every_other(inputs: Sequence[str]) -> list[str | None]:
        return [next_word(text) if i % 2 else None for i, text in enumerate(inputs)]

    own = deepcopy(pretrained)
    (report,) = reinforce(own, TARGETS, every_other, overlap, replace(TINY, steps=1), tmp_path / "c", {})
    full = run(pretrained, replace(TINY, steps=1), tmp_path / "d")[1][0]
    assert report.answered == 8
    assert full.answered == 16
    assert 0 < report.similarity <= 1, "a mean over those that came"


def test_other_facts_or_settings_are_refused(pretrained: LocalModel, tmp_path: Path) -> None:
    run(pretrained, TINY, tmp_path / "c")
    with pytest.raises(InputError, match="other settings"):
        run(pretrained, replace(TINY, lr=0.02), tmp_path / "c")
    with pytest.raises(InputError, match="other settings"):
        next(
            reinforce(deepcopy(pretrained), TARGETS[1:], BlackBox(), overlap, TINY, tmp_path / "c", {"a": 1})
        )
    with pytest.raises(InputError, match="other settings"):
        next(reinforce(deepcopy(pretrained), TARGETS, BlackBox(), overlap, TINY, tmp_path / "c", {"a": 2}))


def test_without_targets_there_is_no_training(pretrained: LocalModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no targets"):
        next(reinforce(pretrained, [], BlackBox(), overlap, TINY, tmp_path / "c", {}))


def test_targets_of_any_length_share_a_batch(pretrained: LocalModel, tmp_path: Path) -> None:
    mixed = ["a", "b c d e f g h a b c", "unheard of", ""]
    (report,) = reinforce(
        deepcopy(pretrained), mixed, BlackBox(), overlap, replace(TINY, steps=1, batch=16), tmp_path / "c", {}
    )
    assert report.answered == 4 * TINY.samples
