"""Replies written a token at a time, batched, with the keys and values of what was read kept.

The library's `generate` does the work for every architecture; what a model's own generation settings add
(sampling, beams, penalties, least lengths, forced tokens) is left out, so that a reply is the plain argmax.
Sampling is the same with one uniform number a row and token, drawn from the row's seed (`decode.uniform`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.sampling import Drawing
from backtalk.models.transformer.scoring import pad_left, pad_right
from backtalk.models.transformer.stepping import Stepper, Task


@torch.no_grad()
def write(
    network: Any,
    prompts: Sequence[Sequence[int]],
    lead: Sequence[int],
    stops: Collection[int],
    pad: int,
    max_reply: int,
    seeds: Sequence[int] | None = None,
) -> list[list[int]]:
    """The tokens of one reply a prompt, without the token that ended it; sampled where there are seeds."""
    device = network.device
    if lead:  # an encoder knows no places before 0: its rows are padded on the right
        ids, keep = pad_right(prompts, pad, device)
        inputs = {"decoder_input_ids": torch.tensor([list(lead)], device=device).repeat(len(prompts), 1)}
    else:
        ids, keep = pad_left(prompts, pad, device)
        inputs = {}
    watch = _Watch(device)
    drawn = [] if seeds is None else [_Draws(uniform(seeds, max_reply, device))]
    with _plain_settings(network, lead, stops, pad, max_reply):
        found = network.generate(
            ids, attention_mask=keep, logits_processor=_listed([watch, *drawn]), **inputs
        )
    if bool(watch.broken):
        raise InputError(
            f"the model computes numbers that are not finite in {str(network.dtype).removeprefix('torch.')}, "
            "so its replies mean nothing; try --dtype float32"
        )
    written = found[:, len(lead) if lead else ids.shape[1] :].tolist()
    return [_until(row, stops) for row in written]


@torch.no_grad()
def continue_texts(network: Any, stepper: Stepper, task: Task) -> list[list[int]]:
    """The tokens that a causal network goes on with, one row a prompt, without what ended them; in steps of
    our own where the network can be stepped, else by the library."""
    written = stepper.write(task)
    if written is None:
        written = continue_by_library(network, task)
    return [_until(row, task.stops) for row in written]


@torch.no_grad()
def continue_by_library(network: Any, task: Task) -> list[list[int]]:
    """The new tokens of each row, as `generate` writes them."""
    ids, keep = pad_left(task.prompts, task.pad, network.device)

    def draw_for(vocabulary: int) -> Drawing:
        return Drawing(task.manner, ids, keep, task.seeds, task.stops, task.banned, vocabulary)

    with _plain_settings(network, (), task.stops, task.pad, task.manner.most):
        found = network.generate(ids, attention_mask=keep, logits_processor=_listed([_InManner(draw_for)]))
    written: list[list[int]] = found[:, ids.shape[1] :].tolist()
    return written


class _Watch:
    """Notices logits that are not numbers: their argmax would be a reply like any other."""

    def __init__(self, device: torch.device) -> None:
        self.broken = torch.zeros((), dtype=torch.bool, device=device)  # read once, at the end

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.broken |= scores.isnan().any()
        return scores


class _InManner:
    """Leaves one token of each row, drawn in a manner."""

    def __init__(self, draw_for: Callable[[int], Drawing]) -> None:
        self._draw_for = draw_for
        self._drawing: Drawing | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._drawing is None:  # the output layer may be wider than the tokenizer's vocabulary
            self._drawing = self._draw_for(scores.shape[1])
        drawn = self._drawing.choose(scores)
        return torch.full_like(scores, -math.inf).scatter(1, drawn[:, None], 0.0)


class _Draws:
    """Leaves one token of each row: the one that the row's own number falls on."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._step = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        drawn = draw(Sampling().probabilities(scores), self._numbers[:, self._step])
        self._step += 1
        return torch.full_like(scores, -math.inf).scatter(1, drawn[:, None], 0.0)


def _listed(processors: Sequence[_Watch | _Draws | _InManner]) -> Any:
    from transformers import LogitsProcessorList

    return LogitsProcessorList(processors)


@contextmanager
def _plain_settings(
    network: Any, lead: Sequence[int], stops: Collection[int], pad: int, max_reply: int
) -> Iterator[None]:
    """The network's generation settings with nothing in them but what ends a reply."""
    from transformers import GenerationConfig

    settings: Any = GenerationConfig
    holder = network.get_base_model() if hasattr(network, "get_base_model") else network  # under an adapter
    own = holder.generation_config
    holder.generation_config = settings(
        max_new_tokens=max_reply,
        do_sample=False,
        num_beams=1,
        eos_token_id=sorted(stops),
        pad_token_id=pad,
        bos_token_id=own.bos_token_id,
        decoder_start_token_id=lead[0] if lead else None,
        cache_implementation=getattr(own, "cache_implementation", None),
    )
    try:
        yield
    finally:
        holder.generation_config = own


def _until(ids: list[int], stops: Collection[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in stops:
            return ids[:place]
    return ids
