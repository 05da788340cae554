"""Updates from preferences: IPO (Azar et al. 2023), DPO (Rafailov et al. 2023), REBEL (Gao et al. 2024), and
plain likelihood.

A pair is two continuations of the same tokens. Log-probabilities are summed over a continuation's tokens. The
reference's are computed once, many pairs at a time, before the first update. Rows are padded on the right and
no mask is passed: a causal network can't see what stands behind. On a GPU shapes are few, and forward and
backward are CUDA graphs (`gradients.py`), the first of them checked against the plain way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.models.transformer.memory import is_out_of_memory
from backtalk.models.transformer.scoring import Batch, Row, pad_right, token_log_probs
from backtalk.training.gradients import Gradients
from backtalk.training.lora_updates import cut

LOSSES = ("ipo", "rebel", "dpo", "sft")
STEP = {"cpu": (1, 1), "cuda": (64, 256)}
"""Lengths and numbers of scored tokens are filled up to multiples of these: few shapes, few graphs."""
SORTED = {"cpu": False, "cuda": True}
"""Whether the reference reads pairs of like length together: less padding where many are read at once."""
TOKENS = {"cpu": 2048, "cuda": 12288}
"""That are read at once where nothing is said: of 64 updates on Reddit openings two have more. They are read
in parts and without a CUDA graph, which would keep memory for the longest."""
REFERENCE = {"cpu": 1, "cuda": 4}
"""Times as many where no gradient is wanted."""
LEAST_TOKENS = 64
"""At once: where even these do not fit, there is nothing to halve."""
NEAR = 0.05
"""How far a graph's first gradient may be from the plain one, as a share of its norm."""


@dataclass(frozen=True)
class PreferenceConfig:
    """What is descended, and how."""

    loss: str = "ipo"
    """ipo, rebel, dpo, or sft (the better one's likelihood alone)."""
    tau: float = 0.01
    """Of ipo: the difference of log-ratios is pulled to 1 / (2 tau) nats; of rebel to as much for each 1 by
    which the rewards differ, so that pairs that hardly differ teach hardly anything."""
    dpo_beta: float = 0.1
    """Of dpo: what the difference of log-ratios is multiplied by."""
    label_smoothing: float = 0.0
    """Of dpo: the share of pairs that are taken to be the wrong way round."""
    lr: float = 5e-5
    """Of AdamW."""
    warm_up: int = 150
    """Updates over which the rate rises to lr; constant afterwards."""
    clip: float = 10.0
    """Largest norm of a gradient."""

    def rate(self, step: int) -> float:
        return self.lr * min(1.0, (step + 1) / self.warm_up) if self.warm_up else self.lr


class PairRows(NamedTuple):
    """A pair as tokens, and what the reference makes of it."""

    win: Row
    lose: Row
    before: float = 0.0
    """log ref(win) - log ref(lose)"""
    gap: float = 1.0
    """How far the rewards are apart."""


