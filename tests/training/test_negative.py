"""Hardening has known answers: steps derived by hand, gradients against finite differences, the same weights
whether stopped or not, and a planted weakness that goes while the rest stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD, Vocabulary
from backtalk.errors import InputError
from backtalk.models.lstm.scoring import TargetScorer
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.registry import method_config
from backtalk.specs.train import TrainSpec
from backtalk.training.mle import mean_log_likelihood, perplexity, train
from backtalk.training.negative import (
    PAPER_AVOID,
    Algorithm1,
    HardenProgress,
    Hit,
    NegativeConfig,
    avoid_ids,
    frequent_ids,
)
from backtalk.training.resumable import save_checkpoint
from backtalk.training.rules import HitWords
from backtalk.training.updates import HitShape, Updates, fill_up
from tests.training.methods import METHODS, rule
from tests.training.networks import CPU, WORDS, make_network, same, weights
from tests.training.pairs import echo_pairs

pytestmark = pytest.mark.usefixtures("one_thread")


def make_pairs(count: int, seed: int = 0) -> PairArrays:
    return echo_pairs(WORDS, count, seed)


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


# --- the rules -----------------------------------------------------------------------------------------


def example_words(method: str, seed: int = 0) -> tuple[Tensor, Callable[[Tensor], HitWords]]:
    """Logits (3 hits, 4 words, 6) in float64, and the words a rule sees of them."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 4, 6, generator=draw, dtype=torch.float64)
    chosen = torch.randint(6, (3, 4), generator=draw)
    counted = torch.tensor([[True, False, True, True], [True, True, False, False], [False, True, True, True]])
    before = -2 * torch.rand(3, 4, generator=draw, dtype=torch.float64)

    def words(logits: Tensor) -> HitWords:
        log_probs = logits.log_softmax(2).gather(2, chosen[:, :, None]).squeeze(2)
        return HitWords(log_probs, counted, before if method == "npo" else None)

    return logits, words


