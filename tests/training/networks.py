"""A tiny network for made-up words, and its weights to compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig

CPU = torch.device("cpu")
WORDS = 14
"""Ids of the made-up language, the four specials included."""


def make_network(**more: Any) -> Seq2Seq:
    torch.manual_seed(7)
    sizes: dict[str, Any] = {"vocabulary": WORDS, "embedding": 6, "hidden": 8}
    return Seq2Seq(Seq2SeqConfig(**(sizes | more)))


def weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)
