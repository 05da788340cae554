"""Adaptive dense-to-sparse coordinates on a tiny Llama."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks.peers.adc import Adc, soft_gradient, sparse
from benchmarks.peers.our_side import MEAN_LOSS
from torch.nn import functional as F

from backtalk.models.transformer.model import TransformerModel
from backtalk.searches.trial import Trial
from tests.models.transformer.test_weights import make, random_ids
from tests.models.transformer.tiny import CHATML

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(tmp_path: Path) -> TransformerModel:
    return make(tmp_path, "llama", CHATML)


def test_the_gradient_at_single_tokens_is_the_one_of_one_hot_tokens(model: TransformerModel) -> None:
    ids, goals = random_ids(model, 3, 4), random_ids(model, 3, 5, seed=9)
    trial = Trial(model, MEAN_LOSS, goals, [1, 2, 3], model.searchable())
    found, wrong = soft_gradient(trial, F.one_hot(ids, model.vocabulary_size).float(), goals)
    torch.testing.assert_close(
        -found, model.gradient(ids, goals, torch.full(goals.shape, 0.2)), atol=1e-4, rtol=1e-3
    )
    assert wrong.tolist() == (~model.score(ids, goals).is_argmax).sum(1).tolist()


def test_the_largest_weights_are_kept() -> None:
    z = torch.tensor([[[0.5, -0.1, 0.3, 0.2], [0.1, 0.2, 0.9, 0.4]]])
    allowed = torch.tensor([True, True, False, True])
    kept = sparse(z, torch.tensor([[2, 1]]), allowed)
    assert (kept > 0).tolist() == [[[True, False, False, True], [False, False, False, True]]]
    torch.testing.assert_close(kept.sum(2), torch.ones(1, 2))
    assert (sparse(z, torch.tensor([[9, 0]]), allowed) > 0).sum(2).tolist() == [[3, 1]]


def test_it_lowers_the_loss_of_whole_tokens(model: TransformerModel) -> None:
    goals = random_ids(model, 2, 3, seed=9).tolist()
    found = Adc(length=4, top=3, sweeps=10).run(model, MEAN_LOSS, goals, [1, 2])
    for one, goal in zip(found, goals, strict=True):
        plain = model.score(torch.tensor([one.ids]), torch.tensor([goal])).log_probs.mean()
        assert one.loss == pytest.approx(-float(plain), abs=1e-4)
        assert one.loss_by_sweep[-1] < one.loss_by_sweep[0] - 0.1
        assert bool(model.searchable()[list(one.ids)].all())
