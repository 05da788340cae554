"""Updates from preferences: IPO (Azar et al. 2023), DPO (Rafailov et al. 2023), and plain likelihood.

A pair is two continuations of the same tokens, whose log-probabilities are summed. The reference's are
computed once, before the first update. Rows are padded on the right without a mask: a causal network does not
see what comes later. Pairs that are far longer than the others of an update are a batch of their own. On a
GPU, forward and backward pass and the step are CUDA graphs (`gradients.py`).
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.models.device import is_out_of_memory
from backtalk.models.gpu.graph import FastPath, distance
from backtalk.models.transformer.memory import parts_of
from backtalk.models.transformer.scoring import Batch, Row, pad_right, token_log_probs
from backtalk.models.transformer.stepping import filled
from backtalk.training.gradients import ClippedAdamW, SummedGradients
from backtalk.training.lora import cut

SCORED = 32  # a graph has room for a multiple of this many scored tokens a row
WORTH = {"cpu": 64, "cuda": 1 << 12}  # padding tokens that cost as much as another forward and backward pass
SORTED = {"cpu": False, "cuda": True}  # whether the reference reads pairs by length: less padding
TOKENS = {"cpu": 2048, "cuda": 12288}  # default number of tokens in a batch
REFERENCE = {"cpu": 1, "cuda": 4}  # batches without a gradient are this many times larger
LEAST_TOKENS = 64  # a batch of fewer tokens is not halved again when memory runs out
TOGETHER = 8
"""Updates over which pairs are sorted by length: with Reddit openings that saves a third, all of it padding.
With more, an update would have the pairs of one tree."""
CHECKS = 3  # updates on which graphs are checked before they are given up


@dataclass(frozen=True)
class PreferenceConfig:
    loss: Literal["ipo", "dpo", "sft"] = "ipo"  # sft: the likelihood of the better continuation
    tau: float = 0.01  # the target of the difference of log-ratios in ipo is 1 / (2 tau) nats
    dpo_beta: float = 0.1  # factor of the difference of log-ratios in dpo
    lr: float = 5e-5  # of AdamW
    warm_up: int = 150  # updates over which the learning rate rises to lr; it stays there
    clip: float = 10.0  # largest norm of a gradient

    def rate(self, step: int) -> float:
        return self.lr * min(1.0, (step + 1) / self.warm_up) if self.warm_up else self.lr


class PairRows(NamedTuple):
    """A pair as tokens, with the reference's log-ratio."""

    win: Row
    lose: Row
    before: float = 0.0  # log ref(win) - log ref(lose)


def preference_loss(margin: Tensor, before: Tensor, config: PreferenceConfig) -> Tensor:
    """(pairs,): the loss of each; `margin` is log pi(win) - log pi(lose)."""
    apart = margin - before
    if config.loss == "ipo":
        return (apart - 1 / (2 * config.tau)) ** 2
    return -F.logsigmoid(config.dpo_beta * apart)


def alike(rows: Sequence[PairRows], size: int, seed: Sequence[int]) -> list[list[PairRows]]:
    """The pairs of each update, sorted by length within TOGETHER updates, whose order is shuffled."""
    found: list[list[PairRows]] = []
    draw = np.random.default_rng(seed)
    for start in range(0, len(rows), TOGETHER * size):
        some = sorted(rows[start : start + TOGETHER * size], key=_longest)
        batches = [some[first : first + size] for first in range(0, len(some), size)]
        found += [batches[place] for place in draw.permutation(len(batches)).tolist()]
    return found