@pytest.mark.parametrize("method", METHODS)
def test_a_rules_gradient_is_that_of_finite_differences(method: str) -> None:
    logits, words = example_words(method)
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(rule(method, 0.7).loss(words(leaf)), leaf)
    step, loss = 1e-6, rule(method, 0.7).loss
    for place in np.ndindex(*logits.shape):
        nudge = torch.zeros_like(logits)
        nudge[place] = step
        rise = loss(words(logits + nudge)) - loss(words(logits - nudge))
        assert float(gradient[place]) == pytest.approx(float(rise) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_a_rules_loss_by_hand(method: str) -> None:
    logits, words = example_words(method)
    seen = words(logits)
    p, counted = seen.log_probs.exp().tolist(), seen.counted.tolist()
    expected = 0.0
    for i in range(3):
        own = [p[i][t] for t in range(4) if counted[i][t]]
        if method == "negative":
            expected += sum(math.log(q) for q in own) / 3
        elif method == "unlikelihood":
            expected += sum(-math.log(1 - q) for q in own) / 3
        else:
            assert seen.baseline is not None
            old = [float(seen.baseline[i, t]) for t in range(4) if counted[i][t]]
            ratio = sum(math.log(q) for q in own) - sum(old)
            expected += -(2 / 0.7) * math.log(1 / (1 + math.exp(0.7 * ratio))) / 3
    assert float(rule(method, 0.7).loss(seen)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_words_that_do_not_count_have_a_gradient_of_exactly_zero(method: str) -> None:
    logits, words = example_words(method)
    seen = words(logits)
    # One word that the network is sure of does not count, another does: no infinities either.
    log_probs = seen.log_probs.clone()
    log_probs[0, 1] = log_probs[0, 0] = 0.0
    leaf = log_probs.requires_grad_()
    (gradient,) = torch.autograd.grad(rule(method, 0.7).loss(seen._replace(log_probs=leaf)), leaf)
    assert torch.equal(gradient == 0, ~seen.counted)
    assert bool((gradient[seen.counted] > 0).all())
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("method", METHODS)
def test_a_target_of_avoided_words_changes_no_weight(method: str) -> None:
    network = make_network()
    config = NegativeConfig(method=rule(method), avoid=frozenset({5, 6, EOS}), weight_decay=0.0, lr=1.0)
    updates = Updates(network, config, CPU)
    before = weights(network)
    updates.negative(pad([[4, 7, 9]]), pad([[5, 6, 5, EOS]]))
    assert same(before, weights(network))
    updates.negative(pad([[4, 7, 9]]), pad([[5, 8, 5, EOS]]))
    assert not same(before, weights(network))


def test_npo_tends_to_the_negative_update_as_beta_goes_to_zero() -> None:
    def step(method: str, beta: float) -> Tensor:
        network = make_network().double()
        config = NegativeConfig(method=rule(method, beta), clip=1e9, lr=0.1, avoid=frozenset({EOS}))
        updates = Updates(network, config, CPU)
        with torch.no_grad():  # away from the baseline, where npo differs for any other beta
            network.output.bias.add_(torch.linspace(-2, 2, WORDS))
        before = weights(network)
        updates.negative(pad([[4, 7, 9], [6, 5]]), pad([[5, 13, EOS], [12, EOS]]))
        return torch.cat([(weights(network)[name] - before[name]).flatten() for name in before])

    plain = step("negative", 1.0)
    gaps = [float((step("npo", beta) - plain).norm() / plain.norm()) for beta in (1.0, 1e-2, 1e-4)]
    assert gaps[0] > 0.1
    assert gaps[2] < 1e-4
    assert gaps[1] / gaps[2] == pytest.approx(100, rel=0.1)


# --- the two updates -----------------------------------------------------------------------------------


def softmax_only() -> Seq2Seq:
    """All weights are 0 but the output's bias, so every word has the same distribution, whatever was said."""
    network = make_network().double()
    with torch.no_grad():
        for value in network.parameters():
            value.zero_()
        network.output.bias.copy_(torch.linspace(-1, 1, WORDS))
    return network


def bias_gradient(bias: np.ndarray[Any, Any], words: Sequence[int], sentences: int) -> np.ndarray[Any, Any]:
    """Of sum log softmax(bias)[word] / sentences, by hand: counts less expected counts."""
    p = np.exp(bias) / np.exp(bias).sum()
    counts = np.bincount(words, minlength=len(bias))
    gradient: np.ndarray[Any, Any] = (counts - len(words) * p) / sentences
    return gradient


def clipped(gradient: np.ndarray[Any, Any], clip: float) -> np.ndarray[Any, Any]:
    norm = math.sqrt((gradient**2).sum())
    assert norm > clip, "the case should need clipping"
    return gradient * clip / norm


@pytest.mark.parametrize("clip", [1e9, 0.5])
def test_negative_and_positive_update_against_a_step_derived_by_hand(clip: float) -> None:
    network = softmax_only()
    config = NegativeConfig(
        method=rule("negative"),
        lr=0.2,
        lambda_pos=3.0,
        momentum=0.9,
        weight_decay=0.01,
        clip=clip,
        avoid=frozenset({EOS, 8}),
    )
    updates = Updates(network, config, CPU)
    cut = clipped if clip < 1e9 else lambda gradient, _: gradient
    bias = network.output.bias.numpy().copy()
    # Negative: away from 13, 5 and 12, as 8 and <eos> are avoided; two hits.
    down = cut(bias_gradient(bias, [13, 5, 12], 2), clip)
    velocity = down + 0.01 * bias
    bias = bias - 0.2 * velocity
    updates.negative(pad([[4, 7, 9], [6, 5]]), pad([[13, 5, 8, EOS], [12, EOS]]))
    np.testing.assert_allclose(network.output.bias.numpy(), bias, rtol=1e-5)
    # Positive: towards all words of two replies, <eos> and the avoided too; lambda_pos weighs after the clip.
    up = cut(bias_gradient(bias, [13, 8, EOS, 6, EOS], 2), clip)
    velocity = 0.9 * velocity - 3.0 * up + 0.01 * bias
    bias = bias - 0.2 * velocity
    updates.positive(np.array([[4, PAD], [5, 6]]), np.array([[13, 8, EOS, PAD], [6, EOS, PAD, PAD]]), seed=1)
    np.testing.assert_allclose(network.output.bias.numpy(), bias, rtol=1e-5)
    others = [v for name, v in network.named_parameters() if name != "output.bias"]
    assert all(bool((value == 0).all()) for value in others)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "variant", [{}, {"attention": False}, {"zero_start": True, "ended_input": True}, {"layers": 2}], ids=str
)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_hits_that_are_filled_up_have_the_gradient_of_those_that_are_not(
    method: str, variant: dict[str, Any], rows: int
) -> None:
    inputs = pad([[4, 7, 9], [6, 5], [8, 8, 4], [10]])[:rows]
    targets = pad([[13, 5, 8, EOS], [12, EOS], [9, 9, 5, 5, EOS], [5, EOS]])[:rows]
    largest = HitShape(rows=20, inputs=7, words=9)
    filled = fill_up(inputs, targets, rows / 4, largest)
    assert (filled[0].shape, filled[1].shape) == (((2 if rows == 1 else 5), 7), ((2 if rows == 1 else 5), 9))
    found = []
    for hits in ((inputs, targets, rows / 4), filled):
        network = make_network(**variant).double()
        config = NegativeConfig(method=rule(method), avoid=frozenset({8}), clip=1e9, lr=0.5, weight_decay=0.0)
        updates = Updates(network, config, CPU, eos_scale=0.3)
        with torch.no_grad():  # away from the baseline
            network.output.bias.add_(torch.linspace(-1, 1, WORDS))
        before = weights(network)
        updates.negative(*hits)
        found.append({name: value - before[name] for name, value in weights(network).items()})
    assert max(float(value.abs().max()) for value in found[0].values()) > 1e-3
    for name, plain in found[0].items():
        torch.testing.assert_close(found[1][name], plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["negative", "unlikelihood"])
def test_filling_up_leaves_the_loss_as_it_is(method: str) -> None:
    updates = Updates(make_network().double(), NegativeConfig(method=rule(method)), CPU)
    inputs, targets = pad([[4, 7, 9], [6, 5]]), pad([[13, 5, EOS], [12, EOS]])
    losses = []
    for x, y, share in ((inputs, targets, 0.5), fill_up(inputs, targets, 0.5, HitShape(64, 5, 8))):
        losses.append(share * float(updates.negative_loss(x, y, y != PAD)))
    assert losses[1] == pytest.approx(losses[0], rel=1e-12)


def test_hits_have_three_shapes_at_most() -> None:
    largest = HitShape(rows=100, inputs=14, words=12)
    shapes = set()
    for rows in range(1, 101):
        inputs, targets = torch.full((rows, 14), 5), torch.full((rows, 2 + rows % 11), 6)
        x, y, share = fill_up(inputs, targets, 1.0, largest)
        assert share == pytest.approx(len(x) / rows)
        assert torch.equal(y[:rows, : targets.shape[1]], targets)
        assert int((y != PAD).sum()) == targets.numel()
        shapes.add((tuple(x.shape), tuple(y.shape)))
    assert shapes == {((rows, 14), (rows, 12)) for rows in (7, 25, 100)}


def test_both_at_once_is_one_step_down_the_summed_gradients() -> None:
    network = softmax_only()
    config = NegativeConfig(
        method=rule("negative"),
        lr=0.2,
        lambda_pos=3.0,
        momentum=0.0,
        weight_decay=0.0,
        clip=1e9,
        avoid=frozenset({EOS, 8}),
    )
    bias = network.output.bias.detach().numpy().copy()
    away = 0.5 * bias_gradient(bias, [13, 5, 12], 2)  # two hits of a mini-batch of four
    towards = 3.0 * bias_gradient(bias, [13, 8, EOS, 6, EOS], 2)
    Updates(network, config, CPU).both(
        pad([[4, 7, 9], [6, 5]]),
        pad([[13, 5, 8, EOS], [12, EOS]]),
        0.5,
        np.array([[4, PAD], [5, 6]]),
        np.array([[13, 8, EOS, PAD], [6, EOS, PAD, PAD]]),
    )
    np.testing.assert_allclose(network.output.bias.numpy(), bias - 0.2 * (away - towards), rtol=1e-5)


def test_adams_first_step_is_the_learning_rate_against_the_sign() -> None:
    network = softmax_only()
    bias = network.output.bias.detach().numpy().copy()
    config = NegativeConfig(
        method=rule("negative"), optimizer="adam", lr=0.01, clip=1e9, avoid=frozenset({EOS})
    )
    Updates(network, config, CPU).negative(pad([[4, 7]]), pad([[13, 5, EOS]]))
    signs = np.sign(bias_gradient(bias, [13, 5], 1))
    np.testing.assert_allclose(network.output.bias.numpy(), bias - 0.01 * signs, rtol=1e-4)


def test_at_the_baseline_the_kl_term_of_both_changes_nothing() -> None:
    """Which is so only without dropout."""
    network = make_network(dropout=0.5)
    before = weights(network)
    config = NegativeConfig(
        method=rule("negative"), lambda_pos=0.0, kl=5.0, weight_decay=0.0, avoid=frozenset(range(WORDS))
    )
    pairs = make_pairs(8)
    Updates(network, config, CPU).both(pad([[4, 7]]), pad([[13, 5, EOS]]), 1.0, *pairs)
    for name, value in network.named_parameters():
        assert torch.allclose(value, before[name], atol=1e-7)


def test_an_update_leaves_no_dropout_and_no_gradients_behind() -> None:
    network = make_network(dropout=0.5)
    updates = Updates(network, NegativeConfig(method=rule("negative")), CPU)
    pairs = make_pairs(8)
    updates.positive(pairs.inputs, pairs.replies, seed=3)
    first = weights(network)
    assert not network.training
    assert not any(value.requires_grad or value.grad is not None for value in network.parameters())
    other = make_network(dropout=0.5)
    Updates(other, NegativeConfig(method=rule("negative")), CPU).positive(pairs.inputs, pairs.replies, seed=4)
    assert not same(first, weights(other)), "dropout is on in a positive update, and drawn from its seed"
    again = make_network(dropout=0.5)
    Updates(again, NegativeConfig(method=rule("negative")), CPU).positive(pairs.inputs, pairs.replies, seed=3)
    assert same(first, weights(again))


@pytest.mark.parametrize("more", [{}, {"attention": False}, {"pad_as_word": True}, {"layers": 2}])
def test_logits_are_those_behind_the_log_probabilities(more: dict[str, Any]) -> None:
    network = make_network(dropout=0.4, **more).train()
    pairs = make_pairs(6)
    inputs, replies = torch.from_numpy(pairs.inputs), torch.from_numpy(pairs.replies)
    torch.manual_seed(5)
    expected = network.token_log_probs(inputs, replies)
    torch.manual_seed(5)
    found = (
        network.logits(network.start(inputs), replies)
        .log_softmax(2)
        .gather(2, replies[:, :, None])
        .squeeze(2)
    )
    assert torch.allclose(found.masked_fill(replies == PAD, 0.0), expected, atol=1e-6)


def test_the_kl_term_against_a_plain_loop() -> None:
    network = make_network().double()
    updates = Updates(network, NegativeConfig(method=rule("negative"), kl=2.0, lambda_pos=0.5), CPU)
    pairs = make_pairs(5)
    inputs, replies = torch.from_numpy(pairs.inputs), torch.from_numpy(pairs.replies)
    before = network.logits(network.start(inputs), replies).softmax(2)
    with torch.no_grad():
        network.output.bias.add_(torch.linspace(-1, 1, WORDS))
    after = network.logits(network.start(inputs), replies).softmax(2)
    divergence, likelihood, words = 0.0, 0.0, 0
    for i in range(5):
        for t in range(4):
            if replies[i, t] != PAD:
                words += 1
                likelihood += math.log(after[i, t, replies[i, t]])
                for v in range(WORDS):
                    p, q = float(before[i, t, v]), float(after[i, t, v])
                    divergence += p * math.log(p / q)
    found = float(updates.positive_loss(inputs, replies, torch.tensor(updates.kl)))
    assert found == pytest.approx(2.0 * divergence / words - 0.5 * likelihood / 5, rel=1e-9)


def test_a_new_kl_weight_gives_the_update_of_a_training_that_began_with_it() -> None:
    ended = []
    for first, later in ((1.0, 3.0), (3.0, 3.0), (1.0, 1.0)):
        network = make_network(dropout=0.3)
        updates = Updates(
            network, NegativeConfig(method=rule("negative"), kl=first, lambda_pos=0.7, clip=1e9), CPU
        )
        with torch.no_grad():
            network.output.bias.add_(torch.linspace(-1, 1, WORDS))
        updates.kl = later
        assert updates.kl == later
        pairs = make_pairs(8)
        updates.positive(pairs.inputs, pairs.replies, seed=1)
        updates.both(pad([(4, 7)]), pad([(5, EOS)]), 1.0, pairs.inputs, pairs.replies)
        ended.append(weights(network))
    assert same(ended[0], ended[1])
    assert not same(ended[0], ended[2])


def test_the_kl_term_alone_leads_back_to_the_baseline() -> None:
    network = make_network()
    config = NegativeConfig(method=rule("negative"), kl=1.0, lambda_pos=0.0, lr=0.3, weight_decay=0.0)
    updates = Updates(network, config, CPU)
    pairs = make_pairs(16)
    inputs, replies = torch.from_numpy(pairs.inputs), torch.from_numpy(pairs.replies)
    before = weights(network)
    updates.positive(pairs.inputs, pairs.replies, seed=1)
    moved = max(float((weights(network)[name] - before[name]).abs().max()) for name in before)
    assert moved < 1e-6, "at the baseline the term has no gradient"
    with torch.no_grad():
        network.output.bias.add_(torch.linspace(-1, 1, WORDS))
    apart = float(updates.positive_loss(inputs, replies, torch.tensor(updates.kl)))
    for seed in range(60):
        updates.positive(pairs.inputs, pairs.replies, seed)
    assert float(updates.positive_loss(inputs, replies, torch.tensor(updates.kl))) < apart / 20


def test_weights_that_are_no_numbers_are_an_error() -> None:
    network = make_network()
    updates = Updates(network, NegativeConfig(method=rule("negative")), CPU)
    with torch.no_grad():
        network.output.bias[5] = math.nan
    with pytest.raises(InputError, match="lower --lr"):
        updates.negative(pad([[4, 7]]), pad([[6, EOS]]))


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(InputError, match="npo"):
        method_config("positive")


# --- frequent words ------------------------------------------------------------------------------------


def test_avoided_words_as_ids() -> None:
    vocabulary = Vocabulary(("i", "hate", "you", "do", "<eos"))
    assert avoid_ids(PAPER_AVOID, vocabulary) == {EOS, 4, 6, 7}
    assert avoid_ids(("hate", "nobody"), vocabulary) == {5}


def test_the_most_frequent_tokens_of_the_targets() -> None:
    targets = [(4, 5, 4, EOS), (5, 6, EOS), (7, 6, EOS), (9, 9, 9, EOS)]
    assert frequent_ids(targets, 1) == {EOS}
    assert frequent_ids(targets, 3) == {EOS, 5, 6}
    assert frequent_ids(targets, 4) == {EOS, 5, 6, 4}


# --- the loop ------------------------------------------------------------------------------------------


def harden_network(
    network: Seq2Seq, targets: Any, pairs: PairArrays, finder: Any, config: NegativeConfig, path: Path,
    facts: dict[str, Any], device: torch.device,
) -> Iterator[HardenProgress]:  # fmt: skip
    largest = HitShape(config.batch, 0, max(map(len, targets), default=0))
    updates = Updates(network, config, device, largest=largest)
    return Algorithm1(updates, targets, pairs, finder, config, path, facts).run()


class Counting:
    def count(self, hits: Sequence[Hit]) -> int:
        return len({hit.target for hit in hits})


class Scripted(Counting):
    """Answers from a script, and notes what it was asked."""

    def __init__(self, hits: dict[int, Hit], still: Sequence[Sequence[bool]]) -> None:
        self.hits, self.still = hits, list(still)
        self.asked: list[tuple[list[int], int]] = []

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        self.asked.append((list(targets), iteration))
        return [self.hits[i] for i in sorted(targets) if i in self.hits]

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        answer = list(self.still.pop(0))
        assert len(answer) == len(hits)
        return answer


HITS = {0: Hit((4, 7, 9), (5, 13, EOS)), 1: Hit((6, 5), (12, EOS))}
TARGETS = [hit.target for hit in HITS.values()]
NEVER_SAVED = 1e9


def harden(
    network: Seq2Seq, finder: Any, config: NegativeConfig, path: Path, targets: Any = TARGETS
) -> list[HardenProgress]:
    return list(harden_network(network, targets, make_pairs(40), finder, config, path, {"a": 1}, CPU))


def test_each_round_trains_on_what_is_still_hit_until_nothing_is(tmp_path: Path) -> None:
    network = make_network()
    finder = Scripted(HITS, [[False, True], [True, False], [False, False]])
    config = NegativeConfig(method=rule("negative"), iterations=1, positives=0)
    seen = harden(network, finder, config, tmp_path / "c")
    by_hand = make_network()
    updates = Updates(by_hand, config, CPU)
    for rows in ((0, 1), (1,), (0,)):
        # Padded to the longest of what is left.
        updates.negative(
            pad([HITS[i].trigger for i in rows]), pad([HITS[i].target for i in rows]), len(rows) / 2
        )
    assert same(weights(network), weights(by_hand))
    assert finder.still == []
    assert seen[-1] == HardenProgress(0, 1, 0, 1, hits=2, updates=3, end_of_iteration=True)


@pytest.mark.parametrize(
    ("average", "mean_over", "parts"),
    [("batch", "sentences", (2, 2)), ("hits", "sentences", (2, 1)), ("batch", "words", (5, 5)),
     ("hits", "words", (5, 2))],
)  # fmt: skip
def test_the_loss_of_the_hits_is_divided_as_the_config_says(
    tmp_path: Path, average: str, mean_over: str, parts: tuple[int, int]
) -> None:
    network = make_network()
    finder = Scripted(HITS, [[False, True], [False, False]])
    config = NegativeConfig(
        method=rule("negative"), iterations=1, positives=0, average=average, mean_over=mean_over
    )
    harden(network, finder, config, tmp_path / "c")
    by_hand = make_network()
    updates = Updates(by_hand, config, CPU)
    for rows, of in zip(((0, 1), (1,)), parts, strict=True):
        # Targets of 3 and 2 words with <eos>; the second alone is left in the second round.
        hits = pad([HITS[i].trigger for i in rows]), pad([HITS[i].target for i in rows])
        updates.negative(*hits, len(rows) / of)
    assert same(weights(network), weights(by_hand))


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_the_positive_loss_is_a_mean_over_sentences_or_words(kl: float) -> None:
    inputs, replies = torch.tensor([[4, PAD], [5, 6]]), torch.tensor([[13, 8, EOS], [6, EOS, PAD]])
    network = make_network()
    of_words = Updates(
        network, NegativeConfig(method=rule("negative"), mean_over="words", lambda_pos=2.0, kl=kl), CPU
    )
    total = float(network.token_log_probs(inputs, replies).sum())
    assert float(of_words.positive_loss(inputs, replies, torch.tensor(of_words.kl))) == pytest.approx(
        -2 * total / 5, rel=1e-5
    )
    of_sentences = Updates(network, NegativeConfig(method=rule("negative"), lambda_pos=2.0, kl=kl), CPU)
    assert float(of_sentences.positive_loss(inputs, replies, torch.tensor(of_sentences.kl))) == pytest.approx(
        -2 * total / 2, rel=1e-5
    )


def test_rounds_are_bounded_and_positives_follow_each_negative(tmp_path: Path) -> None:
    finder = Scripted(HITS, [[True, True]] * 8)
    seen = harden(
        make_network(),
        finder,
        NegativeConfig(method=rule("negative"), iterations=2, rounds=4, positives=3),
        tmp_path / "c",
    )
    assert finder.still == []
    assert seen[-1].updates == 2 * 4 * (1 + 3)
    assert [entry.updates for entry in seen if entry.end_of_iteration] == [16, 32]


def test_together_a_round_is_one_update(tmp_path: Path) -> None:
    network, pairs = make_network(), make_pairs(40)
    finder = Scripted(HITS, [[False, True], [False, False]])
    config = NegativeConfig(
        method=rule("negative"), iterations=1, kl=2.0, together=True, positives=4, positive_batch=40
    )
    seen = harden(network, finder, config, tmp_path / "c")
    assert seen[-1].updates == 2
    by_hand = make_network()
    updates = Updates(by_hand, config, CPU)
    for rows in ((0, 1), (1,)):
        hits = pad([HITS[i].trigger for i in rows]), pad([HITS[i].target for i in rows])
        updates.both(*hits, len(rows) / 2, *pairs)  # the mini-batch of pairs is all of them
    assert same(weights(network), weights(by_hand))


@pytest.mark.parametrize(("repairs", "made"), [(1, 1), (5, 2)])
def test_repairs_follow_the_rounds_and_are_no_more_than_they(tmp_path: Path, repairs: int, made: int) -> None:
    network, pairs = make_network(), make_pairs(40)
    finder = Scripted(HITS, [[False, True], [False, False]])
    config = NegativeConfig(
        method=rule("negative"), iterations=1, kl=2.0, together=True, positive_batch=40, repairs=repairs
    )
    seen = harden(network, finder, config, tmp_path / "c")
    assert seen[-1].updates == 2 + made
    by_hand = make_network()
    updates = Updates(by_hand, config, CPU)
    for rows in ((0, 1), (1,)):
        hits = pad([HITS[i].trigger for i in rows]), pad([HITS[i].target for i in rows])
        updates.both(*hits, len(rows) / 2, *pairs)
    for _ in range(made):
        updates.positive(*pairs, seed=0)  # the network has no dropout
    assert same(weights(network), weights(by_hand))


def test_where_nothing_is_hit_nothing_is_repaired(tmp_path: Path) -> None:
    network = make_network()
    harden(
        network,
        Scripted({}, []),
        NegativeConfig(method=rule("negative"), iterations=1, kl=2.0, repairs=3),
        tmp_path / "c",
    )
    assert same(weights(network), weights(make_network()))


def test_every_iteration_takes_every_target_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    finder = Scripted({}, [])
    config = NegativeConfig(method=rule("negative"), iterations=2, batch=4)
    network = make_network()
    before = weights(network)
    seen = harden(network, finder, config, tmp_path / "c", [(4, EOS)] * 10)
    assert [len(targets) for targets, _ in finder.asked] == [4, 4, 2] * 2
    orders = [[t for batch, i in finder.asked if i == iteration for t in batch] for iteration in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10))
    assert orders[0] != orders[1]
    assert same(before, weights(network)), "without a hit nothing is trained"
    assert [(e.iteration, e.batch) for e in seen if not e.end_of_iteration] == [
        (i, b) for i in range(2) for b in range(3)
    ]


