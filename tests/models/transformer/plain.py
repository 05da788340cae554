"""A plain Hugging Face forward of one row at a time, without padding, hooks or caches: what is right."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backtalk.models.transformer.model import TransformerModel
from backtalk.types import Turn


def plain_prompt(model: TransformerModel, trigger: Sequence[int]) -> list[int]:
    """The prompt in which the trigger's ids stand where the user's text does, cut out of the template by a
    mark of its own."""
    mark = "rain"
    (left, right) = _around(model, mark)
    return [*left, *trigger, *right]


def _around(model: TransformerModel, mark: str) -> tuple[list[int], list[int]]:
    """What the prompts of two words that share no letter have in common."""
    first, second = (model.prompt_ids((Turn("user", word),)) for word in (mark, "hello"))
    left = 0
    while first[left] == second[left]:
        left += 1
    right = 0
    while first[-1 - right] == second[-1 - right]:
        right += 1
    return first[:left], first[len(first) - right :]


def plain_scores(
    model: TransformerModel, trigger: Sequence[int], target: Sequence[int]
) -> tuple[list[float], list[bool]]:
    """log P of each target token, and whether none is likelier."""
    prompt = plain_prompt(model, trigger)
    network: Any = model.network
    with torch.no_grad():
        if model.is_encoder_decoder:
            written = torch.tensor([[*model.prompts.lead, *target]])
            logits = network(input_ids=torch.tensor([prompt]), decoder_input_ids=written).logits[0]
            start = len(model.prompts.lead) - 1
        else:
            logits = network(input_ids=torch.tensor([[*prompt, *target]])).logits[0]
            start = len(prompt) - 1
    rows = logits[start : start + len(target)]
    chosen = [float(rows.log_softmax(1)[t, token]) for t, token in enumerate(target)]
    return chosen, [int(rows[t].argmax()) == token for t, token in enumerate(target)]


def plain_one_hot(model: TransformerModel, one_hot: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """(batch, m): log-probabilities for triggers that need not be tokens, (batch, n, vocabulary), in float64.
    Padded triggers and targets are cut."""
    network: Any = copy.deepcopy(model.network).double()
    embed = network.get_input_embeddings()
    table = embed(torch.arange(embed.weight.shape[0]))
    found = torch.zeros(targets.shape, dtype=torch.float64)
    left, right = _around(model, "rain")
    for row in range(len(inputs)):
        target = targets[row][targets[row] != model.pad]
        words = one_hot[row][inputs[row] != model.pad] @ table
        prompt = torch.cat([table[left], words, table[right]])
        with torch.no_grad():
            if model.is_encoder_decoder:
                written = torch.tensor([[*model.prompts.lead, *target.tolist()]])
                logits = network(inputs_embeds=prompt[None], decoder_input_ids=written).logits[0]
                start = len(model.prompts.lead) - 1
            else:
                logits = network(inputs_embeds=torch.cat([prompt, table[target]])[None]).logits[0]
                start = len(prompt) - 1
        log_probs = logits[start : start + len(target)].log_softmax(1)
        found[row, : len(target)] = log_probs.gather(1, target[:, None])[:, 0]
    return found


def plain_typed(model: TransformerModel, read: Tensor, predicted: Tensor) -> Tensor:
    """(batch, n): how likely the `predicted` are where a user types and the `read` are fed, both (batch, n,
    vocabulary), in float64."""
    network: Any = copy.deepcopy(model.network).double()
    embed = network.get_input_embeddings()
    before, _ = model.prompts.text_ids("hello")
    start = embed(torch.tensor([before])).expand(len(read), -1, -1)
    with torch.no_grad():
        fed = torch.cat([start, read @ embed(torch.arange(embed.weight.shape[0]))], dim=1)
        logits = network(inputs_embeds=fed).logits[:, len(before) - 1 : -1]
    chosen: Tensor = (predicted * logits.log_softmax(2)).sum(2)
    return chosen
