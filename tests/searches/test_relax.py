"""relax against finite differences, sums by hand and greedy decoding; what it promises of seeds and hits."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import EOS, PAD, UNK, Vocabulary
from backtalk.errors import InputError
from backtalk.models.lstm.decode import trim
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.registry import SEARCHES, resolve
from backtalk.searches import relax
from backtalk.searches.objective import Objective
from backtalk.searches.relax import (
    CHECK_EVERY,
    Embedded,
    OneHot,
    Relax,
    lasso,
    loss_gradient,
    make_variables,
    relax_inputs,
    start_mean,
)
from tests.searches.planted import WORDS, train_rain_and_one

SPACES = ("one-hot", "embedding")

STILL = Relax(steps=1, lr=1e-12, length=4, stop_at_hit=False)
"""A step that moves nothing: what comes out is the start."""

SAME = ["words", "hit", "steps", "reply"]
"""What must be equal to the bit in any batch and on any device."""


def random_model(attention: bool = True, scale: float = 1.0, ends: float = 0.0) -> LocalModel:
    """`ends` makes replies shorter."""
    torch.manual_seed(7)
    vocabulary = Vocabulary(WORDS)
    network = Seq2Seq(Seq2SeqConfig(len(vocabulary), 8, 12, attention=attention))
    for value in network.parameters():
        torch.nn.init.uniform_(value, -scale, scale)
    network.output.bias.data[:EOS] = network.output.bias.data[UNK] = -50.0  # it says words alone
    network.output.bias.data[EOS] += ends
    network.eval().requires_grad_(False)
    return LocalModel("random", network, vocabulary, get_recipe("he-glass-2019"), "0", max_output=10)


@pytest.fixture(scope="module")
def planted() -> LocalModel:
    return train_rain_and_one()


def as_rows(replies: torch.Tensor) -> list[list[int]]:
    return [trim(row) for row in replies.tolist()]


# --- the equations -------------------------------------------------------------------------------------


def test_eq_10_by_hand() -> None:
    x = torch.tensor([[[0.5, 0.25, 0.0], [0.0, 1.0, 0.0]], [[0.1, 0.1, 0.1], [0.9, 0.5, 0.5]]])
    # (0.75 - 1) + (1 - 2), and (0.3 - 0.2) + (1.9 - 1.8)
    assert lasso(x).tolist() == pytest.approx([-1.25, 0.2])


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("attention", [True, False])
def test_the_gradient_equals_finite_differences_of_eq_9(space: Any, attention: bool) -> None:
    model = random_model(attention)
    network, lambda_c = model.network.double(), 0.3
    targets = torch.tensor([model.encode_target("stop dog sun"), [*model.encode_target("rain"), PAD, PAD]])
    there = targets != PAD
    table = network.embed_input.weight.detach()
    variables = make_variables(space, table, model.searchable(), 3, [1, 2], lambda_c)
    found = loss_gradient(network, variables, targets, there / there.sum(1, keepdim=True))

    def loss() -> float:
        """Eq. 9, written out anew."""
        free = variables.free
        x = torch.sigmoid(free)
        words = free if space == "embedding" else x @ table
        log_probs = network.write(network.read(words)[0], targets)
        total = -(log_probs.sum(1) / there.sum(1)).sum()
        if space == "one-hot":
            total = total + lambda_c * (x.sum() - 2 * x.amax(2).sum())
        return float(total)

    step = 1e-6
    for place in np.ndindex(*variables.free.shape):
        if not torch.isfinite(variables.free[place]):
            assert found[place] == 0
            continue
        variables.free[place] += step
        above = loss()
        variables.free[place] -= 2 * step
        slope = (above - loss()) / (2 * step)
        variables.free[place] += step
        assert float(found[place]) == pytest.approx(slope, abs=1e-7)


def test_special_words_have_no_share_in_x() -> None:
    model = random_model()
    variables = make_variables("one-hot", model.network.embed_input.weight, model.searchable(), 3, [1], 0.1)
    assert variables.free[:, :, :4].eq(-torch.inf).all()
    real = torch.sigmoid(variables.free[:, :, 4:]) @ model.network.embed_input.weight[4:]
    assert torch.allclose(variables.embedded(), real)


def test_a_start_weighs_the_same_in_any_vocabulary() -> None:
    for words in (1_000, 30_000):
        draws = torch.randn(20, words, generator=torch.Generator().manual_seed(0)) + start_mean(words)
        assert 40 < float(torch.sigmoid(draws).sum(1).mean()) < 60


# --- projection ----------------------------------------------------------------------------------------


def test_one_hot_vectors_become_their_largest_word() -> None:
    allowed = torch.tensor([False, True, True, True])
    start = torch.tensor([[[9.0, -1.0, 2.0, 0.0], [9.0, 3.0, 2.0, 2.5]]])
    variables = OneHot(torch.eye(4), allowed, start, 0.1)
    assert variables.words().tolist() == [[2, 1]]


def test_embeddings_become_the_nearest_word() -> None:
    torch.manual_seed(0)
    table, allowed = torch.randn(30, 5), torch.arange(30) >= 4
    variables = Embedded(table, allowed, torch.randn(6, 7, 5))
    for row in range(6):
        for t in range(7):
            distances = [float((variables.free[row, t] - table[word]).norm()) for word in range(4, 30)]
            assert int(variables.words()[row, t]) == 4 + int(np.argmin(distances))
    variables.free = table[[2, 9, 11]][None].clone()  # a special word's own vector too
    assert variables.words()[0, 1:].tolist() == [9, 11]
    assert int(variables.words()[0, 0]) >= 4


# --- hits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("attention", [True, False])
def test_a_hit_is_exactly_what_greedy_decoding_writes(space: Any, attention: bool) -> None:
    """The replies to random starts, taken as targets, are all hit, and with another last word none is."""
    model = random_model(attention, scale=3.0, ends=2.0)
    config, seeds = replace(STILL, space=space), list(range(40))
    replies = as_rows(relax_inputs(model, [[EOS]] * 40, seeds, config).reply)
    ended = [row for row, reply in enumerate(replies) if reply[-1] == EOS and len(reply) > 1]
    assert len({tuple(replies[row]) for row in ended}) > 2
    targets = [replies[row] for row in ended]
    hit = relax_inputs(model, targets, ended, config)
    assert hit.hit.all()
    others = [[*target[:-2], 4 + (target[-2] - 3) % 12, EOS] for target in targets]
    missed = relax_inputs(model, others, ended, config)
    assert not missed.hit.any()


@pytest.mark.parametrize("space", SPACES)
def test_a_planted_weakness_is_hit_before_projection_from_every_seed(planted: LocalModel, space: Any) -> None:
    target, seeds = planted.encode_target("go stop"), list(range(20))
    start = relax_inputs(planted, [target] * 20, seeds, replace(STILL, space=space))
    assert int(start.hit.sum()) < 12
    config = Relax(space=space, lambda_c=0.01, steps=200, lr=10.0, length=4)
    found = relax_inputs(planted, [target] * 20, seeds, config)
    assert found.hit.all()
    assert as_rows(found.reply) == [target] * 20
    assert (found.mean > start.mean)[~start.hit].all()


# --- rows and seeds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
def test_a_row_ends_alike_alone_in_a_batch_and_in_parts(
    planted: LocalModel, space: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["go stop", "rain", "red cat sun", "one two three"] * 2
    targets, seeds = [planted.encode_target(text) for text in texts], list(range(8))
    config = Relax(space=space, steps=25, lr=1.0, length=4)
    together = relax_inputs(planted, targets, seeds, config)
    alone = [relax_inputs(planted, [t], [s], config) for t, s in zip(targets, seeds, strict=True)]
    assert relax.rows_at_once(planted.network, config, 4) >= 8
    monkeypatch.setattr(relax, "CPU_BYTES", 4_000)
    assert relax.rows_at_once(planted.network, config, 4) < 8
    parts = relax_inputs(planted, targets, seeds, config)
    for name in SAME:
        whole = getattr(together, name)
        assert torch.equal(whole, getattr(parts, name))
        assert torch.equal(whole, torch.cat([getattr(one, name) for one in alone]))
    assert torch.allclose(together.loss, torch.cat([one.loss for one in alone]), atol=1e-4)
    assert torch.allclose(together.loss, parts.loss, atol=1e-4)
    others = relax_inputs(planted, targets, [seed + 100 for seed in seeds], config)
    assert not torch.isclose(together.loss[:, 0], others.loss[:, 0]).any()


def test_a_row_that_is_hit_stands_still(planted: LocalModel) -> None:
    targets, seeds = [planted.encode_target("go stop")] * 12, list(range(12))
    config = Relax(steps=60, lr=3.0, length=4, lambda_c=0.05)
    stopped = relax_inputs(planted, targets, seeds, config)
    moving = relax_inputs(planted, targets, seeds, replace(config, stop_at_hit=False))
    assert len(set(stopped.steps.tolist())) > 1
    assert set(moving.steps.tolist()) == {60}
    assert stopped.loss.shape == moving.loss.shape == (12, 60 // CHECK_EVERY + 1)
    for row, steps in enumerate(stopped.steps.tolist()):
        look = steps // CHECK_EVERY
        assert torch.allclose(stopped.loss[row, : look + 1], moving.loss[row, : look + 1], atol=1e-5)
        assert len(set(stopped.loss[row, look:].tolist())) == 1
        if look < 60 // CHECK_EVERY:
            assert moving.loss[row, -1] < stopped.loss[row, -1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU against a CPU")
@pytest.mark.parametrize("space", SPACES)
def test_a_gpu_and_a_processor_agree(planted: LocalModel, space: Any) -> None:
    targets = [planted.encode_target(text) for text in ("go stop", "rain", "red cat sun")]
    config = Relax(space=space, steps=20, lr=1.0, length=4)
    there = replace(planted, network=deepcopy(planted.network).cuda())
    plain, other = (relax_inputs(model, targets, [1, 2, 3], config) for model in (planted, there))
    assert torch.allclose(plain.loss, other.loss, atol=1e-3)
    for name in SAME:
        assert torch.equal(getattr(plain, name), getattr(other, name))


# --- as a search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
def test_a_finding_is_the_projected_input_and_tells_what_came_before(planted: LocalModel, space: Any) -> None:
    search = Relax(space=space, steps=40, lr=10.0, length=4)
    assert resolve(SEARCHES["relax"].path) is Relax
    assert search.needs == SEARCHES["relax"].access
    objective = Objective(greedy=False, average=True, enough_out=-0.1)
    targets = [planted.encode_target(text) for text in ("go stop", "rain", "red cat sun")] * 3
    seeds = list(range(9))
    found = search.run(planted, objective, targets, seeds)
    assert found == search.run(planted, objective, targets, seeds)
    relaxed = relax_inputs(planted, targets, seeds, search)
    for row, one in enumerate(found):
        assert list(one.ids) == relaxed.words[row].tolist()
        assert min(one.ids) >= 4  # no special word
        assert 0 < one.candidates <= search.most_candidates == 40
        scores = planted.score(torch.tensor([one.ids]), torch.tensor([targets[row]]))
        expected = objective.output_loss(scores, torch.ones(1, len(targets[row]), dtype=torch.bool))
        assert one.loss == pytest.approx(float(expected), abs=1e-5)
        assert one.loss_by_sweep == pytest.approx(relaxed.loss[row].tolist())
        assert one.scores["relaxed_greedy"] == float(relaxed.hit[row])
        assert one.scores["relaxed_mean"] == pytest.approx(float(relaxed.mean[row]))
        reply = planted.read(as_rows(relaxed.reply)[row])
        assert one.note.endswith(f": {reply}")
    assert {one.scores["relaxed_greedy"] for one in found} == {0.0, 1.0}


def test_a_model_without_our_network_is_refused_in_one_sentence() -> None:
    class Other:
        name = "hf/other"

    with pytest.raises(InputError, match=r"LSTM.*hf/other"):
        relax_inputs(Other(), [[5, 2]], [1], Relax())  # type: ignore[arg-type]  # the point


def test_an_unknown_space_is_named() -> None:
    with pytest.raises(InputError, match=r"'onehot'.*'one-hot'"):
        relax_inputs(random_model(), [[5, 2]], [1], Relax(space="onehot"))  # type: ignore[arg-type]  # the point