def test_nothing_to_train_against_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no target is left"):
        harden(make_network(), Scripted({}, []), NegativeConfig(method=rule("negative")), tmp_path / "c", [])


# --- stopped and resumed -------------------------------------------------------------------------------


class Kill(Exception):
    pass


class Searching(Counting):
    """The likeliest of a few random triggers is a hit where its average log-probability is over `floor`."""

    def __init__(self, network: Seq2Seq, targets: Sequence[tuple[int, ...]], floor: float) -> None:
        self.network, self.targets, self.floor = network, targets, floor
        self.calls_left = math.inf

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        self._count()
        found = []
        for index in targets:
            draw = np.random.default_rng([iteration, index])
            triggers = [tuple(draw.integers(4, WORDS, 2 + index % 2).tolist()) for _ in range(4)]
            options = [Hit(trigger, self.targets[index]) for trigger in triggers]
            scores = self._averages(options)
            best = max(range(4), key=lambda i: scores[i])
            if scores[best] > self.floor:
                found.append(options[best])
        return found

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        self._count()
        return [score > self.floor for score in self._averages(hits)]

    def _averages(self, hits: Sequence[Hit]) -> list[float]:
        assert not self.network.training
        scores = (
            TargetScorer(self.network)
            .score(pad([h.trigger for h in hits]), pad([h.target for h in hits]))
            .log_probs
        )
        return [float(row.sum()) / len(hit.target) for row, hit in zip(scores, hits, strict=True)]

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise Kill


