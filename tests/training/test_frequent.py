"""Algorithm 2 has known answers: shares counted by hand and by plain loops, steps derived by hand for each
<eos> scale, and the same weights whether stopped or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import greedy
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.specs.train import TrainSpec
from backtalk.training.frequent import Batch, FrequentConfig, FrequentTraining, ReplyWindow, train_on_batches
from backtalk.training.mle import train
from backtalk.training.negative import HardenProgress
from backtalk.training.resumable import save_checkpoint
from backtalk.training.rules import HitWords
from backtalk.training.updates import Updates
from tests.training.methods import METHODS, rule
from tests.training.networks import CPU, WORDS, make_network, same, weights
from tests.training.pairs import echo_pairs

pytestmark = pytest.mark.usefixtures("one_thread")


# --- the window ----------------------------------------------------------------------------------------

A, B, C = [4, EOS, PAD], [4, 5, EOS], [5, EOS, PAD]


def said(*replies: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(replies, dtype=np.int32)


def test_shares_are_those_of_the_last_batches_and_the_current_one() -> None:
    window = ReplyWindow(2)
    window.add(said(A, A))
    assert not window.full
    np.testing.assert_allclose(window.shares(), [1, 1])
    window.add(said(A, B))
    assert not window.full
    np.testing.assert_allclose(window.shares(), [3 / 4, 1 / 4])
    window.add(said(B, C))  # two batches before it: full. A A A B, B C
    assert window.full
    np.testing.assert_allclose(window.shares(), [2 / 6, 1 / 6])
    window.add(said(C, A))  # A A leaves. A B B C, C A
    assert window.full
    np.testing.assert_allclose(window.shares(), [2 / 6, 2 / 6])
    window.add(said(C, C))  # A B leaves. B C C A, C C
    np.testing.assert_allclose(window.shares(), [4 / 6, 4 / 6])
    window.add(said(C, C))  # B C leaves, and with it the last B
    assert dict(window.counts) == {said(C).tobytes(): 5, said(A).tobytes(): 1}


def test_a_window_of_many_batches_against_a_recount() -> None:
    draw = np.random.default_rng(0)
    window, history = ReplyWindow(7), []
    for _ in range(40):
        batch = draw.integers(4, 7, (5, 2)).astype(np.int32)
        history.append(batch)
        window.add(batch)
        known = [tuple(row) for old in history[-8:] for row in old.tolist()]
        by_hand = [known.count(tuple(row)) / len(known) for row in batch.tolist()]
        np.testing.assert_allclose(window.shares(), by_hand)
        assert window.full == (len(history) >= 8)


# --- which pairs fire ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def echoing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Weights of a network that says 5 to 5, 7 to 7, 9 to 9: odd words are answered by themselves."""
    network = make_network(hidden=24)
    pairs = echo_pairs(WORDS, 300)
    config = TrainSpec(lr=0.02, batch=32, epochs=15, patience=0)
    for _ in train(network, pairs, pairs, config, tmp_path_factory.mktemp("echo") / "c", {}, CPU):
        pass
    return weights(network)


def discourage(
    network: Seq2Seq, pairs: PairArrays, config: FrequentConfig, path: Path, facts: dict[str, Any]
) -> Iterator[HardenProgress]:
    training = FrequentTraining(network, config, CPU, pairs.inputs.shape[1])
    return train_on_batches(training, pairs, config, path, facts)


def echo_network(echoing: dict[str, Tensor]) -> Seq2Seq:
    network = make_network(hidden=24).eval()
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(echoing[name])
    return network


def batch_of(step: int, *words: int) -> Batch:
    """Inputs of one word each; the real replies are the same word twice."""
    inputs = np.array([[word, PAD, PAD] for word in words])
    replies = np.array([[word, word, EOS, PAD] for word in words])
    return Batch(inputs, replies, step, seed=step)


def test_what_fires_at_which_step(echoing: dict[str, Tensor]) -> None:
    network = echo_network(echoing)
    config = FrequentConfig(
        method=rule("negative"), window=2, r_thres=1 / 3, lr=0.0, weight_decay=0.0, max_output=4
    )
    training = FrequentTraining(network, config, CPU)
    scripted = [
        # input words, how many fire; a reply counts in three mini-batches
        ((5, 5, 5, 5), 0),  # the window is not full
        ((5, 5, 7, 7), 0),
        ((5, 7, 7, 9), 1),  # 5: 7 of 12; 7: 4 of 12, which is a third and not above
        ((7, 7, 9, 9), 2),  # the first batch leaves. 5: 3, 7: 6 of 12, 9: 3 of 12
        ((9, 9, 11, 5), 2),  # 9: 5 of 12; 11: 1, 5: 2
        ((11, 13, 5, 5), 0),  # 9: 4 of 12 left, 5: 3, 11: 2
    ]
    for step, (words, fires) in enumerate(scripted):
        batch = batch_of(step, *words)
        # There is a positive update only after a negative one.
        assert training.step(batch) == (2 if fires else 0, fires), f"step {step}"


