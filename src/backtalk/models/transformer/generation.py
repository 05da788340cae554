"""Replies by the library's `generate`, batched: greedy, or sampled with one uniform number per row and token.

The model's own generation settings (sampling, beams, penalties, forced tokens) are left out, so that a greedy
reply is the plain argmax. A row's samples depend on its own seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.library import load_transformers
from backtalk.models.transformer.sampling import Drawing
from backtalk.models.transformer.scoring import pad_left, pad_right
from backtalk.models.transformer.stepping import Stepper, Task

Processor = Callable[[Tensor, Tensor], Tensor]
"""(ids, logits) -> logits, as `generate` calls it before it takes the argmax."""


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
    """The tokens of one reply per prompt, without the token that ended it; sampled where there are seeds."""
    device = network.device
    broken = torch.zeros((), dtype=torch.bool, device=device)  # read once, at the end

    def watch(_: Tensor, scores: Tensor) -> Tensor:
        """Notices logits that are no numbers: their argmax would be a reply like any other."""
        broken.logical_or_(scores.isnan().any())
        return scores

    processors: list[Processor] = [watch]
    if seeds is not None:
        numbers, steps = uniform(seeds, max_reply, device), count()
        processors.append(_leave(lambda s: draw(Sampling().probabilities(s), numbers[:, next(steps)])))
    if lead:  # an encoder has no positions before 0: its rows are padded on the right
        ids, keep = pad_right(prompts, pad, device)
        start = torch.tensor([list(lead)], device=device).repeat(len(prompts), 1)
        found = _generate(network, ids, keep, processors, stops, pad, max_reply, start)
    else:
        found = _generate(network, *pad_left(prompts, pad, device), processors, stops, pad, max_reply)
    if bool(broken):
        dtype = str(network.dtype).removeprefix("torch.")
        raise InputError(f"the model computes numbers that are not finite in {dtype}; try --dtype float32")
    return [_until(row, stops) for row in found]


@torch.no_grad()
def continue_texts(network: Any, stepper: Stepper, task: Task) -> list[list[int]]:
    """The tokens that a causal network continues each prompt with, without the end; in steps of our own where
    the network can be stepped, else by the library."""
    written = stepper.write(task)
    return [_until(row, task.stops) for row in written or continue_by_library(network, task)]


@torch.no_grad()
def continue_by_library(network: Any, task: Task) -> list[list[int]]:
    """The new tokens of each row, as `generate` writes them."""
    ids, keep = pad_left(task.prompts, task.pad, network.device)
    drawings: list[Drawing] = []

    def choose(scores: Tensor) -> Tensor:
        if not drawings:  # the output layer may be wider than the tokenizer's vocabulary
            settings = (task.seeds, task.stops, task.banned, scores.shape[1])
            drawings.append(Drawing(task.sampling, ids, keep, *settings))
        return drawings[0].choose(scores)

    return _generate(network, ids, keep, [_leave(choose)], task.stops, task.pad, task.sampling.most)


def _leave(choose: Callable[[Tensor], Tensor]) -> Processor:
    """A processor that leaves the chosen token of each row alone."""

    def process(_: Tensor, scores: Tensor) -> Tensor:
        return torch.full_like(scores, -math.inf).scatter(1, choose(scores)[:, None], 0.0)

    return process


def _generate(
    network: Any,
    ids: Tensor,
    keep: Tensor,
    processors: list[Processor],
    stops: Collection[int],
    pad: int,
    most: int,
    decoder_ids: Tensor | None = None,
) -> list[list[int]]:
    """The new tokens of each row."""
    library = load_transformers()
    lead = {} if decoder_ids is None else {"decoder_input_ids": decoder_ids}
    first = None if decoder_ids is None else int(decoder_ids[0, 0])
    with _plain_settings(library, network, first, stops, pad, most):
        listed = library.LogitsProcessorList(processors)
        found = network.generate(ids, attention_mask=keep, logits_processor=listed, **lead)
    read = ids if decoder_ids is None else decoder_ids
    written: list[list[int]] = found[:, read.shape[1] :].tolist()
    return written


@contextmanager
def _plain_settings(
    library: Any, network: Any, start: int | None, stops: Collection[int], pad: int, most: int
) -> Iterator[None]:
    """Within, the network's generation settings say nothing but what ends a reply."""
    holder = network.get_base_model() if hasattr(network, "get_base_model") else network  # under an adapter
    own = holder.generation_config
    holder.generation_config = library.GenerationConfig(
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        eos_token_id=sorted(stops),
        pad_token_id=pad,
        bos_token_id=own.bos_token_id,
        decoder_start_token_id=start,
        cache_implementation=getattr(own, "cache_implementation", None),
    )
    try:
        yield
    finally:
        holder.generation_config = own


def _until(ids: list[int], stops: Collection[int]) -> list[int]:
    return ids[: next((place for place, token in enumerate(ids) if token in stops), len(ids))]
