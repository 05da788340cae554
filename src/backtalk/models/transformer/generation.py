"""Replies and continued texts by transformers' `generate`, in batches.

The model's own generation settings (sampling, beams, penalties, forced tokens) are left out, so that a greedy
reply is the plain argmax. A row's samples depend on its own seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.library import load_transformers
from backtalk.models.transformer.sampling import Drawing, Task
from backtalk.models.transformer.scoring import pad_left, pad_right
from backtalk.models.transformer.stepping import Stepper


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
    """The tokens of one reply per prompt, without its end token: greedy, or sampled with `seeds`."""
    broken = torch.zeros((), dtype=torch.bool, device=network.device)  # read once, at the end
    draws = None if seeds is None else iter(uniform(seeds, max_reply, network.device).unbind(1))

    def choose(logits: Tensor) -> Tensor:
        broken.logical_or_(logits.isnan().any())
        return logits.argmax(1) if draws is None else draw(Sampling().probabilities(logits), next(draws))

    found = _generate(network, prompts, lead, stops, pad, max_reply, choose)
    if bool(broken):
        dtype = str(network.dtype).removeprefix("torch.")
        raise InputError(f"the model computes numbers that are not finite in {dtype}; try --dtype float32")
    return found


@torch.no_grad()
def continue_texts(network: Any, stepper: Stepper, task: Task) -> list[list[int]]:
    """The tokens that a causal network continues each prompt with, without the end of turn."""
    written = stepper.write(task)
    if written is None:
        return continue_by_library(network, task)
    return [_until(row, task.stops) for row in written]


@torch.no_grad()
def continue_by_library(network: Any, task: Task) -> list[list[int]]:
    drawings: list[Drawing] = []

    def choose(logits: Tensor) -> Tensor:
        if not drawings:  # the output layer may be wider than the tokenizer's vocabulary
            padded = pad_right(task.prompts, task.pad, network.device)
            drawings.append(Drawing(task, *padded, logits.shape[1]))
        return drawings[0].choose(logits)

    return _generate(network, task.prompts, (), task.stops, task.pad, task.sampling.most, choose)


def _generate(
    network: Any,
    prompts: Sequence[Sequence[int]],
    lead: Sequence[int],
    stops: Collection[int],
    pad: int,
    most: int,
    choose: Callable[[Tensor], Tensor],
) -> list[list[int]]:
    """The new tokens of each row up to its end; `choose` takes one a row from logits (rows, vocabulary)."""
    library = load_transformers()
    pad_rows = pad_right if lead else pad_left  # an encoder has no positions before 0
    ids, keep = pad_rows(prompts, pad, network.device)
    more = {"decoder_input_ids": torch.tensor([list(lead)] * len(ids), device=ids.device)} if lead else {}

    def process(_: Tensor, logits: Tensor) -> Tensor:
        """Leaves the chosen token of each row as the only possible one."""
        return torch.full_like(logits, -math.inf).scatter(1, choose(logits)[:, None], 0.0)

    holder = network.get_base_model() if hasattr(network, "get_base_model") else network  # under an adapter
    own = holder.generation_config
    holder.generation_config = library.GenerationConfig(
        max_new_tokens=most,
        do_sample=False,
        num_beams=1,
        eos_token_id=sorted(stops),
        pad_token_id=pad,
        bos_token_id=own.bos_token_id,
        decoder_start_token_id=lead[0] if lead else None,
        cache_implementation=getattr(own, "cache_implementation", None),
    )
    try:
        processors = library.LogitsProcessorList([process])
        found = network.generate(ids, attention_mask=keep, logits_processor=processors, **more)
    finally:
        holder.generation_config = own
    return [_until(row, stops) for row in found[:, len(lead) or ids.shape[1] :].tolist()]


def _until(ids: list[int], stops: Collection[int]) -> list[int]:
    return ids[: next((place for place, token in enumerate(ids) if token in stops), len(ids))]
