"""The updates of `updates.py` for a Hugging Face network of which an adapter alone is trained.

The rules are the same (`rules.py`). Rows are read in micro-batches of a number of tokens, whose gradients
add up to that of the whole. The reference of NPO and of the KL term is the network with the adapter off. No
dropout: a row's loss does not depend on its neighbours, and the KL term is 0 where nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.models.gpu.memory import is_out_of_memory
from backtalk.models.transformer.scoring import Batch, Row, token_log_probs, token_logits
from backtalk.training.lora import Adapter
from backtalk.training.negative import NOTHING, Hit
from backtalk.training.rules import HitWords
from backtalk.training.updates import UpdateConfig, make_optimizer, step_clipped

TOKENS = {"cpu": 2048, "cuda": 16384}
"""Tokens of a micro-batch where nothing is said."""


Piece = Callable[[], Tensor]
"""Computes a part of a loss."""


class Batching(Protocol):
    """What is needed of a model: its network, and how rows become its inputs."""

    @property
    def network(self) -> Any: ...

    def batch(self, rows: Sequence[Row]) -> Batch: ...


class LoraUpdates:
    """Changes an adapter in place. Hits and pairs are handed over as ids, filled up with `pad`."""

    pad = NOTHING
    device = torch.device("cpu")
    """Where hits are handed over: they are cut into micro-batches before they move."""

    def __init__(
        self,
        adapter: Adapter,
        model: Batching,
        config: UpdateConfig,
        tokens: int = 0,
        checkpointing: bool = False,
        learnt: Collection[Hit] | None = None,
    ) -> None:
        """`model` carries the adapter. `checkpointing` computes activations twice instead of keeping them.
        Of pairs that are `learnt` the likelihood alone counts, of others the KL term alone; None: of all
        both."""
        self.adapter, self.model, self.config = adapter, model, config
        self.kl = config.kl
        """The weight of the KL term, at first the config's; it may change between two updates."""
        self.network: nn.Module = adapter.weights
        self.optimizer = make_optimizer(self.network, config)
        self.avoid = torch.tensor(sorted({NOTHING, *config.avoid}))
        self.tokens = tokens or TOKENS[model.network.device.type]
        self.checkpointing = checkpointing
        self.learnt = None if learnt is None else frozenset(learnt)
        model.network.eval()
        if checkpointing:
            _without_dropout(model.network)
            kwargs = {"use_reentrant": False}
            model.network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None:
        """As `Updates.negative`: one step down the rule's loss."""
        rows = rows_of(inputs, targets)
        self.descend(lambda: self.away(rows, share))

    def positive(self, inputs: NDArray[np.int64], replies: NDArray[np.int64], seed: int) -> None:
        """As `Updates.positive`, weighted after clipping, but without dropout: the seed is not needed."""
        weight = self.config.lambda_pos + self.kl
        rows = rows_of(inputs, replies)
        self.descend(lambda: self.towards(rows, 1.0 / weight), weight)

    def both(
        self,
        inputs: Tensor,
        targets: Tensor,
        share: float,
        pairs: NDArray[np.int64],
        replies: NDArray[np.int64],
    ) -> None:
        """One step down the negative and the positive loss together."""
        hits, kept = rows_of(inputs, targets), rows_of(pairs, replies)
        keeps = self.config.lambda_pos + self.kl > 0
        self.descend(lambda: chain(self.away(hits, share), self.towards(kept, 1.0) if keeps else ()))

    @torch.no_grad()
    def log_probs(self, hits: Sequence[Hit]) -> list[list[float]]:
        """Of each token of the hits, on the network as it is now."""
        rows = [Row(list(hit.trigger), list(hit.target)) for hit in hits]
        found: list[list[float]] = []
        for part in self._micro_batches(rows):
            batch = self.model.batch(part)
            tokens = iter(token_log_probs(self.model.network, batch).tolist())
            found += [list(islice(tokens, length)) for length in batch.lengths]
        return found

    def negative_loss(self, rows: Sequence[Row]) -> Tensor:
        """The rule's loss of some hits: summed over a target's words, averaged over the hits."""
        batch = self.model.batch(rows)
        before = None
        if self.config.method.needs_baseline:
            with torch.no_grad(), self.adapter.off():
                before = _padded(token_log_probs(self.model.network, batch), batch)
        log_probs = _padded(token_log_probs(self.model.network, batch), batch)  # (hits, m)
        targets = nn.utils.rnn.pad_sequence(
            [torch.tensor(row.reply) for row in rows], batch_first=True, padding_value=NOTHING
        )
        counted = ~torch.isin(targets, self.avoid).to(log_probs.device)
        return self.config.method.loss(HitWords(log_probs, counted, before))

    def positive_loss(
        self, rows: Sequence[Row], words: int, over: int, learns: bool = True, keeps: bool = True
    ) -> Tensor:
        """`Descent.positive_loss`, the likelihood of these rows' words divided by `over` and the divergence
        by `words`: numbers of the whole, where this is a part of it. Either is left out where it is not asked
        for."""
        batch = self.model.batch(rows)
        before = None
        if keeps and self.kl > 0:
            with torch.no_grad(), self.adapter.off():
                before = token_logits(self.model.network, batch).log_softmax(1)
        logs = token_logits(self.model.network, batch).log_softmax(1)  # (tokens, vocabulary)
        terms = []
        if learns:
            own = logs.gather(1, batch.targets[:, None])[:, 0]  # (tokens,)
            terms.append(-self.config.lambda_pos * own.sum() / over)
        if before is not None:
            apart = F.kl_div(logs, before, reduction="sum", log_target=True)
            terms.append(self.kl * apart / words)
        return torch.stack(terms).sum()

    def away(self, rows: Sequence[Row], share: float) -> Iterator[Piece]:
        """The rule's mean over the hits times `share`, piece by piece."""
        for part in self._micro_batches(rows):
            scale = share * len(part) / len(rows)
            yield lambda part=part, scale=scale: scale * self.negative_loss(part)  # type: ignore[misc]

    def towards(self, rows: Sequence[Row], scale: float) -> Iterator[Piece]:
        """The positive loss times `scale`, piece by piece."""
        over = sum(len(row.reply) for row in rows) if self.config.mean_over == "words" else len(rows)
        kinds = [(rows, True, True)]
        if self.learnt is not None:
            learnt = [Hit(tuple(row.prompt), tuple(row.reply)) in self.learnt for row in rows]
            kinds = [
                ([row for row, is_learnt in zip(rows, learnt, strict=True) if is_learnt], True, False),
                ([row for row, is_learnt in zip(rows, learnt, strict=True) if not is_learnt], False, True),
            ]
        for some, learns, keeps in kinds:
            if learns or self.kl > 0:
                words = sum(len(row.reply) for row in some)  # the divergence is a mean over what is kept
                for part in self._micro_batches(some):
                    loss = partial(self.positive_loss, part, words, over, learns, keeps)
                    yield lambda loss=loss: scale * loss()  # type: ignore[misc]

    def _micro_batches(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        for start, end in cut([len(row.prompt) + len(row.reply) for row in rows], self.tokens):
            yield rows[start:end]

    def descend(self, pieces: Callable[[], Iterable[Piece]], weight: float = 1.0) -> None:
        """One step down the sum of the pieces; each is gone from memory before the next is computed. Where
        memory ends, micro-batches are halved once and for all."""
        self.model.network.train(self.checkpointing)
        if not self._backward(pieces()):
            self.tokens //= 2
            if not self._backward(pieces()):
                raise InputError(
                    f"the memory does not suffice to train on {self.tokens} tokens at once; use a smaller "
                    "--micro-tokens or --gradient-checkpointing"
                )
        step_clipped(self.network, self.optimizer, self.config.clip, weight)
        self.model.network.eval()

    def _backward(self, pieces: Iterable[Piece]) -> bool:
        """Fills the gradients; False, and none are left, where memory ended."""
        try:
            for piece in pieces:
                piece().backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            return True
        self.optimizer.zero_grad(set_to_none=True)
        if self.model.network.device.type == "cuda":
            torch.cuda.empty_cache()
        return False


def rows_of(prompts: Tensor | NDArray[np.int64], replies: Tensor | NDArray[np.int64]) -> list[Row]:
    """Rows of ids without what fills them up."""
    both = zip(prompts.tolist(), replies.tolist(), strict=True)
    return [Row([i for i in a if i != NOTHING], [i for i in b if i != NOTHING]) for a, b in both]


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


def _padded(flat: Tensor, batch: Batch) -> Tensor:
    """(tokens,) -> (rows, m), 0 where there is no token."""
    width = max(batch.lengths)
    places = [row * width + t for row, length in enumerate(batch.lengths) for t in range(length)]
    whole = flat.new_zeros(len(batch.lengths) * width)
    return whole.index_copy(0, torch.tensor(places, device=flat.device), flat).view(-1, width)


def _without_dropout(network: nn.Module) -> None:
    """Activations are recomputed in training mode alone, in which some networks drop a part of them."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout", "dropout_rate"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
