"""A network in fewer kernels, for what is bound by their number: texts of many short turns on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from backtalk.models.transformer.low_rank import quicken_adapter
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.norms import quicken_norms
from backtalk.models.transformer.rotation import quicken_rotation


class Quickened(NamedTuple):
    """How many parts of a network take a shorter way."""

    norms: int = 0
    layers: int = 0
    """With an adapter."""
    rotates: bool = False
    """Whether positions are rotated in fewer kernels."""


def quicken(network: Any, everywhere: bool = False) -> Quickened:
    """Changes how a bfloat16 network on a GPU computes, not what, nor its weights; others are left as they
    are. `everywhere`: on any device."""
    if network.dtype != torch.bfloat16 or not (everywhere or network.device.type == "cuda"):
        return Quickened()
    return Quickened(quicken_norms(network), quicken_adapter(network), quicken_rotation(network))


def quicken_model(model: TransformerModel) -> Quickened:
    """The same for a model; steps that were captured before are forgotten if anything changed."""
    network = model.network
    before, found = getattr(network, "_quickened", Quickened()), quicken(network)
    if found != before:
        network._quickened = found
        model.forget_steps()
    return found
