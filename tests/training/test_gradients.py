"""Gradients from a graph are those of the eager pass, whatever is given after the capture."""

from __future__ import annotations

import pytest
import torch

from backtalk.data.vocabulary import EOS, PAD
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.training.gradients import Gradients
from backtalk.training.negative import NegativeConfig
from backtalk.training.updates import HitShape, Updates
from tests.training.methods import rule
from tests.training.pairs import echo_pairs


def make_network() -> Seq2Seq:
    torch.manual_seed(7)
    return Seq2Seq(Seq2SeqConfig(14, 6, 8))


def test_gradients_are_those_of_the_loss_and_not_summed_over_calls() -> None:
    network = make_network()
    x, y = torch.tensor([[4, 5]]), torch.tensor([[6, EOS]])
    gradients = Gradients(network)
    seen = []
    for _ in range(2):
        gradients.fill("loss", lambda x, y: -network.token_log_probs(x, y).sum(), x, y)
        seen.append([value.grad.clone() for value in network.parameters() if value.grad is not None])
    assert len(seen[0]) == len(list(network.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs need a GPU")
@pytest.mark.parametrize("method", ["negative", "npo", "unlikelihood"])
@pytest.mark.parametrize("together", [False, True])
def test_a_gpu_and_a_processor_end_with_the_same_weights(method: str, together: bool) -> None:
    pairs = echo_pairs(14, 8, 0)
    ended = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        network = make_network()
        config = NegativeConfig(method=rule(method), lr=0.05, kl=0.5, avoid=frozenset({EOS, 8}))
        updates = Updates(network, config, device, largest=HitShape(8, 4, 6))
        for rows in (3, 2, 1, 3):
            updates.kl = rows / 4  # read anew by the captured graphs
            inputs = torch.tensor([[4, 7, 9], [6, 5, 5], [8, 8, 4]], device=device)[:rows]
            targets = torch.tensor([[13, 5, 8, EOS, PAD], [12, EOS, PAD, PAD, PAD], [5, 6, 7, 8, EOS]])[:rows]
            targets = targets.to(device)
            if together:
                updates.both(inputs, targets, rows / 4, *pairs)
            else:
                updates.negative(inputs, targets, rows / 4)
                updates.positive(*pairs, seed=rows)
        ended.append([value.detach().cpu() for value in network.parameters()])
    for plain, other in zip(*ended, strict=True):
        torch.testing.assert_close(plain, other, atol=1e-4, rtol=1e-3)