class PreferenceUpdates:
    """Changes `weights`, the trained part of `network`, in place."""

    def __init__(
        self,
        weights: nn.Module,
        network: Any,
        pad: int,
        config: PreferenceConfig,
        reference: Callable[[], AbstractContextManager[Any]],
        report: Callable[[str], None] = lambda _: None,
        tokens: int = 0,
    ) -> None:
        """`reference` opens the network to compare with. `tokens`: the largest batch; 0 uses a default."""
        self.weights, self.network, self.pad, self.config = weights, network, pad, config
        self.reference, self.report = reference, report
        self.device: torch.device = network.device
        self.descent = ClippedAdamW(weights.parameters(), config.lr, config.clip, self.device, report)
        self.optimizer = self.descent.optimizer
        self.gradients = SummedGradients(weights)
        self.graph = FastPath(self.device.type == "cuda", CHECKS)
        self.tokens = tokens or TOKENS[self.device.type]
        network.eval()

    @torch.no_grad()
    def with_reference(self, pairs: Sequence[PairRows]) -> list[PairRows]:
        if self.config.loss == "sft" or not pairs:
            return list(pairs)
        by_length = SORTED[self.device.type]
        order = sorted(range(len(pairs)), key=lambda place: _longest(pairs[place]) if by_length else place)
        found: list[Tensor] = []
        with self.reference() as network:
            tokens = self.tokens * REFERENCE[self.device.type]
            for start, end in cut([_longest(pairs[place]) * 2 for place in order], tokens):
                sums = _row_sums(network, self._tensors([pairs[place] for place in order[start:end]]))
                found.append(sums[: end - start] - sums[end - start :])
        before = dict(zip(order, torch.cat(found).tolist(), strict=True))  # one wait for all of them
        return [pair._replace(before=before[place]) for place, pair in enumerate(pairs)]

    def step(self, pairs: Sequence[PairRows], number: int) -> None:
        """One update, the `number`-th, down the mean loss of these pairs."""
        self._fill(pairs)
        self.descent.step(self.config.rate(number))

    def check(self) -> None:
        """InputError for NaN or infinite gradients; call it before weights are stored."""
        if not math.isfinite(largest := float(self.descent.largest)):
            raise InputError(f"the gradient's norm is {largest}; lower --lr")

    def loss(self, *given: Tensor) -> Tensor:
        """The mean loss of the pairs that `_tensors` laid out. Gradients flow."""
        before, weights = given[-2:]
        sums, count = _row_sums(self.network, given), len(weights)
        if self.config.loss == "sft":
            return -(sums[:count] * weights).sum()
        return (preference_loss(sums[:count] - sums[count:], before, self.config) * weights).sum()

    def _fill(self, pairs: Sequence[PairRows]) -> None:
        """Sets the gradients of the mean loss. When memory runs out, batches are halved from then on."""
        try:
            scale, parts = self._weight(pairs), self._parts(pairs)
            if self.graph.on and not self.graph.is_trusted:
                self._check_graph(parts[0], scale)
            captured = self.graph.is_trusted
            self.gradients.begin()
            for part in parts:
                self.gradients.add(self.loss, *self._tensors(part, scale, captured), captured=captured)
            return
        except RuntimeError as error:
            if not is_out_of_memory(error) or self.tokens < LEAST_TOKENS:
                raise
        self.gradients.forget()
        self.tokens //= 2
        self._fill(pairs)

    def _parts(self, pairs: Sequence[PairRows]) -> list[list[PairRows]]:
        """Batches of pairs of similar length, the longest first."""
        order = sorted(pairs, key=_longest, reverse=True)
        cuts = parts_of([2 * _longest(pair) for pair in order], self.tokens, WORTH[self.device.type])
        return [order[start:end] for start, end in cuts]

    def _check_graph(self, pairs: Sequence[PairRows], scale: float) -> None:
        """Compares a graph with the plain way, on other tokens than it was captured with."""
        given = self._tensors(pairs, scale, fill_up=True)

        def compare() -> dict[str, float]:
            plain = self._gradient(given, captured=False)
            self._gradient([given[0].flip(1), *given[1:]], captured=True)
            found = self._gradient(given, captured=True)
            return {"loss": distance(plain[:1], found[:1]), "gradient": distance(plain[1:], found[1:])}

        if not self.graph.check(compare, self.network.dtype):
            self.gradients.forget()
            if not self.graph.on:
                self.report(f"updates run without a CUDA graph ({self.graph.why})")

    def _gradient(self, given: Sequence[Tensor], captured: bool) -> list[Tensor]:
        """Copies of the loss and of its gradients."""
        self.gradients.begin()
        loss = self.gradients.add(self.loss, *given, captured=captured)
        grads = [value.grad for value in self.gradients.parameters]
        return [loss.clone(), *[value.clone() for value in grads if value is not None]]

    def _weight(self, pairs: Sequence[PairRows]) -> float:
        """Factor of a pair's loss: the mean is over pairs, for sft over tokens."""
        if self.config.loss == "sft":
            return 1 / max(sum(len(pair.win.reply) for pair in pairs), 1)
        return 1 / len(pairs)

    def _tensors(
        self, pairs: Sequence[PairRows], weight: float | None = None, fill_up: bool = False
    ) -> list[Tensor]:
        """ids (rows, length); place, id and row of each scored token; `before`, weights (pairs,). The
        better rows come first. `fill_up` pads to one of a few shapes for a graph: with pairs of weight 0 and
        tokens of an extra row."""
        weights = [self._weight(pairs) if weight is None else weight] * len(pairs)
        if fill_up:
            spare = (1 << (len(pairs) - 1).bit_length()) - len(pairs)
            pairs, weights = [*pairs, *[pairs[-1]] * spare], [*weights, *[0.0] * spare]
        rows = [pair.win for pair in pairs]
        if self.config.loss != "sft":
            rows += [pair.lose for pair in pairs]
        read = [[*row.prompt, *row.reply[:-1]] for row in rows]
        length = max(map(len, read))
        length = filled(length, self.device) if fill_up else length
        places, targets, owners = list[int](), list[int](), list[int]()
        for number, row in enumerate(rows):
            first = number * length + len(row.prompt) - 1
            places += range(first, first + len(row.reply))
            targets += row.reply
            owners += [number] * len(row.reply)
        spare = -len(places) % (SCORED * len(rows)) if fill_up else 0
        ids, _ = pad_right([*read, [self.pad] * length], self.pad, torch.device("cpu"))
        scored = places + [0] * spare, targets + [self.pad] * spare, owners + [len(rows)] * spare
        given = [ids[:-1], *map(torch.tensor, (*scored, [pair.before for pair in pairs], weights))]
        if self.device.type == "cuda":  # from other memory a copy may wait for all that runs
            given = [tensor.pin_memory() for tensor in given]
        return [tensor.to(self.device, non_blocking=True) for tensor in given]


def _row_sums(network: Any, given: Sequence[Tensor]) -> Tensor:
    """(rows,): the summed log-probability of each row's continuation."""
    ids, places, targets, owners = given[:4]
    flat = token_log_probs(network, Batch({"input_ids": ids}, places, targets, []))
    return flat.new_zeros(len(ids) + 1).index_add(0, owners, flat)[:-1]


def _longest(pair: PairRows) -> int:
    return max(len(row.prompt) + len(row.reply) for row in (pair.win, pair.lose))