def test_in_the_published_code_every_step_has_a_positive_update(echoing: dict[str, Tensor]) -> None:
    config = FrequentConfig(
        method=rule("negative"), window=2, r_thres=0.3, lr=0.0, max_output=4, always_positive=True
    )
    training = FrequentTraining(echo_network(echoing), config, CPU)
    assert training.step(batch_of(0, 5, 5)) == (1, 0)
    silent = FrequentTraining(echo_network(echoing), replace(config, lambda_pos=0.0), CPU)
    assert silent.step(batch_of(0, 5, 5)) == (0, 0)


@pytest.mark.parametrize("method", METHODS)
def test_the_whole_training_against_a_plain_loop(
    echoing: dict[str, Tensor], method: str, tmp_path: Path
) -> None:
    """Replies, recounted shares, negative update averaged over the mini-batch, positive update; each step."""
    pairs = echo_pairs(WORDS, 44)
    config = FrequentConfig(
        method=rule(method),
        iterations=3,
        steps=4,
        batch=8,
        lr=0.01,
        window=3,
        r_thres=0.1,
        max_output=4,
        seed=5,
    )
    network = echo_network(echoing)
    reports = list(discourage(network, pairs, config, tmp_path / "c", {}))
    plain = echo_network(echoing)
    updates = Updates(plain, config, CPU, eos_scale=0.1)
    history: list[list[tuple[int, ...]]] = []
    fired = []
    for step in range(12):
        epoch, within = divmod(step, 5)  # 44 pairs: five mini-batches an epoch
        order = np.random.default_rng([5, epoch]).permutation(44)
        rows = sorted(order[8 * within : 8 * within + 8])
        inputs = torch.from_numpy(pairs.inputs[rows])
        replies = greedy(plain, plain.start(inputs), 8, 4, CPU)
        history.append([tuple(row) + (PAD,) * (4 - len(row)) for row in replies.tolist()])
        seen = [reply for batch in history[-4:] for reply in batch]
        often = [i for i in range(8) if len(history) > 3 and seen.count(history[-1][i]) / len(seen) > 0.1]
        fired.append(len(often))
        if often:
            width = int((inputs != PAD).sum(1).max())
            updates.negative(inputs[often, :width], replies[often], share=len(often) / 8)
            seed = int(np.random.default_rng([5, epoch, within]).integers(1 << 62))
            updates.positive(pairs.inputs[rows], pairs.replies[rows], seed)
    assert fired[:3] == [0, 0, 0]
    assert sum(map(bool, fired)) > 2, "the case should fire"
    assert same(weights(network), weights(plain))
    ends = [report for report in reports if report.end_of_iteration]
    assert [end.hits for end in ends] == [sum(fired[i : i + 4]) for i in (0, 4, 8)]
    assert ends[-1].updates == 2 * sum(map(bool, fired))