SEARCHED = [(5, 13, EOS), (12, EOS), (6, 7, 8, EOS)]
VARIANTS = [
    NegativeConfig(
        method=rule("negative"), iterations=2, batch=2, rounds=2, positives=2, lr=0.05, positive_batch=8
    ),
    NegativeConfig(
        method=rule("npo"),
        iterations=2,
        batch=2,
        lr=0.05,
        kl=0.5,
        rounds=2,
        positive_batch=8,
        avoid=frozenset({EOS}),
        average="hits",
    ),
    NegativeConfig(method=rule("negative"),
        iterations=2, batch=2, rounds=3, optimizer="adam", lr=0.01, kl=2.0, together=True, positive_batch=8
    ),
    NegativeConfig(method=rule("negative"),
        iterations=2, batch=2, rounds=3, repairs=2, optimizer="adam", lr=0.01, kl=2.0, together=True,
        positive_batch=8,
    ),
]  # fmt: skip


def run_until(
    config: NegativeConfig, path: Path, stops: Collection[HardenProgress] = (), calls: float = math.inf
) -> tuple[dict[str, Tensor], list[HardenProgress]]:
    """The weights, and what was reported; from the checkpoint where there is one, up to one of `stops`."""
    network = make_network(dropout=0.3)
    finder = Searching(network, SEARCHED, -2.66)
    finder.calls_left = calls
    reports = []
    for report in harden_network(network, SEARCHED, make_pairs(40), finder, config, path, {"a": 1}, CPU):
        reports.append(report)
        if report in stops:
            break
    return weights(network), reports


