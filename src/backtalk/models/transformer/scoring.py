"""Log-probabilities of given tokens: the output layer reads only the positions that are asked for.

A hook picks these positions out of the last hidden states just before the output layer, so whatever an
architecture does to its logits afterwards (scales, caps, biases) is still done, and no tensor of
(batch, length, vocabulary) is made. Rows are padded on the right, where a causal model can't see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.lstm.softmax import target_scores
from backtalk.models.transformer.memory import run_parts

CLOSE, CLOSE_IN_HALF = 1e-5, 1e-2
"""How near the output layer's product has to be to the network's own logits, also in 16 bits."""


class Row(NamedTuple):
    """A prompt and the tokens whose probabilities are asked for, the end of turn last."""

    prompt: list[int]
    reply: list[int]


class Batch(NamedTuple):
    """Rows as tensors."""

    inputs: dict[str, Tensor]
    """The network's arguments."""
    places: Tensor
    """(tokens,): where each reply token is predicted, in the flattened (batch, length) of the decoder."""
    targets: Tensor
    """(tokens,): the reply tokens, row after row."""
    lengths: list[int]
    """Reply tokens of each row."""


def causal_batch(rows: Sequence[Row], pad: int, device: torch.device) -> Batch:
    ids, keep = pad_right([[*row.prompt, *row.reply[:-1]] for row in rows], pad, device)
    firsts = [len(row.prompt) - 1 for row in rows]
    return _batch({"input_ids": ids, "attention_mask": keep}, rows, firsts, device)


def encoder_batch(rows: Sequence[Row], lead: Sequence[int], pad: int, device: torch.device) -> Batch:
    ids, keep = pad_right([row.prompt for row in rows], pad, device)
    written, _ = pad_right([[*lead, *row.reply[:-1]] for row in rows], pad, device)
    inputs = {"input_ids": ids, "attention_mask": keep, "decoder_input_ids": written}
    return _batch(inputs, rows, [len(lead) - 1] * len(rows), device)


def _batch(inputs: dict[str, Tensor], rows: Sequence[Row], firsts: list[int], device: torch.device) -> Batch:
    length = inputs.get("decoder_input_ids", inputs["input_ids"]).shape[1]
    lengths = [len(row.reply) for row in rows]
    starts = [number * length + first for number, first in enumerate(firsts)]
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


def run_at(
    network: Any, inputs: dict[str, Any], places: Tensor, whole: bool = True
) -> tuple[Tensor | None, Tensor, Any]:
    """Hidden states (tokens, H) at `places`, None where the network hides them; the logits of all these or,
    unless `whole`, of the first alone; and the KV cache where `use_cache` asks for it."""
    hidden: Tensor | None = None

    def pick(given: Tensor) -> Tensor:
        nonlocal hidden
        hidden = given.flatten(0, 1).index_select(0, places)
        return (hidden if whole else hidden[:1])[None]  # (1, tokens, H)

    with before_output(network, pick):
        found = network(**{"use_cache": False, **inputs})
    logits = found.logits.flatten(0, 1).index_select(0, places) if hidden is None else found.logits[0]
    return hidden, logits, found.past_key_values if inputs.get("use_cache") else None


