"""Log-probabilities of given tokens, batched: the output layer reads only the positions that are asked for.

A hook picks these positions out of the last hidden states just before the output layer, so whatever an
architecture does to its logits afterwards (scales, caps, biases) is still done, and no tensor of
(batch, length, vocabulary) is made. Rows are padded on the right, where a causal model can't see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Row(NamedTuple):
    """A prompt and the tokens whose probabilities are asked for, the end of turn last."""

    prompt: list[int]
    reply: list[int]


class Batch(NamedTuple):
    """Rows as tensors."""

    inputs: dict[str, Tensor]
    """What the network is called with."""
    places: Tensor
    """(tokens,): where each reply token is predicted, in the flattened (batch, length) of the decoder."""
    targets: Tensor
    """(tokens,): the reply tokens, row after row."""
    lengths: list[int]
    """Reply tokens of each row."""


def causal_batch(rows: Sequence[Row], pad: int, device: torch.device) -> Batch:
    read = [[*row.prompt, *row.reply[:-1]] for row in rows]
    ids, keep = pad_right(read, pad, device)
    return _batch(
        {"input_ids": ids, "attention_mask": keep}, rows, [len(row.prompt) - 1 for row in rows], device
    )


def encoder_decoder_batch(rows: Sequence[Row], lead: Sequence[int], pad: int, device: torch.device) -> Batch:
    ids, keep = pad_right([row.prompt for row in rows], pad, device)
    written, _ = pad_right([[*lead, *row.reply[:-1]] for row in rows], pad, device)
    inputs = {"input_ids": ids, "attention_mask": keep, "decoder_input_ids": written}
    return _batch(inputs, rows, [len(lead) - 1] * len(rows), device)


def _batch(inputs: dict[str, Tensor], rows: Sequence[Row], firsts: list[int], device: torch.device) -> Batch:
    length = inputs.get("decoder_input_ids", inputs["input_ids"]).shape[1]
    lengths = [len(row.reply) for row in rows]
    places = [
        number * length + first + t
        for number, (first, count) in enumerate(zip(firsts, lengths, strict=True))
        for t in range(count)
    ]
    targets = [token for row in rows for token in row.reply]
    return Batch(inputs, torch.tensor(places, device=device), torch.tensor(targets, device=device), lengths)


def token_logits(network: Any, batch: Batch) -> Tensor:
    """(tokens, vocabulary), float32: the logits that each reply token is chosen from. Gradients flow."""
    picked = False

    def pick(hidden: Tensor) -> Tensor:
        nonlocal picked
        picked = True
        return hidden.flatten(0, 1).index_select(0, batch.places)[None]  # (1, tokens, hidden)

    with before_output(network, pick):
        logits: Tensor = network(**batch.inputs, use_cache=False).logits
    flat = logits[0] if picked else logits.flatten(0, 1).index_select(0, batch.places)
    return flat.float()


@contextmanager
def before_output(network: Any, pick: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within, the output layer reads what `pick` makes of its input. A network that multiplies by the output
    weights itself never calls it."""
    output = network.get_output_embeddings()
    hook = None
    if output is not None:
        hook = output.register_forward_pre_hook(lambda _, given: (pick(given[0]), *given[1:]))
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def token_log_probs(network: Any, batch: Batch) -> Tensor:
    """(tokens,), float32: log P of each reply token, row after row."""
    logits = token_logits(network, batch)
    return logits.gather(1, batch.targets[:, None])[:, 0] - logits.logsumexp(1)


def pad_right(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(batch, length) ids and the mask of those that are read."""
    width = max(map(len, rows))
    whole = np.array([[*row, *[pad] * (width - len(row))] for row in rows], dtype=np.int64)
    ids = torch.from_numpy(whole).to(device)  # lists of lists take several times longer
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(width, device=device) < lengths[:, None]).long()


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same with the padding before a row, so that all end alike."""
    ids, keep = pad_right([row[::-1] for row in rows], pad, device)
    return ids.flip(1), keep.flip(1)
