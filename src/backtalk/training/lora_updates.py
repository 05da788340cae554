"""The updates of `updates.py` for a Hugging Face network of which an adapter alone is trained.

The rules are the same (`rule_*.py`); what differs is where log-probabilities come from: rows are a prompt's ids
and a reply's ids, read in micro-batches of a number of tokens, so that a long reply costs memory once. The
reference of NPO and of the KL term is the network with the adapter off. No dropout anywhere: a row's loss does
not depend on its neighbours, and the KL term is 0 where nothing has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.training.lora import Adapter
from backtalk.training.rules import HitWords
from backtalk.training.updates import RULES, UpdateConfig, make_optimizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAD = -1
"""Fills up prompts and replies; no id of any tokenizer."""


class Rows(NamedTuple):
    """Prompts and replies, padded on the right with PAD."""

    prompts: Tensor
    """(rows, n)"""
    replies: Tensor
    """(rows, m): the end of turn last."""

    def trimmed(self, start: int, end: int) -> Rows:
        """Some of the rows, without columns that are all padding."""
        return Rows(*(part[start:end, : int((part[start:end] != PAD).sum(1).max())] for part in self))


class LoraUpdates:
    """Changes an adapter in place. Between updates the network is as a search wants it: no gradients."""

    pad = PAD
    device = torch.device("cpu")
    """Where hits are handed over: micro-batches are cut before they move."""

    def __init__(
        self,
        adapter: Adapter,
        network: PreTrainedModel,
        config: UpdateConfig,
        tokens: int = 4096,
        checkpointing: bool = False,
    ) -> None:
        """`network` is the one that carries the adapter. `tokens` is the size of a micro-batch;
        `checkpointing` computes activations twice instead of keeping them."""
        if config.method not in RULES:
            raise InputError(f"there is no method {config.method!r}; choose one of {', '.join(RULES)}")
        self.adapter, self.base, self.config, self.tokens = adapter, network, config, tokens
        self.network: nn.Module = adapter.weights
        self.optimizer = make_optimizer(self.network, config)
        self.rule = RULES[config.method]
        self.avoid = torch.tensor(sorted({PAD, *config.avoid}))
        self.checkpointing = checkpointing
        network.eval()
        if checkpointing:
            _without_dropout(network)
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None:
        """As `Updates.negative`: one step down the rule's loss."""
        self._descend(self._away(Rows(inputs, targets), share))

    def positive(self, inputs: NDArray[np.int64], replies: NDArray[np.int64], seed: int) -> None:
        """As `Updates.positive`, weighted after clipping, but without dropout: the seed is not needed."""
        weight = self.config.lambda_pos + self.config.kl
        rows = Rows(torch.from_numpy(inputs), torch.from_numpy(replies))
        self._descend(self._towards(rows, 1.0 / weight), weight)

    def both(
        self,
        inputs: Tensor,
        targets: Tensor,
        share: float,
        pairs: NDArray[np.int64],
        replies: NDArray[np.int64],
    ) -> None:
        """One step down the negative and the positive loss together."""
        rows = Rows(torch.from_numpy(pairs), torch.from_numpy(replies))
        away = self._away(Rows(inputs, targets), share)
        towards = self._towards(rows, 1.0) if self.config.lambda_pos + self.config.kl > 0 else iter(())
        self._descend(piece for part in (away, towards) for piece in part)

    def _away(self, rows: Rows, share: float) -> Iterator[Callable[[], Tensor]]:
        """The rule's mean over the hits times `share`, piece by piece."""
        whole = len(rows.replies)
        for part in self._micro_batches(rows):
            scale = share * len(part.replies) / whole
            yield lambda part=part, scale=scale: scale * self.negative_loss(part)  # type: ignore[misc]

    def negative_loss(self, rows: Rows) -> Tensor:
        """The rule's loss of some hits: summed over a target's words, averaged over the hits."""
        before = None
        if self.config.method == "npo":
            with torch.no_grad(), self.adapter.off():
                before = self._log_probs(rows)
        log_probs = self._log_probs(rows)  # (rows, m)
        counted = ~torch.isin(rows.replies, self.avoid).to(log_probs.device)
        return self.rule(HitWords(log_probs, counted, before, self.config.npo_beta))

    def _towards(self, rows: Rows, scale: float) -> Iterator[Callable[[], Tensor]]:
        """`Descent.positive_loss` times `scale`, piece by piece: each piece is a sum over its words, divided
        by the words or the sentences of the whole."""
        words = int((rows.replies != PAD).sum())
        over = words if self.config.mean_over == "words" else len(rows.replies)
        for part in self._micro_batches(rows):
            yield lambda part=part: scale * self.positive_loss(part, words, over)  # type: ignore[misc]

    def positive_loss(self, rows: Rows, words: int, over: int) -> Tensor:
        """lambda_pos times the loss of maximum likelihood over `over`, and kl times the sum of
        KL(network as it was || network) over `words`."""
        before = None
        if self.config.kl > 0:
            with torch.no_grad(), self.adapter.off():
                before = self._reply_logs(rows)
        logs = self._reply_logs(rows)  # (rows, m, vocabulary)
        replies = rows.replies.to(logs.device)
        real = (replies != PAD).to(logs.dtype)
        said = logs.gather(2, replies.clamp(min=0)[:, :, None]).squeeze(2)
        loss = -self.config.lambda_pos * (said * real).sum() / over
        if before is not None:
            apart = F.kl_div(logs, before, reduction="none", log_target=True).sum(2)
            loss = loss + self.config.kl * (apart * real).sum() / words
        return loss

    def _log_probs(self, rows: Rows) -> Tensor:
        """(rows, m): log P(y_t | y_<t, x); 0 where padded."""
        replies = rows.replies.to(self.base.device)
        logits = reply_logits(self.base, rows)
        # Not log_softmax of all: of (rows, m, vocabulary) one number a word is needed.
        said = logits.gather(2, replies.clamp(min=0)[:, :, None]).squeeze(2) - logits.logsumexp(2)
        return said.masked_fill(replies == PAD, 0.0)

    def _reply_logs(self, rows: Rows) -> Tensor:
        return reply_logits(self.base, rows).log_softmax(2)

    def _micro_batches(self, rows: Rows) -> Iterator[Rows]:
        """In order, each of at most `tokens` tokens with their padding, and of one row at least."""
        lengths = [int(n) for n in sum((part != PAD).sum(1) for part in rows)]  # type: ignore[union-attr]
        for start, end in cut(lengths, self.tokens):
            yield rows.trimmed(start, end)

    def _descend(self, pieces: Iterator[Callable[[], Tensor]], weight: float = 1.0) -> None:
        """One step down the sum of the pieces; each is gone from memory before the next is computed."""
        self.base.train(self.checkpointing)
        for piece in pieces:
            piece().backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
        # Weights that are no numbers would end every hit, and look like a success.
        if not math.isfinite(float(norm)):
            raise InputError(f"the gradient's norm is {float(norm)}; lower --lr")
        if weight != 1.0:
            for value in self.network.parameters():
                if value.grad is not None:
                    value.grad *= weight
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.base.eval()


