"""What a search computes about triggers: target scores, scores with one token changed, and gradients.

For substitutions the tokens before the changed one are read once per trigger, and all candidates share their
keys and values; only the tokens from the changed one on are run. The first call is checked against a plain
forward pass. A network that differs behind a shared past is read whole; so are encoders, in which every token
sees every other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import short_reason
from backtalk.models.device import wide
from backtalk.models.transformer.attention import shared_past
from backtalk.models.transformer.kv_slots import Layers, layers_of, own_cache
from backtalk.models.transformer.layout import NO_TOKEN, PromptLayout
from backtalk.models.transformer.memory import Footprint, run_parts
from backtalk.models.transformer.scoring import LogitReader, embedding_gradient, to_one_hot
from backtalk.types import TokenScores

CHECKED = 4
"""Candidates of the first call that are read both ways."""
NEAR = {torch.float32: 1e-3, torch.float64: 1e-6}
"""The largest mean difference of both ways' log-probabilities; in 16 bits 0.25. A past that is not seen, or
stands in a wrong position, gives far more."""
Way = Callable[[Any, Layers, Tensor], AbstractContextManager[dict[str, Any]]]
"""Prepares a network to read tails (rows, s) behind the past of their groups; gives further arguments."""


class TriggerScorer:
    """Scores triggers for one network."""

    def __init__(self, reader: LogitReader, layout: PromptLayout, need: Footprint) -> None:
        self.reader, self.layout, self.need = reader, layout, need
        self.shares: bool | None = False if layout.lead is not None else None
        """Whether a shared past is as good as a plain forward pass; None before the first call."""
        self._way: Way = by_shared_past
        self.why = "an encoder reads all tokens at once" * (layout.lead is not None)

    def score(self, triggers: Tensor, targets: Tensor) -> TokenScores:
        """(rows, m)"""
        found = _empty(targets.shape, targets, self.reader)
        length = self.layout.around + triggers.shape[1] + targets.shape[1]

        def work(start: int, stop: int) -> None:
            part = slice(start, stop)
            read = self.layout.inputs(triggers[part], targets[part])
            self._fill(found, part, read.inputs, read.positions, targets[part])

        self._run(len(triggers), length, 0, targets.shape[1], work)
        return found

    def score_substitutions(
        self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor
    ) -> TokenScores:
        """(rows, candidates, m)"""
        shared = len(self.layout.before) + position
        if self.shares is False or not shared or bool((triggers == NO_TOKEN).any()):
            return self._read_whole(triggers, position, candidates, targets)
        if self.shares is None:
            self.shares = self._is_right(triggers, position, candidates, targets)
            return self.score_substitutions(triggers, position, candidates, targets)
        return self._read_tails(triggers, position, candidates, targets)

    def gradient(
        self, triggers: Tensor, targets: Tensor, weights: Tensor, positions: Sequence[int] | None
    ) -> Tensor:
        """(rows, positions, vocabulary): of sum_t weights_t log P(y_t | y_<t, x), with respect to the one-hot
        tokens of the triggers."""
        at = list(range(triggers.shape[1])) if positions is None else list(positions)
        length = self.layout.around + triggers.shape[1] + targets.shape[1]
        network = self.reader.network

        def work(part: slice) -> Tensor:
            read = self.layout.inputs(triggers[part], targets[part])
            there = targets[part] != NO_TOKEN
            goals = targets[part].clamp(min=0).flatten()

            def total(embedded: Tensor) -> Tensor:
                inputs = {**read.inputs, "inputs_embeds": embedded}
                del inputs["input_ids"]
                logs = self.reader.log_softmax(inputs, read.positions.flatten())
                chosen = logs.gather(1, goals[:, None]).view_as(there)
                return (chosen * weights[part]).masked_fill(~there, 0.0).sum()

            by_token = embedding_gradient(network, read.inputs["input_ids"], total)
            places = read.trigger_positions[:, at, None].expand(-1, -1, by_token.shape[2])
            wanted = by_token.gather(1, places)  # (rows, positions, size)
            wanted = wanted.masked_fill((triggers[part][:, at] == NO_TOKEN)[:, :, None], 0.0)
            return to_one_hot(network, wanted).to(weights.dtype)

        def cost(rows: int, length: int) -> int:
            return self.need.learning(rows, length, targets.shape[1])

        return self.reader.in_parts(len(triggers), length, cost, work)

    # --- inside --------------------------------------------------------------------------------------

    def _read_whole(
        self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor
    ) -> TokenScores:
        rows, count = candidates.shape
        every = triggers[:, None].repeat(1, count, 1)
        every[:, :, position] = candidates
        found = self.score(every.flatten(0, 1), targets.repeat_interleave(count, dim=0))
        return TokenScores(*(part.view(rows, count, -1) for part in found))

    def _read_tails(
        self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor
    ) -> TokenScores:
        rows, count = candidates.shape
        m = targets.shape[1]
        found = _empty((rows * count, m), targets, self.reader)
        shared = len(self.layout.before) + position
        length = self.layout.around + triggers.shape[1] - shared + m - 1
        kept: dict[tuple[int, int], Layers] = {}

        def work(start: int, stop: int) -> None:
            group = slice(start // count, (stop - 1) // count + 1)
            own = candidates[group]
            if own.numel() > stop - start:  # a part of one row's
                own = own[:, start % count : start % count + stop - start]
            if (group.start, group.stop) not in kept:
                kept.clear()
                heads = self.layout.heads(triggers[group], position)
                kept[group.start, group.stop] = layers_of(self.reader.past(heads))
            tails = self.layout.tails(triggers[group], position, own, targets[group]).flatten(0, 1)
            ends = torch.arange(1, len(tails) + 1, device=tails.device)[:, None] * length
            places = ends - torch.arange(m, 0, -1, device=tails.device)  # the last m of each row
            goals = targets[group, None].expand(-1, own.shape[1], -1).flatten(0, 1)
            with self._way(self.reader.network, kept[group.start, group.stop], tails) as more:
                self._fill(found, slice(start, stop), {"input_ids": tails, **more}, places, goals)

        self._run(rows * count, length, shared, m, work, count)
        return TokenScores(*(part.view(rows, count, m) for part in found))

    def _fill(
        self, found: TokenScores, part: slice, inputs: dict[str, Any], places: Tensor, goals: Tensor
    ) -> None:
        """Writes the scores of `goals` (rows, m) into their `part`; padded ones keep 0 and True."""
        there = goals != NO_TOKEN
        if goals.is_cuda:  # selecting the tokens that are there would make the processor wait
            scores, flags = self.reader.scores(inputs, places.flatten(), goals.clamp(min=0).flatten())
            found.log_probs[part] = scores.view_as(goals).masked_fill(~there, 0.0)
            found.is_argmax[part] = flags.view_as(goals) | ~there
            return
        scores, flags = self.reader.scores(inputs, places[there], goals[there])
        found.log_probs[part].masked_scatter_(there, scores)
        found.is_argmax[part].masked_scatter_(there, flags)

    def _run(self, total: int, length: int, shared: int, scored: int, work: Any, whole: int = 1) -> None:
        def cost(rows: int, length: int) -> int:
            return self.need.substituting(rows, length, shared, 0 if self.reader.is_linear else scored)

        run_parts(total, length, cost, work, self.reader.device, whole)

    def _is_right(self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor) -> bool:
        """Whether a few candidates of the first row score alike both ways."""
        few = (triggers[:1], position, candidates[:1, :CHECKED], targets[:1])
        plain = self._read_whole(*few)
        for self._way in WAYS[triggers.device.type]:
            try:
                gap = float((self._read_tails(*few).log_probs - plain.log_probs).abs().mean())
            except Exception as error:  # the network is a third party's program; another way may work
                self.why = short_reason(error)
                continue
            if gap <= NEAR.get(self.reader.network.dtype, 0.25):
                self.why = ""
                return True
            self.why = f"behind a shared past it is {gap:.2g} from a plain forward pass"
        return False


@contextmanager
def by_tails(network: Any, past: Layers, tails: Tensor) -> Iterator[dict[str, Any]]:
    """An attention that reads the past where it is stored."""
    rows, s = tails.shape
    with shared_past(network, past):
        first = past.keys[0].shape[2]
        yield {
            "position_ids": torch.arange(first, first + s, device=tails.device).expand(rows, s),
            "attention_mask": torch.zeros(1, 1, 1, 1, dtype=network.dtype, device=tails.device),
        }


@contextmanager
def by_shared_past(network: Any, past: Layers, tails: Tensor) -> Iterator[dict[str, Any]]:
    """A cache that puts the past before every row of its group, one layer at a time, and keeps nothing that
    the network adds."""
    length = past.keys[0].shape[2]

    def update(key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        return _behind(past.keys[layer], key), _behind(past.values[layer], value)

    yield {"past_key_values": own_cache(update, length, lambda new: length + new), "use_cache": True}


@contextmanager
def by_plain_past(network: Any, past: Layers, tails: Tensor) -> Iterator[dict[str, Any]]:
    """A tuple of keys and values, which older releases of some networks want."""
    each = len(tails) // len(past.keys[0])

    def for_rows(shared: Tensor) -> Tensor:
        return shared[:, None].expand(-1, each, -1, -1, -1).flatten(0, 1)

    pairs = zip(past.keys, past.values, strict=True)
    yield {"past_key_values": tuple((for_rows(key), for_rows(value)) for key, value in pairs)}


WAYS: dict[str, tuple[Way, ...]] = {
    "cpu": (by_shared_past, by_plain_past),
    "cuda": (by_tails, by_shared_past, by_plain_past),
}
"""Ways to read tails behind a past; the first that is right is used."""


def _behind(shared: Tensor, own: Tensor) -> Tensor:
    """(groups, heads, p, size) and (rows, heads, s, size) -> (rows, heads, p + s, size)"""
    groups, heads, p, size = shared.shape
    rows, _, s, _ = own.shape
    joined = own.new_empty(groups, rows // groups, heads, p + s, size)
    joined[..., :p, :] = shared[:, None]
    joined[..., p:, :] = own.view(groups, -1, heads, s, size)
    return joined.flatten(0, 1)


def _empty(size: tuple[int, ...], targets: Tensor, reader: LogitReader) -> TokenScores:
    """The scores of padding."""
    log_probs = torch.zeros(size, dtype=wide(reader.network.dtype), device=targets.device)
    return TokenScores(log_probs, torch.ones(size, dtype=torch.bool, device=targets.device))
