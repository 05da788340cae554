"""A tiny network for made-up words, and its weights to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from backtalk.models.seq2seq import Seq2Seq, Seq2SeqConfig

CPU = torch.device("cpu")
Report = TypeVar("Report")
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


def stopped_all_along(
    run: Callable[[int], tuple[dict[str, Tensor], list[Report]]], first: int
) -> tuple[dict[str, Tensor], list[list[Report]]]:
    """What comes of `run`, which is stopped after so many reports: after its `first`, then after every
    second, up to its end. The weights, and the reports of each time."""
    found, reports = run(first)
    legs, wanted = [reports], first
    while len(legs[-1]) == wanted:
        found, reports = run(2)
        legs, wanted = [*legs, reports], 2
    return found, legs