def cut(lengths: Sequence[int], tokens: int) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of rows whose number times the longest is at most `tokens`; never none."""
    start, longest = 0, 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        if place > start and (place + 1 - start) * longest > tokens:
            yield start, place
            start, longest = place, length
    if lengths:
        yield start, len(lengths)


def reply_logits(network: PreTrainedModel, rows: Rows) -> Tensor:
    """(rows, m, vocabulary), float32: the logits of each reply token after the prompt and those before it."""
    prompts, replies = rows
    filled, real = replies.clamp(min=0), (replies != PAD)
    if network.config.is_encoder_decoder:
        start = torch.full_like(filled[:, :1], network.config.decoder_start_token_id)
        told = torch.cat([start, filled[:, :-1]], 1)
        output = network(
            input_ids=prompts.clamp(min=0).to(network.device),
            attention_mask=(prompts != PAD).long().to(network.device),
            decoder_input_ids=told.to(network.device),
            use_cache=False,
        )
        return output.logits.float()  # type: ignore[no-any-return]
    lengths = (prompts != PAD).sum(1, keepdim=True)  # (rows, 1)
    places = lengths + torch.arange(replies.shape[1])  # (rows, m): where the reply's tokens stand
    ids = F.pad(prompts.clamp(min=0), (0, replies.shape[1])).scatter(1, places, filled)
    mask = F.pad((prompts != PAD).long(), (0, replies.shape[1])).scatter(1, places, real.long())
    width = int(mask.sum(1).max())
    # Padding on the right is never looked at: each token sees those before it alone.
    output = network(
        input_ids=ids[:, :width].to(network.device),
        attention_mask=mask[:, :width].to(network.device),
        use_cache=False,
    )
    row = torch.arange(len(ids))[:, None]
    before = (places - 1).clamp(max=width - 1).to(network.device)
    return output.logits[row.to(network.device), before].float()  # type: ignore[no-any-return]


def _without_dropout(network: nn.Module) -> None:
    """Activations are recomputed in training mode alone, in which some networks drop a part of them."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout", "dropout_rate"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