# --- the <eos> scale -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0])
def test_a_step_with_scaled_eos_by_hand(scale: float) -> None:
    """All weights are 0 but the output's bias: log P of a reply is a sum of log softmax(bias)."""
    network = make_network().double()
    with torch.no_grad():
        for value in network.parameters():
            value.zero_()
        network.output.bias.copy_(torch.linspace(-1, 1, WORDS))
    bias = network.output.bias.detach().numpy().copy()
    p = np.exp(bias) / np.exp(bias).sum()
    config = FrequentConfig(method=rule("negative"), lr=0.2, weight_decay=0.0, clip=1e9)
    updates = Updates(network, config, CPU, eos_scale=scale)
    # Two replies of four in the mini-batch: 13 5 <eos> and 12 <eos>.
    updates.negative(
        torch.tensor([[4, 7], [6, PAD]]), torch.tensor([[13, 5, EOS], [12, EOS, PAD]]), share=2 / 4
    )
    counts = np.zeros(WORDS)
    counts[[13, 5, 12]] = 1.0
    counts[EOS] = 2 * scale
    down = (counts - (3 + 2 * scale) * p) / 4
    np.testing.assert_allclose(network.output.bias.numpy(), bias - 0.2 * down, rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_weighted_words_against_finite_differences(method: str) -> None:
    draw = torch.Generator().manual_seed(0)
    log_probs = -3 * torch.rand(3, 4, generator=draw, dtype=torch.float64) - 0.1
    counted = torch.tensor([[True, False, True, True], [True, True, False, False], [False, True, True, True]])
    weight = torch.tensor([[1.0, 1.0, 1.0, 0.1], [1.0, 0.1, 1.0, 1.0], [1.0, 1.0, 1.0, 0.1]])
    before = log_probs - 0.5

    def loss(logs: Tensor, how_much: Tensor | None = weight) -> Tensor:
        return rule(method, 0.7).loss(HitWords(logs, counted, before, how_much))

    leaf = log_probs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    for place in np.ndindex(3, 4):
        nudge = torch.zeros_like(log_probs)
        nudge[place] = 1e-6
        rise = float(loss(log_probs + nudge) - loss(log_probs - nudge)) / 2e-6
        assert float(gradient[place]) == pytest.approx(rise, abs=1e-8)
    assert torch.equal(gradient == 0, ~counted), "words that do not count have exactly none"
    assert float(loss(log_probs, torch.ones_like(weight))) == pytest.approx(float(loss(log_probs, None)))
    if method != "npo":  # there the weight is in the sentence's ratio too
        plain = torch.autograd.grad(loss(leaf, None), leaf)[0]
        torch.testing.assert_close(gradient, plain * weight)


@pytest.mark.parametrize("method", METHODS)
def test_scale_zero_leaves_a_bare_eos_alone(method: str) -> None:
    network = make_network()
    config = FrequentConfig(method=rule(method), lr=1.0, weight_decay=0.0)
    before = weights(network)
    Updates(network, config, CPU, eos_scale=0.0).negative(torch.tensor([[4, 7]]), torch.tensor([[EOS]]))
    assert same(before, weights(network))
    Updates(network, config, CPU, eos_scale=0.1).negative(torch.tensor([[4, 7]]), torch.tensor([[EOS]]))
    assert not same(before, weights(network))


# --- stopped and resumed -------------------------------------------------------------------------------

VARIANTS = [
    FrequentConfig(
        method=rule("negative"), iterations=2, steps=4, batch=8, lr=0.05, window=2, r_thres=0.1, max_output=4
    ),
    FrequentConfig(
        method=rule("npo"),
        iterations=2,
        steps=4,
        batch=8,
        lr=0.05,
        kl=0.5,
        window=2,
        r_thres=0.1,
        max_output=4,
        always_positive=True,
        eos_scale=1.0,
    ),
]


def run_until(
    config: FrequentConfig, path: Path, stop_after: float = math.inf
) -> tuple[dict[str, Tensor], list[HardenProgress]]:
    network = make_network(dropout=0.3)
    reports = []
    for report in discourage(network, echo_pairs(WORDS, 30), config, path, {"a": 1}):
        reports.append(report)
        if len(reports) >= stop_after:
            break
    return weights(network), reports


@pytest.mark.parametrize("variant", VARIANTS, ids=["negative", "npo"])
@pytest.mark.parametrize("checkpoint_s", [0.0, 1e9], ids=["each update", "each iteration"])
def test_stopped_after_any_report_it_ends_with_the_same_weights(
    variant: FrequentConfig, checkpoint_s: float, tmp_path: Path
) -> None:
    config = replace(variant, checkpoint_s=checkpoint_s)
    whole, reports = run_until(config, tmp_path / "whole")
    assert len(reports) == 2 * (4 + 1)
    assert reports[-1].updates >= 6, "too few updates to stop between"
    for stop in range(1, len(reports)):
        path = tmp_path / f"stopped-{stop}"
        run_until(config, path, stop_after=stop)
        resumed, rest = run_until(config, path)
        assert same(whole, resumed), f"stopped after report {stop}"
        assert rest[-1] == reports[-1]
        if checkpoint_s == 0:
            assert len(rest) <= len(reports) - stop + 1, "what was done is not done again"


def test_a_finished_training_reports_its_end_again_and_trains_no_more(tmp_path: Path) -> None:
    whole, reports = run_until(VARIANTS[0], tmp_path / "c")
    again, (end,) = run_until(VARIANTS[0], tmp_path / "c")
    assert end == reports[-1]
    assert end.end_of_iteration
    assert end.iteration == 1
    assert same(whole, again)


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path, config, pairs = tmp_path / "c", VARIANTS[0], echo_pairs(WORDS, 30)
    run_until(config, path)
    with pytest.raises(InputError, match=r"\(a\).*--fresh"):
        next(discourage(make_network(), pairs, config, path, {"a": 2}))
    network = make_network()
    without_window = {f"weights.{name}": value for name, value in weights(network).items()}
    state = {"step": 1, "found": 0, "updates": 0, "of": {"a": 1}}
    save_checkpoint(path, without_window, state)
    with pytest.raises(InputError, match=r"damaged.*--fresh"):
        next(discourage(network, pairs, config, path, {"a": 1}))


# --- what is refused -----------------------------------------------------------------------------------


def test_a_window_that_is_never_full_is_an_error() -> None:
    config = FrequentConfig(method=rule("negative"), iterations=20, batch=8)
    # 30 pairs: 3 mini-batches an iteration, 60 in all
    with pytest.raises(InputError, match=r"60 .* 200"):
        config.check(30)