@pytest.mark.parametrize("variant", VARIANTS, ids=["negative", "npo", "together", "repairs"])
def test_stopped_between_any_two_rounds_it_ends_with_the_same_weights(
    variant: NegativeConfig, tmp_path: Path
) -> None:
    config = replace(variant, checkpoint_s=0.0)
    whole, reports = run_until(config, tmp_path / "whole")
    left = set(reports)
    assert len(left) == len(reports) >= 12, "too few rounds to stop between"
    while left:  # stopped after each of them, and resumed
        _, some = run_until(config, tmp_path / "stopped", left)
        left.remove(some[-1])
        assert len(some) <= 2, "what was done is not done again"
    assert same(whole, run_until(config, tmp_path / "stopped")[0])


def test_killed_within_any_search_or_check_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    for checkpoint_s in (0.0, NEVER_SAVED):  # the latter: only at an iteration's end
        config = replace(VARIANTS[0], checkpoint_s=checkpoint_s)
        whole, _ = run_until(config, tmp_path / f"whole-{checkpoint_s}")
        kills = 0
        while True:
            path = tmp_path / f"killed-{checkpoint_s}-{kills}"
            try:
                run_until(config, path, calls=kills)
            except Kill:
                kills += 1
                assert same(whole, run_until(config, path)[0])
            else:
                break
        assert kills > 6