def preference_loss(margin: Tensor, before: Tensor, gap: Tensor, config: PreferenceConfig) -> Tensor:
    """(pairs,): the loss of each; `margin` is log pi(win) - log pi(lose), `before` the reference's, `gap` the
    difference of their rewards."""
    apart = margin - before
    if config.loss in ("ipo", "rebel"):
        return (apart - (gap if config.loss == "rebel" else 1) / (2 * config.tau)) ** 2
    scaled, wrong = config.dpo_beta * apart, config.label_smoothing
    return -(1 - wrong) * F.logsigmoid(scaled) - wrong * F.logsigmoid(-scaled)


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
        """`reference` opens the network that the trained one is held against. `tokens` are read at once, at
        most; 0 for as many as do well on most machines."""
        if config.loss not in LOSSES:
            raise InputError(f"there is no loss {config.loss!r}; choose one of {', '.join(LOSSES)}")
        self.weights, self.network, self.pad, self.config = weights, network, pad, config
        self.reference, self.report = reference, report
        self.device: torch.device = network.device
        on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(weights.parameters(), config.lr, fused=on_gpu)
        self.gradients = Gradients(weights, share_memory=True)
        self.graphs: bool = on_gpu
        self.is_checked = False
        self.tokens = tokens or TOKENS[self.device.type]
        self.largest = torch.zeros((), device=self.device)
        network.eval()

    # --- the reference -------------------------------------------------------------------------------

    @torch.no_grad()
    def with_reference(self, pairs: Sequence[PairRows]) -> list[PairRows]:
        """The pairs with the reference's log-ratios, many at a time."""
        if self.config.loss == "sft" or not pairs:
            return list(pairs)
        order = list(range(len(pairs)))
        if SORTED[self.device.type]:
            order.sort(key=lambda place: _longest(pairs[place]))
        found: list[Tensor] = []
        with self.reference() as network:
            tokens = self.tokens * REFERENCE[self.device.type]
            for start, end in cut([_longest(pairs[place]) * 2 for place in order], tokens):
                given = self._tensors([pairs[place] for place in order[start:end]])
                found.append(_margins(_row_sums(network, given), end - start))
        before = dict(zip(order, torch.cat(found).tolist(), strict=True))  # one wait for all of them
        return [pair._replace(before=before[place]) for place, pair in enumerate(pairs)]

    # --- updates -------------------------------------------------------------------------------------

    def step(self, pairs: Sequence[PairRows], number: int) -> None:
        """One update, the `number`-th, down the mean loss of these pairs."""
        self._fill(pairs)
        norm = nn.utils.clip_grad_norm_(self.weights.parameters(), self.config.clip)
        self.largest = torch.maximum(self.largest, norm.detach())  # read later: no wait an update
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate(number)
        self.optimizer.step()

    def check(self) -> None:
        """Weights that are no numbers must not be kept; called before they are."""
        if not math.isfinite(float(self.largest)):
            raise InputError(f"the gradient's norm is {float(self.largest)}; lower --tune-lr")

    def loss(self, *given: Tensor) -> Tensor:
        """The mean loss of the pairs that `_tensors` laid out. Gradients flow."""
        before, gap, weights = given[-3:]
        sums = _row_sums(self.network, given)
        if self.config.loss == "sft":
            return -(sums[: len(weights)] * weights).sum()
        margins = _margins(sums, len(weights))
        return (preference_loss(margins, before, gap, self.config) * weights).sum()

    def _fill(self, pairs: Sequence[PairRows]) -> None:
        """The gradients of the mean loss. Where memory ends, fewer tokens are read at once from then on."""
        try:
            parts = list(cut([_longest(pair) * 2 for pair in pairs], self.tokens))
            if self.graphs and len(parts) == 1 and self._replay(pairs):
                return
            scale = self._weight(pairs)
            self.optimizer.zero_grad(set_to_none=True)
            for start, end in parts:
                self.loss(*self._tensors(pairs[start:end], scale)).backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if not is_out_of_memory(error) or self.tokens < LEAST_TOKENS:
                raise
        else:
            return
        self.gradients.forget()
        self.tokens //= 2
        self._fill(pairs)

    def _replay(self, pairs: Sequence[PairRows]) -> bool:
        """The same by a CUDA graph; False where there are none."""
        given = self._tensors(pairs)
        if not self.is_checked:
            self._check_graph(given)
        if self.graphs:
            self.gradients.fill("preference", self.loss, *given)
        return self.graphs

    def _check_graph(self, given: list[Tensor]) -> None:
        """The first graph's gradient against the plain one; where it differs or fails, graphs are off."""
        self.is_checked = True
        self.gradients.fill("", self.loss, *given)
        plain = [None if value.grad is None else value.grad.clone() for value in self.gradients.parameters]
        try:
            self.gradients.fill("preference", self.loss, *given)
            both = zip(plain, self.gradients.parameters, strict=True)
            gaps = [(a - b.grad).norm() for a, b in both if a is not None and b.grad is not None]
            norm = torch.stack([a.norm() for a in plain if a is not None]).norm()
            self.graphs = bool(torch.stack(gaps).norm() <= NEAR * norm)
            why = "it gives other gradients"
        except RuntimeError as error:
            self.graphs, why = False, str(error).splitlines()[0]
            torch.cuda.synchronize()
        if not self.graphs:
            self.gradients.forget()
            self.report(f"updates run without a CUDA graph ({why})")

    # --- rows as tensors -----------------------------------------------------------------------------

    def _weight(self, pairs: Sequence[PairRows]) -> float:
        """What a pair's loss is multiplied by: a mean over pairs, for sft over tokens."""
        if self.config.loss == "sft":
            return 1 / max(sum(len(pair.win.reply) for pair in pairs), 1)
        return 1 / len(pairs)

    def _tensors(self, pairs: Sequence[PairRows], weight: float | None = None) -> list[Tensor]:
        """ids (rows, length), then of each scored token its place, itself and its row, then `before`, the
        gaps and the weights (pairs,). The better rows come first. What fills up belongs to a row that is left
        out."""
        rows = [pair.win for pair in pairs]
        if self.config.loss != "sft":
            rows += [pair.lose for pair in pairs]
        step, more = STEP[self.device.type]
        read = [[*row.prompt, *row.reply[:-1]] for row in rows]
        length = -(-max(map(len, read)) // step) * step
        places: list[int] = []
        targets: list[int] = []
        owners: list[int] = []
        for number, row in enumerate(rows):
            first = number * length + len(row.prompt) - 1
            places += range(first, first + len(row.reply))
            targets += row.reply
            owners += [number] * len(row.reply)
        spare = -len(places) % more
        host = torch.device("cpu")
        ids, _ = pad_right([*read, [self.pad] * length], self.pad, host)
        weight = self._weight(pairs) if weight is None else weight
        given = [
            ids[:-1],
            torch.tensor(places + [0] * spare),
            torch.tensor(targets + [self.pad] * spare),
            torch.tensor(owners + [len(rows)] * spare),
            torch.tensor([pair.before for pair in pairs]),
            torch.tensor([pair.gap for pair in pairs]),
            torch.full((len(pairs),), weight),
        ]
        if self.device.type == "cuda":  # from other memory a copy may wait for all that runs
            given = [tensor.pin_memory() for tensor in given]
        return [tensor.to(self.device, non_blocking=True) for tensor in given]


def _row_sums(network: Any, given: Sequence[Tensor]) -> Tensor:
    """(rows,): the summed log-probability of each row's continuation."""
    ids, places, targets, owners = given[:4]
    flat = token_log_probs(network, Batch({"input_ids": ids}, places, targets, []))
    return flat.new_zeros(len(ids) + 1).index_add(0, owners, flat)[:-1]


def _margins(sums: Tensor, pairs: int) -> Tensor:
    """(pairs,): log pi(win) - log pi(lose)."""
    return sums[:pairs] - sums[pairs:]


def _longest(pair: PairRows) -> int:
    return max(len(row.prompt) + len(row.reply) for row in (pair.win, pair.lose))
