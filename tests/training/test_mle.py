"""Training has one right answer: a corpus learnt by heart, and the same weights whether stopped or not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.models.folder import Network, build_network
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.specs.train import TrainSpec
from backtalk.training import mle
from backtalk.training.mle import (
    BATCH,
    Progress,
    learning_rate,
    make_step,
    mean_log_likelihood,
    perplexity,
    train,
    trim_padding,
)
from backtalk.training.resumable import save_checkpoint
from tests.training.pairs import echo_pairs as echo_pairs_of

CPU = torch.device("cpu")
WORDS = 16
"""Ids of the made-up language, the four specials included."""


pytestmark = pytest.mark.usefixtures("one_thread")


def echo_pairs(count: int, seed: int = 0) -> PairArrays:
    return echo_pairs_of(WORDS, count, seed)


def one_reply(count: int) -> PairArrays:
    """Every reply is the same: what a language model, which sees no input, can learn by heart."""
    pairs = echo_pairs(count)
    return PairArrays(pairs.inputs, np.tile(np.array([5, 9, EOS, PAD]), (count, 1)))


def make_network(kind: str, dropout: float = 0.0, hidden: int = 24, **more: Any) -> Network:
    torch.manual_seed(7)
    sizes: dict[str, Any] = {"vocabulary": WORDS, "embedding": 12, "hidden": hidden, "dropout": dropout}
    if kind != "lm":
        sizes["attention"] = kind == "attention"
    return build_network("lm" if kind == "lm" else "seq2seq", sizes | more)


def run_whole(
    network: Network, pairs: PairArrays, config: TrainSpec, path: Path, valid: PairArrays | None = None
) -> list[Progress]:
    return list(train(network, pairs, valid or pairs, config, path, {"a": 1}, CPU))


def weights(network: Network) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


# --- the schedules -------------------------------------------------------------------------------------


def test_sgd_is_fixed_for_ten_epochs_then_halved_at_each() -> None:
    config = TrainSpec(optimizer="sgd", lr=1.0, halve_after=10, epochs=14)
    by_epoch = [learning_rate(config, epoch * 7, 7) for epoch in range(14)]
    assert by_epoch == [1.0] * 10 + [0.5, 0.25, 0.125, 0.0625]
    assert [learning_rate(config, step, 7) for step in (69, 70, 76, 77)] == [1.0, 0.5, 0.5, 0.25]


def test_adamw_warms_up_over_a_tenth_then_falls_to_zero() -> None:
    config = TrainSpec(optimizer="adamw", lr=2.0, epochs=4)  # 4 epochs of 10 steps: 4 steps of warm-up
    rates = [learning_rate(config, step, 10) for step in range(40)]
    assert rates[0] == pytest.approx(2.0 / 4)
    assert rates[1] == pytest.approx(2.0 * 2 / 4 * 0.5 * (1 + math.cos(math.pi / 40)))
    assert rates[20] == pytest.approx(1.0)
    assert rates[30] == pytest.approx(1 - math.sqrt(0.5))
    assert rates[39] == pytest.approx(1 - math.cos(math.pi / 40))
    assert max(rates) == rates[3]
    assert rates[3:] == sorted(rates[3:], reverse=True)


def test_a_long_run_warms_up_over_200_steps() -> None:
    config = TrainSpec(optimizer="adamw", lr=1.0, epochs=100)
    assert learning_rate(config, 99, 1000) == pytest.approx(0.5, rel=1e-4)
    assert learning_rate(config, 199, 1000) == pytest.approx(1.0, rel=1e-4)


# --- learning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "optimizer", "lr"),
    [("attention", "adamw", 0.02), ("last-h", "adamw", 0.02), ("lm", "adamw", 0.02), ("last-h", "sgd", 1.0)],
)
def test_a_deterministic_corpus_is_learnt_by_heart(
    kind: str, optimizer: Literal["adamw", "sgd"], lr: float, tmp_path: Path
) -> None:
    pairs = one_reply(256) if kind == "lm" else echo_pairs(256)
    unseen = pairs if kind == "lm" else echo_pairs(64, seed=1)
    config = TrainSpec(optimizer=optimizer, lr=lr, batch=16, epochs=20, patience=0)
    network = make_network(kind)
    before = perplexity(mean_log_likelihood(network, unseen, CPU))
    reports = run_whole(network, pairs, config, tmp_path / "c", valid=unseen)
    after = perplexity(mean_log_likelihood(network, unseen, CPU))
    assert before > 10
    assert after < 1.1
    assert not network.training
    epochs = [report.valid_perplexity for report in reports if report.valid_perplexity is not None]
    assert len(epochs) == 20
    assert after == pytest.approx(min(epochs))
    assert [report.step for report in reports] == sorted([*range(20, 321, 20), *range(16, 321, 16)])


def test_the_language_model_never_sees_the_input(tmp_path: Path) -> None:
    """12 first words, equally frequent, each with one continuation: no better than about 12 for a reply."""
    network = make_network("lm")
    run_whole(network, echo_pairs(256), TrainSpec(lr=0.02, batch=16, epochs=6), tmp_path / "c")
    pairs = echo_pairs(256)
    a_reply = mean_log_likelihood(network, pairs, CPU) * (pairs.replies != PAD).sum() / 256
    assert math.log(6) < -a_reply < math.log(20)


@pytest.mark.parametrize("kind", ["attention", "last-h", "lm"])
def test_mean_log_likelihood_is_a_loop_over_plain_forwards(kind: str) -> None:
    network = make_network(kind).eval()
    pairs = echo_pairs(BATCH + 9)
    total, words = 0.0, 0
    for x, y in zip(pairs.inputs, pairs.replies, strict=True):
        x, y = x[x != PAD], y[y != PAD]
        state: Any = (
            network.start(torch.from_numpy(x)[None]) if isinstance(network, Seq2Seq) else network.start(1)
        )
        previous = 1  # <bos>
        for word in y.tolist():
            with torch.no_grad():
                logits, state = network.next(torch.tensor([previous]), state)
            total += float(F.log_softmax(logits[0].double(), dim=0)[word])
            words += 1
            previous = word
    assert mean_log_likelihood(network, pairs, CPU) == pytest.approx(total / words, abs=1e-6)


def test_perplexity_of_a_fair_die_and_of_a_hopeless_model() -> None:
    assert perplexity(-math.log(6)) == pytest.approx(6)
    assert perplexity(-1e4) == math.inf


def test_the_best_epoch_is_kept_and_training_stops_early(tmp_path: Path) -> None:
    """Validation replies are never the trained ones: each epoch is worse, so the first one wins."""
    pairs = one_reply(64)
    other = PairArrays(pairs.inputs, np.tile(np.array([8, 8, 8, EOS]), (64, 1)))
    config = TrainSpec(lr=0.02, batch=16, epochs=20, patience=3)
    network = make_network("attention")
    reports = run_whole(network, pairs, config, tmp_path / "c", valid=other)
    seen = [report.valid_perplexity for report in reports if report.valid_perplexity is not None]
    assert len(seen) == 4, "the best epoch, and three that were no better"
    assert seen == sorted(seen)
    # The first epoch of the same training, stopped there: these weights must be the ones kept.
    first = make_network("attention")
    steps = train(first, pairs, other, config, tmp_path / "d", {}, CPU)
    next(report for report in steps if report.valid_perplexity is not None)
    assert same(weights(network), weights(first))
    next(report for report in steps if report.valid_perplexity is not None)
    assert not same(weights(network), weights(first))


def test_patience_0_never_stops_early(tmp_path: Path) -> None:
    pairs = one_reply(16)
    other = PairArrays(pairs.inputs, np.tile(np.array([8, 8, 8, EOS]), (16, 1)))
    config = TrainSpec(lr=0.02, batch=16, epochs=9, patience=0)
    assert len(run_whole(make_network("attention"), pairs, config, tmp_path / "c", valid=other)) == 9


@pytest.mark.parametrize("epochs", [3, 30], ids=["found at the end of an epoch", "found at a report"])
def test_a_loss_that_is_not_finite_is_an_error(epochs: int, tmp_path: Path) -> None:
    network = make_network("attention")
    with torch.no_grad():
        network.output.bias[5] = math.nan
    count = 8 if epochs == 3 else 400
    with pytest.raises(InputError, match=r"nan at step \d+.*--lr"):
        run_whole(network, echo_pairs(count), TrainSpec(batch=8, epochs=epochs), tmp_path / "c")


def test_no_pairs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training pairs"):
        run_whole(make_network("lm"), echo_pairs(0), TrainSpec(), tmp_path / "c")


# --- a step --------------------------------------------------------------------------------------------


def test_trim_cuts_the_columns_that_no_row_uses() -> None:
    ids = np.array([[5, 6, PAD, PAD, PAD], [7, PAD, 8, PAD, PAD]])
    assert trim_padding(ids).tolist() == [[5, 6, PAD], [7, PAD, 8]]
    assert trim_padding(np.array([[5, 6]])).tolist() == [[5, 6]]


@pytest.mark.parametrize("pad_as_word", [False, True])
def test_a_step_reads_pads_only_where_they_are_words(pad_as_word: bool) -> None:
    network = make_network("attention", pad_as_word=pad_as_word)
    inputs = np.array([[5, 6, PAD, PAD], [7, PAD, PAD, PAD]])
    replies = np.array([[8, EOS, PAD], [9, EOS, PAD]])
    trimmed, whole = torch.from_numpy(inputs[:, :2]), torch.from_numpy(inputs)
    expected = {}
    for name, read in (("trimmed", trimmed), ("whole", whole)):
        with torch.no_grad():
            expected[name] = float(-network.token_log_probs(read, torch.from_numpy(replies)).sum())
    step = make_step(network, torch.optim.SGD(network.parameters(), lr=1.0), 5.0, CPU)
    loss = float(step(inputs, replies, 0.0))
    assert loss == pytest.approx(expected["whole"], abs=1e-6)
    differs = abs(expected["whole"] - expected["trimmed"]) > 1e-4
    assert differs == pad_as_word, "pads leave a trace where they are words, and only there"


@pytest.mark.parametrize("over_words", [False, True])
def test_a_step_moves_against_the_clipped_gradient(over_words: bool) -> None:
    network = make_network("last-h")
    pairs = echo_pairs(8)
    inputs, replies = torch.from_numpy(pairs.inputs), torch.from_numpy(pairs.replies)
    total = -network.token_log_probs(inputs, replies).sum()
    loss = total / (int((pairs.replies != PAD).sum()) if over_words else 8)
    names, values = zip(*network.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, values)
    norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
    clip = norm / 4
    before = weights(network)
    step = make_step(network, torch.optim.SGD(network.parameters(), lr=1.0), clip, CPU, over_words)
    assert float(step(pairs.inputs, pairs.replies, 0.5)) == pytest.approx(total.item(), rel=1e-5)
    for name, value, gradient in zip(names, values, gradients, strict=True):
        torch.testing.assert_close(value, before[name] - 0.5 * gradient / 4, atol=1e-5, rtol=1e-4)


# --- checkpoints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("optimizer", "momentum"), [("adamw", 0.0), ("sgd", 0.0), ("sgd", 0.9)])
@pytest.mark.parametrize("kind", ["attention", "lm"])
def test_stopped_anywhere_and_resumed_the_weights_are_the_same(
    kind: str,
    optimizer: Literal["adamw", "sgd"],
    momentum: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mle, "REPORT_EVERY", 1)  # so that training can be stopped at every step
    config = TrainSpec(
        optimizer=optimizer, momentum=momentum, lr=0.05, halve_after=1, batch=8, epochs=3, checkpoint_s=0.0
    )
    pairs, valid = echo_pairs(41), echo_pairs(10, seed=1)  # 5 steps an epoch, a row is left over
    unbroken = make_network(kind, dropout=0.3)
    assert len(run_whole(unbroken, pairs, config, tmp_path / "unbroken", valid)) == 3 * (5 + 1)
    for stops in ([1], [5], [6], [2, 3, 2], [6, 6]):
        path = tmp_path / f"{stops}"
        for stop in stops:
            network = make_network(kind, dropout=0.3)
            reports = train(network, pairs, valid, config, path, {"a": 1}, CPU)
            for _ in range(stop):
                next(reports)
            reports.close()  # type: ignore[attr-defined]  # a generator
        resumed = make_network(kind, dropout=0.3)
        rest = run_whole(resumed, pairs, config, path, valid)
        assert not rest or rest[0].step > 1 or stops == [1], "it goes on, it does not start again"
        assert same(weights(unbroken), weights(resumed)), stops


def test_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    config = TrainSpec(batch=8, epochs=2)
    first = make_network("lm")
    assert len(run_whole(first, echo_pairs(16), config, tmp_path / "c")) == 2
    second = make_network("lm")
    assert run_whole(second, echo_pairs(16), config, tmp_path / "c") == []
    assert same(weights(first), weights(second))


def trained_checkpoint(path: Path) -> tuple[PairArrays, TrainSpec]:
    pairs, config = echo_pairs(16), TrainSpec(batch=8, epochs=2)
    next(train(make_network("attention"), pairs, pairs, config, path, {"a": 1, "b": 2}, CPU))
    return pairs, config


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.999])
def test_a_truncated_checkpoint_is_an_error(share: float, tmp_path: Path) -> None:
    path = tmp_path / "c"
    pairs, config = trained_checkpoint(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=r"damaged.*--fresh"):
        list(train(make_network("attention"), pairs, pairs, config, path, {"a": 1, "b": 2}, CPU))


def test_random_bytes_and_foreign_tensors_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "c"
    pairs, config = trained_checkpoint(path)
    good = path.read_bytes()
    foreign = {"step": 1, "history": [], "finished": False, "of": {"a": 1}}
    for broken in (
        lambda: path.write_bytes(np.random.default_rng(0).bytes(5000)),
        lambda: save_checkpoint(path, {"weights.other": torch.ones(2)}, foreign),
        lambda: save_checkpoint(path, {}, {"step": 1}),
        lambda: save_checkpoint(path, {}, [1]),  # type: ignore[arg-type]  # JSON, but no object
        lambda: path.write_bytes(good.replace(b"facts", b"facto", 1)),
    ):
        broken()
        with pytest.raises(InputError, match=r"damaged.*--fresh"):
            list(train(make_network("attention"), pairs, pairs, config, path, {"a": 1}, CPU))


def test_other_facts_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "c"
    pairs, config = trained_checkpoint(path)
    with pytest.raises(InputError, match=r"\(b\).*--fresh"):
        list(train(make_network("attention"), pairs, pairs, config, path, {"a": 1, "b": 3}, CPU))