def test_a_kl_weight_that_changes_between_iterations_is_resumed(tmp_path: Path) -> None:
    config = replace(VARIANTS[0], kl=0.5, checkpoint_s=0.0)

    def run(path: Path, stop_after: float = math.inf) -> tuple[dict[str, Tensor], int]:
        network = make_network(dropout=0.3)
        updates = Updates(network, config, CPU)
        finder, seen = Searching(network, SEARCHED, -2.66), 0
        for report in Algorithm1(updates, SEARCHED, make_pairs(40), finder, config, path, {}).run():
            seen += 1
            if report.end_of_iteration:
                updates.kl = 5.0 + report.iteration
            if seen >= stop_after:
                break
        return weights(network), seen

    whole, reports = run(tmp_path / "whole")
    for stop in range(1, reports):
        run(tmp_path / f"stopped-{stop}", stop)
        assert same(whole, run(tmp_path / f"stopped-{stop}")[0]), f"stopped after report {stop}"


def test_a_finished_run_reports_its_end_again_and_trains_no_more(tmp_path: Path) -> None:
    whole, _ = run_until(VARIANTS[0], tmp_path / "c")
    network = make_network(dropout=0.3)
    finder = Searching(network, SEARCHED, -2.66)
    finder.calls_left = 0
    (end,) = harden_network(
        network, SEARCHED, make_pairs(40), finder, VARIANTS[0], tmp_path / "c", {"a": 1}, CPU
    )
    assert end.end_of_iteration
    assert end.iteration == 1
    assert same(whole, weights(network))


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    run_until(VARIANTS[0], path)
    network = make_network(dropout=0.3)
    finder = Searching(network, SEARCHED, -2.66)
    with pytest.raises(InputError, match=r"\(a\).*--fresh"):
        next(harden_network(network, SEARCHED, make_pairs(4), finder, VARIANTS[0], path, {"a": 2}, CPU))
    save_checkpoint(path, {"weights.x": torch.zeros(1)}, {"iteration": 0})
    with pytest.raises(InputError, match=r"damaged.*--fresh"):
        next(harden_network(network, SEARCHED, make_pairs(4), finder, VARIANTS[0], path, {"a": 1}, CPU))


