"""The gradient of a target's log-probability with respect to a trigger's one-hot tokens.

The embedding is linear in the one-hot input, so the gradient at the embedded tokens times the table of all
embedded tokens is the one-hot gradient; it is made for the positions that are wanted alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from backtalk.models.device import wide
from backtalk.models.transformer.memory import Footprint, run_parts
from backtalk.models.transformer.reading import Reader
from backtalk.models.transformer.sequences import NO_TOKEN, Sequences


def trigger_gradient(
    reader: Reader,
    sequences: Sequences,
    need: Footprint,
    triggers: Tensor,
    targets: Tensor,
    weights: Tensor,
    positions: Sequence[int] | None,
) -> Tensor:
    """(rows, positions, vocabulary): of sum_t weights_t log P(y_t | y_<t, x)."""
    at = list(range(triggers.shape[1])) if positions is None else list(positions)
    length = sequences.around + triggers.shape[1] + targets.shape[1]
    found: list[Tensor] = []

    def work(start: int, stop: int) -> None:
        part = slice(start, stop)
        read = sequences.read(triggers[part], targets[part])
        there = targets[part] != NO_TOKEN
        goals = targets[part].clamp(min=0).flatten()

        def total(embedded: Tensor) -> Tensor:
            inputs = {**read.inputs, "inputs_embeds": embedded}
            del inputs["input_ids"]
            logits, _ = reader.logits(inputs, read.places.flatten())
            chosen = logits.to(wide(logits.dtype)).log_softmax(1).gather(1, goals[:, None]).view_as(there)
            return (chosen * weights[part]).masked_fill(~there, 0.0).sum()

        by_token = embedding_gradient(reader.network, read.inputs["input_ids"], total)
        places = read.firsts[:, at, None].expand(-1, -1, by_token.shape[2])
        wanted = by_token.gather(1, places)  # (rows, positions, size)
        wanted = wanted.masked_fill((triggers[part][:, at] == NO_TOKEN)[:, :, None], 0.0)
        found.append(to_one_hot(reader.network, wanted).to(weights.dtype))

    run_parts(len(triggers), length, lambda n, m: need.learning(n, m, targets.shape[1]), work, reader.device)
    return torch.cat(found)


def embedding_gradient(network: Any, ids: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    """(rows, length, size): the gradient of `total` with respect to the embedded `ids` that it is given."""
    with torch.enable_grad():
        embedded: Tensor = network.get_input_embeddings()(ids).detach().requires_grad_()
        gradient: Tensor = torch.autograd.grad(total(embedded), embedded)[0]
    return gradient


def to_one_hot(network: Any, gradient: Tensor) -> Tensor:
    """(..., size) -> (..., vocabulary)"""
    return gradient @ embedding_table(network).t()


def embedding_table(network: Any) -> Tensor:
    """(vocabulary, size): every token as the network reads it; some scale what they look up."""
    embed = network.get_input_embeddings()
    if type(embed) is nn.Embedding:
        return embed.weight.detach()
    every = torch.arange(embed.weight.shape[0], device=embed.weight.device)
    table: Tensor = embed(every).detach()
    return table
