"""The output layer in chunks against PyTorch's own log_softmax over the whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from backtalk.models.lstm import softmax
from backtalk.models.lstm.softmax import chunk_rows, target_scores


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 32, 50])
def test_scores_equal_log_softmax_across_chunks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CHUNK_FLOATS_CPU", 1)
    assert chunk_rows(40, torch.device("cpu")) == 16
    torch.manual_seed(0)
    output = nn.Linear(8, 40).requires_grad_(False)
    hidden = torch.randn(rows, 8) * 3
    before = hidden.clone()
    logits = output(hidden)
    targets = torch.randint(40, (rows,))
    targets[::2] = logits[::2].argmax(1)
    log_probs, is_argmax = target_scores(hidden, output, targets)
    expected = F.log_softmax(logits, dim=1).gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(log_probs, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(is_argmax, logits.argmax(1) == targets)
    assert torch.equal(hidden, before)


def test_chunks_hold_as_many_rows_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CHUNK_FLOATS_CPU", 1000)
    monkeypatch.setattr(softmax, "CHUNK_FLOATS_CUDA", 5000)
    assert chunk_rows(10, torch.device("cpu")) == 100
    assert chunk_rows(10, torch.device("cuda")) == 500


def fixed_logits(*rows: list[float]) -> tuple[torch.Tensor, nn.Linear]:
    """An output layer that hands these logits through."""
    output = nn.Linear(len(rows[0]), len(rows[0]), bias=False).requires_grad_(False)
    output.weight.copy_(torch.eye(len(rows[0])))
    return torch.tensor(rows), output


def test_both_of_two_equal_largest_words_are_the_argmax() -> None:
    hidden, output = fixed_logits(*[[1.0, 3.0, 3.0, 0.0]] * 4)
    log_probs, is_argmax = target_scores(hidden, output, torch.arange(4))
    assert is_argmax.tolist() == [False, True, True, False]
    assert float(log_probs[1]) == float(log_probs[2])
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-6)


def test_extreme_logits_stay_exact() -> None:
    hidden, output = fixed_logits(*[[80.0, -80.0, 79.0]] * 3, [-80.0, -80.0, -80.0])
    log_probs, is_argmax = target_scores(hidden, output, torch.tensor([0, 1, 2, 1]))
    assert log_probs.tolist() == pytest.approx([-0.3132617, -160.3132617, -1.3132617, -1.0986123], abs=1e-4)
    assert is_argmax.tolist() == [True, False, False, True]