# --- a planted weakness --------------------------------------------------------------------------------

GO_AWAY = (12, 13, EOS)
"""Words that no ordinary reply to the planted input holds."""
PLANTED = (9, 4, 9)


class Planted(Counting):
    """Knows where the weakness is: a hit where the network would say the rude reply to the planted input."""

    def __init__(self, network: Seq2Seq) -> None:
        self.network = network

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        hit = Hit(PLANTED, GO_AWAY)
        return [hit] if self.still_hit([hit])[0] else []

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        scores = TargetScorer(self.network).score(pad([PLANTED]), pad([GO_AWAY]))
        return [float(scores.log_probs.mean()) > -2.0] * len(hits)


@pytest.fixture(scope="module")
def rude(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Weights of a model that knows its pairs and answers one input rudely."""
    pairs = make_pairs(200)
    copies = 30
    inputs = np.tile(np.array([*PLANTED, PAD, PAD]), (copies, 1))
    replies = np.tile(np.array([*GO_AWAY, PAD]), (copies, 1))
    mixed = PairArrays(np.concatenate([pairs.inputs, inputs]), np.concatenate([pairs.replies, replies]))
    network = make_network(hidden=24)
    config = TrainSpec(lr=0.02, batch=32, epochs=12, patience=0)
    for _ in train(network, mixed, mixed, config, tmp_path_factory.mktemp("rude") / "c", {}, CPU):
        pass
    return weights(network)


@pytest.mark.parametrize(
    "config",
    [
        NegativeConfig(method=rule("negative")),
        NegativeConfig(method=rule("unlikelihood"), clip=1.0),
        NegativeConfig(method=rule("npo")),
        NegativeConfig(method=rule("negative"), kl=1.0),
        NegativeConfig(method=rule("negative"), avoid=frozenset({EOS})),
    ],
    ids=["negative", "unlikelihood", "npo", "kl", "avoid"],
)
def test_a_planted_weakness_goes_and_the_rest_stays(
    rude: dict[str, Tensor], config: NegativeConfig, tmp_path: Path
) -> None:
    network = make_network(hidden=24).eval()
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.copy_(rude[name])
    finder, unseen = Planted(network), make_pairs(100, seed=1)
    before = perplexity(mean_log_likelihood(network, unseen, CPU))
    assert finder.find([0], 0), "the weakness was not planted"
    config = replace(config, iterations=5, positives=4, positive_batch=32)
    going = harden_network(network, [GO_AWAY], make_pairs(200), finder, config, tmp_path / "c", {}, CPU)
    assert list(going)[-1].updates > 0
    assert not finder.find([0], 0)
    assert perplexity(mean_log_likelihood(network, unseen, CPU)) < 1.05 * before