@contextmanager
def before_output(network: Any, pick: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within, the output layer reads what `pick` makes of its input. A network that multiplies by the output
    weights itself never calls it."""
    output = network.get_output_embeddings()
    if output is None:
        yield
        return
    hook = output.register_forward_pre_hook(lambda _, given: (pick(given[0]), *given[1:]))
    try:
        yield
    finally:
        hook.remove()


def pad_right(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(batch, length) ids and their attention mask."""
    width = max(map(len, rows))
    whole = np.array([[*row, *[pad] * (width - len(row))] for row in rows], dtype=np.int64)
    ids = torch.from_numpy(whole).to(device)  # lists of lists take several times longer
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(width, device=device) < lengths[:, None]).long()


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same with the padding before a row, so that all rows end at the same position."""
    ids, keep = pad_right([row[::-1] for row in rows], pad, device)
    return ids.flip(1), keep.flip(1)


@dataclass
class TokenCount:
    """Tokens that were run through a network, of all rows."""

    tokens: int = 0


class LogitReader:
    """Runs one network for logits at given positions, and scores of tokens there.

    Where the logits are the output layer's product and nothing else, which the first call finds out, the
    network makes those of one position only, and the rest is done with the log-sum-exp folded in
    (lstm/softmax.py): no logits are stored. Otherwise the network's own logits are used.
    """

    def __init__(self, network: Any, count: TokenCount) -> None:
        self.network, self.count = network, count
        self.is_linear: bool | None = None
        """Whether the logits are the output layer's product; None before the first call."""

    @property
    def device(self) -> torch.device:
        return torch.device(self.network.device)

    def scores(self, inputs: dict[str, Any], places: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """(tokens,) each: log P, at least in float32, and "is the argmax" of `goals` (tokens,), predicted at
        `places` (tokens,) of the flattened (rows, length) that the decoder reads."""
        hidden, logits, _ = self._run(inputs, places, whole=not self.is_linear)
        if self.is_linear is None:
            self.is_linear = self._is_product(hidden, logits)
        if self.is_linear and hidden is not None:
            return target_scores(hidden, self.network.get_output_embeddings(), goals)
        chosen = logits.gather(1, goals[:, None]).squeeze(1)
        dtype = wide(logits.dtype)
        return chosen.to(dtype) - logits.to(dtype).logsumexp(1), chosen >= logits.amax(1)

    def logits(self, inputs: dict[str, Any], places: Tensor) -> tuple[Tensor, Any]:
        """(tokens, vocabulary) at `places`, and the KV cache. Differentiable."""
        _, logits, past = self._run(inputs, places, whole=True)
        return logits, past

    def log_softmax(self, inputs: dict[str, Any], places: Tensor) -> Tensor:
        """(tokens, vocabulary), at least in float32. Differentiable."""
        logits, _ = self.logits(inputs, places)
        return logits.to(wide(logits.dtype)).log_softmax(1)

    def past(self, ids: Tensor) -> Any:
        """The KV cache of (rows, length) ids."""
        first = torch.zeros(1, dtype=torch.long, device=ids.device)
        return self._run({"input_ids": ids, "use_cache": True}, first, whole=False)[2]

    def in_parts(
        self, rows: int, length: int, cost: Callable[[int, int], int], work: Callable[[slice], Tensor]
    ) -> Tensor:
        """The results of `work` on slices of the rows that fit the memory, concatenated."""
        found: list[Tensor] = []
        run_parts(rows, length, cost, lambda start, stop: found.append(work(slice(start, stop))), self.device)
        return torch.cat(found)

    def _run(self, inputs: dict[str, Any], places: Tensor, whole: bool) -> tuple[Tensor | None, Tensor, Any]:
        found = run_at(self.network, inputs, places, whole)
        read = inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]
        written = inputs.get("decoder_input_ids")
        self.count.tokens += read.shape[0] * (read.shape[1] + (0 if written is None else written.shape[1]))
        return found

    def _is_product(self, hidden: Tensor | None, logits: Tensor) -> bool:
        layer = self.network.get_output_embeddings()
        if hidden is None or type(layer) is not nn.Linear:
            return False
        product = F.linear(hidden[None], layer.weight, layer.bias)[0]
        near = CLOSE if logits.dtype in (torch.float32, torch.float64) else CLOSE_IN_HALF
        return product.shape == logits.shape and torch.allclose(product, logits, atol=near, rtol=near)


def embedding_gradient(network: Any, ids: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    """(rows, length, size): the gradient of `total` with respect to the embedded `ids`."""
    with torch.enable_grad():
        embedded: Tensor = network.get_input_embeddings()(ids).detach().requires_grad_()
        gradient: Tensor = torch.autograd.grad(total(embedded), embedded)[0]
    return gradient


def to_one_hot(network: Any, gradient: Tensor) -> Tensor:
    """(..., size) -> (..., vocabulary): the embedding is linear in the one-hot input, so the gradient of the
    embedded tokens times the table of all embedded tokens is the one-hot gradient."""
    embed = network.get_input_embeddings()
    table: Tensor = embed.weight.detach()
    if type(embed) is not nn.Embedding:  # some scale what they look up
        table = embed(torch.arange(len(table), device=table.device)).detach()
    return gradient @ table.t()
