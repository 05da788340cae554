"""Replies and continued texts by transformers' `generate`, in batches.

The model's own generation settings (sampling, beams, penalties, forced tokens) are left out, so that a greedy
reply is the plain argmax. A row's samples depend on its own seed alone.

`Drawing` samples by transformers' rules, with two differences: the uniform numbers of a row are drawn
beforehand, and the nucleus is searched among the likeliest `NUCLEUS` tokens, which avoids sorting the
vocabulary. It never waits for a GPU, so that it can be part of a CUDA graph.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.library import load_transformers
from backtalk.models.transformer.scoring import pad_left, pad_right

Choose = Callable[[Tensor], Tensor]  # logits (rows, vocabulary) -> a token a row
NUCLEUS = 1024


@dataclass(frozen=True)
class SamplingConfig:
    temperature: float = 0.7  # 0 takes the likeliest token
    top_p: float = 0.7  # samples from the likeliest tokens that together reach this probability
    repetition_penalty: float = 1.1  # divides positive logits of tokens in the text, multiplies negative ones
    least: int = 2  # new tokens before the end of turn is allowed
    most: int = 24  # new tokens at most


class Task(NamedTuple):
    """A batch of texts to continue, or of prompts to reply to."""

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[int]
    sampling: SamplingConfig
    stops: Collection[int]
    banned: Collection[int]  # tokens that are never sampled
    pad: int


class Drawing:
    """The sampling state of a batch: the tokens of each text so far, and the numbers to draw with."""

    def __init__(self, task: Task, ids: Tensor, keep: Tensor, vocabulary: int) -> None:
        """`ids` and `keep` (1 at tokens, 0 at padding) are (rows, length)."""
        device = ids.device
        self.sampling = task.sampling
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.numbers = uniform(task.seeds, task.sampling.most, device)  # (rows, steps)
        self.said = torch.zeros(len(ids), vocabulary, dtype=torch.bool, device=device)
        # Padding repeats a token of its row.
        some = ids.gather(1, keep.long().argmax(1, keepdim=True))
        self.said.scatter_(1, torch.where(keep.bool(), ids, some), True)
        self.never = _marked(task.banned, vocabulary, device)
        self.ends = _marked(task.stops, vocabulary, device)

    def choose(self, logits: Tensor) -> Tensor:
        """(rows, vocabulary) -> (rows,): samples the next token of each row."""
        never = self.never | (self.ends & (self.step < self.sampling.least))
        drawn = pick(logits, self.said, never, self.numbers.index_select(1, self.step)[:, 0], self.sampling)
        self.said.scatter_(1, drawn[:, None], True)
        self.step += 1
        return drawn


def pick(logits: Tensor, said: Tensor, never: Tensor, numbers: Tensor, sampling: SamplingConfig) -> Tensor:
    """(rows,): one token a row. `said` is (rows, vocabulary), `never` (vocabulary,), `numbers` (rows,)."""
    logits = logits.float()
    penalty = sampling.repetition_penalty
    if penalty != 1.0:
        penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
        logits = torch.where(said, penalised, logits)
    logits = logits.masked_fill(never, -math.inf)
    if sampling.temperature <= 0:
        return logits.argmax(1)
    logits = logits / sampling.temperature
    size = logits.shape[1]
    best, index = logits.topk(size if sampling.top_p >= 1 else min(NUCLEUS, size), dim=1)  # falling
    chances = (best.double() - logits.logsumexp(1, keepdim=True)).exp()  # (rows, k)
    cumulated = chances.cumsum(1)
    inside = (cumulated - chances) < sampling.top_p  # always true for the first
    total = torch.where(inside, chances, 0.0).sum(1)
    place = (cumulated <= (numbers * total)[:, None]).sum(1)
    place = torch.minimum(place, inside.sum(1) - 1)  # rounding must not leave the nucleus
    return index.gather(1, place[:, None])[:, 0]


def _marked(ids: Collection[int], vocabulary: int, device: torch.device) -> Tensor:
    """(vocabulary,), bool: True at these ids."""
    marked = torch.zeros(vocabulary, dtype=torch.bool)
    marked[[token for token in ids if token < vocabulary]] = True
    return marked.to(device)


@torch.no_grad()
def write(network: Any, task: Task, lead: Sequence[int]) -> list[list[int]]:
    """The tokens of one reply per prompt, without its end token: sampled, or greedy if the task has no seeds.
    Only the most tokens of the task's sampling count."""
    broken = torch.zeros((), dtype=torch.bool, device=network.device)  # read once, at the end
    draws = iter(uniform(task.seeds, task.sampling.most, network.device).unbind(1)) if task.seeds else None

    def choose(logits: Tensor) -> Tensor:
        broken.logical_or_(logits.isnan().any())
        return logits.argmax(1) if draws is None else draw(Sampling().probabilities(logits), next(draws))

    found = _generate(network, task, choose, lead)
    if bool(broken):
        dtype = str(network.dtype).removeprefix("torch.")
        raise InputError(f"the model computes numbers that are not finite in {dtype}; try --dtype float32")
    return found


@torch.no_grad()
def continue_by_library(network: Any, task: Task) -> list[list[int]]:
    drawings: list[Drawing] = []

    def choose(logits: Tensor) -> Tensor:
        if not drawings:  # the output layer may be wider than the tokenizer's vocabulary
            padded = pad_right(task.prompts, task.pad, network.device)
            drawings.append(Drawing(task, *padded, logits.shape[1]))
        return drawings[0].choose(logits)

    return _generate(network, task, choose)


def _generate(network: Any, task: Task, choose: Choose, lead: Sequence[int] = ()) -> list[list[int]]:
    """The new tokens of each row up to its end."""
    library = load_transformers()
    pad_rows = pad_right if lead else pad_left  # an encoder has no positions before 0
    ids, keep = pad_rows(task.prompts, task.pad, network.device)
    more = {"decoder_input_ids": torch.tensor([list(lead)] * len(ids), device=ids.device)} if lead else {}

    def process(_: Tensor, logits: Tensor) -> Tensor:
        """Leaves the chosen token of each row as the only possible one."""
        return torch.full_like(logits, -math.inf).scatter(1, choose(logits)[:, None], 0.0)

    holder = network.get_base_model() if hasattr(network, "get_base_model") else network  # under an adapter
    own = holder.generation_config
    plain = {"max_new_tokens": task.sampling.most, "do_sample": False, "num_beams": 1}
    kept = {"bos_token_id": own.bos_token_id, "cache_implementation": own.cache_implementation}
    tokens = {"eos_token_id": sorted(task.stops), "pad_token_id": task.pad}
    start = {"decoder_start_token_id": lead[0] if lead else None}
    holder.generation_config = library.GenerationConfig(**plain, **kept, **tokens, **start)
    try:
        processors = library.LogitsProcessorList([process])
        found = network.generate(ids, attention_mask=keep, logits_processor=processors, **more)
    finally:
        holder.generation_config = own
    return [until(row, task.stops) for row in found[:, len(lead) or ids.shape[1] :].tolist()]


def until(ids: list[int], stops: Collection[int]) -> list[int]:
    return ids[: next((place for place, token in enumerate(ids) if token in stops), len(ids))]
