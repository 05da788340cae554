"""Log-probabilities of given tokens: the output layer reads only the positions that are needed.

A hook picks these positions out of the last hidden states just before the output layer. So changes that an
architecture makes to its logits afterwards (scales, caps, biases) still happen, and no tensor of
(batch, length, vocabulary) is made. Rows are padded on the right, where a causal model can't see it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.lstm.softmax import target_scores
from backtalk.models.transformer.memory import Footprint, footprint, run_parts

Read = tuple[Tensor | None, Tensor, Any]  # hidden states, logits and KV cache
CLOSE, CLOSE_IN_HALF = 1e-5, 1e-2
"""Largest distance of the output layer's product from the network's own logits, in 32 and in 16 bits."""


class Row(NamedTuple):
    """A prompt and the reply tokens to score, the end of turn last."""

    prompt: list[int]
    reply: list[int]


class Batch(NamedTuple):
    """Rows as tensors."""

    inputs: dict[str, Tensor]  # the network's arguments
    places: Tensor
    """(tokens,): where each reply token is predicted, in the flattened (batch, length) of the decoder."""
    targets: Tensor  # (tokens,): the reply tokens, row after row
    lengths: list[int]  # reply tokens of each row


def make_batch(rows: Sequence[Row], pad: int, device: torch.device, lead: Sequence[int] = ()) -> Batch:
    """`lead` is read by the decoder of an encoder-decoder network before a reply; empty for a causal one."""
    replies = [[*lead, *row.reply[:-1]] for row in rows]
    read = [row.prompt if lead else [*row.prompt, *reply] for row, reply in zip(rows, replies, strict=True)]
    ids, keep = pad_right(read, pad, device)
    inputs, length = {"input_ids": ids, "attention_mask": keep}, ids.shape[1]
    if lead:
        inputs["decoder_input_ids"], _ = pad_right(replies, pad, device)
        length = inputs["decoder_input_ids"].shape[1]
    starts = [number * length + len(lead or row.prompt) - 1 for number, row in enumerate(rows)]
    lengths = [len(row.reply) for row in rows]
    places = [start + t for start, count in zip(starts, lengths, strict=True) for t in range(count)]
    targets = [token for row in rows for token in row.reply]
    return Batch(inputs, torch.tensor(places, device=device), torch.tensor(targets, device=device), lengths)


def token_logits(network: Any, batch: Batch) -> Tensor:
    """(tokens, vocabulary), float32: the logits of each reply token's position. Differentiable."""
    return run_at(network, batch.inputs, batch.places)[1].float()


def token_log_probs(network: Any, batch: Batch) -> Tensor:
    """(tokens,), float32: log P of each reply token, row after row."""
    logits = token_logits(network, batch)
    return logits.gather(1, batch.targets[:, None])[:, 0] - logits.logsumexp(1)


def run_at(network: Any, inputs: dict[str, Any], places: Tensor, whole: bool = True) -> Read:
    """The hidden states (tokens, H) at `places`, None if the network does not call its output layer; their
    logits, of the first alone unless `whole`; and the KV cache if `inputs` has `use_cache`."""
    hidden: Tensor | None = None

    def pick(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal hidden
        hidden = given[0].flatten(0, 1).index_select(0, places)
        return (hidden if whole else hidden[:1])[None], *given[1:]  # (1, tokens, H)

    output = network.get_output_embeddings()
    hook = None if output is None else output.register_forward_pre_hook(pick)
    try:
        found = network(**{"use_cache": False, **inputs})
    finally:
        if hook is not None:
            hook.remove()
    logits = found.logits.flatten(0, 1).index_select(0, places) if hidden is None else found.logits[0]
    return hidden, logits, found.past_key_values if inputs.get("use_cache") else None


def pad_right(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device, width: int = 0
) -> tuple[Tensor, Tensor]:
    """(batch, length) ids, at least `width` long, and their attention mask."""
    width = max(width, *map(len, rows))
    whole = np.array([[*row, *[pad] * (width - len(row))] for row in rows], dtype=np.int64)
    ids = torch.from_numpy(whole).to(device)  # lists of lists take several times longer
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(width, device=device) < lengths[:, None]).long()


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same with the padding before a row, so that all rows end at the same position."""
    ids, keep = pad_right([row[::-1] for row in rows], pad, device)
    return ids.flip(1), keep.flip(1)


class LogitReader:
    """Runs one network for logits at given positions, and scores of tokens there.

    The first call finds out whether the logits are the output layer's product and nothing else. If so, the
    network computes the logits of one position only, and the rest is done with the log-sum-exp folded in
    (lstm/softmax.py): no logits are stored. Otherwise the network's own logits are used.
    """

    def __init__(self, network: Any, count: Counter[str]) -> None:
        """`count` counts the tokens that are run through the network, of all rows."""
        self.network, self.count = network, count
        self.is_linear: bool | None = None  # whether the logits are the layer's product; None: not known yet
        self.need: Footprint = footprint(network.config, network.dtype.itemsize)

    def scores(self, inputs: dict[str, Any], places: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """(tokens,) each: log P, at least in float32, and "is the argmax" of `goals` (tokens,), predicted at
        `places` (tokens,) of the flattened (rows, length) that the decoder reads."""
        hidden, logits, _ = self.run(inputs, places, whole=not self.is_linear)
        layer = self.network.get_output_embeddings()
        if self.is_linear is None:
            self.is_linear = hidden is not None and _is_product(layer, hidden, logits)
        if self.is_linear and hidden is not None:
            return target_scores(hidden, layer, goals)
        chosen = logits.gather(1, goals[:, None]).squeeze(1)
        dtype = wide(logits.dtype)
        return chosen.to(dtype) - logits.to(dtype).logsumexp(1), chosen >= logits.amax(1)

    def log_softmax(self, inputs: dict[str, Any], places: Tensor) -> Tensor:
        """(tokens, vocabulary), at least in float32. Differentiable."""
        logits = self.run(inputs, places)[1]
        return logits.to(wide(logits.dtype)).log_softmax(1)

    def run(self, inputs: dict[str, Any], places: Tensor, whole: bool = True) -> Read:
        """Calls `run_at` and counts the tokens. A `decoder` in `inputs` reads them instead of the network,
        behind `past`."""
        read = inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]
        written = inputs.get("decoder_input_ids")
        self.count["tokens"] += read.shape[0] * (read.shape[1] + (0 if written is None else written.shape[1]))
        if "decoder" not in inputs:
            return run_at(self.network, inputs, places, whole)
        embedded = self.network.get_input_embeddings()(read) if "input_ids" in inputs else read
        hidden = inputs["decoder"].hidden(
            embedded, inputs["past"], places, branches=inputs.get("branches", 1.0)
        )
        return hidden, self.network.get_output_embeddings()(hidden if whole else hidden[:1]), None

    def in_parts(self, rows: int, length: int, row_bytes: int, work: Callable[[slice], Tensor]) -> Tensor:
        """The results of `work` on slices of the rows that fit the memory, concatenated."""
        found: list[Tensor] = []
        run_parts(rows, length, row_bytes, lambda part: found.append(work(part)), self.network.device)
        return torch.cat(found)


def _is_product(layer: Any, hidden: Tensor, logits: Tensor) -> bool:
    if type(layer) is not nn.Linear or layer.weight.dtype != hidden.dtype:  # as in a widened network
        return False
    product = F.linear(hidden[None], layer.weight, layer.bias)[0]
    near = CLOSE if logits.dtype in (torch.float32, torch.float64) else CLOSE_IN_HALF
    return product.shape == logits.shape and torch.allclose(product, logits, atol=near, rtol=near)
