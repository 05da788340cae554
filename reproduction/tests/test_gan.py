"""The GAN's generator gradient against the exact expectation over all replies, its schedule, and resuming."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.networks import CPU, WORDS, make_network, same, weights
from tests.training.pairs import echo_pairs
from torch import Tensor

from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.registry import method_config
from backtalk.training.frequent import Batch, BatchConfig, train_on_batches
from backtalk.training.negative import HardenProgress
from backtalk.training.resumable import load_checkpoint, save_checkpoint
from backtalk.training.updates import Updates
from reproduction.negative.gan import (
    Discriminator,
    DiscriminatorConfig,
    Gan,
    GanConfig,
    GanTraining,
    generator_loss,
    judge_loss,
)

TINY = GanConfig(
    iterations=2, steps=8, batch=8, lr=0.05, gan_lr=0.02, filters=3, widths=(1, 2), layers=1, hidden=6,
    max_output=4,
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


def make_judge(vocabulary: int = WORDS) -> Discriminator:
    torch.manual_seed(1)
    return Discriminator(DiscriminatorConfig(vocabulary, 4, filters=3, widths=(1, 2), layers=1, hidden=6))


# --- eq. 11 --------------------------------------------------------------------------------------------


def all_replies(vocabulary: int) -> Tensor:
    """Every reply of at most two tokens: <eos>, a word and <eos>, or two words and cut off."""
    words = [i for i in range(vocabulary) if i not in (PAD, EOS)]
    rows = [[EOS, PAD], *([w, EOS] for w in words), *([a, b] for a, b in itertools.product(words, words))]
    return torch.tensor(rows)


def test_the_generators_gradient_is_that_of_the_exact_expectation() -> None:
    """grad E_{y ~ G} log(1 - D) by finite differences = the estimate, averaged over all y weighted by G."""
    size = 6
    network = make_network(vocabulary=size, embedding=3, hidden=4).double().eval()
    with torch.no_grad():
        network.output.bias[PAD] = -60.0  # never said
    judge = make_judge(size).double()
    with torch.no_grad():
        judge.judge.weight *= 20  # opinions that differ
    replies = all_replies(size)
    inputs = torch.tensor([[4, 5, 3]]).expand(len(replies), -1)

    def value() -> Tensor:
        """V(D, G; x), the generator's part: summed over all y."""
        chances = network.token_log_probs(inputs, replies).sum(1).exp()
        assert float(chances.sum()) == pytest.approx(1.0, abs=1e-12)
        return (chances * torch.log(1 - torch.sigmoid(judge(inputs, replies)))).sum()

    with torch.no_grad():
        chances = network.token_log_probs(inputs, replies).sum(1).exp()
        assert float(judge(inputs, replies).std()) > 0.1
    estimate = {name: torch.zeros_like(v) for name, v in network.named_parameters()}
    for row, chance in enumerate(chances.tolist()):
        network.zero_grad()
        loss = generator_loss(network, judge, inputs[row : row + 1], replies[row : row + 1])
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        for name, parameter in network.named_parameters():
            if parameter.grad is not None:
                estimate[name] += chance * parameter.grad
    step = 1e-6
    for name, parameter in network.named_parameters():
        flat = parameter.data.view(-1)
        for place in range(0, len(flat), max(1, len(flat) // 5)):
            if name == "output.bias" and place == PAD:
                continue
            before = float(flat[place])
            with torch.no_grad():
                flat[place] = before + step
                up = float(value())
                flat[place] = before - step
                down = float(value())
                flat[place] = before
            exact = (up - down) / (2 * step)
            assert float(estimate[name].view(-1)[place]) == pytest.approx(exact, abs=1e-8), name
    largest = max(float(g.abs().max()) for g in estimate.values())
    assert largest > 1e-3, "the gradient should be something"


def test_a_mini_batch_is_averaged_and_the_judge_gets_no_gradient() -> None:
    network, judge = make_network(), make_judge()
    inputs, replies = torch.tensor([[4, 5], [6, 7]]), torch.tensor([[8, EOS], [9, 10]])
    both = generator_loss(network, judge, inputs, replies)
    alone = [generator_loss(network, judge, inputs[i : i + 1], replies[i : i + 1]).detach() for i in range(2)]
    assert float(both.detach()) == pytest.approx(float(sum(alone)) / 2, rel=1e-5)
    both.backward()  # type: ignore[no-untyped-call]
    assert all(value.grad is None for value in judge.parameters())


def test_the_judges_loss_is_eq_6_by_hand() -> None:
    judge = make_judge()
    inputs = torch.tensor([[4, 5], [6, 7]])
    real, said = torch.tensor([[8, EOS], [9, EOS]]), torch.tensor([[10, 11, EOS], [12, EOS, PAD]])
    d_real, d_said = torch.sigmoid(judge(inputs, real)).tolist(), torch.sigmoid(judge(inputs, said)).tolist()
    value = sum(math.log(a) + math.log(1 - b) for a, b in zip(d_real, d_said, strict=True)) / 2
    assert float(judge_loss(judge, inputs, real, said).detach()) == pytest.approx(-value, rel=1e-5)


# --- the steps -----------------------------------------------------------------------------------------


def batch_at(step: int) -> Batch:
    pairs = echo_pairs(WORDS, 8)
    return Batch(pairs.inputs, pairs.replies, step, seed=100 + step)


def test_three_steps_of_the_judge_one_of_the_generator_one_positive() -> None:
    training = GanTraining(make_network(), TINY, CPU)
    changed = []
    for step in range(8):
        before = weights(training.network), weights(training.judge)
        updates, _ = training.step(batch_at(step))
        changed.append((updates, not same(before[1], weights(training.judge))))
        assert (updates > 0) == (not same(before[0], weights(training.network)))
    assert changed == [(0, True), (0, True), (0, True), (2, False)] * 2


def test_the_control_makes_the_positive_updates_alone() -> None:
    config = replace(TINY, momentum=0.0, weight_decay=0.0)
    training = GanTraining(make_network(dropout=0.3), replace(config, gan_lr=0.0), CPU)
    judge = weights(training.judge)
    assert [training.step(batch_at(step))[0] for step in range(8)] == [0, 0, 0, 1] * 2
    assert same(judge, weights(training.judge))
    plain = make_network(dropout=0.3)
    updates = Updates(plain, config, CPU)
    for step in (3, 7):
        inputs, replies, _, seed = batch_at(step)
        updates.positive(inputs, replies, seed)
    assert same(weights(training.network), weights(plain))


def test_the_generators_step_is_eq_12() -> None:
    config = replace(TINY, momentum=0.0, weight_decay=0.0, clip=1e9, lambda_pos=0.0)
    network = make_network()
    training = GanTraining(network, config, CPU)
    batch = batch_at(3)
    before = weights(network)
    training.step(batch)
    plain = make_network()
    width = int((batch.inputs != PAD).sum(1).max())
    inputs = torch.from_numpy(batch.inputs[:, :width])
    said = sample(plain, plain.start(inputs), [batch.seed ^ row for row in range(8)], 4, CPU)
    generator_loss(plain, training.judge, inputs, said).backward()  # type: ignore[no-untyped-call]
    for name, value in plain.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(weights(network)[name], before[name] - 0.02 * value.grad)


def test_the_judge_learns_to_tell_replies_from_samples() -> None:
    config = replace(TINY, judge_lr=0.05, filters=8, hidden=16)
    training = GanTraining(make_network(), config, CPU)
    pairs = echo_pairs(WORDS, 64)

    def right() -> float:
        inputs, real = torch.from_numpy(pairs.inputs), torch.from_numpy(pairs.replies)
        said = sample(training.network, training.network.start(inputs), range(64), 4, CPU)
        with torch.no_grad():
            judged = torch.cat([training.judge(inputs, real) > 0, training.judge(inputs, said) <= 0])
        return float(judged.double().mean())

    for step in range(0, 400, 4):  # the judge's turns
        rows = np.random.default_rng(step).choice(64, 32, replace=False)
        training.step(Batch(pairs.inputs[rows], pairs.replies[rows], step, seed=step))
    assert right() > 0.8


def test_the_method_hands_its_settings_to_the_training() -> None:
    config = BatchConfig(batch=8, kl=0.5, max_output=4)
    training = Gan(gan_lr=0.02, gan_filters=3, gan_hidden=6).training(make_network(), config, CPU)
    assert training.config == GanConfig(batch=8, kl=0.5, max_output=4, gan_lr=0.02, filters=3, hidden=6)
    assert method_config("gan") is Gan, "an entry point of pyproject.toml"
    Gan(gan_lr=0.0).check(config)
    with pytest.raises(InputError, match="positive updates"):
        Gan(gan_lr=0.0).check(replace(config, lambda_pos=0.0, kl=0.0))


# --- stopped and resumed -------------------------------------------------------------------------------


def train(network: Seq2Seq, config: GanConfig, path: Path) -> Iterator[HardenProgress]:
    training = GanTraining(network, config, CPU)
    return train_on_batches(training, echo_pairs(WORDS, 30), config, path, {"a": 1})


def run_until(
    config: GanConfig, path: Path, stop_after: float = math.inf
) -> tuple[dict[str, Tensor], list[HardenProgress]]:
    network = make_network(dropout=0.3)
    reports = []
    for report in train(network, config, path):
        reports.append(report)
        if len(reports) >= stop_after:
            break
    return weights(network), reports


def test_stopped_after_any_report_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    config = replace(TINY, checkpoint_s=0.0)
    whole, reports = run_until(config, tmp_path / "whole")
    judge = load_checkpoint(tmp_path / "whole")
    assert judge is not None
    assert reports[-1].updates == 2 * 2 * 2
    for stop in range(1, len(reports), 2):
        path = tmp_path / f"stopped-{stop}"
        run_until(config, path, stop_after=stop)
        resumed, rest = run_until(config, path)
        assert same(whole, resumed), f"stopped after report {stop}"
        assert len(rest) <= len(reports) - stop + 1, "what was done is not done again"
        again = load_checkpoint(path)
        assert again is not None
        assert all(torch.equal(value, again[0][name]) for name, value in judge[0].items())


def test_a_checkpoint_without_a_judge_is_refused(tmp_path: Path) -> None:
    network = make_network()
    tensors = {f"weights.{name}": value for name, value in weights(network).items()}
    save_checkpoint(tmp_path / "c", tensors, {"step": 1, "found": 0, "updates": 0, "of": {"a": 1}})
    with pytest.raises(InputError, match=r"damaged.*--fresh"):
        next(train(network, TINY, tmp_path / "c"))
